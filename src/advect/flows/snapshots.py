"""A flow's complete state between two steps, in memory and in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect._util import InputError, refuse_if
from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset, read_tensors, unpack_dataset, unpacking, write_tensors
from advect.functionals.base import under
from advect.io.formats.guard import check_plain
from advect.io.trajectory import Frame

CHECKPOINTS = ("checkpoint-a.safetensors", "checkpoint-b.safetensors")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The complete state of a flow between two steps, with its curves so far.

    Attributes:
        index: moves so far.  dataset: the state.
        integrator, functional, generator, control: their states before this dataset is evaluated.
        history: curves, of which the first ``length`` entries are before this state.
        best: the frame with the lowest value, if that is an earlier state.
    """

    index: int
    dataset: LabeledDataset
    integrator: dict[str, Tensor]
    functional: dict[str, Tensor]
    generator: Tensor | None
    history: dict[str, Any] = field(default_factory=dict)
    length: int = 0
    control: dict[str, float] = field(default_factory=dict)
    best: Frame | None = None


def save_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot as one file, atomically."""
    # a link would be followed, to a file outside the run
    check_plain(path)
    dataset, dataset_facts = pack_dataset(snapshot.dataset)
    history = {
        name: curve[: snapshot.length]
        for name, curve in snapshot.history.items()
        if name != "terms"
    }
    terms = snapshot.history.get("terms", {})
    history["terms"] = {name: curve[: snapshot.length] for name, curve in terms.items()}
    facts = {"kind": "advect snapshot", "index": snapshot.index, "dataset": dataset_facts}
    facts |= {"history": history, "control": snapshot.control}
    groups = {"dataset": dataset, "integrator": snapshot.integrator}
    groups["functional"] = snapshot.functional
    if snapshot.best is not None:
        groups["best"], best_facts = pack_dataset(snapshot.best.dataset)
        best = {"index": snapshot.best.index, "value": snapshot.best.value}
        facts["best"] = best | {"dataset": best_facts}
    tensors = {
        f"{group}.{name}": tensor
        for group, members in groups.items()
        for name, tensor in members.items()
    }
    if snapshot.generator is not None:
        tensors["generator"] = snapshot.generator
    write_tensors(path, tensors, facts)


def load_snapshot(path: Path, device: torch.device | str = "cpu") -> Snapshot:
    """Read a snapshot file, or the newest intact one of the two in a run directory."""
    if path.is_dir():
        snapshots, problems = load_checkpoints(path, device)
        refuse_if(
            not snapshots,
            "no usable checkpoint",
            f"{path} ({'; '.join(problems)})",
            "Run with Checkpoint(directory) first.",
        )
        return max(snapshots.values(), key=lambda snapshot: snapshot.index)
    # Numbers and names are facts, in JSON; tensors carry the prefix of their group. Version 0.2.0 wrote
    # the same layout.
    tensors, facts = read_tensors(path, device)
    refuse_if(
        facts.get("kind") != "advect snapshot",
        "not a checkpoint",
        path,
        "Pass a file or directory written by Checkpoint.",
    )
    refuse_if(
        "control" not in facts,
        "the checkpoint was written by advect 0.1",
        path,
        "Use that version, or start again.",
    )
    generator = tensors["generator"].cpu() if "generator" in tensors else None
    with unpacking(path):
        length = _check_parts(facts["index"], facts["history"], generator)
        best = facts.get("best")
        if best is not None:
            dataset = unpack_dataset(under("best.", tensors), best["dataset"])
            best = Frame(best["index"], best["value"], dataset)
        return Snapshot(
            facts["index"],
            unpack_dataset(under("dataset.", tensors), facts["dataset"]),
            under("integrator.", tensors),
            under("functional.", tensors),
            generator,
            facts["history"],
            length,
            dict(facts["control"]),
            best,
        )


def load_checkpoints(
    directory: Path, device: torch.device | str = "cpu"
) -> tuple[dict[str, Snapshot], list[str]]:
    """The intact checkpoints of a directory by file name, and what is wrong with the others."""
    snapshots, problems = {}, []
    for name in CHECKPOINTS:
        try:
            snapshots[name] = load_snapshot(directory / name, device)
        except InputError as error:
            problems.append(str(error))
    return snapshots, problems


def _check_parts(index: Any, history: Any, generator: Tensor | None) -> int:
    """The length of the curves; an error for what no checkpoint holds."""
    if type(index) is not int or index < 0:
        raise ValueError(f"step {index!r}")
    curves = [*history.get("terms", {}).values()]
    curves += [curve for name, curve in history.items() if name != "terms"]
    # Curves that are not lists of numbers do not become tensors.
    sizes = {torch.tensor(curve, dtype=torch.float64).shape for curve in curves}
    if len(sizes) > 1 or any(len(size) != 1 for size in sizes):
        raise ValueError("curves of different lengths")
    if generator is not None:
        torch.Generator().set_state(generator)  # raises for anything else
    return len(history.get("values", []))
