"""How to flow one dataset to another: every choice made from the data, each with its reason.

Nothing is solved and nothing moves: what is looked at are sizes, shares of classes, dimensions and
the mean feature cost of some hundred samples. The rules were set on one half of five image datasets
and tried on the other (docs/choosing-parameters.md says how far they are from the best of a grid)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from advect._util import defaults
from advect._util.checks import check_kind
from advect._util.html import facts_table
from advect._util.linalg import squared_distances
from advect._util.memory import as_bytes, readable
from advect.cost import Bures, GroundCost, MeansOnly, NoLabels
from advect.cost.labels import LabelCost
from advect.cost.targets import TargetValues
from advect.data.dataset import LabeledDataset
from advect.data.spaces.images import brightness_range
from advect.errors import InputError
from advect.flows.dynamics import FeatureDriven
from advect.flows.integrators import Euler
from advect.flows.loop import FlowResult, flow
from advect.functionals import OTDD
from advect.ot import MiniBatch, Relative, Sinkhorn, Solver
from advect.transport.notes import Note

_LABEL_WEIGHT = 2.0  # classes hold together, and the features are not forgotten
_EPSILON = 0.03  # of the mean feature cost, which a label weight does not change
_STEP_SIZE, _N_STEPS = 0.5, 30  # flow time 15; controlled steps of 0.5 fall as fast as any
_SOME = 500  # samples to look at
_SHARES = 0.02  # of mass, by which shares of classes may differ
_LARGE = 20_000  # samples, beyond which parts are compared
_BATCH = 2000
_LAWS = 2e11  # multiplications of a step for label laws, beyond which diagonals do


@dataclass(frozen=True)
class Advice:
    """One choice: which part of a ``Suggestion``, its value in words, and why.

    Example:
        >>> print(Advice("n_steps", "30", "nothing moves any more"))
        n_steps  30  (nothing moves any more)
    """

    option: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.option}  {self.value}  ({self.reason})"


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A flow from one dataset to another, ready to be run, changed, or written down.

    Attributes:
        advice: every choice with its reason.
        source, target: the datasets, with classes of equal mass where that is advised.
        cost, solver, dynamics, integrator, n_steps: what ``ad.flow`` takes.
        equal_mass: whether classes were given equal mass.
        hints: what the data does not say and you may know.
        memory_limit: what a step may take, as it was given.

    Example:
        >>> import advect as ad
        >>> found = ad.suggest(ad.datasets.load("toy:gaussians?n=60"), ad.datasets.load("toy:moons?n=60"))
        >>> found.n_steps, found.cost.label_weight
        (30, 2.0)
        >>> result = found.flow(n_steps=3)
        >>> result.values[-1] < result.values[0]
        True
    """

    advice: tuple[Advice, ...]
    source: LabeledDataset = field(repr=False)
    target: LabeledDataset = field(repr=False)
    cost: GroundCost
    solver: Solver
    dynamics: FeatureDriven
    integrator: Euler
    n_steps: int
    equal_mass: bool
    hints: tuple[Note, ...] = ()
    memory_limit: int | str | None = None

    @property
    def objective(self) -> OTDD:
        """The functional to decrease: ½ OTDD² to the target.

        Example:
            >>> import advect as ad
            >>> moons = ad.datasets.load("toy:moons?n=40")
            >>> round(ad.suggest(moons, moons).objective(moons).item(), 6) + 0
            0.0
        """
        return OTDD(self.target, cost=self.cost, solver=self.solver, memory_limit=self.memory_limit)

    def flow(self, **changes: Any) -> FlowResult:
        """Run it; options of ``ad.flow`` replace what was suggested."""
        parts = {
            "dynamics": self.dynamics,
            "integrator": self.integrator,
            "n_steps": self.n_steps,
        }
        return flow(self.source, self.objective, **{**parts, **changes})

    @property
    def code(self) -> str:
        """The same as lines of Python, for ``source`` and ``target``.

        Example:
            >>> import advect as ad
            >>> moons = ad.datasets.load("toy:moons?n=40")
            >>> print(ad.suggest(moons, moons).code.splitlines()[0])
            objective = ad.OTDD(
        """
        mass = ".balanced()" if self.equal_mass else ""
        solver = repr(self.solver).replace("=Relative(", "=ad.Relative(")
        limit = (
            f"    memory_limit={self.memory_limit!r},\n" if self.memory_limit is not None else ""
        )
        return (
            f"objective = ad.OTDD(\n    target{mass},\n    cost=ad.{_written(self.cost)},\n"
            f"    solver=ad.{solver},\n{limit})\n"
            f"result = ad.flow(\n    source{mass},\n    objective,\n    dynamics=ad.{self.dynamics!r},\n"
            f"    integrator=ad.{self.integrator!r},\n    n_steps={self.n_steps},\n)"
        )

    def __str__(self) -> str:
        wide = [max(len(getattr(one, part)) for one in self.advice) for part in ("option", "value")]
        rows = [
            f"{one.option:<{wide[0]}}  {one.value:<{wide[1]}}  {one.reason}" for one in self.advice
        ]
        return "\n".join([*rows, *(f"hint: {note}" for note in self.hints)])

    def _repr_html_(self) -> str:
        facts = {one.option: f"{one.value}: {one.reason}" for one in self.advice}
        facts |= {"hint": " ".join(map(str, self.hints))} if self.hints else {}
        return facts_table("Suggestion", facts)


def suggest(
    source: LabeledDataset, target: LabeledDataset, *, memory_limit: int | str | None = None
) -> Suggestion:
    """Epsilon, label weight, label law, solver, balance, steps for a flow of one dataset to another.

    Use it before the first flow of two datasets, or where a flow mixed its classes: it looks at the
    data, takes a second, and says why it chooses what. It is about flows whose end is used by class;
    to compare a distance with published ones, keep the defaults.

    Args:
        source, target: labeled datasets in one feature space (``ad.harmonize``).
        memory_limit: bytes, or a text like "2GiB", that a step may take; by default half of what is
            free.

    Raises:
        InputError: datasets that have no common space, or no samples.

    Example:
        >>> import advect as ad
        >>> digits, mnist = ad.harmonize(ad.datasets.load("digits", n=100), ad.datasets.load("mnist", n=100))
        >>> found = ad.suggest(digits, mnist)
        >>> found.equal_mass, found.dynamics.bounds
        (True, (0.0, 1.0))
    """
    for name, data in {"source": source, "target": target}.items():
        remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
        check_kind(f"{name} must be a LabeledDataset", data, LabeledDataset, remedy)
    if source.dim != target.dim:
        raise InputError(
            "source and target need one feature space",
            f"{source.dim} and {target.dim} features",
            "Bring them together with ad.harmonize(source, target), or ad.align.",
        )
    seen = _with_mass(source), _with_mass(target)  # samples without mass change nothing
    label, weight, told = _label(*seen)
    equal, mass = _mass(*seen, label)
    if equal:
        source, target = source.balanced(), target.balanced()
    cost = GroundCost(label=label, label_weight=weight)
    solver, solved = _solver(*seen, memory_limit)
    bounds = brightness_range(*((data.sample_shape, data.x) for data in seen))
    steps = (
        Advice(
            "n_steps", f"{_N_STEPS}", f"flow time {_N_STEPS * _STEP_SIZE:g}: nothing moves any more"
        ),
        Advice(
            "integrator.step_size",
            f"{_STEP_SIZE:g}",
            "only the end is used; a step that would make the value rise is made smaller",
        ),
    )
    kept = Advice(
        "dynamics.bounds",
        "none" if bounds is None else f"{bounds[0]:g} to {bounds[1]:g}",
        "features have no range of their own" if bounds is None else "images stay images",
    )
    return Suggestion(
        (*told, mass, *solved, *steps, kept),
        source,
        target,
        cost,
        solver,
        FeatureDriven(bounds=bounds),
        Euler(_STEP_SIZE),
        _N_STEPS,
        equal,
        _hints(*seen, label),
        memory_limit,
    )


def _with_mass(data: LabeledDataset) -> LabeledDataset:
    """The samples that have a weight, of which all that is advised comes."""
    return data if bool((data.weights > 0).all()) else data.subset(data.weights > 0)


def _written(cost: GroundCost) -> str:
    """A ground cost as it would be typed, without what is the default anyway."""
    return f"GroundCost(label=ad.{cost.label!r}, label_weight={cost.label_weight:g})"


def _label(
    source: LabeledDataset, target: LabeledDataset
) -> tuple[LabelCost, float, tuple[Advice, ...]]:
    """What labels are compared by, and how much they count."""
    sides = (source, target)
    if _by_number(*sides):
        if not _same_targets(*sides):
            why = "both sides do not have the same targets: features alone are compared"
            return NoLabels(), defaults.LOOK.label_weight, (Advice("cost.label", "NoLabels", why),)
        law = Advice("cost.label", "TargetValues", "labels are numbers: they are compared by value")
        one = Advice(
            "cost.label_weight", "1", "a deviation of the targets counts as one of the features"
        )
        return TargetValues(), 1.0, (law, one)
    if not all(data.complete and data.has_classes for data in sides):
        why = "labels are missing: features alone are compared"
        return NoLabels(), defaults.LOOK.label_weight, (Advice("cost.label", "NoLabels", why),)
    sizes = [count for data in sides for count in data.counts.values() if count]
    median, dim = sorted(sizes)[len(sizes) // 2], source.dim
    pairs = len(source.classes) * len(target.classes)
    weight = Advice(
        "cost.label_weight",
        f"{_LABEL_WEIGHT:g}",
        "what comes out is used by its classes: at 1 nearness of samples outweighs them",
    )
    if median < 2:
        law = Advice("cost.label", "MeansOnly", "classes of one sample have no spread")
        return MeansOnly(), _LABEL_WEIGHT, (law, weight)
    work = pairs * min(dim, max(sizes)) ** 3
    if work > _LAWS:
        why = f"{pairs} pairs of classes in {dim} dimensions: full covariances would take most of the time"
        return (
            Bures(diagonal=True),
            _LABEL_WEIGHT,
            (Advice("cost.label", "Bures, diagonal", why), weight),
        )
    why = f"full covariances of {len(sizes)} classes, {median} samples in the median"
    return Bures(), _LABEL_WEIGHT, (Advice("cost.label", "Bures", why), weight)


def _by_number(*sides: LabeledDataset) -> bool:
    """Whether a side has targets in place of classes."""
    return any(data.targets is not None and not data.has_classes for data in sides)


def _same_targets(*sides: LabeledDataset) -> bool:
    """Whether each side has targets, and as many."""
    return len({None if data.targets is None else data.targets[0].numel() for data in sides}) == 1


def _mass(source: LabeledDataset, target: LabeledDataset, label: LabelCost) -> tuple[bool, Advice]:
    """Whether classes should have the same mass."""
    if not label.costs:
        return False, Advice("equal_mass", "no", "classes are not compared")
    shares = [
        sorted(mass for mass in data.class_mass.tolist() if mass) for data in (source, target)
    ]
    uneven = max(most[-1] - most[0] for most in shares)
    if uneven <= _SHARES:
        return False, Advice("equal_mass", "no", "classes have equal shares already")
    low, high = min(shares[0][0], shares[1][0]), max(shares[0][-1], shares[1][-1])
    why = (
        f"shares go from {low:.1%} to {high:.1%}: mass that a class has too much would have to "
        "become another class"
    )
    return True, Advice("equal_mass", "yes", why)


def _solver(
    source: LabeledDataset, target: LabeledDataset, memory_limit: int | str | None
) -> tuple[Solver, tuple[Advice, ...]]:
    """Which solver, and its epsilon in the units of the cost."""
    x, y = (data.x[_some_of(len(data))].double() for data in (source, target))
    mean = float(squared_distances(x, y).mean()) / 2
    epsilon: float | Relative = float(f"{_EPSILON * mean:.3g}")
    share = Advice(
        "solver.epsilon",
        f"{epsilon:g}",
        f"{_EPSILON:.0%} of the mean feature cost, {mean:.3g}: it does not grow with the label weight",
    )
    if not epsilon:
        epsilon = Relative(defaults.LOOK.epsilon)
        share = Advice("solver.epsilon", "1 % of the mean cost", "all samples are in one place")
    n, m = len(source), len(target)
    tol = defaults.LOOK.tol
    if max(n, m) > _LARGE:
        why = f"{n} × {m} samples: parts of {_BATCH}, others at each step"
        share = Advice(
            "solver.epsilon", "1 % of the mean cost", "of the whole problem, for each part"
        )
        return MiniBatch(size=_BATCH), (Advice("solver", "MiniBatch", why), share)
    need, room = 6 * n * m * source.x.element_size(), as_bytes(memory_limit)
    why = (
        f"{n} × {m} samples fit into memory"
        if need <= room
        else f"about {readable(need)} for {n} × {m} samples are more than {readable(room)}: it works in blocks"
    )
    return Sinkhorn(epsilon, tol=tol), (Advice("solver", "Sinkhorn", why), share)


def _some_of(count: int) -> torch.Tensor:
    """Places of some samples, from the first to the last, whatever their number."""
    return torch.linspace(0, count - 1, _SOME, dtype=torch.float64).long().unique()


def _hints(source: LabeledDataset, target: LabeledDataset, label: LabelCost) -> tuple[Note, ...]:
    """What the data cannot say."""
    if _by_number(source, target):
        if _same_targets(source, target):
            return ()
        why = "Targets do not count, since both sides do not have the same."
        return (Note(why, "Give both ad.LabeledDataset(x, targets=y).", "Name them: ?target=…."),)
    if not label.costs:
        why = "Labels are missing on one side at least, so that classes are not kept together."
        return (Note(why, "ad.pseudo_labels makes classes of clusters.", "Name them: ?label=…."),)
    both = set(map(str, source.classes)) & set(map(str, target.classes))
    if len(both) < 2:
        return ()
    return (
        Note(
            f"{len(both)} classes have the same names on both sides, and names do not count.",
            "If they mean the same, take label=ad.ByName().",
            "If they mean the same, take --cost.label names.",
        ),
    )
