"""Training sets from a few samples of a target, and plenty of a source (paper, section 6.2, and beyond).

The paper flows the source to the few samples: where it ended, the way it took, extra samples carried
by a map. With k samples of each class the flow ends on these, and what a learner lacks is how a class
varies. So ``transfer`` also enlarges the few samples in other ways (``advect.apps.ways``), chooses
among them by cross-validation on the few and the source, and says what it chose."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from advect._util import defaults
from advect._util.checks import check_count, check_kind, check_known, check_number, one_or_more
from advect._util.html import facts_table
from advect._util.linalg import squared_distances
from advect.apps.carry import CarryOptions, carrier, carry
from advect.apps.choice import Choice, choose
from advect.apps.pages import write_page
from advect.apps.training import Classifier, Logistic, check_classifier, joined, shared
from advect.apps.ways import WAYS, Task, renamed
from advect.classes.borrowing import check_one_space
from advect.classes.matching import ClassMatching
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.callbacks import Recorder
from advect.flows.loop import FlowResult
from advect.maps.base import Map
from advect.ot import Relative, Sinkhorn, Solver

_SOLVER = Sinkhorn(Relative(defaults.FEW.epsilon), tol=defaults.FEW.tol)
_PURE = 0.9  # below, labels are too often wrong to train on
_NEAR, _MOST = 0.2, 0.9  # this share of particles within this share of their way is copies


@dataclass(frozen=True)
class TransferOptions(CarryOptions):
    """How a source enlarges a few target samples, and how it flows to them: ``CarryOptions``; every so
    many states of the way are kept, and the last.

    Few samples say little about their class, so labels weigh more than elsewhere, for classes to
    stay apart, and epsilon is smaller in proportion, for samples not to end in averages.

    Args:
        among: the ways to choose from. The first is the one to beat, unless the source has the few's
            classes by name and reads them: then one with ``source`` is; with thirty samples of each class,
            ``"shots"``. ``"borrowed"``: the few samples with residuals of matched source classes;
            ``"calibrated"``: the same around class means that the source's classes make likelier;
            ``"mixed"``: residuals of the two nearest source classes;
            ``"gaussian"``: draws of laws around class means, half the few's, half the source's;
            ``"shots"``: nothing but the few; ``"source"``: the source under the target's classes;
            ``"source + borrowed"``: both; ``"smoothed"``: a flow to a density around the few;
            ``"final"``: a flow to the few. The last two take a flow for each fold.
        n: how many samples a way draws; by default as many as the source has. What comes of the
            source's own samples (``source``, ``final``, ``smoothed``) is as many as these.
        few_share: mass of the few samples in ``recommended``, and where ways are compared.
        seed: of the draws.

    Example:
        >>> import advect as ad
        >>> ad.apps.TransferOptions(among=("borrowed", "shots"), n=500).label_weight
        50.0
    """

    label_weight: float = defaults.FEW.label_weight
    solver: Solver | None = _SOLVER
    among: tuple[str, ...] = ("calibrated", "shots", "mixed", "source + borrowed")
    n: int | None = None
    few_share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "among", tuple(one_or_more(self.among or ())))
        for way in self.among:
            check_known("way to enlarge a few samples", way, WAYS)
        if not self.among:
            raise InputError("among must name a way", "none", f"Take some of {', '.join(WAYS)}.")
        check_count("n", 1 if self.n is None else self.n)
        check_count("seed", self.seed, least=0)
        if not 0 < check_number("few_share", self.few_share) < 1:
            raise InputError(
                "few_share must be between 0 and 1",
                repr(self.few_share),
                "0.5 gives the few samples half of the mass.",
            )


@dataclass(frozen=True, eq=False)
class Transferred:
    """Training sets under the target's labels.

    ``recommended`` is there at once. The paper's forms come of a flow, which runs when the first of
    them is asked for.

    Attributes:
        recommended: the few samples and what the chosen way adds, weighted: to train on.
        added: what it adds, None if the few samples alone did best.
        choice: the way that was chosen, and what spoke for it.
        few: the target samples themselves.  source, extra, options: what was given.
    """

    recommended: LabeledDataset
    added: LabeledDataset | None
    choice: Choice
    few: LabeledDataset
    source: LabeledDataset = field(repr=False)
    extra: LabeledDataset | None = field(repr=False)
    options: TransferOptions = field(repr=False)

    def _repr_html_(self) -> str:
        facts = {
            "recommended": repr(self.recommended),
            "way": self.choice.way,
            "why": self.choice.reason,
            "few": repr(self.few),
            "source": repr(self.source),
        }
        return facts_table("Transferred", facts)

    @cached_property
    def result(self) -> FlowResult:
        """The flow of the source to the few samples; run once. Warns where classes have mixed, and
        where nothing but copies of the few samples is left.
        """
        found = carry(self.source, self.few, self.options, [Recorder(every=self.options.every)])
        names = ClassMatching.between(found.dataset, self.few).hard
        purity = _purity(renamed(found.dataset, names, self.few.classes), self.few)
        landed = _landed(found, self.few)
        if purity < _PURE:
            warnings.warn(
                f"{1 - purity:.0%} of the flowed samples ended nearest to a sample of another class "
                "than the one they are labeled with: classes have mixed. Raise label_weight (now "
                f"{self.options.label_weight:g}), or give label its full form, ad.Bures().",
                stacklevel=3,
            )
        elif landed > _MOST:
            more = "" if self.added is None else f" Take recommended ({self.choice.way})."
            warnings.warn(
                f"{landed:.0%} of the flowed samples have come within {_NEAR:.0%} of their starting "
                f"distance from one of the few: training on them is training on copies of these.{more}",
                stacklevel=3,
            )
        return found

    @cached_property
    def matching(self) -> ClassMatching:
        """Which class of the source became which of the target's in the flow."""
        return ClassMatching.between(self.result.dataset, self.few)

    @cached_property
    def final(self) -> LabeledDataset:
        """The source where the flow ended."""
        return self.relabeled(self.result.dataset)

    @cached_property
    def purity(self) -> float:
        """The share of ``final`` that ended nearest to one of the few with its own label; well below
        1, classes have mixed on the way, and labels are wrong.
        """
        return _purity(self.final, self.few)

    @cached_property
    def landed(self) -> float:
        """The share of ``final`` that is left within a fifth of its starting distance from one of the
        few; near 1, they are copies of these.
        """
        return _landed(self.result, self.few)

    @cached_property
    def way(self) -> LabeledDataset:
        """The states kept on the way, one after the other, the last included and the first, which is
        the source, not: z_1 … z_T of the paper.
        """
        result = self.result
        frames = [frame.dataset for frame in result.trajectory if frame.index > 0]
        if result.trajectory[-1].index != result.n_steps:
            frames.append(result.dataset)
        return joined([self.relabeled(frame) for frame in frames])

    @cached_property
    def map(self) -> Map:
        """Carries more samples along the flow."""
        return carrier(self.options).fit(self.result)

    @cached_property
    def mapped(self) -> LabeledDataset | None:
        """The extra samples carried by the map, if there were any."""
        return None if self.extra is None else self.relabeled(self.map.transform(self.extra))

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page: the ways that were tried and what each named right, the sets, and samples of
        them; see ``advect.report.write_transfer_report`` for the options.
        """
        return write_page("write_transfer_report", self, path, options)

    def relabeled(self, data: LabeledDataset) -> LabeledDataset:
        """Data of the source's classes under the target's names, by the matching of the flow."""
        names: dict[Hashable, Hashable] = self.matching.hard
        return renamed(data, names, self.few.classes)


def transfer(
    source: LabeledDataset,
    few: LabeledDataset,
    *,
    extra: LabeledDataset | None = None,
    options: TransferOptions | None = None,
    classifier: Classifier | None = None,
) -> Transferred:
    """Training sets for the task of a few labeled target samples, made with plenty of a source.

    Args:
        source: plenty of labeled samples of another task, in the same feature space (see
            ``ad.harmonize``); that of a network's features is the one where it helps most.
        few: the target samples.
        extra: more source samples, which do not take part in the flow and follow by a map.
        options: how; see ``TransferOptions``.
        classifier: from a seed to a new trainer with ``fit(x, y)`` and ``predict(x)`` on tensors, by
            which the ways are compared: best the one that will be trained in the end, with its
            augmentation. By default logistic regression.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(90, generator=generator)
        >>> target = ad.datasets.gaussians(90, shift=(9.0, 0.0), generator=generator).replace(classes=("a", "b", "c"))
        >>> sets = ad.apps.transfer(source, target.sample(6, balanced=True, generator=generator))
        >>> sets.choice.way, len(sets.recommended), sets.recommended.classes
        ('calibrated', 96, ('a', 'b', 'c'))
        >>> len(sets.way), sets.purity                         # of a flow, which runs here
        (270, 1.0)
    """
    options = options or TransferOptions()
    check_kind("options must be TransferOptions", options, TransferOptions, "Make these instead.")
    _check(source, few, extra)
    check_classifier(classifier or Logistic)
    source_part, few_part = _with_mass(source), _with_mass(few)
    task = Task(
        source_part.to(few.x.device, few.x.dtype),
        few_part,
        classifier or Logistic,
        options,
        options.n or len(source_part),
        options.seed,
        options.few_share,
    )
    choice = choose(task, options.among)
    added = WAYS[choice.way](task)
    recommended = shared(few, [] if added is None else [added], options.few_share)
    return Transferred(recommended, added, choice, few, source, extra, options)


def _check(source: LabeledDataset, few: LabeledDataset, extra: LabeledDataset | None) -> None:
    remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
    others = {} if extra is None else {"extra": extra}
    for name, data in ({"few": few, "source": source} | others).items():
        check_kind(f"{name} must be a LabeledDataset", data, LabeledDataset, remedy)
        check_one_space(name, data, few)
    source.require_classes("transfer from source")
    source.require_labels("transfer from source")
    few.require_classes("transfer to a few samples")
    few.require_labels("transfer to a few samples")


def _with_mass(data: LabeledDataset) -> LabeledDataset:
    """Without rows of weight 0, which are no samples."""
    massive = data.weights > 0
    return data if bool(massive.all()) else data.subset(massive)


def _purity(final: LabeledDataset, few: LabeledDataset) -> float:
    nearest = squared_distances(final.x, few.x.to(final.x)).argmin(dim=1)
    return float((few.y[nearest] == final.y).double().mean())


def _landed(result: FlowResult, few: LabeledDataset) -> float:
    first, last = (
        squared_distances(state.x, few.x.to(state.x)).amin(dim=1).clamp_min(0)
        for state in (result.trajectory[0].dataset, result.dataset)
    )
    return float((last <= _NEAR**2 * first).double().mean())
