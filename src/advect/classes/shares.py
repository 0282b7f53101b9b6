"""Class proportions of an unlabeled target (label shift).

The classes of the source, all of one mass, are transported to the target. Column by column the plan is
a soft classifier of the target's samples,

    q_c(x) = Σ_{i of c} a_i exp((f_i − c(x_i, x))/ε) / Σ_i a_i exp((f_i − c(x_i, x))/ε) .

Its errors are measured on the source, where each sample is left out of its own sum: M_cd is the mean of
q_d over class c. If classes look alike in both datasets, the mean of q over the target is Σ_c p_c M_c
(black-box shift estimation: Lipton, Wang and Smola 2018), and p ≥ 0 follows by least squares."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util import Result, Table, check_count, refuse_if
from advect.cost import GroundCost, NoLabels
from advect.data import LabeledDataset, diagonal_laws, require_classes, require_labels
from advect.ot import Cost, Relative, Sinkhorn, Solver, check_solver
from advect.transport.transport import Transport, check_dataset

_EPSILON = 0.03  # of the mean cost
_REACH = 0.5  # of the root of the mean cost
_DRAWS = 200  # of the bootstrap for ``misfit``
_WAVES = 512  # random frequencies of the kernel of ``misfit``
_FIRM = 1e3  # weight of the constraint Σ p = 1 in least squares
_WEAK = 1e-4  # weight of the source's proportions, which decide where classes look the same


@dataclass(frozen=True, eq=False)
class ClassShares(Result):
    """Proportions of the source's classes in the target, the result of ``class_shares``.

    Attributes:
        source, target: the datasets.
        shares: the proportion of each class of the source, summing to one.
        confusion: (k, k) mean predictions for each class of the source.
        seen: (k,) mean predictions for the target.
        misfit: kernel distance between the target and the source with these proportions, from 0 to
            √2, without the part that sampling explains. It is near 0 if only proportions differ.
        p_value: that of the hypothesis that only proportions differ, by a bootstrap. If it is small,
            classes look different in the target, and the proportions may be wrong. It is too small for
            classes of a few samples, whose spread is not known.
        mass_left: the share of mass that the plan left behind; near 1 if the datasets have little
            in common.
        converged: whether the transport problem was solved.
        answers: predictions of each sample of the source, (n, k), and of the target, (m, k).
    """

    source: LabeledDataset
    target: LabeledDataset
    shares: np.ndarray
    confusion: np.ndarray
    seen: np.ndarray
    mass_left: float
    converged: bool
    answers: tuple[np.ndarray, np.ndarray]
    title = "Class proportions"

    @property
    def misfit(self) -> float:
        return self._misfit[0]

    @property
    def p_value(self) -> float:
        return self._misfit[1]

    @cached_property
    def _misfit(self) -> tuple[float, float]:
        """The squared norm of gap = mean φ of the target − Σ_c p_c (mean φ of class c), for random Fourier
        features φ, relative to its values under redrawing of samples and proportions.
        """
        generator = torch.Generator().manual_seed(0)
        source, target = _fourier(self.source, self.target, generator)
        codes, weights, mass = self._masses()
        classes = np.bincount(codes, weights, len(self.shares)).clip(1e-300)
        first = self.shares, weights / classes[codes], mass
        draws = chain([first], self._bootstrap(_DRAWS, generator))
        gaps = np.stack([seen @ target - (p[codes] * within) @ source for p, within, seen in draws])
        found, chance = np.square(gaps[0]).sum(), np.square(gaps[1:] - gaps[0]).sum(axis=1)
        excess = max(0.0, float(found - chance.mean()))
        return math.sqrt(excess), float((1 + (chance >= found).sum()) / (1 + len(chance)))

    @property
    def by_name(self) -> dict[Hashable, float]:
        """The proportions by class name."""
        return dict(zip(self.source.classes, self.shares.tolist(), strict=True))

    def reweighted(self, extra: float = 0.0) -> LabeledDataset:
        """The source with these proportions, to be used in its place in a flow; with extra samples of each
        class beside those of the target, so that none vanishes.
        """
        present = self.source.class_mass.cpu().numpy() > 0
        return self.source.reweighted(self.shares * len(self.target) + extra * present)

    def standard_error(
        self, n: int = 200, *, generator: torch.Generator | None = None
    ) -> np.ndarray:
        """Standard error of each proportion, by a bootstrap of the predictions with the plan fixed.

        It does not include the bias of classes that look different in the target.

        Args:
            n: number of draws.
            generator: source of randomness.

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> source = ad.datasets.gaussians(60, classes=2, generator=generator)
            >>> target = ad.datasets.gaussians(60, classes=2, generator=generator)
            >>> errors = ad.class_shares(source, target).standard_error(generator=generator)
            >>> [round(error, 2) for error in errors.tolist()]        # √(p (1 − p) / n) is 0.065
            [0.07, 0.07]
        """
        check_count("n", n, least=2)
        return np.std([shares for shares, *_ in self._bootstrap(n, generator)], axis=0, ddof=1)

    def _masses(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Classes and weights of the source, and weights of the target."""
        tensors = self.source.y, self.source.weights, self.target.weights
        codes, weights, mass = (tensor.cpu().numpy() for tensor in tensors)
        return codes, weights, mass

    def _bootstrap(
        self, n: int, generator: torch.Generator | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Proportions of redrawn samples, with the weights of the rows: of the source within its class, and
        of the target.
        """
        source_rows, target_rows = self.answers
        codes, weights, mass = self._masses()
        rows = {
            c: np.flatnonzero((codes == c) & (weights > 0)) for c in np.unique(codes[weights > 0])
        }
        prior = np.bincount(codes, weights, len(self.shares))
        for _ in range(n):
            confusion, within = self.confusion.copy(), np.zeros(len(codes))
            seen = _redrawn(mass, generator)
            for code, part in rows.items():
                within[part] = _redrawn(weights[part], generator)
                confusion[code] = within[part] @ source_rows[part]
            yield _mixture(confusion, seen @ target_rows, prior), within, seen

    def _summary(self) -> dict[str, Any]:
        state = {"misfit": self.misfit, "p-value": self.p_value}
        return {**state, "mass left": self.mass_left, "converged": self.converged}

    def _tables(self) -> list[Table]:
        errors = self.standard_error(generator=torch.Generator().manual_seed(0)).tolist()
        rows = [(*pair, error) for pair, error in zip(self.by_name.items(), errors, strict=True)]
        return [Table("Proportions", ("class", "proportion", "standard error"), rows)]


def class_shares(
    source: LabeledDataset, target: LabeledDataset, *, solver: Solver | None = None
) -> ClassShares:
    """Estimate the proportions of the source's classes in the target, without labels of the target.

    Use it for imbalanced data: flow ``class_shares(…).reweighted()`` instead of the source. The target
    must have classes of the source, and they must look alike; ``misfit``, ``p_value`` and
    ``standard_error()`` tell how reliable the estimate is.

    Args:
        source: labeled samples; classes without mass get no share.
        target: samples in the same feature space, labeled or not.
        solver: an entropic one; by default ``Sinkhorn(epsilon, reach=…)`` with 3 % of the mean cost
            and half its root, so that classes that the target lacks can be left behind.

    Returns:
        ``ClassShares``: the proportions, their standard error and the reweighted source.

    Raises:
        InputError: unlabeled samples in the source, a solver that is random or has no epsilon, or
            datasets in different spaces.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(60, classes=2, generator=generator)
        >>> target = ad.datasets.gaussians(60, classes=2, generator=generator).reweighted([0.8, 0.2])
        >>> found = ad.class_shares(source, target)
        >>> {name: round(share, 2) for name, share in found.by_name.items()}
        {0: 0.8, 1: 0.2}
        >>> [round(mass, 1) for mass in found.reweighted().class_mass.tolist()]
        [0.8, 0.2]
    """
    source, target = check_dataset("source", source), check_dataset("target", target)
    require_classes(source, "class_shares")
    require_labels(source, "class_shares")
    chosen = check_solver(solver or Sinkhorn(Relative(_EPSILON)))
    present = source.class_mass > 0
    balanced = source.reweighted(present.double())  # classes of one mass
    cost = GroundCost(label=NoLabels()).fitted(source, target)
    problem, prepared, _ = Transport(cost, chosen, None).prepared(balanced, target)
    epsilon = float(prepared.epsilon)
    if solver is None:
        prepared = Sinkhorn(epsilon, reach=_REACH * math.sqrt(epsilon / _EPSILON))
    what = "class_shares needs an entropic solver without random draws"
    refuse_if(
        not (epsilon > 0 and not prepared.stochastic), what, repr(chosen), "Pass ad.Sinkhorn(…)."
    )
    solved = prepared.solve(problem.make("cross"), balanced.weights, target.weights)
    membership = torch.nn.functional.one_hot(source.y, len(source.classes)).double()
    sums, potential = solved.coupling.T @ membership, solved.potentials[0]
    solved = solved.released()
    total = sums.sum(dim=1, keepdim=True)  # 0 where all mass is left behind
    target_rows = torch.where(total > 0, sums / total.clamp_min(1e-300), 1 / sums.shape[1])
    source_rows = _left_out(problem.make("source"), balanced, potential, epsilon, membership)
    seen = (target.weights[:, None] * target_rows).sum(dim=0).cpu().numpy()
    within_class = source.weights / source.class_mass.clamp_min(1e-300)[source.y]
    confusion = (membership.T @ (within_class[:, None] * source_rows)).cpu().numpy()
    shares = _mixture(confusion, seen, source.class_mass.cpu().numpy())
    answers = source_rows.cpu().numpy(), target_rows.cpu().numpy()
    state = 1 - solved.mass, solved.converged
    return ClassShares(source, target, shares, confusion, seen, *state, answers)


def _left_out(
    cost: Cost, data: LabeledDataset, potential: Tensor, epsilon: float, membership: Tensor
) -> Tensor:
    """q (n, k) of each sample by the others, whose class keeps its mass."""
    mass = data.class_mass[data.y]
    rest = mass - data.weights
    single = rest <= 1e-12 * mass  # the only sample of a class stays in its sum
    base = (potential / epsilon + data.weights.log()).nan_to_num(neginf=-torch.inf)
    lift = torch.where(single, 0.0, (mass / rest.clamp_min(1e-300)).log())
    predictions, positions = [], torch.arange(len(data), device=data.x.device)
    for block in cost.blocks():
        rows = positions[block]
        logits = base - cost.rows(block).double() / epsilon
        logits = logits + torch.where(data.y[rows][:, None] == data.y, lift[rows][:, None], 0.0)
        itself = (positions == rows[:, None]) & ~single[rows][:, None]
        predictions.append(
            torch.softmax(logits.masked_fill(itself, -torch.inf), dim=1) @ membership
        )
    return torch.cat(predictions)


def _redrawn(weights: np.ndarray, generator: torch.Generator | None) -> np.ndarray:
    """Weights of samples drawn again, as many with replacement."""
    mass = torch.from_numpy(weights)
    drawn = torch.multinomial(mass, len(mass), replacement=True, generator=generator)
    return np.bincount(drawn.numpy(), minlength=len(weights)) / len(weights)


def _fourier(
    source: LabeledDataset, target: LabeledDataset, generator: torch.Generator
) -> list[np.ndarray]:
    """cos ω·x and sin ω·x of the samples, scaled to norm 1, of a sum of Gaussian kernels whose widths are
    between the size of a class of the source and an eighth of it.
    """
    x, y = (data.x.detach().double().cpu() for data in (source, target))
    variances = diagonal_laws(source).covariance.traces().cpu() @ source.class_mass.cpu()
    centre, size = x.mean(dim=0), math.sqrt(float(variances))
    options = {"generator": generator, "dtype": torch.float64}
    widths = 2 ** (-3 * torch.rand(_WAVES, **options)) * (size or float(x.std()) or 1.0)
    waves = torch.randn(x.shape[1], _WAVES, **options) / widths
    angles = ((part - centre) @ waves for part in (x, y))
    return [torch.cat([a.cos(), a.sin()], dim=1).numpy() / _WAVES**0.5 for a in angles]


def _mixture(confusion: np.ndarray, seen: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """p ≥ 0 with Σ p = 1 for which p M is nearest to ``seen`` by least squares; among equals, that
    nearest to the proportions of the source."""
    from scipy.optimize import nnls

    present = prior > 0
    matrix = [
        confusion[present].T,
        np.full((1, present.sum()), _FIRM),
        _WEAK * np.eye(present.sum()),
    ]
    solution, _ = nnls(np.vstack(matrix), np.hstack([seen, _FIRM, _WEAK * prior[present]]))
    shares = np.zeros(len(present))
    shares[present] = solution / solution.sum()
    return shares
