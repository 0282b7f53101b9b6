"""One dataset of an index on disk: a safetensors file with its vector, what is worth saying about
it, and a sample for exact distances; there whole or not at all.

To look for neighbours only vectors are read: these have a checksum of their own."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect.data.dataset import LabeledDataset
from advect.data.digest import digest
from advect.data.store import (
    damaged,
    pack_dataset,
    read_some,
    read_tensors,
    unpack_dataset,
    unpacking,
    write_tensors,
)
from advect.errors import InputError
from advect.questions.embedding import DatasetEmbedding

_FORMAT = "advect.index_entry/1"
_SAMPLE = "sample."


@dataclass(frozen=True, eq=False)
class Entry:
    """A dataset of an index.

    Attributes:
        name: of the dataset.  embedding: what it is as a vector.  path: its file.
        n_sample: how many of its samples are kept for exact distances.
    """

    name: str
    embedding: DatasetEmbedding
    path: Path
    n_sample: int

    def sample(self) -> LabeledDataset | None:
        """The samples that were kept, in the space of the index; None without any."""
        if not self.n_sample:
            return None
        tensors, facts = read_tensors(self.path)
        with unpacking(self.path):
            own = {
                name.removeprefix(_SAMPLE): value
                for name, value in tensors.items()
                if name.startswith(_SAMPLE)
            }
            return unpack_dataset(own, facts["sample"])


def entry_file(name: str) -> str:
    """The name of the file of a dataset: readable, and that of no other name.

    Example:
        >>> entry_file("mnist, 3 & 5").startswith("mnist-3-5-")
        True
    """
    readable = re.sub(r"[^A-Za-z0-9_=@]+", "-", name).strip("-")[:40]
    return f"{readable}-{digest(name)[:12]}.safetensors"


def write_entry(
    path: Path, name: str, embedding: DatasetEmbedding, sample: LabeledDataset | None
) -> None:
    """Write a dataset to its file."""
    vector = torch.from_numpy(np.asarray(embedding.vector, dtype=np.float64))
    facts: dict[str, Any] = {
        "format": _FORMAT,
        "name": name,
        "residual": embedding.residual,
        "grid_error": embedding.grid_error,
        "n": embedding.n,
        "classes": embedding.classes,
        "key": embedding.key,
        "n_sample": 0 if sample is None else len(sample),
    }
    facts["vector"] = _checksum(vector, facts)
    tensors = {"vector": vector}
    if sample is not None:
        own, more = pack_dataset(sample)
        tensors |= {f"{_SAMPLE}{part}": value for part, value in own.items()}
        facts["sample"] = more
    write_tensors(path, tensors, facts)


def read_entry(path: Path) -> Entry:
    """What ``write_entry`` wrote, without its sample.

    Raises:
        InputError: the file is damaged, or another one.
    """
    tensors, facts = read_some(path, ["vector"])
    if facts.get("format") != _FORMAT:
        raise InputError("not an entry of an index", path, "Remove it.")
    with unpacking(path):
        vector = tensors["vector"]
        plain = {key: facts[key] for key in facts if key not in ("vector", "sample")}
        if facts["vector"] != _checksum(vector, plain):
            raise damaged(path, "checksum")
        embedding = DatasetEmbedding(
            vector.numpy(),
            float(facts["residual"]),
            float(facts["grid_error"]),
            int(facts["n"]),
            int(facts["classes"]),
            str(facts["key"]),
        )
        return Entry(str(facts["name"]), embedding, path, int(facts["n_sample"]))


def _checksum(vector: torch.Tensor, facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True).encode()
    return f"{zlib.crc32(vector.numpy().tobytes(), zlib.crc32(text)):08x}"
