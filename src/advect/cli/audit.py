"""``advect audit``: which samples of a dataset are wrong, odd, copies, or missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from advect.cli.code import is_code
from advect.cli.config import DataOptions, Overwrite, RunCode, SpaceOptions
from advect.cli.output import TALK, TalkOptions
from advect.cli.places import check_free_file
from advect.cli.sections import SECTIONS
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad

_LISTED = 10  # rows of each kind that are printed


class AuditOptions(DataOptions):
    """How samples are compared."""

    embedding: str = Field(
        default="auto",
        description="Where distances are measured: auto, features, gradients (of images), standardized "
        "(columns), a number of principal components, a network as model.onnx, or path.py:name.",
    )
    memory_limit: str | None = Field(
        default=None, description="Memory that costs may take, such as 2GiB; half of what is free."
    )
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )


def audit(
    data: str,
    reference: str | None = None,
    *,
    out: Annotated[
        Path | None, Parameter(alias="-o", help="Write the table, FILE.csv.", metavar="FILE.csv")
    ] = None,
    report: Annotated[
        Path | None,
        Parameter(help="Write a page of what to look at, FILE.html.", metavar="FILE.html"),
    ] = None,
    cleaned: Annotated[
        Path | None,
        Parameter(help="Write the data without suspects, FILE.npz, .csv or .parquet."),
    ] = None,
    options: Annotated[AuditOptions, Parameter(name="*")] = AuditOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Which samples are wrong, odd, copies of others, or missing?

    Each sample is compared with the others, or with those of a reference. The table has a line for
    each: the label, how far the others disagree with it and what they propose, how badly it fits
    its class, how many others it stands for, and its nearest other sample.

    Args:
        data: A labeled dataset.
        reference: Data that is known to be right; without it, each sample is compared with the others.
    """
    from advect.cli import build, inputs
    from advect.cli.label import as_embedding
    from advect.cli.typed import permission

    places = _Places.checked({"table": out, "page": report, "cleaned": cleaned}, overwrite)
    named = options.embedding if is_code(options.embedding) else None
    code = permission(run_code, [named, *options.space.code])
    with talk.listening():
        import advect as ad

        raw = inputs.load(data, options, talk)
        known = None if reference is None else inputs.load(reference, options, talk)
        ours, theirs = raw, known
        if known is not None or options.space.given:
            coders = build.coders(options.space, code, talk.progress)
            space = build.space(raw, raw if known is None else known, options.space, coders)
            talk.detail(space.describe())
            ours = space.apply(raw)
            theirs = None if known is None else space.apply(known, side="target")
        found = ad.audit(
            ours,
            theirs,
            embedding=as_embedding(options.embedding, code),
            seed=options.seed,
            memory_limit=options.memory_limit,
            progress=talk.progress,
        )
        shown = replace(found, data=raw, reference=known)  # as the user has them
        facts = _facts(shown) | {"data": data, "reference": reference, **places.named}
        places.write(shown)
    talk.result(facts, _text(shown, data, places))


@dataclass(frozen=True)
class _Places:
    """Where to write, checked before any work and once more at its end."""

    files: dict[str, Path]
    overwrite: bool

    @classmethod
    def checked(cls, given: dict[str, Path | None], overwrite: bool) -> _Places:
        files = {name: path.expanduser() for name, path in given.items() if path is not None}
        kinds = {"table": (".csv",), "page": (".html", ".htm")}
        for name, path in files.items():
            if path.suffix.lower() not in kinds.get(name, (".npz", ".csv", ".parquet")):
                ends = ", ".join(kinds.get(name, (".npz", ".csv", ".parquet")))
                raise InputError(
                    f"the {name} is a file of another kind", path, f"Let its name end in {ends}."
                )
        if len({path.resolve() for path in files.values()}) < len(files):
            raise InputError(
                "two results cannot be written to one file",
                ", ".join(map(str, files.values())),
                "Choose another name for one.",
            )
        places = cls(files, overwrite)
        places.check()
        return places

    @property
    def named(self) -> dict[str, Path | None]:
        return {name: self.files.get(name) for name in ("table", "page", "cleaned")}

    def check(self) -> None:
        for path in self.files.values():
            check_free_file(path, self.overwrite)

    def write(self, found: ad.Audit) -> None:
        """All files, each whole or not at all."""
        self.check()  # something may have come since
        kept = found.data.without(found.suspects) if "cleaned" in self.files else None
        if "table" in self.files:
            found.save(self.files["table"], overwrite=self.overwrite)
        if "page" in self.files:
            found.report(self.files["page"])
        if kept is not None:
            kept.save(self.files["cleaned"], overwrite=self.overwrite)


def _facts(found: ad.Audit) -> dict[str, Any]:
    return {
        "n": len(found),
        "wrong": found.wrong,
        "proposed": [str(found.proposed[row]) for row in found.wrong],
        "odd": found.odd,
        "copies": found.copies,
        "suspects": found.suspects,
        "missing": None if found.reference is None else found.missing,
        "notes": found.notes,
        "settings": found.settings,
    }


def _text(found: ad.Audit, data: str, places: _Places) -> str:
    labels, lines = found.data.labels, [f"{data}: {found}"]
    wrong = [f"{row} ({labels[row]} → {found.proposed[row]})" for row in found.wrong[:_LISTED]]
    kinds = {
        "labels in doubt": (wrong, found.wrong),
        "odd": ([str(row) for row in found.odd[:_LISTED]], found.odd),
        "copies": (
            [f"{row} (of {found.twin[row]})" for row in found.copies[:_LISTED]],
            found.copies,
        ),
        "missing, rows of the reference": (
            [str(row) for row in found.missing[:_LISTED]],
            found.missing,
        ),
    }
    for name, (shown, rows) in kinds.items():
        if shown:
            more = f" and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
            lines.append(f"{name}: {', '.join(shown)}{more}")
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"{path}: {_WHAT[name]}" for name, path in places.files.items()]
    return "\n".join(lines)


_WHAT = {"table": "a line for each sample", "page": "what to look at", "cleaned": "the others"}
