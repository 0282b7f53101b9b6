"""Settings of a flow from one dataset to another, chosen from the data, each with its reason.

Nothing is solved: the rules look at sizes, class proportions, dimensions and the mean feature cost of
some hundred samples. They were set on one half of five image datasets and tested on the other
(docs/results.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from advect._util import defaults
from advect._util.memory import as_bytes, readable
from advect._util.result import Result
from advect.cost import Bures, GroundCost, MeansOnly, NoLabels
from advect.cost.ground import check_features
from advect.cost.labels import LabelCost
from advect.cost.targets import TargetValues
from advect.data.dataset import LabeledDataset, has_classes
from advect.data.laws.linalg import squared_distances
from advect.flows.dynamics import FeatureDriven
from advect.flows.integrators import Euler
from advect.flows.loop import FlowResult, flow
from advect.functionals import OTDD
from advect.ot.minibatch import MiniBatch
from advect.ot.sinkhorn import Relative, Sinkhorn
from advect.ot.solver import Solver
from advect.spaces.images import brightness_range
from advect.transport.notes import Note
from advect.transport.transport import check_dataset

_LABEL_WEIGHT = 2.0  # classes stay together, and features still count
_EPSILON = 0.03  # share of the mean feature cost, which does not depend on the label weight
_STEP_SIZE, _N_STEPS = 0.5, 30
_N_LOOKED_AT = 500  # samples
_MAX_IMBALANCE = 0.02  # difference of class proportions
_MAX_DENSE = 20_000  # samples above which mini-batches are used
_BATCH = 2000
_MAX_LAW_WORK = 2e11  # multiplications per step above which covariances are diagonal


class Advice(NamedTuple):
    """One choice: the option, its value as text, and the reason."""

    option: str
    value: str
    reason: str


@dataclass(frozen=True, eq=False)
class Suggestion(Result):
    """Settings of a flow, of ``ad.suggest``.

    Attributes:
        advice: every choice with its reason.
        source, target: the datasets, with classes of equal mass if ``equal_mass``.
        cost, solver, dynamics, integrator, n_steps: arguments of ``ad.OTDD`` and ``ad.flow``.
    """

    title = "Suggested settings of a flow"
    advice: tuple[Advice, ...]
    source: LabeledDataset = field(repr=False)
    target: LabeledDataset = field(repr=False)
    cost: GroundCost
    solver: Solver
    dynamics: FeatureDriven
    integrator: Euler
    n_steps: int
    equal_mass: bool
    notes: tuple[Note, ...] = ()
    memory_limit: int | str | None = None

    def _summary(self) -> dict[str, Any]:
        return {choice.option: f"{choice.value}: {choice.reason}" for choice in self.advice}

    @property
    def objective(self) -> OTDD:
        """The functional to decrease, ½ OTDD² to the target."""
        return OTDD(self.target, cost=self.cost, solver=self.solver, memory_limit=self.memory_limit)

    def flow(self, **changes: Any) -> FlowResult:
        """Run the flow; arguments of ``ad.flow`` replace what is suggested."""
        settings = {name: getattr(self, name) for name in ("dynamics", "integrator", "n_steps")}
        return flow(self.source, self.objective, **settings | changes)


def suggest(
    source: LabeledDataset, target: LabeledDataset, *, memory_limit: int | str | None = None
) -> Suggestion:
    """Suggest epsilon, label weight, label cost, solver, class masses and steps of a flow.

    Use it before the first flow between two datasets, or where a flow mixed its classes. It is made
    for flows whose end is used by class; to compare a distance with published ones, keep the defaults.

    Args:
        source, target: labeled datasets in one feature space (``ad.harmonize``).
        memory_limit: bytes, or text like "2GiB", for a step; by default half of the free memory.

    Example:
        >>> import advect as ad
        >>> source, target = ad.datasets.load("toy:gaussians?n=60"), ad.datasets.load("toy:moons?n=60")
        >>> found = ad.suggest(source, target)
        >>> found.n_steps, found.cost.label_weight
        (30, 2.0)
        >>> result = found.flow(n_steps=3)
        >>> result.values[-1] < result.values[0]
        True
    """
    check_features(check_dataset("source", source), check_dataset("target", target))
    first, last = (data.subset(data.weights > 0) for data in (source, target))
    cost, label_advice, notes = suggest_cost(first, last)
    equal_mass, mass_advice = suggest_mass(first, last, cost.label_cost)
    if equal_mass:
        source, target = source.balanced(), target.balanced()
    solver, solver_advice = suggest_solver(first, last, memory_limit)
    bounds = brightness_range(*((data.sample_shape, data.x) for data in (first, last)))
    limits = ("none", "features have no known range")
    if bounds is not None:
        limits = (f"{bounds[0]:g} to {bounds[1]:g}", "the range of the images")
    advice = (
        *label_advice,
        mass_advice,
        *solver_advice,
        Advice(
            "n_steps",
            f"{_N_STEPS}",
            f"flow time {_N_STEPS * _STEP_SIZE:g}, after which little changes",
        ),
        Advice(
            "integrator.step_size",
            f"{_STEP_SIZE:g}",
            "only the end is used, and a step that raises the objective is shortened",
        ),
        Advice("dynamics.bounds", *limits),
    )
    return Suggestion(
        advice,
        source,
        target,
        cost,
        solver,
        dynamics=FeatureDriven(bounds=bounds),
        integrator=Euler(_STEP_SIZE),
        n_steps=_N_STEPS,
        equal_mass=equal_mass,
        notes=notes,
        memory_limit=memory_limit,
    )


def suggest_cost(
    source: LabeledDataset, target: LabeledDataset
) -> tuple[GroundCost, tuple[Advice, ...], tuple[Note, ...]]:
    """The label cost and its weight, with the reasons."""
    sides = (source, target)
    if any(data.targets is not None and not has_classes(data) for data in sides):
        sizes = {None if data.targets is None else data.targets[0].numel() for data in sides}
        if len(sizes) == 1:
            advice = (
                Advice("cost.label", "TargetValues", "labels are numbers"),
                Advice("cost.label_weight", "1", "targets have the scale of the features"),
            )
            return GroundCost(label=TargetValues(), label_weight=1.0), advice, ()
        differ = "Targets do not count, since those of both sides differ."
        return _features_alone(Note(differ, "Give both sides the same targets."))
    if not all(bool(data.labeled.all()) and has_classes(data) for data in sides):
        missing = "Labels are missing, so classes may mix."
        return _features_alone(Note(missing, "Use ad.pseudo_labels to make classes of clusters."))
    counts = sorted(count for data in sides for count in data.counts.values() if count)
    median, dim = counts[len(counts) // 2], source.dim
    pairs = len(source.classes) * len(target.classes)
    if median < 2:
        label, kind, why = MeansOnly(), "MeansOnly", "classes of one sample have no covariance"
    elif pairs * min(dim, max(counts)) ** 3 > _MAX_LAW_WORK:
        label, kind = Bures(diagonal=True), "Bures, diagonal"
        why = f"full covariances of {pairs} pairs of classes in {dim} dimensions take too long"
    else:
        label, kind = Bures(), "Bures"
        why = f"full covariances of {len(counts)} classes, {median} samples in the median"
    advice = (
        Advice("cost.label", kind, why),
        Advice(
            "cost.label_weight",
            f"{_LABEL_WEIGHT:g}",
            "keeps classes together; at 1 the distance of samples outweighs them",
        ),
    )
    same = set(map(str, source.classes)) & set(map(str, target.classes))
    note = Note(
        f"{len(same)} classes have the same names on both sides, and names do not count.",
        "Use label=ad.ByName() if they have the same meaning.",
    )
    cost = GroundCost(label=label, label_weight=_LABEL_WEIGHT)
    return cost, advice, (note,) if len(same) > 1 else ()


def _features_alone(note: Note) -> tuple[GroundCost, tuple[Advice, ...], tuple[Note, ...]]:
    cost = GroundCost(label=NoLabels(), label_weight=defaults.LOOK.label_weight)
    return cost, (Advice("cost.label", "NoLabels", "only features are compared"),), (note,)


def suggest_mass(
    source: LabeledDataset, target: LabeledDataset, label: LabelCost
) -> tuple[bool, Advice]:
    """Whether classes should have equal mass, with the reason."""
    if not label.costs:
        return False, Advice("equal_mass", "no", "classes are not compared")
    masses = [[mass for mass in data.class_mass.tolist() if mass] for data in (source, target)]
    if max(max(side) - min(side) for side in masses) <= _MAX_IMBALANCE:
        return False, Advice("equal_mass", "no", "class proportions are equal")
    low, high = min(map(min, masses)), max(map(max, masses))
    why = f"class proportions go from {low:.1%} to {high:.1%}; excess mass would change its class"
    return True, Advice("equal_mass", "yes", why)


def suggest_solver(
    source: LabeledDataset, target: LabeledDataset, memory_limit: int | str | None = None
) -> tuple[Solver, tuple[Advice, ...]]:
    """The solver, with epsilon in units of the cost, with the reasons."""
    n, m = len(source), len(target)
    if max(n, m) > _MAX_DENSE:
        kind = Advice("solver", "MiniBatch", f"batches of {_BATCH} for {n} × {m} samples")
        share = Advice("solver.epsilon", "1 % of the mean cost", "for each batch")
        return MiniBatch(size=_BATCH), (kind, share)
    evenly = {"steps": _N_LOOKED_AT, "dtype": torch.float64}
    x, y = (
        data.x[torch.linspace(0, len(data) - 1, **evenly).long().unique()].double()
        for data in (source, target)
    )
    mean = float(squared_distances(x, y).mean()) / 2
    epsilon: float | Relative = float(f"{_EPSILON * mean:.3g}")
    why = f"{_EPSILON:.0%} of the mean feature cost, {mean:.3g}, whatever the label weight"
    share = Advice("solver.epsilon", f"{epsilon:g}", why)
    if not epsilon:
        epsilon = Relative(defaults.LOOK.epsilon)
        share = Advice("solver.epsilon", "1 % of the mean cost", "all features are equal")
    need, room = 6 * n * m * source.x.element_size(), as_bytes(memory_limit)
    blocks = f"in blocks: {n} × {m} samples need {readable(need)}, more than {readable(room)}"
    why = blocks if need > room else f"{n} × {m} samples fit into memory"
    return Sinkhorn(epsilon, tol=defaults.LOOK.tol), (Advice("solver", "Sinkhorn", why), share)
