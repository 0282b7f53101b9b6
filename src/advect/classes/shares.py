"""Label shift: which shares of its classes make one dataset look like another, by transport.

    min_p S(Σ_c p_c α_c, β)      over shares p ≥ 0 with Σ p_c = 1

where α_c are the samples of class c of the source and β is the target, whose labels are not looked
at. The debiased divergence S is convex in each of its measures (Feydy et al. 2019; Séjourné et al.
2019), so this is a convex problem in as many numbers as there are classes. Its derivative in p_c is
the mean over class c of f − f_aa, the potentials of the problem (envelope theorem), and a bound of
what is missing comes with it: S(p) − min S ≤ ⟨p, ∇⟩ − min_c ∇_c."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count, check_positive
from advect._util.html import facts_table
from advect._util.memory import MemoryLimit
from advect.cost import GroundCost, NoLabels
from advect.cost.ground import check_cost
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot import Relative, Sinkhorn, Solver, check_solver
from advect.transport.redraw import redrawn
from advect.transport.transport import State, Transport, check_dataset


@dataclass(frozen=True, eq=False)
class ClassShares:
    """Shares of the source's classes in the target, as transport sees them.

    Attributes:
        source, target: the datasets.
        shares: one for each class of the source, in its order, summing to one.
        energy: S between the reweighted source and the target; ``energy_before`` with the source as
            it was.
        gap: how far ``energy`` can be above the least there is, solvers included.
        converged: whether all problems were solved and ``gap`` is small against ``energy``.
        n_evaluations: transport problems solved.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(60, classes=2, generator=generator)
        >>> target = ad.datasets.gaussians(60, classes=2, generator=generator).reweighted([0.8, 0.2])
        >>> found = ad.class_shares(source, target)
        >>> found.converged, [round(share, 1) for share in found.shares.tolist()]
        (True, [0.8, 0.2])
        >>> [round(mass, 1) for mass in found.reweighted().class_mass.tolist()]
        [0.8, 0.2]
    """

    source: LabeledDataset
    target: LabeledDataset
    shares: np.ndarray
    energy: float
    energy_before: float
    gap: float
    converged: bool
    n_evaluations: int
    search: _Search = field(repr=False)

    @property
    def by_name(self) -> dict[Hashable, float]:
        """The shares by the names of classes."""
        return dict(zip(self.source.classes, self.shares.tolist(), strict=True))

    def reweighted(self) -> LabeledDataset:
        """The source with these shares: what to flow instead of it."""
        return self.source.reweighted(self.shares)

    def standard_error(self, n: int = 20, *, generator: torch.Generator | None = None) -> np.ndarray:
        """How much each share would vary with other draws of as many samples: its standard
        deviation, by bootstrap.

        The source is drawn n times from its own samples, class by class, the target across its
        classes, with replacement, and shares are found anew, from these. What it does not tell is
        bias: classes that look otherwise in the target than in the source.

        Args:
            n: how many draws; the answer itself varies by about 1/√(2n) of itself.
            generator: source of randomness of the draws.

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> source = ad.datasets.gaussians(60, classes=2, generator=generator)
            >>> target = ad.datasets.gaussians(60, classes=2, generator=generator)
            >>> errors = ad.class_shares(source, target).standard_error(generator=generator)
            >>> bool((0.02 < errors).all() and (errors < 0.12).all())     # √(p (1 − p) / n) is 0.065
            True
        """
        check_count("n", n, least=2)
        draws = []
        for _ in range(n):
            source = redrawn(self.source, True, generator).reweighted(self.shares)
            target = redrawn(self.target, False, generator)
            draws.append(self.search(source, target).shares)
        return np.std(draws, axis=0, ddof=1)

    def __repr__(self) -> str:
        pairs = sorted(self.by_name.items(), key=lambda pair: -pair[1])
        shown = ", ".join(f"{name}: {share:.1%}" for name, share in pairs[:10])
        more = f", and {len(pairs) - 10} more" if len(pairs) > 10 else ""
        state = "converged" if self.converged else f"not converged, gap {self.gap:.1e}"
        return f"ClassShares({shown}{more}; energy {self.energy_before:.4g} → {self.energy:.4g}, {state})"

    def _repr_html_(self) -> str:
        facts = {str(name): f"{share:.1%}" for name, share in self.by_name.items()}
        facts["energy"] = f"{self.energy_before:.4g} → {self.energy:.4g}"
        facts["converged"] = "yes" if self.converged else f"no, gap {self.gap:.1e}"
        return facts_table("ClassShares", facts)


def class_shares(
    source: LabeledDataset,
    target: LabeledDataset,
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    tol: float = 1e-3,
    max_iter: int = 100,
    memory_limit: MemoryLimit = None,
) -> ClassShares:
    """Estimate which shares of the source's classes the target has; its labels are not looked at.

    For imbalanced data whose classes need not be balanced by hand: the share that each class of the
    source should have so that, in all, it looks most like the target. It asks that a class looks in
    the target about as it does in the source; where it looks otherwise, what is nearest takes its
    place.

    Args:
        source: labeled samples; classes without mass stay without.
        target: samples in the same feature space, labeled or not.
        cost: the ground cost of features; labels have no part in it.
        solver: ``Sinkhorn(...)``, by default with epsilon 5 % of the mean cost: shares are about
            masses, and a plan that is blurred more is disturbed less by single samples. With a
            ``reach``, samples of the target that no class is near do not count.
        tol: ``converged`` asks that the energy is within this share of its least.
        max_iter: steps of the search.
        memory_limit: bytes, or a text like "2GiB", that each problem may take.

    Returns:
        ``ClassShares``: shares, their standard error, and the source reweighted by them.

    Raises:
        InputError: samples of the source without a label, a cost with labels, a solver with random
            draws, or datasets in different spaces.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits")
        >>> few = digits.subset((digits.y < 2).nonzero()[:120, 0])      # zeros and ones
        >>> found = ad.class_shares(digits.sample(300, balanced=True), few)
        >>> found.by_name[0] + found.by_name[1] > 0.8, found.converged
        (True, True)
    """
    source, target = check_dataset("source", source), check_dataset("target", target)
    source.require_labels("class_shares")
    ground = check_cost(cost) or GroundCost(label=NoLabels())
    if ground.has_labels:
        raise InputError(
            "class_shares compares features alone: the target's labels are not known",
            f"a cost with {ground.label!r}",
            "Pass ad.GroundCost(feature=…, label=ad.NoLabels()).",
        )
    chosen = check_solver(solver or Sinkhorn(Relative(0.05)))
    if chosen.stochastic:
        raise InputError(
            "class_shares needs a solver without random draws",
            repr(chosen),
            "Pass ad.Sinkhorn(…), on a sample of the data if there is much.",
        )
    check_positive("tol", tol)
    check_count("max_iter", max_iter)
    return _Search(ground, chosen, tol, max_iter, memory_limit)(source, target)


@dataclass(frozen=True)
class _Search:
    """The search for shares, with its options."""

    cost: GroundCost
    solver: Solver
    tol: float
    max_iter: int
    memory_limit: MemoryLimit

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> ClassShares:
        mass = source.class_mass.cpu().numpy()
        there = mass > 0
        walk = _Walk(self, source, target, there)
        first = walk(mass[there])
        found = self._found(walk, first) if there.sum() > 1 else first
        shares = np.zeros(len(mass))
        shares[there] = found.shares
        gap = found.gap + found.error
        met = bool(found.met and gap <= self.tol * max(found.energy, 0.0) + 2 * found.error)
        return ClassShares(
            source, target, shares, found.energy, first.energy, gap, met, walk.calls, self
        )

    def _found(self, walk: _Walk, first: _Place) -> _Place:
        """The lowest of the places that the search has seen."""
        from scipy.optimize import minimize

        scale = max(abs(first.energy), first.spread, 1e-300)
        seen = [first]

        def look(shares: np.ndarray) -> tuple[float, np.ndarray]:
            place = walk(shares)
            seen.append(place)
            return place.energy / scale, place.slope / scale

        count = len(first.shares)
        for _ in range(3):  # from where it ended, once more: the second order is learned anew
            start = min(seen, key=lambda place: place.energy)
            minimize(
                look,
                start.shares,
                jac=True,
                method="SLSQP",
                bounds=[(0.0, 1.0)] * count,
                constraints={
                    "type": "eq",
                    "fun": lambda p: p.sum() - 1,
                    "jac": lambda p: np.ones(count),
                },
                options={"maxiter": self.max_iter, "ftol": 1e-3 * self.tol},
            )
            best = min(seen, key=lambda place: place.energy)
            if best.gap <= self.tol * max(best.energy, 0.0) + best.error:
                break
        return best


@dataclass(frozen=True, eq=False)
class _Place:
    """Shares, and what they amount to."""

    shares: np.ndarray
    energy: float
    slope: np.ndarray
    error: float
    met: bool

    @property
    def gap(self) -> float:
        """How far the energy is above its least, at most: it is convex."""
        return float(self.shares @ self.slope - self.slope.min())

    @property
    def spread(self) -> float:
        return float(self.slope.max() - self.slope.min())


class _Walk:
    """The energy at shares, each problem begun from the potentials of the one before."""

    def __init__(
        self, search: _Search, source: LabeledDataset, target: LabeledDataset, there: np.ndarray
    ) -> None:
        self.transport = Transport(
            search.cost.fitted(source, target), search.solver, search.memory_limit
        )
        self.source, self.target, self.there = source, target, there
        self.state: State = {}
        self.calls = 0

    def __call__(self, shares: np.ndarray) -> _Place:
        shares = np.clip(shares, 0.0, None)
        shares = shares / shares.sum()
        whole = np.zeros(len(self.there))
        whole[self.there] = shares
        moved = self.source.reweighted(whole)
        found, self.state = self.transport(moved, self.target, self.state)
        self.calls += 1
        slope = found.cross.slopes[0] - found.source.slopes[0]
        means = self._means(slope).cpu().numpy()[self.there]
        return _Place(shares, found.signed, means, found.error, found.met)

    def _means(self, values: Tensor) -> Tensor:
        """Of numbers of samples, the mean over each class by weight."""
        source = self.source
        sums = source.class_mass.new_zeros(len(source.classes))
        sums.index_add_(0, source.y, source.weights * values)
        return sums / source.class_mass.clamp_min(1e-300)
