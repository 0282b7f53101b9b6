"""``advect index``: keep datasets as vectors, and find those nearest to another one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from advect._util.lock import Hold
from advect.cli.code import load_network
from advect.cli.options import RUN, WRITE, Page, Run, Space, Write
from advect.cli.session import PAGES, Facts, session, short_names
from advect.errors import InputError

Encoder = Annotated[
    str | None, Parameter(help="The encoder of the index again, path.py:name, unless it is ONNX.")
]


def add(
    index: Path, *references: str, name: str | None = None, space: Space = None, run: Run = RUN
) -> None:
    """Add datasets to an index. A new index uses the feature space of the first dataset.

    Args:
        index: The file of the index.
        references: Datasets.
        name: Name of the dataset, if one is added.

    Example:
        advect index add catalogue.index digits mnist usps --space.size 14 --max-samples 2000
    """
    if not references:
        raise InputError("there is nothing to add", "no reference", "Name some datasets.")
    if name is not None and len(references) > 1:
        raise InputError("name is for one dataset", len(references), "Add them one by one.")
    with session(run, space) as running, Hold(index.expanduser()):
        import advect as ad

        names = short_names(references) if name is None else [name]
        loaded = {}
        if index.expanduser().exists():
            fixed = [f"space.{key}" for key in space or () if key not in ("encoder", "decoder")]
            if fixed:
                got = ", ".join(fixed)
                raise InputError("an index keeps its settings", got, "Leave them out.")
            opened = ad.DatasetIndex.load(index, encoder=running.coders(space).get("encoder"))
        else:
            first = loaded[names[0]] = running.load(references[0])
            opened = ad.DatasetIndex(running.space(first, first, space), seed=run.seed)
        taken = [one for one in names if one in opened]
        if taken and not run.overwrite:
            remedy = "Pass --overwrite, or --name for another name."
            raise InputError("the index has this dataset", ", ".join(taken), remedy)
        sizes: dict[str, int] = {}
        for one, reference in zip(names, references, strict=True):
            data = loaded[one] if one in loaded else running.load(reference)
            opened.add(one, data, overwrite=run.overwrite)
            sizes[one] = len(data)
        opened.save(index)
        running.finish(Facts({"index": index, "added": sizes, "datasets": len(opened)}))


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
        index: The file of the index.
        dataset: A reference, or the name of a dataset in the index.
        rerank: Order this many of the best by exact distances.

    Example:
        advect index near catalogue.index my-digits.npz -k 3
    """
    with session(run, code=[encoder]) as running:
        import advect as ad

        network = None if encoder is None else load_network(encoder, "the encoder", running.code)
        opened = ad.DatasetIndex.load(index, encoder=network)
        data = dataset if dataset in opened else running.load(dataset)
        result = opened.nearest(data, k, rerank=rerank, progress=running.progress)
        running.finish(result, {"index": index, "dataset": dataset})


def list_datasets(index: Path, *, report: Page = None, write: Write = WRITE) -> None:
    """List the datasets of an index; the page has a map of them.

    Args:
        index: The file of the index.

    Example:
        advect index list catalogue.index --report catalogue.html
    """
    with session(write) as running:
        import advect as ad

        page = running.place(report, PAGES)
        opened = ad.DatasetIndex.load(index)
        if page is not None:
            opened.report(page)
        facts = {"index": index, "datasets": list(opened.names)}
        running.finish(Facts(facts), None, {"report": page})
