"""The recorded frames of a flow: in memory, or in a run directory read back one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advect.data import LabeledDataset
from advect.errors import InputError
from advect.storage import (
    append_line,
    join_rows,
    keep_lines,
    pack_dataset,
    pack_rows,
    read_lines,
    read_tensors,
    unpack_dataset,
    write_tensors,
)


@dataclass(frozen=True, eq=False)
class Frame:
    """A kept state: how many moves led to it, its value, the dataset."""

    index: int
    value: float
    dataset: LabeledDataset


class Trajectory:
    """A sequence of frames in order of their index; ``Trajectory.open(directory)`` reads those of a run.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> recorder = ad.Recorder(every=2)
        >>> result = ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=4, callbacks=[recorder])
        >>> [(frame.index, frame.value) for frame in result.trajectory]
        [(0, 6.0), (2, 4.0), (4, 2.0)]
        >>> result.trajectory[-1].dataset.x.flatten().tolist()
        [0.0, 4.0]
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self._records: dict[int, float] = {}
        self._datasets: dict[int, LabeledDataset] = {}
        self._shards: dict[int, int] = {}
        if directory is not None:
            for record in read_lines(directory / "frames.jsonl"):
                self._records[record["index"]] = record["value"]
                self._shards[record["index"]] = record.get("shards", 1)

    @classmethod
    def open(cls, directory: str | Path) -> Trajectory:
        """The frames of a run directory."""
        directory = Path(directory)
        if not (directory / "frames.jsonl").exists():
            raise InputError("no recorded frames", directory, "Record a flow with Recorder(directory=…) first.")
        return cls(directory)

    def add(self, index: int, value: float, dataset: LabeledDataset) -> None:
        """Keep a frame; one that is there already (after a resume) is left as it is, unless the flow went another way."""
        if not self.wants(index, value):
            return
        if self.directory is None:
            self._datasets[index] = dataset
        else:
            tensors, facts = pack_dataset(dataset)
            write_tensors(_path(self.directory, index), tensors, facts)
        self.commit(index, value)

    def wants(self, index: int, value: float) -> bool:
        """Whether this frame is missing; one of another flow in its place is dropped, with all that follow."""
        if self._records.get(index) == value:
            return False
        if index in self._records:
            self.forget_after(index - 1)
        return True

    @staticmethod
    def write_rows(directory: Path, index: int, dataset: LabeledDataset, rows: slice, shard: int, shards: int) -> None:
        """Write some rows of a frame as one of several files; it becomes a frame when it is committed."""
        tensors, facts = pack_rows(dataset, rows, shard)
        write_tensors(_path(directory, index, shard, shards), tensors, facts)

    def commit(self, index: int, value: float, shards: int = 1) -> None:
        """A frame whose files are all there."""
        if self.directory is not None:
            record = {"index": index, "value": value} | ({"shards": shards} if shards > 1 else {})
            append_line(self.directory / "frames.jsonl", record)
        self._records[index], self._shards[index] = value, shards

    def forget_after(self, index: int) -> None:
        """Drop the frames of later steps."""
        later = [known for known in self._records if known > index]
        if later and self.directory is not None:
            keep_lines(self.directory / "frames.jsonl", lambda record: record["index"] <= index)
        for known in later:
            del self._records[known]
            self._datasets.pop(known, None)
            shards = self._shards.pop(known, 1)
            if self.directory is not None:
                for shard in range(shards):
                    _path(self.directory, known, shard, shards).unlink(missing_ok=True)

    @property
    def indices(self) -> list[int]:
        """The step numbers of the frames."""
        return sorted(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, position: int) -> Frame:
        index = self.indices[position]
        dataset = self._datasets[index] if self.directory is None else self._read(self.directory, index)
        return Frame(index, self._records[index], dataset)

    def _read(self, directory: Path, index: int) -> LabeledDataset:
        shards = self._shards[index]
        return unpack_dataset(*join_rows([read_tensors(_path(directory, index, shard, shards)) for shard in range(shards)]))

    def __iter__(self) -> Iterator[Frame]:
        return (self[position] for position in range(len(self)))

    def __repr__(self) -> str:
        place = "in memory" if self.directory is None else f"in {self.directory}"
        return f"Trajectory({len(self)} frames {place})"


def _path(directory: Path, index: int, shard: int = 0, shards: int = 1) -> Path:
    part = f".{shard + 1}-of-{shards}" if shards > 1 else ""
    return directory / "frames" / f"{index:06d}{part}.safetensors"
