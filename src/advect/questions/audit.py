"""Find samples with wrong labels, outliers, near-duplicates and missing samples.

A dataset is transported to itself under C_ij = ½ ‖x_i − x_j‖² without the diagonal,

    P_ij = a_i a_j exp((h_i + h_j − C_ij)/ε)  for i ≠ j ,   h_i = −ε log Σ_{j≠i} a_j exp((h_j − C_ij)/ε)

Every sample sends and receives its own mass, so no sample is a neighbour of all others. The
potential h_i is high where no other sample is near, and the second equation extends it to new points.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util import Progress, as_bytes, check_count, refuse_if, track
from advect.classes.clustering import of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.cost import check_features
from advect.data import LabeledDataset, require_classes
from advect.data.laws import principal_axes
from advect.data.size import refuse_large
from advect.ot import BlockedCost, Cost, Index, Sinkhorn
from advect.questions.audit_result import Audit, audit_notes
from advect.questions.shared import class_codes, class_names, joined_features, nearest
from advect.spaces.fitting import choose_scale
from advect.transport.transport import check_dataset

_EPSILON = 0.1  # times the median cost
_TOL = 1e-4  # marginal error of a plan
_MAX_COST = 50.0  # costs are cut at this multiple of the median cost, or of isolated samples' costs
_ISOLATED_QUANTILE = 0.98  # of the cost to the nearest sample
_MIN_TYPICAL = 1e-4  # times the largest cost: lower bound of the typical cost
_MAX_MEDIAN_ROWS = 1000  # rows of the cost from which its median is taken
_TRIM = 0.02  # quantiles at which a column is clipped before its deviation is computed
_SHRINKAGE = 0.1  # of the covariance within classes towards a multiple of the identity
_MIN_CLASS_SIZE = 8  # smaller classes take the spread of all classes
_MIN_SPREAD = 0.01  # times a typical distance
_MAD_FACTOR = 1.4826  # from the median absolute deviation to the deviation of a Gaussian

PlanRows = Iterator[tuple[Tensor, Tensor]]
Lengths = dict[int, np.ndarray]  # by class


def audit(
    data: LabeledDataset,
    reference: LabeledDataset | None = None,
    *,
    embedding: Embedded = "auto",
    max_samples: int | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> Audit:
    """Find samples that have wrong labels, are outliers or duplicates, or are missing.

    Use it on a labeled dataset before training. Without a reference every sample is compared with the
    others. A trusted reference is better, even a small one: many similar errors confirm one another,
    and missing samples can only be found with a reference. The time grows with the square of n.

    *Wrong labels*: the dataset is transported to itself by features alone, and the mass of a sample
    goes to samples with another label. *Outliers*: the potential of a sample in the transport of its
    class to itself is high. *Duplicates*: the nearest other sample is much nearer than usual.
    *Missing*: samples of the reference whose potential in the data is high.

    Args:
        data: the dataset. Samples without a label get a proposed label.
        reference: trusted samples in the same feature space (``ad.harmonize``). Classes and class
            proportions may differ.
        embedding: representation in which distances are computed. ``"auto"``: features as they are
            if they are images or share a unit, otherwise columns divided by their deviations
            (``harmonize(scale="auto")``). None: features as they are. Otherwise as in
            ``ad.pseudo_labels``; for photographs, pass the body of a trained network.
        max_samples: largest size of a dataset, above which an error is raised at once; by default what
            takes about a minute.
        seed: seed of a random embedding.
        progress: None shows slow progress, False is silent, a function gets (done, total).

    Returns:
        An ``Audit`` with scores of all samples, ``suspects``, and a report.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits", n=300)
        >>> labels = [(label + 1) % 10 if i < 6 else label for i, label in enumerate(digits.labels)]
        >>> result = ad.audit(ad.LabeledDataset(digits.samples, labels))
        >>> set(range(6)) <= set(result.worst(15).tolist())
        True
        >>> [result.proposed[row] for row in range(6)] == digits.labels[:6]
        True
        >>> clean = result.data.without(result.suspects)
    """
    sets = [data] if reference is None else [data, reference]
    _check(sets)
    refuse_large("an audit", list(map(len, sets)), "audit", max_samples)
    names = class_names(*sets)
    sides, scale = _sides(sets, names, embedding, check_count("seed", seed, least=0))
    side, trusted = sides[0], sides[-1]
    transports, votes, fits = [], [], []
    with track(len(sides), "auditing", progress) as advance:
        for each in sides:
            transports.append(SelfTransport.solve(each.points, each.mass))
            votes.append(_votes_within(each, transports[-1]))
            fits.append(ClassFits.of(each))
            advance(1)
    shares = votes[0][0]
    misfit, gap = _standardized(side, fits[0].lengths, fits[0].spreads), None
    if reference is not None:
        shares = count_votes(transports[1].rows(side.points), trusted, votes[1][1])
        lengths = fits[1].lengths_of(side)
        misfit = _standardized(side, lengths, fits[1].spreads_of(lengths))
        gap = _standardized(trusted, fits[0].lengths_of(trusted), fits[0].spreads)
        is_missing = (side.counts[trusted.codes.clamp_min(0)] == 0) & (trusted.codes >= 0)
        gap[is_missing.numpy()] = np.inf
    disagreement = (1 - _label_shares(shares, side)).clamp(0, 1).numpy()
    # undefined if the class has no other sample, or is not in the reference
    unchecked = trusted.counts <= (1 if reference is None else 0)
    disagreement[unchecked[side.codes.clamp_min(0)].numpy()] = np.nan
    best = shares.nan_to_num(-1).argmax(dim=1)
    has_votes = ~shares.isnan().all(dim=1)
    usual = _usual_shares(votes[-1][0], trusted)
    support = shares.gather(1, best[:, None])[:, 0] / usual[best].clamp_min(1e-6)
    twin, twin_distance = _twins(side.points.numpy())
    transports += [transport for fit in fits for transport in fit.transports.values()]
    return Audit(
        data=data,
        reference=reference,
        disagreement=disagreement,
        proposed=[
            names[code] if voted else None
            for code, voted in zip(best.tolist(), has_votes.tolist(), strict=True)
        ],
        support=support.numpy(),
        misfit=misfit,
        twin=twin,
        twin_distance=twin_distance,
        gap=gap,
        settings={
            "embedding": embedding if isinstance(embedding, str) else type(embedding).__name__,
            "scale": scale,
            "compared with": "the other samples" if reference is None else "the reference",
            "epsilon": f"{_EPSILON:.0%} of the median cost",
        },
        notes=audit_notes(data, reference, all(transport.converged for transport in transports)),
    )


@dataclass(frozen=True, eq=False)
class Side:
    """A dataset as points (n, p), class codes (−1 without a label) and masses. The covariance within
    classes of ``whitened`` points is nearly the identity.
    """

    points: Tensor
    whitened: Tensor
    codes: Tensor
    mass: Tensor
    k: int  # number of classes

    @property
    def counts(self) -> Tensor:
        return torch.bincount(self.codes[self.codes >= 0], minlength=self.k)


@dataclass(frozen=True, eq=False)
class SelfTransport:
    """Points (m, p) with masses, and the solution of their transport to one another. Costs are cut
    at ``max_cost``, so that one gross error does not set the scale.
    """

    points: Tensor
    mass: Tensor
    potential: Tensor
    typical: float = 1.0  # cost
    max_cost: float = math.inf
    converged: bool = True

    @classmethod
    def solve(cls, points: Tensor, mass: Tensor) -> SelfTransport:
        uncut = cls(points, mass, torch.zeros_like(mass))
        if len(points) == 1:
            return replace(uncut, max_cost=1.0)
        rows = torch.linspace(0, len(points) - 1, min(len(points), _MAX_MEDIAN_ROWS)).round().long()
        cost = uncut._cost().rows(rows)
        finite = cost[cost.isfinite()]
        typical = float(finite.median())
        if typical <= 0:  # half of the costs are zero: the mean of the others
            typical = float(finite[finite > 0].mean().nan_to_num(1.0))
        max_cost = _MAX_COST * max(typical, float(cost.amin(dim=1).quantile(_ISOLATED_QUANTILE)))
        problem = replace(uncut, typical=max(typical, max_cost * _MIN_TYPICAL), max_cost=max_cost)
        solution = Sinkhorn(epsilon=problem.epsilon, tol=_TOL).solve(problem._cost(), mass, mass)
        f, g = solution.potentials  # equal up to a constant
        return replace(problem, potential=(f + g) / 2, converged=solution.converged)

    @property
    def epsilon(self) -> float:
        return _EPSILON * self.typical

    def rows(self, points: Tensor | None = None) -> PlanRows:
        """Blocks of normalized plan rows, and potentials, of new points or of the points themselves."""
        cost = self._cost(points)
        for block in cost.blocks():
            scores = self.mass.log() + (self.potential - cost.rows(block)) / self.epsilon
            yield torch.softmax(scores, dim=1), -self.epsilon * scores.logsumexp(dim=1)

    def _cost(self, points: Tensor | None = None) -> Cost:
        """½ ‖x − x'‖², cut; for the points themselves without pairs of a point and itself."""
        others = self.points if points is None else points

        def rows(index: Index) -> Tensor:
            cost = torch.cdist(others[index], self.points).square_().div_(2)
            cost.clamp_max_(self.max_cost)
            if points is None:
                at = torch.arange(len(others))[index]
                cost[torch.arange(len(at)), at] = 4 * self.max_cost
            return cost

        shape = len(others), len(self.points)
        return BlockedCost.of(rows, shape, room=as_bytes(None), like=others)


def _twins(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position of the nearest other point, and its distance relative to the median of such
    distances, or to the mean of the positive ones if the median is zero.
    """
    if len(points) == 1:
        return np.zeros(1, dtype=np.int64), np.full(1, np.inf)
    distance, rows = nearest(points, None)
    positive = distance[distance > 0]
    return rows, distance / (np.median(distance) or (positive.mean() if len(positive) else 1.0))


def count_votes(plan: PlanRows, voters: Side, weights: Tensor) -> Tensor:
    """Share of the votes for each class, (n, k), NaN without votes."""
    ballots = one_hot(voters.codes.clamp_min(0), voters.k).to(weights.dtype) * weights[:, None]
    shares = []
    for rows, _ in plan:
        votes = rows @ ballots
        total = votes.sum(dim=1, keepdim=True)
        shares.append(torch.where(total > 0, votes / total, torch.nan))
    return torch.cat(shares)


def _votes_within(side: Side, transport: SelfTransport) -> tuple[Tensor, Tensor]:
    """``count_votes`` in two rounds, and the weights of the second: the agreement in the first."""
    even = (side.codes >= 0).to(transport.mass.dtype)
    agreement = _label_shares(count_votes(transport.rows(), side, even), side)
    single = side.counts[side.codes.clamp_min(0)] == 1
    weights = even * torch.where(single, 1.0, agreement.nan_to_num(0.0))
    return count_votes(transport.rows(), side, weights), weights


def _label_shares(shares: Tensor, side: Side) -> Tensor:
    """Share of the label of each sample; NaN without a label."""
    shares = shares.gather(1, side.codes.clamp_min(0)[:, None])[:, 0]
    return torch.where(side.codes >= 0, shares, torch.nan)


def _usual_shares(shares: Tensor, side: Side) -> Tensor:
    """Mean share that the samples of a class get for their own label, (k,)."""
    voted = (side.codes >= 0) & ~shares[:, 0].isnan()
    own_shares = _label_shares(shares, side)[voted]
    sums = own_shares.new_zeros(side.k).index_add_(0, side.codes[voted], own_shares)
    return sums / side.counts.clamp_min(1)


@dataclass(frozen=True, eq=False)
class ClassFits:
    """Transport of each class with more than one sample to itself, in whitened points.

    The length of a sample is √(2h). A class has the median and deviation of its lengths.
    """

    transports: dict[int, SelfTransport]
    lengths: Lengths
    spreads: dict[int, tuple[float, float]]

    @classmethod
    def of(cls, side: Side) -> ClassFits:
        transports = {}
        for code in torch.nonzero(side.counts > 1)[:, 0].tolist():
            rows = side.codes == code
            mass = side.mass[rows] if side.mass[rows].sum() > 0 else rows[rows].double()
            transports[code] = SelfTransport.solve(side.whitened[rows], mass / mass.sum())
        lengths = {code: _length(fit.potential) for code, fit in transports.items()}
        return cls(transports, lengths, _spreads(lengths, transports))

    def lengths_of(self, side: Side) -> Lengths:
        """Lengths of new samples, by class."""
        points = {code: side.whitened[side.codes == code] for code in self.transports}
        return {
            code: _length(torch.cat([h for _, h in self.transports[code].rows(rows)]))
            for code, rows in points.items()
            if len(rows)
        }

    def spreads_of(self, lengths: Lengths) -> dict[int, tuple[float, float]]:
        """Median and deviation of new samples, and of the fitted ones where there are few."""
        large = {code: each for code, each in lengths.items() if len(each) >= _MIN_CLASS_SIZE}
        return self.spreads | _spreads(large, self.transports)


def _length(potential: Tensor) -> np.ndarray:
    return (2 * potential.clamp_min(0)).sqrt().numpy()


def _standardized(
    side: Side, lengths: Lengths, spreads: dict[int, tuple[float, float]]
) -> np.ndarray:
    """(length − median) / deviation of each sample; NaN for classes without lengths."""
    scores = np.full(len(side.codes), np.nan)
    for code, (median, deviation) in spreads.items():
        if code in lengths:
            scores[(side.codes == code).numpy()] = (lengths[code] - median) / deviation
    return scores


def _spreads(
    lengths: Lengths, transports: dict[int, SelfTransport]
) -> dict[int, tuple[float, float]]:
    """Median and robust deviation of each class; pooled over classes where a class is small."""
    medians = {code: float(np.median(each)) for code, each in lengths.items()}
    units = {code: (2 * transports[code].typical) ** 0.5 for code in lengths}
    # absolute deviations from the median, relative to the typical distance in the class
    relative = {code: np.abs(lengths[code] - medians[code]) / units[code] for code in lengths}
    pooled = float(np.median(np.concatenate([*relative.values()]))) if relative else 0.0
    spreads = {}
    for code, each in relative.items():
        median = float(np.median(each)) if len(each) >= _MIN_CLASS_SIZE else 0.0
        deviation = max(_MAD_FACTOR * (median or pooled), _MIN_SPREAD) * units[code]
        spreads[code] = medians[code], deviation
    return spreads


def _check(sets: list[LabeledDataset]) -> None:
    for name, each in zip(("data", "reference"), sets, strict=False):
        require_classes(check_dataset(name, each), "an audit")
        refuse_if(
            not bool(each.labeled.any()),
            f"{name} must have labels",
            f"{len(each)} without",
            "Pass labels; ad.pseudo_labels computes some by clustering.",
        )
    check_features(sets[0], sets[-1])
    refuse_if(
        sum(map(len, sets)) <= 1,
        "an audit needs at least two samples",
        "1 sample",
        "Add samples, or pass a reference.",
    )


def _sides(
    sets: list[LabeledDataset], names: tuple[Hashable, ...], embedding: Embedded, seed: int
) -> tuple[list[Side], str]:
    """The datasets as points of one space, and how its columns are scaled."""
    joined, is_auto = joined_features(*sets), embedding == "auto"
    rows = points_of(joined, None if is_auto else embedding, seed)
    scale, reason = (
        choose_scale([joined.x], joined.sample_shape)
        if is_auto
        else ("none", "an embedding was given")
    )
    if scale == "pooled":
        rows = _scaled_columns(rows)
    points = torch.from_numpy(np.ascontiguousarray(of_order_one(rows)))
    if points.shape[1] > len(points):  # as few coordinates as the points need
        centred = points - points.mean(dim=0)
        points = centred @ principal_axes([centred])[1].T
    codes = torch.from_numpy(np.concatenate([class_codes(data, names) for data in sets]))
    masses = torch.cat([data.weights.detach().cpu().double() for data in sets])
    columns = points, points @ _whitening(points, codes, len(names)), codes, masses
    parts = [column.split([len(data) for data in sets]) for column in columns]
    sides = [Side(x, white, y, mass, len(names)) for x, white, y, mass in zip(*parts, strict=True)]
    return sides, f"{scale} ({reason})"


def _scaled_columns(points: np.ndarray) -> np.ndarray:
    """Columns divided by their deviations without the tails; constant columns become 0."""
    points = points / (np.abs(points).max() or 1.0)
    points = points - np.median(points, axis=0)
    inner = np.clip(points, *np.quantile(points, [_TRIM, 1 - _TRIM], axis=0))
    least = np.finfo(np.float64).eps * len(points) ** 0.5 * np.abs(points).max(initial=0)
    spread = np.where(inner.std(axis=0) > least, inner.std(axis=0), points.std(axis=0))
    return points / np.where(spread > least, spread, np.inf)


def _whitening(points: Tensor, codes: Tensor, k: int) -> Tensor:
    """Inverse root of the covariance within classes, shrunk towards the identity."""
    classes = [points[codes == code] for code in range(k)]
    parts = [part - part.median(dim=0).values for part in classes if len(part) > 1]
    deviations = torch.cat([*parts, points.new_zeros(0 if parts else 1, points.shape[1])])
    values, vectors = torch.linalg.eigh(deviations.T @ deviations / len(deviations))
    values = values.clamp_min(0)
    if (mean := float(values.mean())) <= 0:  # each class is one point
        return torch.eye(points.shape[1], dtype=points.dtype)
    return vectors / ((1 - _SHRINKAGE) * values + _SHRINKAGE * mean).sqrt()
