"""``make demo``: the distance between the embedded digits and MNIST images, class by class."""

from __future__ import annotations

import time

import advect as ad


def main() -> None:
    """Load both datasets, measure, and print what a first look wants to know."""
    print("loading scikit-learn's digits (8 × 8) and 5000 MNIST images (28 × 28) …")
    source, target = ad.harmonize(ad.datasets.load("digits"), ad.datasets.load("mnist", n=2000, balanced=True))
    start = time.perf_counter()
    distance = ad.otdd(source, target)
    seconds = time.perf_counter() - start
    print(f"\nOTDD(digits, mnist) = {distance.value:.4f}   ({len(source)} and {len(target)} samples, {seconds:.1f} s)")
    print(f"  epsilon {distance.epsilon:.3g}, {distance.n_iter} iterations, marginal error {distance.marginal_error:.1e}")
    print("\nW2 between classes (rows: digits, columns: mnist)")
    print(distance.class_distances)
    print("\nshare of each class of digits that the plan sends to each class of mnist")
    coupling = distance.class_coupling
    print(
        ad.ClassTable((coupling.values / coupling.values.sum(axis=1, keepdims=True)).round(2), coupling.rows, coupling.columns)
    )
    print(f"\nOTDD(digits, digits) = {ad.otdd(source, source).value:.4f}")


if __name__ == "__main__":
    main()
