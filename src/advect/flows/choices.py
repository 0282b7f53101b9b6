"""Settings of a flow from one dataset to another, chosen from the data, each with its reason.

Nothing is solved between samples: the rules look at sizes, class names and proportions, dimensions and
the mean feature cost of some hundred samples. They were set on one half of five image datasets and
tested on the other (docs/results.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from advect._util import Result, as_bytes, defaults, readable, show
from advect._util.defaults import USE
from advect.cost import (
    Bures,
    ByName,
    GroundCost,
    LabelCost,
    MeansOnly,
    NoLabels,
    TargetValues,
    check_features,
    same_names,
    spelled,
)
from advect.data.dataset import LabeledDataset, has_classes
from advect.data.laws import squared_distances
from advect.data.size import drawn
from advect.flows.dynamics import Dynamics, FeatureDriven
from advect.flows.integrators import Euler, Integrator
from advect.functionals import OTDD
from advect.ot import Relative, Sinkhorn, Solver
from advect.ot.minibatch import MiniBatch
from advect.spaces.images import brightness_range
from advect.transport.transport import check_dataset

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
        source, target: the datasets or draws of them, with classes of equal mass if ``equal_mass``.
        cost, solver, dynamics, integrator, n_steps: arguments of ``ad.OTDD`` and ``ad.flow``.
        objective: the functional to decrease, ``ad.OTDD(target, cost=cost, solver=solver)``.
    """

    title = "Suggested settings of a flow"
    source: LabeledDataset = field(repr=False)
    target: LabeledDataset = field(repr=False)
    objective: OTDD = field(repr=False)
    dynamics: Dynamics
    integrator: Integrator
    n_steps: int
    equal_mass: bool
    advice: tuple[Advice, ...]

    @property
    def cost(self) -> GroundCost:
        return self.objective.cost

    @property
    def solver(self) -> Solver:
        return self.objective.solver

    def _summary(self) -> dict[str, Any]:
        return {choice.option: f"{choice.value}: {choice.reason}" for choice in self.advice}


def suggest(
    source: LabeledDataset,
    target: LabeledDataset,
    *,
    label: LabelCost | None = None,
    label_weight: float | None = None,
    solver: Solver | None = None,
    equal_mass: bool | None = None,
    dynamics: Dynamics | None = None,
    integrator: Integrator | None = None,
    n_steps: int | None = None,
    memory_limit: int | str | None = None,
    max_samples: int | None = None,
) -> Suggestion:
    """Show the settings that ``ad.flow(source, target)`` chooses, with their reasons, without running it.

    Arguments that are given are not chosen. They suit flows whose final samples are used with their classes.
    For the definition of the paper, pass ``ad.OTDD(target)`` to ``ad.flow``.

    Args:
        source, target: labeled datasets in one feature space (``ad.harmonize``).
        label: the label cost.
        label_weight: weight of the label cost.
        solver: solver of the transport problems.
        equal_mass: whether every class gets the same mass.
        dynamics, integrator, n_steps: as for ``ad.flow``.
        memory_limit: bytes, or text like "2GiB", for a step; by default half of the free memory.
        max_samples: use a draw of at most this many samples of each dataset, stratified by class. By
            default there are draws if the flow would take longer than a minute, unless ``solver`` is
            given and works by batches.

    Example:
        >>> import advect as ad
        >>> source, target = ad.datasets.load("toy:gaussians?n=60"), ad.datasets.load("toy:moons?n=60")
        >>> found = ad.suggest(source, target)
        >>> found.n_steps, found.cost.label_weight
        (30, 2.0)
        >>> ad.suggest(source, target, n_steps=5).n_steps
        5
    """
    check_features(check_dataset("source", source), check_dataset("target", target))
    advice: list[Advice] = []
    # A solver that works by batches takes time in proportion to the samples, and less memory.
    if max_samples is not None or solver is None or not solver.stochastic:
        (source, target), note = drawn([source, target], "flow", max_samples)
        if note:
            advice.append(Advice("max_samples", f"{max(len(source), len(target))}", note))
    first, last = (data.subset(data.weights > 0) for data in (source, target))

    def choose(option: str, given: Any, chosen: tuple[Any, str, str]) -> Any:
        """The given value, or else the chosen one; with the reason."""
        value, text, reason = chosen if given is None else (given, show(given), "given")
        advice.append(Advice(option, text, reason))
        return value

    # Each choice may depend on those before it: the solver on the cost, the steps on the integrator.
    cost = GroundCost(label=choose("cost.label", label, suggest_label(first, last, dynamics)))
    weighed = (USE.label_weight, f"{USE.label_weight:g}", "keeps classes together during the flow")
    if not cost.has_labels:
        weighed = (1.0, "1", "classes are not compared")
    cost = replace(cost, label_weight=choose("cost.label_weight", label_weight, weighed))
    equal_mass = choose("equal_mass", equal_mass, suggest_mass(first, last, cost))
    if equal_mass:
        source, target = source.balanced(), target.balanced()
    solver = choose("solver", solver, suggest_solver(first, last, memory_limit))
    base = USE if integrator is None else defaults.LOOK
    count = (
        base.n_steps,
        f"{base.n_steps}",
        f"enough to converge with steps of {base.step_size:g}",
    )
    euler = (
        Euler(USE.step_size),
        f"Euler, step_size {USE.step_size:g}",
        "large, for the final state only",
    )
    return Suggestion(
        source,
        target,
        objective=OTDD(target, cost=cost, solver=solver, memory_limit=memory_limit),
        dynamics=choose("dynamics", dynamics, _dynamics(first, last)),
        integrator=choose("integrator", integrator, euler),
        n_steps=choose("n_steps", n_steps, count),
        equal_mass=bool(equal_mass),
        advice=tuple(advice),
    )


def suggest_label(
    source: LabeledDataset, target: LabeledDataset, dynamics: Dynamics | None = None
) -> tuple[LabelCost, str, str]:
    """The label cost as object and as text, with the reason."""
    sides = (source, target)
    if any(data.targets is not None and not has_classes(data) for data in sides):
        if len({None if data.targets is None else data.targets[0].numel() for data in sides}) == 1:
            return TargetValues(), "TargetValues", "labels are numbers"
        return (
            NoLabels(),
            "NoLabels",
            "the targets have different dimensions; only features are compared",
        )
    if not all(bool(data.labeled.all()) and has_classes(data) for data in sides):
        why = (
            "labels are missing, so classes may mix; ad.pseudo_labels creates classes by clustering"
        )
        return NoLabels(), "NoLabels", why
    label, shown, reason = _by_distribution(source, target)
    single_laws = any(data.law_index is not None for data in sides)
    if single_laws or (dynamics and dynamics.moves_laws) or not same_names(source, target):
        return label, shown, reason
    names = [spelled(name) for name, count in source.counts.items() if count]
    same = f"both sides have the same {len(names)} class names"
    return ByName(), "ByName", f"{same}; label=ad.Bures() compares class distributions instead"


def _by_distribution(source: LabeledDataset, target: LabeledDataset) -> tuple[LabelCost, str, str]:
    counts = sorted(count for data in (source, target) for count in data.counts.values() if count)
    median, dim = counts[len(counts) // 2], source.dim
    pairs = len(source.classes) * len(target.classes)
    if median < 2:
        return MeansOnly(), "MeansOnly", "classes of one sample have no covariance"
    if pairs * min(dim, max(counts)) ** 3 > _MAX_LAW_WORK:
        why = f"full covariances of {pairs} pairs of classes in {dim} dimensions take too long"
        return Bures(diagonal=True), "Bures, diagonal", why
    why = f"full covariances of {len(counts)} classes with a median of {median} samples"
    return Bures(), "Bures", why


def suggest_mass(
    source: LabeledDataset, target: LabeledDataset, cost: GroundCost
) -> tuple[bool, str, str]:
    """Whether classes should have equal mass, with the reason."""
    if not cost.has_labels:
        return False, "no", "classes are not compared"
    masses = [[mass for mass in data.class_mass.tolist() if mass] for data in (source, target)]
    if max(max(side) - min(side) for side in masses) <= _MAX_IMBALANCE:
        return False, "no", "class proportions are equal"
    low, high = min(map(min, masses)), max(map(max, masses))
    why = f"class proportions range from {low:.1%} to {high:.1%}; excess mass would change class"
    return True, "yes", why


def suggest_solver(
    source: LabeledDataset, target: LabeledDataset, memory_limit: int | str | None = None
) -> tuple[Solver, str, str]:
    """The solver, with epsilon in units of the cost, with the reasons."""
    n, m = len(source), len(target)
    if max(n, m) > _MAX_DENSE:
        why = f"batches of {_BATCH} for {n} × {m} samples, each with 1 % of its mean cost"
        return MiniBatch(size=_BATCH), "MiniBatch", why
    evenly = {"steps": _N_LOOKED_AT, "dtype": torch.float64}
    x, y = (
        data.x[torch.linspace(0, len(data) - 1, **evenly).long().unique()].double()
        for data in (source, target)
    )
    # About both means: a shift between the datasets says nothing about their shapes.
    mean = float(squared_distances(x - x.mean(dim=0), y - y.mean(dim=0)).mean()) / 2
    epsilon: float | Relative = float(f"{USE.epsilon * mean:.3g}")
    share = f"{USE.epsilon:.0%} of the mean cost of centered features, {mean:.3g}"
    if not epsilon:
        epsilon, share = Relative(defaults.LOOK.epsilon), "features do not vary"
    need, room = 6 * n * m * source.x.element_size(), as_bytes(memory_limit)
    fits = "fit into memory" if need <= room else f"need {readable(need)} and are solved in blocks"
    shown = f"Sinkhorn, epsilon {show(epsilon)}"
    return Sinkhorn(epsilon, tol=USE.tol), shown, f"{share}; {n} × {m} samples {fits}"


def image_range(*sides: LabeledDataset) -> tuple[float, float] | None:
    """The range of the pixels if all datasets are images."""
    return brightness_range(*((data.sample_shape, data.x) for data in sides))


def _dynamics(*sides: LabeledDataset) -> tuple[Dynamics, str, str]:
    bounds = image_range(*sides)
    if bounds is None:
        return FeatureDriven(), "FeatureDriven, no bounds", "features have no known range"
    shown = f"FeatureDriven, bounds {bounds[0]:g} to {bounds[1]:g}"
    return FeatureDriven(bounds=bounds), shown, "the range of the images"
