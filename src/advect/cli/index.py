"""``advect index``: which dataset is nearest to mine, out of those that were added to an index."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from pydantic import Field

from advect.cli.commands import COMMANDS
from advect.cli.config import DataOptions, Out, Overwrite, RunCode, SpaceOptions
from advect.cli.options import Flag
from advect.cli.output import TALK, Talk, TalkOptions
from advect.cli.sections import SECTIONS
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad

_COMMAND = next(command for command in COMMANDS if command.name == "index")
app = App(name="index", help=_COMMAND.line, help_epilogue=_COMMAND.epilogue)

Encoder = Annotated[
    str | None,
    Parameter(
        help="That of the index again, if it is no ONNX file: path.py:name.",
        group=SECTIONS["Feature space"],
    ),
]


class IndexOptions(DataOptions):
    """What an index is made with, and how datasets are read."""

    directions: int | None = Field(
        default=None, ge=1, description="Of a new index: directions of features; 64 by default."
    )
    levels: int | None = Field(
        default=None,
        ge=1,
        description="Of a new index: numbers for each projection; 32 by default.",
    )
    label_weight: float | None = Field(
        default=None, ge=0, description="Of a new index: 0 compares features alone; 1 by default."
    )
    keep: int | None = Field(
        default=None,
        ge=0,
        description="Of a new index: samples of each dataset to keep for exact distances; 500 by default.",
    )
    stream: Annotated[bool, Flag] = Field(
        default=False,
        description="Read files in parts: for data larger than memory; no samples are kept.",
    )
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )

    @property
    def of_index(self) -> dict[str, Any]:
        """The settings of a new index that were asked for."""
        named = {"n_directions": self.directions, "n_levels": self.levels}
        named |= {"label_weight": self.label_weight, "keep": self.keep}
        return {name: value for name, value in named.items() if value is not None}


@app.command(
    help_epilogue="Example:\n  advect index add catalogue digits mnist usps --space.size 14 --max-samples 2000"
)
def add(
    index: Path,
    *references: str,
    name: Annotated[
        str | None,
        Parameter(help="Of the dataset, where one is added; by default from its reference."),
    ] = None,
    options: Annotated[IndexOptions, Parameter(name="*")] = IndexOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Annotated[
        bool, Parameter(negative=(), help="Replace datasets of the same name.")
    ] = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Add datasets to an index, which is made if it is not there: in the feature space of the first
    one, as --space.… say.

    Each is there whole when it is said to be, and stays if a later one fails.

    Args:
        index: The directory of the index.
        references: Datasets.
    """
    from advect.cli import build, inputs
    from advect.cli.typed import permission

    if not references:
        raise InputError("there is nothing to add", "no reference", "Name some datasets.")
    if name is not None and len(references) > 1:
        raise InputError("--name is that of one dataset", len(references), "Add them one by one.")
    code = permission(run_code, options.space.code)
    with talk.listening():
        coders = build.coders(options.space, code, talk.progress)
        names = inputs.short_names(references) if name is None else [name]
        held, first = _opened(index, next(iter(references)), options, coders, talk)
        added: dict[str, Any] = {}
        try:
            taken = [one for one in names if one in held]
            if taken and not overwrite:
                raise InputError(
                    "the index has a dataset of this name",
                    ", ".join(taken),
                    "Pass --overwrite to replace it, or --name for another name.",
                )
            for at, (one, reference) in enumerate(zip(names, references, strict=True)):
                data: Any
                if options.stream:
                    data = held.sketch().read(reference, progress=talk.progress)
                elif at == 0 and first is not None:
                    data = first
                else:
                    data = inputs.load(reference, options, talk)
                held.add(one, data, overwrite=overwrite)
                entry = held.entry(one)
                added[one] = {"reference": reference, "n": entry.embedding.n}
                added[one] |= {"classes": entry.embedding.classes, "kept": entry.n_sample}
                talk.detail(f"{one}: {entry.embedding}")
        except BaseException:
            if first is not None and not added:  # nothing came of it
                shutil.rmtree(held.path, ignore_errors=True)
            raise
    facts = {"index": held.path, "added": added, "datasets": len(held)}
    text = [f"{one}: {row['n']} samples, {row['classes']} classes" for one, row in added.items()]
    talk.result(facts, "\n".join([*text, f"{held.path}: {len(held)} datasets"]))


@app.command(help_epilogue="Example:\n  advect index near catalogue my-digits.npz -k 3")
def near(
    index: Path,
    dataset: str,
    *,
    k: Annotated[int, Parameter(name=["-k", "--k"], help="How many.")] = 5,
    rerank: Annotated[
        int,
        Parameter(help="Put so many of the best in the order of exact distances; 0 for none."),
    ] = 10,
    options: Annotated[DataOptions, Parameter(name="*")] = DataOptions.model_construct(),  # noqa: B008 (frozen)
    encoder: Encoder = None,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """The datasets of an index that are nearest to one.

    Args:
        index: The directory of the index.
        dataset: A reference, or the name of a dataset of the index, which goes first.
    """
    from advect.cli import inputs

    with talk.listening():
        held = _there(index, encoder, run_code)
        data = dataset if dataset in held else inputs.load(dataset, options, talk)
        found = held.nearest(data, k, rerank=rerank, progress=talk.progress)
    rows = [vars(row) for row in found]
    facts = {"index": held.path, "dataset": dataset, "nearest": rows, "reranked": found.reranked}
    talk.result(facts, str(found))


@app.command(name="list", help_epilogue="Example:\n  advect index list catalogue")
def list_sets(index: Path, *, talk: TalkOptions = TALK) -> None:
    """The datasets of an index.

    Args:
        index: The directory of the index.
    """
    with talk.listening():
        import advect as ad

        held = ad.DatasetIndex(index)
        entries = held.entries()
    rows = [
        {
            "name": entry.name,
            "n": entry.embedding.n,
            "classes": entry.embedding.classes,
            "kept": entry.n_sample,
        }
        for entry in entries
    ]
    width = max((len(entry.name) for entry in entries), default=0)
    lines = [
        f"{row['name']:{width}}  {row['n']} samples, {row['classes']} classes, {row['kept']} kept"
        for row in rows
    ]
    lines.append(f"{len(rows)} datasets of samples {held.space.sample_shape}")
    talk.result({"index": held.path, "datasets": rows}, "\n".join(lines))


@app.command(help_epilogue="Example:\n  advect index remove catalogue usps")
def remove(index: Path, *names: str, talk: TalkOptions = TALK) -> None:
    """Remove datasets from an index.

    Args:
        index: The directory of the index.
        names: Of the datasets.
    """
    from advect._util.checks import check_known

    with talk.listening():
        import advect as ad

        held = ad.DatasetIndex(index)
        known = held.names
        for name in names:  # all of them, or none
            check_known("dataset of the index", name, known)
        for name in dict.fromkeys(names):
            held.remove(name)
    facts = {"index": held.path, "removed": [*dict.fromkeys(names)], "datasets": len(held)}
    talk.result(facts, f"{held.path}: {len(held)} datasets")


@app.command(name="map", help_epilogue="Example:\n  advect index map catalogue -o catalogue.html")
def draw_map(
    index: Path, *, out: Out, overwrite: Overwrite = False, talk: TalkOptions = TALK
) -> None:
    """A map of all datasets, near ones near: a page (.html) or a picture (.png, .svg, .pdf).

    Args:
        index: The directory of the index.
    """
    from advect.cli.places import check_free_file

    place = out.expanduser()
    check_free_file(place, overwrite)
    with talk.listening():
        import advect as ad
        from advect import viz

        held = ad.DatasetIndex(index)
        if place.suffix.lower() in (".html", ".htm"):
            held.report(place)
        else:
            viz.save(held.map(), place)
    talk.result({"index": held.path, "out": place}, f"{place}: {len(held)} datasets")


@app.command(help_epilogue="Example:\n  advect index export catalogue -o vectors.npz")
def export(
    index: Path, *, out: Out, overwrite: Overwrite = False, talk: TalkOptions = TALK
) -> None:
    """Write the vectors of all datasets to a file .npz (names, vectors) or .csv (a row for each), for
    a vector store with Euclidean distance.

    Args:
        index: The directory of the index.
    """
    import csv

    from advect._util.atomic import write_atomically
    from advect.cli.places import check_free_file

    place = out.expanduser()
    if place.suffix.lower() not in (".npz", ".csv"):
        raise InputError(
            "vectors are written to a table", place, "Let its name end in .npz or .csv."
        )
    check_free_file(place, overwrite)
    with talk.listening():
        import numpy as np

        import advect as ad

        vectors, names = ad.DatasetIndex(index).vectors()
        content = io.BytesIO()
        if place.suffix.lower() == ".npz":
            np.savez(content, names=np.asarray(names, dtype=str), vectors=vectors)
        else:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(["name", *(f"v{at}" for at in range(vectors.shape[1]))])
            writer.writerows(
                [name, *map(repr, row)] for name, row in zip(names, vectors.tolist(), strict=True)
            )
            content.write(text.getvalue().encode())
        write_atomically(place, content.getvalue())
    facts = {"index": index, "out": place, "datasets": len(names), "numbers": vectors.shape[1]}
    talk.result(facts, f"{place}: {len(names)} vectors of {vectors.shape[1]} numbers")


def _opened(
    place: Path, reference: str, options: IndexOptions, coders: dict[str, Any], talk: Talk
) -> tuple[ad.DatasetIndex, ad.LabeledDataset | None]:
    """The index, and the first dataset where it was made for it."""
    import advect as ad
    from advect.cli import build, inputs

    if (place.expanduser() / "index.json").exists():
        again = {name for name in options.space.given if name not in ("encoder", "decoder")}
        given = [f"space.{name}" for name in sorted(again)] + sorted(options.of_index)
        if given:
            raise InputError(
                "an index keeps the space and the settings that it was made with",
                ", ".join(given),
                "Leave them out, or make another index.",
            )
        return ad.DatasetIndex(place, encoder=coders.get("encoder")), None
    if options.stream:
        raise InputError(
            "the first dataset of an index says what its samples are",
            "--stream",
            "Add one first that fits in memory, such as a part of this one.",
        )
    first = inputs.load(reference, options, talk)
    space = build.space(first, first, options.space, coders)
    made = ad.DatasetIndex.create(place, space, seed=options.seed, **options.of_index)
    talk.detail(space.describe())
    return made, first


def _there(place: Path, encoder: str | None, run_code: bool) -> ad.DatasetIndex:
    """An index that was made, with its encoder."""
    import advect as ad
    from advect.cli.code import is_code
    from advect.cli.models import load_coder
    from advect.cli.typed import permission

    code = permission(run_code, [encoder] if encoder is not None and is_code(encoder) else [])
    given = None if encoder is None else load_coder(encoder, "encoder", code)
    return ad.DatasetIndex(place, encoder=given)
