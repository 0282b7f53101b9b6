"""``advect label``: labels for a pool of samples from a few, as a table or as a directory."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field

from advect.cli.code import Permission, is_code
from advect.cli.config import DataOptions, Out, Overwrite, RunCode, SpaceOptions
from advect.cli.layout import Sets
from advect.cli.options import Flag
from advect.cli.output import TALK, TalkOptions
from advect.cli.places import check_free, check_free_file
from advect.cli.rundir import write_json
from advect.cli.sections import SECTIONS
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad

_TABLES = (".csv", ".npz", ".parquet")
_COLUMNS = ("row", "label", "confidence", "second", "second_confidence", "known")


class LabelOptions(DataOptions):
    """How a pool is labeled."""

    embedding: str = Field(
        default="auto",
        description="Where distances are measured: auto, features, gradients (of images), standardized "
        "(columns), a number of principal components, a network as model.onnx, or path.py:name.",
    )
    method: Literal["auto", "propagate", "refine", "nearest", "logistic"] = Field(
        default="auto",
        description="Spread labels over a graph of neighbours, once or over a refined one, take that of "
        "the nearest sample, or fit a logistic regression; auto compares them on held-out labels.",
    )
    neighbors: int | None = Field(
        default=None, ge=1, description="Of each sample in the graph; compared by default."
    )
    alpha: float | None = Field(
        default=None, description="How far labels spread, below 1; compared by default."
    )
    confidence: float = Field(
        default=0.0, ge=0, le=1, description="Leave labels out that are less sure than this."
    )
    doubt: Annotated[bool, Flag] = Field(
        default=False,
        description="Keep the probabilities of classes in the pool that is written, not labels alone.",
    )
    relabel: Annotated[bool, Flag] = Field(
        default=False,
        description="Do not look at labels that the pool has, and say how many come out again.",
    )
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )


def label(
    pool: str,
    few: str | None = None,
    *,
    out: Out,
    report: Annotated[
        Path | None,
        Parameter(help="Also write a page of what is unsure, FILE.html.", metavar="FILE.html"),
    ] = None,
    options: Annotated[LabelOptions, Parameter(name="*")] = LabelOptions.model_construct(),  # noqa: B008 (frozen)
    format: Annotated[
        Literal["npz", "csv", "parquet"],
        Parameter(help="Of the labeled pool, where a directory is written."),
    ] = "npz",
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Label a pool of samples from a few labeled ones, and say how sure each label is.

    Writes a table (row, label, confidence, the second most probable class, whether the label was
    known) to a file .csv, .npz or .parquet; without a suffix a directory with that table, the
    labeled pool and result.json.

    Args:
        pool: Samples without labels, or with some, which are kept.
        few: Labeled samples; without any, those of the pool that have labels.
    """
    from advect.cli import build, inputs
    from advect.cli.typed import permission

    places = _Places.checked(out, report, overwrite)
    named = options.embedding if is_code(options.embedding) else None
    code = permission(run_code, [named, *options.space.code])
    with talk.listening():
        import advect as ad

        raw = inputs.load(pool, options, talk)
        data = raw.replace(y=raw.y.new_full((len(raw),), -1)) if options.relabel else raw
        shots = None if few is None else inputs.load(few, options, talk)
        if shots is not None or options.space.given:
            coders = build.coders(options.space, code, talk.progress)
            space = build.space(data, data if shots is None else shots, options.space, coders)
            talk.detail(space.describe())
            data = space.apply(data)
            shots = None if shots is None else space.apply(shots, side="target")
        made = ad.apps.label(
            data,
            shots,
            embedding=as_embedding(options.embedding, code),
            method=options.method,
            neighbors=options.neighbors,
            alpha=options.alpha,
            seed=options.seed,
            progress=talk.progress,
        )
        facts = _facts(made, raw, options) | {"pool": pool, "few": few, "out": places.out}
        places.write(made, raw, options, format, facts)
    talk.result(facts, _text(facts, places))


@dataclass(frozen=True)
class _Places:
    """Where to write, checked before any work and once more at its end."""

    out: Path
    report: Path | None
    overwrite: bool

    @classmethod
    def checked(cls, out: Path, report: Path | None, overwrite: bool) -> _Places:
        places = cls(out.expanduser(), None if report is None else report.expanduser(), overwrite)
        if places.out.suffix and places.out.suffix.lower() not in _TABLES:
            raise InputError(
                "labels are written to a table, or to a directory",
                places.out,
                f"Let its name end in {', '.join(_TABLES)}, or in nothing for a directory.",
            )
        if places.report is not None and places.report.suffix.lower() not in (".html", ".htm"):
            raise InputError(
                "a report is an HTML file", places.report, "Let its name end in .html."
            )
        places.check()
        return places

    @property
    def is_table(self) -> bool:
        return bool(self.out.suffix)

    @property
    def report_inside(self) -> bool:
        """Whether the page belongs to the directory that is written."""
        return (
            self.report is not None
            and not self.is_table
            and self.report.parent.resolve() == self.out.resolve()
        )

    def check(self) -> None:
        if self.is_table:
            check_free_file(self.out, self.overwrite)
        else:
            check_free(self.out, self.overwrite, Sets())
        if self.report is not None and not self.report_inside:
            check_free_file(self.report, self.overwrite)

    def write(
        self,
        made: ad.apps.Labelled,
        raw: ad.LabeledDataset,
        options: LabelOptions,
        format: str,
        facts: dict[str, Any],
    ) -> None:
        """All files, each whole or not at all."""
        from advect._util.atomic import atomic_directory, write_atomically

        self.check()  # something may have come since
        labeled = raw.replace(y=made.dataset.y, classes=made.dataset.classes)
        if options.doubt:
            labeled = labeled.replace(y=labeled.y, probabilities=made.with_doubt().probabilities)
        shown = replace(made, dataset=labeled)  # as the user has them, not in the feature space
        sure = made.confidence >= options.confidence
        if self.is_table:
            write_atomically(self.out, _table(made, sure, self.out.suffix.lower()))
        else:
            sets = {"labels": {"file": "labels.csv", "n": len(made)}}
            if sure.any():
                sets["pool"] = {"file": f"pool.{format}", "n": int(sure.sum())}
            if self.report_inside and self.report is not None:
                sets["report"] = {"file": self.report.name, "n": len(made)}
            facts["sets"] = sets
            with atomic_directory(self.out, overwrite=self.overwrite) as beside:
                write_atomically(beside / "labels.csv", _table(made, sure, ".csv"))
                if sure.any():
                    labeled.subset(sure.nonzero()[0]).save(beside / f"pool.{format}")
                if "report" in sets:
                    shown.report(beside / sets["report"]["file"])
                write_json(beside / "result.json", facts)
        if self.report is not None and not self.report_inside:
            shown.report(self.report)


def as_embedding(text: str, code: Permission) -> Any:
    """What the library takes as an embedding."""
    if text in ("auto", "gradients", "standardized"):
        return text
    if text == "features":
        return None
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    if is_code(text) or Path(text).suffix:
        from advect.cli.models import load_coder

        return load_coder(text, "embedding", code)
    raise InputError(
        "unknown embedding",
        repr(text),
        "Known: auto, features, gradients, standardized, a number, model.onnx, path.py:name.",
    )


def _facts(made: ad.apps.Labelled, raw: ad.LabeledDataset, options: LabelOptions) -> dict[str, Any]:
    calibration, given = made.calibration, ~made.known
    agree = None
    if options.relabel and bool(raw.labeled.any()):
        pairs = zip(made.labels, raw.labels, strict=True)
        had = [(one, other) for one, other in pairs if other is not None]
        agree = sum(one == other for one, other in had) / len(had)
    return {
        "n": len(made),
        "known": int(made.known.sum()),
        "given": int(given.sum()),
        "written": int((made.confidence >= options.confidence).sum()),
        "counts": made.dataset.counts,
        "way": str(made.way),
        "temperature": calibration.temperature,
        "held_out": calibration.n_held_out,
        "accuracy": calibration.accuracy,
        "interval": calibration.interval,
        "mean_confidence": float(made.confidence[given].mean()),
        "agree": agree,
        "notes": made.notes,
        "unsure": made.unsure(20),
    }


def _text(facts: dict[str, Any], places: _Places) -> str:
    lines = [f"{places.out}: {facts['written']} labels by {facts['way']}"]
    lines += [f"note: {note}" for note in facts["notes"]]
    if facts["agree"] is not None:
        lines.append(f"{facts['agree']:.1%} of the labels that the pool had came out again")
    lines.append(f"to label next: {', '.join(map(str, facts['unsure'][:10].tolist()))}")
    if places.report is not None:
        lines.append(f"{places.report}: what is unsure")
    return "\n".join(lines)


def _table(made: ad.apps.Labelled, sure: Any, suffix: str) -> bytes:
    """The table in one of the formats; labels that are not sure enough are missing."""
    import numpy as np

    order = np.argsort(-made.probabilities, axis=1, kind="stable")
    names = [str(name) for name in made.dataset.classes]
    second = np.take_along_axis(made.probabilities, order, axis=1)[:, 1]
    columns: list[Any] = [
        np.arange(len(made)),
        [str(name) if keep else None for name, keep in zip(made.labels, sure, strict=True)],
        made.confidence,
        [names[code] for code in order[:, 1]],
        second,
        made.known,
    ]
    table = dict(zip(_COLUMNS, columns, strict=True))
    text = io.BytesIO()
    match suffix:
        case ".npz":
            table["label"] = ["" if name is None else name for name in table["label"]]
            table |= {"probabilities": made.probabilities, "classes": names}
            arrays: dict[str, Any] = {name: np.asarray(values) for name, values in table.items()}
            np.savez_compressed(text, **arrays)
        case ".parquet":
            from advect._util.checks import needed

            needed("pyarrow", "Parquet files")
            needed("pandas", "Parquet files").DataFrame(table).to_parquet(text, index=False)
        case _:
            lines = io.StringIO()
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow(_COLUMNS)
            for row, name, share, other, less, known in zip(*table.values(), strict=True):
                said = "" if name is None else name
                writer.writerow([row, said, f"{share:.4f}", other, f"{less:.4f}", int(known)])
            text.write(lines.getvalue().encode())
    return text.getvalue()
