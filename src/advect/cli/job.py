"""A flow as the command line describes it, ready to be made: datasets read, objects built, nothing
written yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advect.cli import build, inputs
from advect.cli.code import Permission, is_code, load_object, settled_code
from advect.cli.config import FlowOptions, SpaceOptions
from advect.cli.output import Talk
from advect.cli.rundir import (
    Curves,
    RunFiles,
    entry,
    environment,
    read_config,
    read_json,
    write_config,
    write_json,
)
from advect.cli.spelling import spelled
from advect.cli.terms import Term, settled
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.data.spaces.pictures import Pictures


_CODERS = ("encoder", "decoder")


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
            "space": options.space.settled,
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
    targets: dict[str, ad.LabeledDataset]
    space: ad.FeatureSpace | None
    objects: build.Objects
    digests: dict[str, str]
    as_read: dict[str, ad.LabeledDataset]

    @property
    def pictures(self) -> Pictures | None:
        """How samples of the common space look, if there is one."""
        if self.space is None or not _hides_images(self.space):
            return None
        return self.space.pictures(self.as_read["source"], self.as_read.get("target"))

    @property
    def target(self) -> ad.LabeledDataset | None:
        """The main target, if there is one."""
        return self.targets.get("")

    def callbacks(self) -> list[Any]:
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
        if options.stop.given:
            watch.append(options.stop.built())
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
            write_json(directory / "space.json", self.space.to_dict(directory))


def prepare(job: Job, talk: Talk) -> Ready:
    """Read and build; every error in the input shows here."""
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
    data = _datasets(job, terms, talk)
    objects = build.Objects.of(options, data.source, data.targets, job.code)
    job = replace(job, options=_resolved(options, objects, data.dtype))
    return Ready(job, data.source, data.targets, data.space, objects, _digests(data), data.as_read)


def _digests(data: _Data) -> dict[str, str]:
    """What the inputs are known by: datasets in their common space; with an encoder datasets as they
    were read, and the encoder, since its features may differ in the last bits from one machine to
    the next.
    """
    from advect.data.digest import digest

    coders = {} if data.space is None else data.space.digests()
    if coders:
        return {name: digest(held) for name, held in data.as_read.items()} | coders
    named = {f"target {name}".strip(): held for name, held in data.targets.items()}
    return {name: digest(held) for name, held in {"source": data.source, **named}.items()}


def _resolved(
    options: FlowOptions, objects: build.Objects, dtype: str | None = None
) -> FlowOptions:
    """Every value said: those of the objects, and the dtype where all data has one."""
    stop = options.stop.resolved(options.stop.built()) if options.stop.given else options.stop
    more = {"stop": stop, "dtype": options.dtype or dtype}
    return objects.resolved(options).model_copy(update=more)


@dataclass(frozen=True, eq=False)
class _Data:
    """The datasets of a job in their common space, and the dtype that they all came with;
    ``as_read`` has them before, under the names of their digests.
    """

    source: ad.LabeledDataset
    targets: dict[str, ad.LabeledDataset]
    space: ad.FeatureSpace | None
    dtype: str | None
    as_read: dict[str, ad.LabeledDataset]


def _datasets(job: Job, terms: list[Term], talk: Talk) -> _Data:
    options = job.options
    others = [
        str(term.options["target"]) for term in terms if term.to_target and "target" in term.options
    ]
    refs = [job.target, *others] if job.target else others
    source = inputs.load(job.source, options, talk)
    if not refs and options.space != SpaceOptions():
        raise InputError(
            "a feature space is that of two datasets",
            "one",
            "Give a target, or leave the space alone.",
        )
    coders = build.coders(options.space, job.code, talk.progress)
    found = {ref: inputs.load(ref, options, talk) for ref in refs}
    dtypes = {str(data.x.dtype).removeprefix("torch.") for data in (source, *found.values())}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    if not found:
        return _Data(source, {}, None, dtype, {"source": source})
    space = build.space(source, next(iter(found.values())), options.space, coders)
    talk.detail(space.describe())
    moved = {ref: space.apply(data, side="target") for ref, data in found.items()}
    targets = {ref: moved[ref] for ref in others} | ({"": moved[job.target]} if job.target else {})
    as_read = {f"target {ref}": found[ref] for ref in others}
    as_read |= {"source": source} | ({"target": found[job.target]} if job.target else {})
    return _Data(space.apply(source), targets, space, dtype, as_read)


def target_of(job: Job, talk: Talk) -> tuple[ad.LabeledDataset | None, Pictures | None]:
    """The target of a run in its common space, and how samples look there; None for both, with a
    note, where there is none or it cannot be read any more.
    """
    from advect.datasets.run_frames import space_from

    try:
        facts = read_json(job.directory / "space.json")
        if job.target is None or not facts:
            return None, None
        coders = _permitted(job, talk)
        space = space_from(facts, job.directory / "space.json", **coders)
        read = inputs.load(job.target, job.options, talk)
        target = space.apply(read, side="target")
    except InputError as error:
        talk.note(f"note: without the target {job.target}: {spelled(error)}")
        return None, None
    if not _hides_images(space):
        return target, None
    try:
        return target, space.pictures(inputs.load(job.source, job.options, talk), read)
    except InputError as error:
        talk.note(f"note: without pictures of {job.source}: {spelled(error)}")
        return target, None


def _hides_images(space: ad.FeatureSpace) -> bool:
    """Whether samples are images until they come to the common space."""
    from advect.data.spaces.images import layout

    return layout(space.picture_shape) is not None and layout(space.sample_shape) is None


def _permitted(job: Job, talk: Talk) -> dict[str, Any]:
    """The encoder and decoder of a run that are code, where it may be run; ONNX files are opened
    with the space.
    """
    space = job.options.space
    files = {name: None for name in _CODERS if not is_code(getattr(space, name) or "")}
    coded = build.coders(space.model_copy(update=files), job.code, talk.progress)
    return coded or {"progress": talk.progress}


def check_unchanged(ready: Ready) -> None:
    """``--resume`` goes on with the same run: all but the number of steps must be as it was."""
    job = ready.job
    source, target, options = read_config(job.directory)
    code = (options.functional, options.cost.embedding)
    if code == (job.options.functional, job.options.cost.embedding):
        # what an earlier version left to defaults is said, too
        objects = build.Objects.of(options, ready.source, ready.targets, job.code)
        options = _resolved(options, objects, job.options.dtype)
    before = {"source": source, "target": target, **options.model_dump()}
    now = {"source": job.source, "target": job.target, **job.options.model_dump()}
    free = ("steps", "record_every", "checkpoint_every")
    other = [name for name in before if name not in free and before[name] != now[name]]
    if other:
        name, was, given = other[0], before[other[0]], now[other[0]]
        if isinstance(was, dict) and isinstance(given, dict):  # say which of a group of options
            key = next(key for key in {**was, **given} if was.get(key) != given.get(key))
            name, was, given = f"{name}.{key}", was.get(key), given.get(key)
        raise InputError(
            f"the run in {job.directory} has another {name}",
            f"{given} instead of {was}",
            "Choose another directory, or pass --overwrite instead of --resume.",
        )


def _where(job: Job, name: str) -> str:
    """Where an input of a job comes from."""
    space = job.options.space
    places = {
        "source": job.source,
        "encoder": space.encoder,
        "decoder": space.decoder or space.encoder,  # that of a transformer is its own
    }
    return f"{places.get(name, job.target)}"


def check_same(ready: Ready, talk: Talk) -> None:
    """A resumed flow must find its data as it left it."""
    import torch

    known = read_json(ready.job.directory / "env.json")
    digests = entry(known, "digests", dict) if "digests" in known else {}
    if digests is None:
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
                _where(ready.job, name),
                f"Bring {'it' if name in _CODERS else 'the data'} back, or start a new run.",
            )
    if known.get("torch") not in (None, str(torch.__version__)):
        talk.note(
            f"note: the run began with torch {known['torch']}; with {torch.__version__} it may "
            "differ in the last bits"
        )
