"""``advect data``: look at a dataset, list those with names, convert one file to another."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from advect.cli.commands import COMMANDS
from advect.cli.config import READ_ALL, DataOptions, Out, Overwrite
from advect.cli.output import TALK, TalkOptions

_COMMAND = next(command for command in COMMANDS if command.name == "data")
app = App(name="data", help=_COMMAND.line, help_epilogue=_COMMAND.epilogue)
Reading = Annotated[DataOptions, Parameter(name="*")]


@app.command(help_epilogue="Example:\n  advect data info 'csv:pets.csv?label=kind'")
def info(reference: str, *, options: Reading = READ_ALL, talk: TalkOptions = TALK) -> None:
    """Size, shape, classes and range of a dataset.

    Args:
        reference: A name, a file, toy:gaussians?n=500, or run:directory@-1; frames of a run are in
            the units of its source, unless ?units=target or ?units=common (scaled, as in the flow)
            is asked for.
    """
    from advect.cli.inputs import facts, load

    with talk.listening():
        found = facts(load(reference, options, talk))
    shape = " × ".join(map(str, found["sample_shape"]))
    counts = "".join(f"\n  {name}: {count}" for name, count in found["counts"].items())
    low, high = found["range"]
    lines = [
        f"{reference}: {found['n']} samples of {shape}, {found['dtype']}, values {low:g} to "
        f"{high:g}",
        *found.get("targets", ()),
        f"{found['classes']} classes{counts}" if found["classes"] else "no labels",
    ]
    if found["classes"] and found["unlabeled"]:
        lines.append(f"{found['unlabeled']} without a label")
    if "confidence" in found:
        lines.append(
            f"labels are probabilities, of {found['confidence']:.2f} for the likeliest in the mean"
        )
    if found["columns"]:
        lines.append(f"columns: {', '.join(found['columns'])}")
    talk.result({"reference": reference, **found}, "\n".join(lines))


@app.command(name="list", help_epilogue="Example:\n  advect data list")
def list_names(*, talk: TalkOptions = TALK) -> None:
    """The datasets that have names, and where each would come from."""
    import advect as ad

    rows = ad.datasets.names()
    width = max(len(row.name) for row in rows)
    lines = [f"{row.name:{width}}  {'ready' if row.ready else '-':5}  {row.where}" for row in rows]
    talk.result(
        {"datasets": [{"name": row.name, "ready": row.ready, "where": row.where} for row in rows]},
        "\n".join(lines),
    )


@app.command(
    help_epilogue="Example:\n  advect data convert digits -o digits.parquet --max-samples 500"
)
def convert(
    reference: str,
    *,
    out: Out,
    options: Reading = READ_ALL,
    overwrite: Overwrite = False,
    talk: TalkOptions = TALK,
) -> None:
    """Write a dataset to a file: .npz, .csv, .tsv, .parquet; without a suffix, a folder of PNG
    images.

    Args:
        reference: What to read. Frames of a run, run:directory@-1, are in the units of its source,
            unless ?units=target or ?units=common (scaled, as in the flow) is asked for.
    """
    from advect.cli.inputs import facts, load

    with talk.listening():
        data = load(reference, options, talk)
        path = data.save(out, overwrite=overwrite)
    talk.result(
        {"reference": reference, "out": path, **facts(data)}, f"{path}: {len(data)} samples"
    )
