"""A flow as the command line describes it, ready to be made: datasets read, objects built, nothing
written yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advect.cli import build, inputs
from advect.cli.code import Permission, load_object, settled_code
from advect.cli.config import FlowOptions, SpaceOptions
from advect.cli.output import Talk
from advect.cli.rundir import Curves, RunFiles, environment, read_json, write_config, write_json
from advect.cli.terms import Term, settled
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad


@dataclass(frozen=True)
class Job:
    """What to flow, to where, how; by reference."""

    source: str
    target: str | None
    options: FlowOptions
    directory: Path
    code: Permission

    @classmethod
    def settle(
        cls,
        source: str,
        target: str | None,
        options: FlowOptions,
        directory: Path,
        code: Permission,
    ) -> Job:
        """A job that does not depend on where it is read: whole paths, all numbers said."""
        cost = options.cost
        if cost.embedding is not None:
            cost = cost.model_copy(update={"embedding": settled_code(cost.embedding)})
        whole = {
            "functional": tuple(settled(text) for text in options.functional),
            "metric": tuple(settled_code(text) for text in options.metric),
            "cost": cost,
            "record_every": options.record_every or max(1, options.steps // 20),
        }
        target = None if target is None else inputs.settled(target)
        return cls(
            inputs.settled(source), target, options.model_copy(update=whole), directory, code
        )


@dataclass(frozen=True, eq=False)
class Ready:
    """The datasets of a job in their common space, and its objects."""

    job: Job
    source: ad.LabeledDataset
    target: ad.LabeledDataset | None
    space: ad.FeatureSpace | None
    functional: ad.Functional
    digests: dict[str, str]

    def callbacks(self, talk: Talk) -> list[Any]:
        """All that watches the flow, in order: the files that describe it come first."""
        import advect as ad

        options, directory = self.job.options, self.job.directory
        watch: list[Any] = [
            RunFiles(self._describe),
            ad.Recorder(options.record_every or 1, directory),
            ad.Checkpoint(directory, options.checkpoint_every),
            Curves(directory),
        ]
        for text in options.metric:
            measure = load_object(text, "a metric", self.job.code)
            if not callable(measure):
                raise InputError(
                    "a metric must be a function of a dataset",
                    type(measure).__name__,
                    "As in def f(rho): ….",
                )
            watch.append(
                ad.Metric(
                    text.rpartition(":")[2], measure, options.metric_every, directory=directory
                )
            )
        stop = build.stop(options.stop)
        if stop is not None:
            watch.append(stop)
        if not talk.quiet:
            watch.append(ad.Progress(options.steps, "flow"))
        return watch

    def at(self, directory: Path) -> Ready:
        """The same, to be written to another place."""
        return replace(self, job=replace(self.job, directory=directory))

    def _describe(self) -> None:
        directory = self.job.directory
        (directory / "result.json").unlink(missing_ok=True)
        write_config(directory, self.job.source, self.job.target, self.job.options)
        write_json(directory / "env.json", environment(self.job.options, self.digests))
        if self.space is not None:
            write_json(directory / "space.json", self.space.to_dict())


def prepare(job: Job, talk: Talk) -> Ready:
    """Read and build; every error in the input shows here."""
    from advect.data.digest import digest

    options = job.options
    terms = [Term.parse(text) for text in options.functional]
    if job.target is None and any(
        term.to_target and "target" not in term.options for term in terms
    ):
        raise InputError(
            "a flow down a distance needs a target",
            "no second dataset",
            "Give one, or another functional: -f norm.",
        )
    source, targets, space = _datasets(job, terms, talk)
    functional = build.functional(options, source, targets, job.code)
    digests = {
        "source": digest(source),
        **{f"target {name}".strip(): digest(data) for name, data in targets.items()},
    }
    return Ready(job, source, targets.get(""), space, functional, digests)


def _datasets(
    job: Job, terms: list[Term], talk: Talk
) -> tuple[ad.LabeledDataset, dict[str, ad.LabeledDataset], ad.FeatureSpace | None]:
    options = job.options
    others = [
        str(term.options["target"]) for term in terms if term.to_target and "target" in term.options
    ]
    first = job.target or (others[0] if others else None)
    if first is None:
        if options.space != SpaceOptions():
            raise InputError(
                "a feature space is that of two datasets",
                "one",
                "Give a target, or leave the space alone.",
            )
        return inputs.load(job.source, options, talk), {}, None
    source, target, space = inputs.together((job.source, first), options, options.space, talk)
    targets = {"": target} if job.target else {}
    for ref in others:
        targets[ref] = (
            target if ref == first else space.apply(inputs.load(ref, options, talk), side="target")
        )
    return source, targets, space


def target_of(job: Job, talk: Talk) -> ad.LabeledDataset | None:
    """The target of a run in its common space; None, with a note, where there is none or it cannot
    be read any more.
    """
    from advect.data.spaces import FeatureSpace

    try:
        facts = read_json(job.directory / "space.json")
        if job.target is None or not facts:
            return None
        return FeatureSpace.from_dict(facts).apply(
            inputs.load(job.target, job.options, talk), side="target"
        )
    except InputError as error:
        talk.note(f"note: without the target {job.target}: {error}")
        return None


def check_same(ready: Ready, talk: Talk) -> None:
    """A resumed flow must find its data as it left it."""
    import torch

    known = read_json(ready.job.directory / "env.json")
    digests = known.get("digests", {})
    if not isinstance(digests, dict):
        path = ready.job.directory / "env.json"
        raise InputError(
            "env.json cannot be used",
            f"{path} (digests are no table)",
            "Take it from a copy, or start a new run.",
        )
    for name, value in digests.items():
        if ready.digests.get(name) != value:
            raise InputError(
                f"the {name} has changed since the run began",
                f"{ready.job.source if name == 'source' else ready.job.target}",
                "Bring the data back, or start a new run.",
            )
    if known.get("torch") not in (None, str(torch.__version__)):
        talk.note(
            f"note: the run began with torch {known['torch']}; with {torch.__version__} it may "
            "differ in the last bits"
        )
