"""Methods that enlarge a few target samples with a source dataset (only ``final`` is in the paper).

A method is a function of a ``Task`` that returns more samples under the target's classes, or None.
``METHODS`` has them by name; a new one is a function and an entry there.

Most methods borrow the variation within classes of the source:

    x_new = s_i + (x_j − μ_j) ,     j drawn from the source by P(source class | class of s_i)

A flow ends on the few samples s_i, but a classifier needs the variation within a class, which is similar
across classes. Means are those of the target, residuals those of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect.apps.training import Classifier, FlowOptions, half_and_half, renamed
from advect.classes.matching import ClassMatching
from advect.cost import GroundCost, MeansOnly
from advect.data.dataset import LabeledDataset
from advect.data.laws import group_shares
from advect.data.sampling import by_turns
from advect.flows.dynamics import as_bounds, bounded

_FLOOR = 0.1  # of the mean variance, added to all of W: unseen directions may vary
_ALIKE = 0.5  # from this a on, classes do not vary as those of the source
_TINY = torch.finfo(torch.float64).tiny
_MORE = 10.0 ** torch.linspace(-3, 2, 41, dtype=torch.float64)  # grid of a


@dataclass(frozen=True, eq=False)
class Task:
    """A source and a few target samples, all labeled; methods draw n samples."""

    source: LabeledDataset
    few: LabeledDataset
    classifier: Classifier
    options: FlowOptions
    n: int
    seed: int = 0

    @property
    def same_names(self) -> bool:
        """Whether the source has all classes of the few by name."""
        return all(self.source.counts.get(name, 0) for name in present(self.few))


def present(data: LabeledDataset) -> list[Hashable]:
    """The classes that have samples."""
    return [name for name, count in data.counts.items() if count]


def _borrowed(task: Task, **options: Any) -> LabeledDataset:
    """The few samples with residuals of the matched source classes."""
    generator = torch.Generator().manual_seed(task.seed)
    data = borrow(task.source, task.few.balanced(), task.n, generator, **options)
    return data.replace(x=bounded(data.x, as_bounds(task.options.bounds)))


def _calibrated(task: Task) -> LabeledDataset:
    """Residuals of matched classes around likely means, proportional if no feature is negative."""
    signed = any(bool((part.x < 0).any()) for part in (task.source, task.few))
    return _borrowed(task, calibrated=True, proportional=not signed)


def relabeled_source(task: Task) -> LabeledDataset:
    """The classes of the source that have the names of the target's classes."""
    data = renamed(task.source, {name: name for name in present(task.few)}, task.few.classes)
    return data.subset(data.labeled).balanced()


def _final(task: Task) -> LabeledDataset:
    """The end of the flow of the source to the few samples."""
    state = task.options.flow(task.source, task.few).dataset
    return renamed(state, ClassMatching.between(state, task.few).hard, task.few.classes)


METHODS: dict[str, Callable[[Task], LabeledDataset | None]] = {
    "shots": lambda task: None,  # the few samples alone
    "borrowed": _borrowed,
    "calibrated": _calibrated,
    "final": _final,
    "source": relabeled_source,
    "source + borrowed": lambda task: half_and_half(relabeled_source(task), _borrowed(task)),
}


def borrow(
    source: LabeledDataset,
    few: LabeledDataset,
    n: int,
    generator: torch.Generator,
    *,
    calibrated: bool = False,
    proportional: bool = False,
) -> LabeledDataset:
    """n new samples of the classes of ``few`` that vary as the classes of ``source``, of equal weight
    and in the order of their classes. Every sample needs a label and a weight. The source classes
    that give the residuals are matched by equal masses and distances of class means.

    Args:
        calibrated: first move the samples of each class to the likeliest mean given how the classes
            of the source lie.
        proportional: multiply a sample by the ratio ρ = ⟨x_j, μ_j⟩ / ‖μ_j‖² and add the rest,
            x_new = ρ s_i + x_j − ρ μ_j. For features in which zero means absence, such as counts or
            outputs of a ReLU.
    """
    source, few = (
        data.replace(x=data.x.detach(), law=None, law_index=None) for data in (source, few)
    )
    probabilities = _donor_probabilities(source, few)
    y = by_turns(few.class_mass, n, generator).sort().values
    shots, donors = torch.empty_like(y), torch.empty_like(y, device=source.x.device)
    for code in y.unique().tolist():
        rows = y == code
        shots[rows] = _drawn(few, y[rows], generator)
        classes = by_turns(probabilities[code], int(rows.sum()), generator).to(source.y)
        donors[rows.to(donors.device)] = _drawn(source, classes, generator)
    x, means = source.x[donors].double(), class_means(source)[source.y[donors]]
    ratio = torch.ones_like(x[:, :1])
    if proportional:
        squares = means.square().sum(dim=1, keepdim=True)
        products = (x * means).sum(dim=1, keepdim=True)
        ratio = torch.where(squares > 0, products / squares.clamp_min(_TINY), ratio)
    residuals = (x - ratio * means).to(few.x.device)
    centres = few.x[shots].double()
    if calibrated:
        centres = centres + (calibrated_means(source, few) - class_means(few))[y]
    x = (ratio.to(few.x.device) * centres + residuals).to(few.x)
    return few.replace(x=x, y=y, weights=few.weights.new_full((n,), 1 / n))


def _donor_probabilities(source: LabeledDataset, few: LabeledDataset) -> Tensor:
    """P(source class | class of few), (k, k'); uniform for classes without a match."""
    matching = ClassMatching.between(few, source, cost=GroundCost(label=MeansOnly()))
    present = torch.tensor([float(count > 0) for count in source.counts.values()]).double()
    table = torch.as_tensor(matching.soft.values).double() * present
    table = torch.where(table.sum(dim=1, keepdim=True) > 0, table, present)
    return table / table.sum(dim=1, keepdim=True)


def _drawn(data: LabeledDataset, codes: Tensor, generator: torch.Generator) -> Tensor:
    """A row of the class of each code, by weight."""
    rows = torch.empty_like(codes)
    for code in codes.unique().tolist():
        members, places = ((part == code).nonzero()[:, 0] for part in (data.y, codes))
        rows[places] = members[by_turns(data.weights[members], len(places), generator)]
    return rows


def class_means(data: LabeledDataset) -> Tensor:
    """Weighted class means (k, d) in float64; 0 without samples."""
    shares = group_shares(data.y, data.weights, len(data.classes))
    means = shares.new_zeros(len(data.classes), data.dim)
    return means.index_add_(0, data.y, shares[:, None] * data.x.double())


def calibrated_means(source: LabeledDataset, few: LabeledDataset) -> Tensor:
    """Posterior class means of ``few``, (k, d) in float64, given how the classes of ``source`` lie.

        m_y  ~  N(c, t (B + a W)) ,        x̄_y | m_y  ~  N(m_y, t W / k_y)
        m̂_y  =  c + (B + a W) (B + a W + W / k_y)⁻¹ (x̄_y − c)

    with B the covariance of the class means of the source, W the covariance within its classes, k_y
    the number of samples of a class and c the mean of the class means. a and t maximise the
    likelihood. If a ≥ ½, the classes lie unlike those of the source, and the means stay.
    """
    means, counts = class_means(few), effective_counts(few)
    present = counts > 0
    few_means, source_means = means[present], class_means(source)
    source_means = source_means[effective_counts(source) > 0].to(few_means.device)
    if len(few_means) < 2 or len(source_means) < 2:
        return means
    residuals = source.x.double() - class_means(source)[source.y]
    shares = source.weights.double() / source.weights.sum()
    within = (residuals.mT * shares @ residuals).to(few_means.device)
    unit = within.diagonal().mean()
    if float(unit) <= 0:
        return means
    within.diagonal().add_(_FLOOR * unit)
    factor = torch.linalg.cholesky(within)

    # in coordinates where W is the identity, B + a W is diagonal in the eigenvectors of B
    def whitened(rows: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(factor, rows.mT, upper=False).mT

    centre = few_means.mean(dim=0)
    apart = whitened(few_means - centre)  # (k, d)
    between = whitened(source_means - source_means.mean(dim=0)) / (len(source_means) - 1) ** 0.5
    _, singular, axes = torch.linalg.svd(between, full_matrices=False)
    along = apart @ axes.mT  # (k, r), in the directions in which classes of the source differ
    rest = (apart.square().sum(dim=1) - along.square().sum(dim=1)).clamp_min(0)
    chance = 1 / counts[present].to(few_means)
    more = _likeliest(along, rest, few_means.shape[1], singular.square(), chance)
    if float(more) >= _ALIKE:
        return means
    gain = (more / (more + chance))[:, None]  # in the other directions
    prior = singular.square() + more
    calibrated = gain * apart + (((prior / (prior + chance[:, None])) - gain) * along) @ axes
    means[present] = centre + calibrated @ factor.mT
    return means


def effective_counts(data: LabeledDataset) -> Tensor:
    """Effective number of samples of each class, (Σw)² / Σw², (k,)."""
    weights, zeros = data.weights.double(), data.weights.new_zeros(len(data.classes)).double()
    total, squares = (zeros.index_add(0, data.y, part) for part in (weights, weights.square()))
    return torch.where(total > 0, total.square() / squares.clamp_min(_TINY), total)


def _likeliest(along: Tensor, rest: Tensor, dim: int, variances: Tensor, chance: Tensor) -> Tensor:
    """The a of the greatest likelihood on a grid, with the best t for each."""
    more = _MORE.to(along)
    elsewhere = more[:, None] + chance  # (a, k): variances in the other directions
    inside = elsewhere[:, :, None] + variances  # (a, k, r)
    scatter = (along.square() / inside).sum(dim=(1, 2)) + (rest / elsewhere).sum(dim=1)
    volume = inside.log().sum(dim=(1, 2)) + (dim - along.shape[1]) * elsewhere.log().sum(dim=1)
    # the centre is estimated from the same means, which takes one degree of freedom of k
    return more[int((volume / len(along) + dim * scatter.clamp_min(_TINY).log()).argmin())]
