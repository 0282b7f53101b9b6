"""Label distances along a flow without decomposing every pair of classes at every step.

With class factors A_i, B_j and the polar factor Q of an earlier A_i B_jᵀ, ⟨Q, A_i B_jᵀ⟩ is a lower bound of the nuclear norm
in W₂² = ‖μ − μ'‖² + tr S + tr S' − 2 ‖A_i B_jᵀ‖_*, exact up to second order in what has moved since. The entries of
A_i B_jᵀ are those of the product x yᵀ that the cost needs anyway, scaled by the weights, and Q ignores the class means:
the bound costs a pass over that product, and its gradient in x is Q joined to the transport plan. The error is measured
at each refresh, where the exact norms are known, and sets the time of the next, so that it stays within a tolerance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect.data import LabeledDataset
from advect.gaussians import class_shares
from advect.linalg import centred, polar_factor, squared_distances

_LONGEST = 64  # steps between refreshes at the most


class LaggedBures:
    """Full Gaussian label distances between a moving dataset and another (or itself), refreshed when needed.

    Args:
        tolerance: relative error allowed in a label distance W₂².
        symmetric: whether the second dataset is the first.

    Attributes:
        factors: (n, m) polar factors of all pairs of classes, scaled by the weights, in the order of the samples.
        reference: the features at the last refresh.  interval, age: steps between refreshes, and since the last.
        error: an upper bound of the relative error of the distances used since the refresh before.
    """

    def __init__(self, tolerance: float, *, symmetric: bool) -> None:
        self.tolerance, self.symmetric = tolerance, symmetric
        self.factors: Tensor | None = None
        self.reference: Tensor | None = None
        self.interval, self.age = 1, 0
        self.error = 0.0

    def state(self) -> dict[str, Tensor]:
        if self.reference is None:
            return {}
        assert self.factors is not None
        kind = torch.zeros(0, dtype=self.factors.dtype)  # what the product was computed in
        return {"reference": self.reference, "clock": torch.tensor([self.interval, self.age]), "kind": kind}

    def load_state(self, state: dict[str, Tensor], source: LabeledDataset, target: LabeledDataset) -> None:
        """Rebuild the factors from the features they were made of."""
        if not state:
            return
        self.interval, self.age = (int(value) for value in state["clock"])
        self.reference = state["reference"]
        then = source.replace(x=self.reference, fixed_laws=False)
        now = then if self.symmetric else target
        self.factors = self._decompose(then, now, _product(then, now, state["kind"].dtype))[1]

    def distances(self, source: LabeledDataset, target: LabeledDataset, product: Tensor) -> Tensor:
        """W₂² between classes, (k, k'), from the centred product x yᵀ (n, m); differentiable but for the nuclear norms."""
        laws_a = source.moments()
        laws_b = laws_a if self.symmetric else target.moments()
        smooth = squared_distances(laws_a.means.double(), laws_b.means.double())
        smooth = smooth + laws_a.covariance.traces().double()[:, None] + laws_b.covariance.traces().double()
        norms = self._norms(source, target, product, smooth.detach())
        distances = smooth - 2 * norms
        distances = distances - distances.detach().clamp_max(0)  # the gradient stays: ``joined`` adds its other half anyway
        if self.symmetric:
            distances = distances * (1 - torch.eye(len(laws_a), dtype=distances.dtype, device=distances.device))
        return distances.to(source.x.dtype)

    def joined(self, plan: Tensor, class_plan: Tensor, source: LabeledDataset, target: LabeledDataset, weight: float) -> Tensor:
        """The plan with the pull of the nuclear norms added: P + weight · class_plan[y_i, y_j] Q_ij, in place."""
        assert self.factors is not None
        by_class = class_plan.to(plan.dtype)[:, target.y] * weight  # (k, m)
        for code in range(len(source.classes)):
            rows = (source.y == code).nonzero()[:, 0]
            if len(rows):
                plan[rows] += self.factors[rows].to(plan.dtype) * by_class[code]
        return plan

    def _norms(self, source: LabeledDataset, target: LabeledDataset, product: Tensor, smooth: Tensor) -> Tensor:
        fits = self.factors is not None and self.factors.shape == product.shape  # another dataset starts anew
        bound = self._bound(source, target, product) if fits else None
        self.age += 1
        if bound is not None and self.age < self.interval:
            return bound
        exact, factors = self._decompose(source, target, product)
        if bound is not None:
            scale = (smooth - 2 * exact).clamp_min(1e-6 * smooth)
            errors = torch.where(scale > 0, 2 * (exact - bound) / scale, 0)  # classes at one point are exact
            measured = float((errors.fill_diagonal_(0) if self.symmetric else errors).max())
            self.error = measured if self.age > 1 else 0.0  # at an age of 1 only exact norms have been used
            self._schedule(self.age, measured)
        self.factors, self.reference, self.age = factors, source.x.detach(), 0
        return exact

    def _schedule(self, steps: int, error: float) -> None:
        """Second order: the error grows with the square of the steps. Aim at a quarter of the tolerance, and grow with care."""
        growth = math.sqrt(self.tolerance / 4 / max(error, 1e-12))
        self.interval = max(1, min(int(steps * growth), 2 * self.interval, _LONGEST))

    def _bound(self, source: LabeledDataset, target: LabeledDataset, product: Tensor) -> Tensor:
        """⟨Q, A_i B_jᵀ⟩ for all pairs of classes."""
        assert self.factors is not None
        entries = self.factors * product
        left = torch.nn.functional.one_hot(source.y, len(source.classes)).to(entries.dtype)
        right = torch.nn.functional.one_hot(target.y, len(target.classes)).to(entries.dtype)
        return (left.T @ entries).double() @ right.double()

    def _decompose(self, source: LabeledDataset, target: LabeledDataset, product: Tensor) -> tuple[Tensor, Tensor]:
        """Nuclear norms and polar factors of all pairs of classes."""
        shares_a, scales_a = _shares(source)
        shares_b, scales_b = (shares_a, scales_a) if self.symmetric else _shares(target)
        norms = torch.zeros(len(source.classes), len(target.classes), dtype=torch.float64, device=product.device)
        factors = torch.zeros_like(product)
        rounding = 4 * torch.finfo(product.dtype).eps  # of the product: what is below it is no direction to carry over
        rows_of = [(source.y == code).nonzero()[:, 0] for code in range(len(source.classes))]
        columns_of = rows_of if self.symmetric else [(target.y == code).nonzero()[:, 0] for code in range(len(target.classes))]
        for i, rows in enumerate(rows_of):
            for j, columns in enumerate(columns_of):
                if (self.symmetric and j <= i) or len(rows) == 0 or len(columns) == 0:
                    continue
                block = product[rows][:, columns].double()
                noise = torch.linalg.matrix_norm(block * scales_a[rows][:, None] * scales_b[columns]) * rounding
                block = block - shares_a[rows] @ block
                block = (block - (block @ shares_b[columns])[:, None]) * scales_a[rows][:, None] * scales_b[columns]
                polar = polar_factor(block, float(noise))
                norms[i, j] = (polar * block).sum()
                scaled = (scales_a[rows][:, None] * polar * scales_b[columns]).to(product.dtype)
                factors[rows[:, None], columns] = scaled
                if self.symmetric:
                    norms[j, i] = norms[i, j]
                    factors[columns[:, None], rows] = scaled.T
        return norms, factors


def _shares(data: LabeledDataset) -> tuple[Tensor, Tensor]:
    return class_shares(data.x, data.y, data.weights, len(data.classes))


def _product(source: LabeledDataset, target: LabeledDataset, dtype: torch.dtype) -> Tensor:
    x, y = centred(source.x.detach().to(dtype), target.x.detach().to(dtype))
    return x @ y.T
