"""``advect index``: keep datasets as vectors, and find those nearest to another one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect.cli.code import load_network
from advect.cli.options import RUN, WRITE, Page, Run, Space, Write
from advect.cli.session import PAGES, Facts, Session, session, short_names
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad

Encoder = Annotated[
    str | None, Parameter(help="The encoder of the index again, path.py:name, unless it is ONNX.")
]


def add(
    index: Path, *references: str, name: str | None = None, space: Space = None, run: Run = RUN
) -> None:
    """Add datasets to an index. A new index uses the feature space of the first dataset.

    Args:
        index: The directory of the index.
        references: Datasets.
        name: Name of the dataset, if one is added.

    Example:
        advect index add catalogue digits mnist usps --space.size 14 --max-samples 2000
    """
    if not references:
        raise InputError("there is nothing to add", "no reference", "Name some datasets.")
    if name is not None and len(references) > 1:
        raise InputError("name is for one dataset", len(references), "Add them one by one.")
    with session(run, space) as running:
        names = short_names(references) if name is None else [name]
        opened, first = _open_or_create(index, next(iter(references)), space, running)
        added: dict[str, Any] = {}
        try:
            taken = [one for one in names if one in opened]
            if taken and not run.overwrite:
                remedy = "Pass --overwrite, or --name for another name."
                raise InputError("the index has this dataset", ", ".join(taken), remedy)
            for one, reference in zip(names, references, strict=True):
                data = first if first is not None and not added else running.load(reference)
                opened.add(one, data, overwrite=run.overwrite)
                added[one] = len(data)
        except BaseException:
            if first is not None and not added:
                shutil.rmtree(opened.path, ignore_errors=True)
            raise
        facts = {"index": opened.path, "added": added, "datasets": len(opened)}
        running.finish(Facts(facts))


def near(
    index: Path,
    dataset: str,
    *,
    k: Annotated[int, Parameter(name=["-k", "--k"], help="How many datasets.")] = 5,
    rerank: int = 10,
    encoder: Encoder = None,
    run: Run = RUN,
) -> None:
    """Find the datasets of an index that are nearest to a dataset.

    Args:
        index: The directory of the index.
        dataset: A reference, or the name of a dataset in the index.
        rerank: Order this many of the best by exact distances.

    Example:
        advect index near catalogue my-digits.npz -k 3
    """
    with session(run, code=[encoder]) as running:
        import advect as ad

        network = None if encoder is None else load_network(encoder, "the encoder", running.code)
        opened = ad.DatasetIndex(index, encoder=network)
        data = dataset if dataset in opened else running.load(dataset)
        result = opened.nearest(data, k, rerank=rerank, progress=running.progress)
        running.finish(result, {"index": opened.path, "dataset": dataset})


def list_datasets(index: Path, *, report: Page = None, write: Write = WRITE) -> None:
    """List the datasets of an index; the page has a map of them.

    Args:
        index: The directory of the index.

    Example:
        advect index list catalogue --report catalogue.html
    """
    with session(write) as running:
        import advect as ad

        page = running.place(report, PAGES)
        opened = ad.DatasetIndex(index)
        if page is not None:
            opened.report(page)
        facts = {"index": opened.path, "datasets": list(opened.names)}
        running.finish(Facts(facts), None, {"report": page})


def _open_or_create(
    place: Path, reference: str, table: Any, running: Session
) -> tuple[ad.DatasetIndex, ad.LabeledDataset | None]:
    """The index, and the first dataset if the index is new."""
    import advect as ad

    path = place.expanduser()
    if path.is_dir() and any(path.iterdir()):
        fixed = [f"space.{name}" for name in table or () if name not in ("encoder", "decoder")]
        if fixed:
            got = ", ".join(fixed)
            raise InputError("an index keeps its settings", got, "Leave them out.")
        return ad.DatasetIndex(place, encoder=running.coders(table).get("encoder")), None
    first = running.load(reference)
    space = running.space(first, first, table)
    return ad.DatasetIndex.create(place, space, seed=running.read.seed), first
