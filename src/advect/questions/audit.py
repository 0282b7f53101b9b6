"""Find samples with wrong labels, outliers, near-duplicates and missing samples.

A dataset is transported to itself under C_ij = ½ ‖x_i − x_j‖² without the diagonal,

    P_ij = a_i a_j exp((h_i + h_j − C_ij)/ε)  for i ≠ j ,   h_i = −ε log Σ_{j≠i} a_j exp((h_j − C_ij)/ε)

Every sample sends and receives its own mass, so no sample is a neighbour of all others. The
potential h_i is high where no other sample is near, and the second equation extends it to new points.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.checks import check_count
from advect._util.memory import as_bytes
from advect._util.progress import Progress, track
from advect.classes.clustering import of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.cost import GroundCost, NoLabels
from advect.cost.ground import check_features
from advect.data.dataset import LabeledDataset
from advect.data.labels import require_classes
from advect.data.laws.linalg import principal_axes
from advect.errors import InputError
from advect.ot.cost import BlockedCost, Cost
from advect.ot.plan import Index
from advect.ot.sinkhorn import Sinkhorn
from advect.questions.audit_result import Audit
from advect.spaces.images import layout
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

PlanRows = Iterator[tuple[slice, Tensor, Tensor, Tensor]]


def audit(
    data: LabeledDataset,
    reference: LabeledDataset | None = None,
    *,
    embedding: Embedded = "auto",
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
        data: the dataset. Samples without a label do not vote, and get a proposed label.
        reference: trusted samples in the same feature space (``ad.harmonize``). Classes and class
            proportions may differ.
        embedding: representation in which distances are computed. ``"auto"``: images as they are,
            columns of tables divided by their deviations. None: features as they are. Otherwise as
            in ``ad.pseudo_labels``; for photographs, pass the body of a trained network.
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
    _check(data, reference)
    seed = check_count("seed", seed, least=0)
    names, sides = _embedded(data, reference, embedding, seed)
    own, trusted, k = sides[0], sides[-1], len(names)
    whitening = _whitening(sides, k)
    transports, votes, fits = [], [], []
    with track(3 * len(sides), "auditing", progress) as advance:
        for side in sides:
            transports.append(SelfTransport.solve(side.points, side.mass))
            advance(1)
            votes.append(Votes.within(side, transports[-1], k))
            advance(1)
            fits.append(ClassFits.of(replace(side, points=side.points @ whitening), k))
            advance(1)
    vote, misfit, gap = votes[0], fits[0].own_misfit(own.codes), None
    plan = transports[0].plan_rows()
    if reference is not None:
        vote = Votes.count(transports[1].rows_to(own.points), trusted.codes, votes[1].weights, k)
        misfit = fits[1].of_samples(own.points @ whitening, own.codes, own_spread=True)
        gap = fits[0].of_samples(trusted.points @ whitening, trusted.codes, own_spread=False)
        gap[(own.counts(k)[trusted.codes.clamp_min(0)] == 0) & (trusted.codes >= 0)] = np.inf
        plan = transports[0].rows_to(trusted.points)
    disagreement = (1 - vote.of(own.codes)).clamp(0, 1).numpy()
    # undefined if the class has no other sample, or is not in the reference
    least = 1 if reference is None else 0
    disagreement[(trusted.counts(k) <= least)[own.codes.clamp_min(0)].numpy()] = np.nan
    best = vote.shares.nan_to_num(-1).argmax(dim=1)
    has_votes = ~vote.shares.isnan().all(dim=1)
    usual = votes[-1].mean_own_share(trusted, k)
    support = vote.shares.gather(1, best[:, None])[:, 0] / usual[best].clamp_min(1e-6)
    twin, distance = transports[0].nearest()
    stands_for = torch.zeros(len(data), dtype=torch.float64)
    for rows, _, free, _ in plan:
        stands_for += trusted.mass[rows] @ free
    class_transports = [one for fit in fits for one in fit.transports.values()]
    return Audit(
        data=data,
        reference=reference,
        disagreement=disagreement,
        proposed=[
            names[code] if voted else None
            for code, voted in zip(best.tolist(), has_votes.tolist(), strict=True)
        ],
        support=support.numpy(),
        confused_with=torch.where(has_votes & (best != own.codes), vote.strongest, -1).numpy(),
        misfit=misfit,
        stands_for=(len(data) * stands_for).numpy(),
        twin=twin.numpy(),
        twin_distance=distance.numpy() / _typical_distance(distance.numpy()),
        gap=gap,
        settings={
            "embedding": embedding if isinstance(embedding, str) else type(embedding).__name__,
            "compared with": "the other samples" if reference is None else "the reference",
            "epsilon": f"{_EPSILON:.0%} of the median cost",
        },
        notes=_notes(data, reference, all(one.converged for one in transports + class_transports)),
    )


@dataclass(frozen=True, eq=False)
class SelfTransport:
    """Points (m, p) with masses, and the solution of their transport to one another. Costs are cut
    at ``max_cost``, so that one gross error does not set the scale.
    """

    points: Tensor
    mass: Tensor
    potential: Tensor
    typical: float
    max_cost: float
    converged: bool

    @classmethod
    def solve(cls, points: Tensor, mass: Tensor) -> SelfTransport:
        free = cls(points, mass, torch.zeros_like(mass), 1.0, 1.0, True)
        if len(points) == 1:
            return free
        rows = torch.linspace(0, len(points) - 1, min(len(points), _MAX_MEDIAN_ROWS)).round().long()
        cost = free._uncut_rows(points, True)[0](rows.to(points.device))
        finite = cost[cost.isfinite()]
        typical = float(finite.median()) if len(finite) else 0.0
        if typical <= 0:  # half of the costs are zero: the mean of the others
            positive = finite[finite > 0]
            typical = float(positive.mean()) if len(positive) else 1.0
        isolated = float(cost.amin(dim=1).quantile(_ISOLATED_QUANTILE))
        max_cost = _MAX_COST * max(typical, isolated)
        free = replace(free, typical=max(typical, max_cost * _MIN_TYPICAL), max_cost=max_cost)
        solver = Sinkhorn(epsilon=free.epsilon, tol=_TOL)
        solution = solver.solve(free._cost(points, True), mass, mass)
        f, g = solution.potentials  # equal up to a constant
        return replace(free, potential=(f + g) / 2, converged=solution.converged)

    @property
    def epsilon(self) -> float:
        return _EPSILON * self.typical

    def plan_rows(self) -> PlanRows:
        """``rows_to`` for the points themselves, each without itself."""
        return self._rows(self.points, True)

    def rows_to(self, points: Tensor) -> PlanRows:
        """Blocks of (rows, normalized plan rows, the same without potentials, potential)."""
        return self._rows(points, False)

    def nearest(self) -> tuple[Tensor, Tensor]:
        """Position and distance of the nearest other point."""
        if len(self.points) == 1:
            return torch.zeros(1, dtype=torch.long), torch.full((1,), torch.inf).to(self.points)
        rows, _ = self._uncut_rows(self.points, True)
        blocks = self._cost(self.points, True).blocks()
        at = torch.cat([rows(block).argmin(dim=1) for block in blocks])
        return at, torch.linalg.vector_norm(self.points - self.points[at], dim=1)

    def _rows(self, points: Tensor, same: bool) -> PlanRows:
        cost, log_mass = self._cost(points, same), self.mass.log()
        for rows in cost.blocks():
            free = log_mass - cost.rows(rows) / self.epsilon
            scores = free + self.potential / self.epsilon
            potential = -self.epsilon * scores.logsumexp(dim=1)
            yield rows, torch.softmax(scores, dim=1), torch.softmax(free, dim=1), potential

    def _uncut_rows(self, points: Tensor, same: bool) -> tuple[Callable[[Index], Tensor], int]:
        """Rows of the cost, infinite on the diagonal, and the size of its blocks."""
        own = LabeledDataset(self.points)
        pair = GroundCost(label=NoLabels()).between(own if same else LabeledDataset(points), own)
        cost = pair.blocked(torch.float64, as_bytes(None, points.device))

        def rows(index: Index) -> Tensor:
            block = cost.rows(index)
            if same:
                at = torch.arange(len(points), device=block.device)[index]
                block[torch.arange(len(at), device=block.device), at] = torch.inf
            return block

        return rows, cost.room or 0

    def _cost(self, points: Tensor, same: bool) -> Cost:
        rows, room = self._uncut_rows(points, same)

        def cut(index: Index) -> Tensor:
            cost = rows(index)
            diagonal = cost.isinf()
            return cost.clamp_max_(self.max_cost).masked_fill_(diagonal, 4 * self.max_cost)

        return BlockedCost.of(cut, (len(points), len(self.points)), room=room, like=points)


@dataclass(frozen=True, eq=False)
class Side:
    """A dataset as points (n, p), class codes (−1 without a label) and masses."""

    points: Tensor
    codes: Tensor
    mass: Tensor

    def counts(self, k: int) -> Tensor:
        return torch.bincount(self.codes[self.codes >= 0], minlength=k)


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes of samples about the labels of others."""

    shares: Tensor  # of each class, (n, k); NaN without votes
    strongest: Tensor  # position of the strongest voter for the winning class, (n,)
    weights: Tensor  # of the voters, (m,)

    @classmethod
    def within(cls, side: Side, transport: SelfTransport, k: int) -> Votes:
        """Two rounds: voters of the second count by the agreement they got in the first."""
        even = (side.codes >= 0).to(transport.mass.dtype)
        agreement = cls.count(transport.plan_rows(), side.codes, even, k).of(side.codes)
        single = side.counts(k)[side.codes.clamp_min(0)] == 1
        weights = even * torch.where(single, 1.0, agreement.nan_to_num(0.0))
        return cls.count(transport.plan_rows(), side.codes, weights, k)

    @classmethod
    def count(cls, plan: Iterable[Any], codes: Tensor, weights: Tensor, k: int) -> Votes:
        ballots = one_hot(codes.clamp_min(0), k).to(weights.dtype) * weights[:, None]
        shares, strongest = [], []
        for _, rows, *_ in plan:
            votes = rows @ ballots
            total = votes.sum(dim=1, keepdim=True)
            shares.append(torch.where(total > 0, votes / total, torch.nan))
            for_winner = codes == votes.argmax(dim=1)[:, None]
            strongest.append((rows * weights).where(for_winner, -1.0).argmax(dim=1))
        return cls(torch.cat(shares), torch.cat(strongest), weights)

    def mean_own_share(self, side: Side, k: int) -> Tensor:
        """Mean share that the samples of a class get for their own label, (k,)."""
        own, voted = self.of(side.codes), (side.codes >= 0) & ~self.shares[:, 0].isnan()
        sums = own.new_zeros(k).index_add_(0, side.codes[voted], own[voted])
        return sums / side.counts(k).clamp_min(1)

    def of(self, codes: Tensor) -> Tensor:
        """Share of the label of each sample; NaN without a label."""
        shares = self.shares.gather(1, codes.clamp_min(0)[:, None])[:, 0]
        return torch.where(codes >= 0, shares, torch.nan)


@dataclass(frozen=True, eq=False)
class ClassFits:
    """Transport of each class with more than one sample to itself, and the spread of its lengths.

    A length is √(2h), in a space where the covariance within classes is nearly the identity.
    """

    transports: dict[int, SelfTransport]
    lengths: dict[int, np.ndarray]
    spreads: dict[int, tuple[float, float]]  # median and deviation

    @classmethod
    def of(cls, side: Side, k: int) -> ClassFits:
        transports = {}
        for code in range(k):
            rows = side.codes == code
            mass = side.mass[rows]
            if len(mass) > 1:
                mass = mass / mass.sum() if mass.sum() > 0 else torch.full_like(mass, 1 / len(mass))
                transports[code] = SelfTransport.solve(side.points[rows], mass)
        lengths = {code: _length(one.potential) for code, one in transports.items()}
        return cls(transports, lengths, _spreads(lengths, transports))

    def own_misfit(self, codes: Tensor) -> np.ndarray:
        return _standardized(codes, self.lengths, self.spreads)

    def of_samples(self, points: Tensor, codes: Tensor, own_spread: bool) -> np.ndarray:
        """Misfit of new samples, NaN for other classes, by their own spread or the fitted one."""
        lengths = {}
        for code, one in self.transports.items():
            rows = codes == code
            if bool(rows.any()):
                potential = torch.cat([part for *_, part in one.rows_to(points[rows])])
                lengths[code] = _length(potential)
        spreads = self.spreads
        if own_spread:
            large = {code: each for code, each in lengths.items() if len(each) >= _MIN_CLASS_SIZE}
            spreads = spreads | _spreads(large, self.transports)
        return _standardized(codes, lengths, spreads)


def _length(potential: Tensor) -> np.ndarray:
    return (2 * potential.clamp_min(0)).sqrt().numpy()


def _standardized(
    codes: Tensor, lengths: dict[int, np.ndarray], spreads: dict[int, tuple[float, float]]
) -> np.ndarray:
    scores = np.full(len(codes), np.nan)
    for code, each in lengths.items():
        middle, deviation = spreads[code]
        scores[(codes == code).numpy()] = (each - middle) / deviation
    return scores


def _spreads(
    lengths: dict[int, np.ndarray], transports: dict[int, SelfTransport]
) -> dict[int, tuple[float, float]]:
    """Median and robust deviation of each class; pooled over classes where a class is small."""
    medians = {code: float(np.median(each)) for code, each in lengths.items()}
    deviations = {code: np.abs(each - medians[code]) for code, each in lengths.items()}
    units = {code: (2 * transports[code].typical) ** 0.5 for code in lengths}
    pooled = [each / units[code] for code, each in deviations.items()]
    shared = _MAD_FACTOR * float(np.median(np.concatenate(pooled))) if pooled else 0.0
    spreads = {}
    for code, each in deviations.items():
        own = _MAD_FACTOR * float(np.median(each)) if len(each) >= _MIN_CLASS_SIZE else 0.0
        deviation = max(own or shared * units[code], _MIN_SPREAD * units[code])
        spreads[code] = medians[code], deviation
    return spreads


def _whitening(sides: Sequence[Side], k: int) -> Tensor:
    """Inverse root of the covariance within classes, shrunk towards the identity."""
    points = torch.cat([side.points for side in sides])
    codes = torch.cat([side.codes for side in sides])
    classes = [points[codes == code] for code in range(k)]
    parts = [part - part.median(dim=0).values for part in classes if len(part) > 1]
    deviations = torch.cat(parts) if parts else points.new_zeros(1, points.shape[1])
    values, vectors = torch.linalg.eigh(deviations.T @ deviations / len(deviations))
    values = values.clamp_min(0)
    mean = float(values.mean())
    if mean <= 0:  # each class is one point
        return torch.eye(points.shape[1], dtype=points.dtype)
    return vectors / ((1 - _SHRINKAGE) * values + _SHRINKAGE * mean).sqrt()


def _check(data: LabeledDataset, reference: LabeledDataset | None) -> None:
    for name, each in (("data", data), ("reference", data if reference is None else reference)):
        require_classes(check_dataset(name, each), "an audit")
        if not bool(each.labeled.any()):
            remedy = "Pass labels; ad.pseudo_labels computes some by clustering."
            raise InputError(f"{name} must have labels", f"{len(each)} without", remedy)
    if reference is not None:
        check_features(data, reference)
    elif len(data) < 2:
        what = "an audit needs at least two samples"
        raise InputError(what, f"{len(data)} sample", "Add samples, or pass a reference.")


def _embedded(
    data: LabeledDataset, reference: LabeledDataset | None, embedding: Embedded, seed: int
) -> tuple[list[Hashable], list[Side]]:
    """Names of all classes, and the datasets as points of one space."""
    sets = [data] if reference is None else [data, reference]
    names = list(dict.fromkeys(name for each in sets for name in each.classes))
    x = torch.cat([each.x.detach().cpu().to(sets[0].x.dtype) for each in sets])
    even = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    joined = data.replace(x=x, y=torch.full((len(x),), -1), weights=even, law=None, law_index=None)
    auto = type(embedding) is str and embedding == "auto"
    rows = points_of(joined, None if auto else embedding, seed)
    is_table = auto and layout(data.sample_shape) is None
    rows = of_order_one(_scaled_columns(rows) if is_table else rows)
    points = torch.from_numpy(np.ascontiguousarray(rows))
    if points.shape[1] > len(points):  # as few coordinates as the points need
        centred = points - points.mean(dim=0)
        points = centred @ principal_axes([centred])[1].T
    sides = []
    for each, part in zip(sets, points.split([len(each) for each in sets]), strict=True):
        places = torch.tensor([*(names.index(name) for name in each.classes), -1])
        sides.append(Side(part, places[each.y.cpu()], each.weights.detach().cpu().double()))
    return names, sides


def _scaled_columns(points: np.ndarray) -> np.ndarray:
    """Columns divided by their deviations without the tails; constant columns become 0."""
    points = points / (np.abs(points).max() or 1.0)
    points = points - np.median(points, axis=0)
    inner = np.clip(points, *np.quantile(points, [_TRIM, 1 - _TRIM], axis=0))
    least = np.finfo(np.float64).eps * len(points) ** 0.5 * np.abs(points).max(initial=0)
    spread = np.where(inner.std(axis=0) > least, inner.std(axis=0), points.std(axis=0))
    return points / np.where(spread > least, spread, np.inf)


def _typical_distance(nearest: np.ndarray) -> float:
    """Median distance to the nearest sample; if it is zero, the mean of the positive ones."""
    positive = nearest[np.isfinite(nearest) & (nearest > 0)]
    median = float(np.median(nearest))
    return median if 0 < median < np.inf else float(positive.mean()) if len(positive) else 1.0


def _notes(
    data: LabeledDataset, reference: LabeledDataset | None, converged: bool
) -> tuple[str, ...]:
    notes, present = [], {name for name, count in data.counts.items() if count}
    if reference is None:
        notes.append(
            "Samples were compared with one another, so many similar errors confirm each other. "
            "A trusted reference, even a small one, avoids this."
        )
        single = [name for name in present if data.counts[name] == 1]
        names = {"Classes with one sample were not checked": single}
    else:
        known = {name for name, count in reference.counts.items() if count}
        names = {
            "Classes that are not in the reference were not checked": present - known,
            "Classes of the reference without samples in the data": known - present,
        }
    for sentence, which in names.items():
        if which:
            listed = ", ".join(sorted(map(str, which))[:5])
            notes.append(f"{sentence}: {listed}{' and others' if len(which) > 5 else ''}.")
    if unlabeled := int((~data.labeled).sum()):
        notes.append(f"{unlabeled} samples without a label have a proposed label and no misfit.")
    if not converged:
        notes.append("A transport problem did not converge; the scores are approximate.")
    return tuple(notes)
