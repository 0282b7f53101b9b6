"""A flow's complete state between two steps, in memory and in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset, read_tensors, unpack_dataset, unpacking, write_tensors
from advect.errors import InputError
from advect.functionals.base import under

CHECKPOINTS = ("checkpoint-a.safetensors", "checkpoint-b.safetensors")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The complete state of a flow between two steps, with its curves so far.

    ``best`` is (index, value, dataset) of the lowest value, if that is an earlier state.
    """

    index: int
    dataset: LabeledDataset
    integrator: dict[str, Tensor]
    functional: dict[str, Tensor]
    generator: Tensor | None
    history: dict[str, Any] = field(default_factory=dict)
    length: int = 0
    control: dict[str, float] = field(default_factory=dict)
    best: tuple[int, float, LabeledDataset] | None = None


def save_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot as one file, atomically."""
    tensors, facts = pack_dataset(snapshot.dataset)
    parts = {
        **{f"dataset.{name}": value for name, value in tensors.items()},
        **{f"integrator.{name}": value for name, value in snapshot.integrator.items()},
        **{f"functional.{name}": value for name, value in snapshot.functional.items()},
    }
    if snapshot.generator is not None:
        parts["generator"] = snapshot.generator
    known: dict[str, Any] = {"control": snapshot.control}
    if snapshot.best is not None:
        index, value, dataset = snapshot.best
        best, its = pack_dataset(dataset)
        parts |= {f"best.{name}": tensor for name, tensor in best.items()}
        known["best"] = {"index": index, "value": value, "dataset": its}
    cut = snapshot.length
    history = {name: values[:cut] for name, values in snapshot.history.items() if name != "terms"}
    history["terms"] = {
        name: values[:cut] for name, values in snapshot.history.get("terms", {}).items()
    }
    write_tensors(
        path,
        parts,
        {
            "kind": "advect snapshot",
            "index": snapshot.index,
            "dataset": facts,
            "history": history,
            **known,
        },
    )


def load_snapshot(path: Path, device: torch.device | str = "cpu") -> Snapshot:
    """Read a snapshot file, or the newest intact one of the two in a run directory."""
    if path.is_dir():
        return _newest(path, device)
    tensors, facts = read_tensors(path, device)
    if facts.get("kind") != "advect snapshot":
        raise InputError(
            "not a checkpoint", path, "Pass a file or directory written by Checkpoint."
        )

    if "control" not in facts:
        raise InputError(
            "the checkpoint was written by advect 0.1", path, "Use that version, or start again."
        )
    generator = tensors["generator"].cpu() if "generator" in tensors else None
    with unpacking(path):
        _check_parts(facts["index"], facts["history"], generator)
        lower = facts.get("best")
        if lower is not None:
            packed = unpack_dataset(under("best.", tensors), lower["dataset"])
            lower = (lower["index"], lower["value"], packed)
        return Snapshot(
            facts["index"],
            unpack_dataset(under("dataset.", tensors), facts["dataset"]),
            under("integrator.", tensors),
            under("functional.", tensors),
            generator,
            facts["history"],
            len(facts["history"].get("values", [])),
            dict(facts["control"]),
            lower,
        )


def _check_parts(index: Any, history: Any, generator: Tensor | None) -> None:
    """A ``ValueError`` for what no checkpoint holds."""
    if type(index) is not int or index < 0:
        raise ValueError(f"step {index!r}")
    curves = [
        *(values for name, values in history.items() if name != "terms"),
        *history.get("terms", {}).values(),
    ]
    if not all(
        isinstance(curve, list) and all(isinstance(value, int | float) for value in curve)
        for curve in curves
    ):
        raise ValueError("curves that are no numbers")
    if len({len(curve) for curve in curves}) > 1:
        raise ValueError("curves of different lengths")
    if generator is not None:
        torch.Generator().set_state(generator)  # refuses what is no state of one


def checkpoint_indices(directory: Path) -> list[int | None]:
    """The steps of the two checkpoints of a directory; None for a missing or damaged one."""
    indices: list[int | None] = []
    for name in CHECKPOINTS:
        try:
            indices.append(load_snapshot(directory / name).index)
        except InputError:
            indices.append(None)
    return indices


def _newest(directory: Path, device: torch.device | str) -> Snapshot:
    found, problems = [], []
    for name in CHECKPOINTS:
        try:
            found.append(load_snapshot(directory / name, device))
        except InputError as error:
            problems.append(str(error))
    if not found:
        raise InputError(
            "no usable checkpoint",
            f"{directory} ({'; '.join(problems)})",
            "Run with Checkpoint(directory) first.",
        )
    return max(found, key=lambda snapshot: snapshot.index)
