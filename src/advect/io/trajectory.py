"""The recorded frames of a flow: in memory, or in a run directory read back one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advect.data.dataset import LabeledDataset
from advect.data.store import (
    damaged,
    join_rows,
    pack_rows,
    read_tensors,
    unpack_dataset,
    unpacking,
    write_tensors,
)
from advect.errors import InputError
from advect.io.logs import append_line, is_frame, keep_lines, read_lines


@dataclass(frozen=True, eq=False)
class Frame:
    """A recorded state: the number of steps, the value of the functional, the dataset."""

    index: int
    value: float
    dataset: LabeledDataset


class Trajectory:
    """The recorded frames of a flow, a sequence of ``Frame`` in order of their ``index``.

    ``result.trajectory`` is one; ``Trajectory.open(directory)`` reads the frames of a run, one at a
    time. A frame has ``index`` (number of steps), ``value`` and ``dataset``.

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
            for record in read_lines(directory / "frames.jsonl", is_frame):
                self._records[record["index"]] = record["value"]
                self._shards[record["index"]] = record.get("shards", 1)

    @classmethod
    def open(cls, directory: str | Path) -> Trajectory:
        """The frames of a run directory."""
        directory = Path(directory)
        if not (directory / "frames.jsonl").exists():
            raise InputError(
                "no recorded frames", directory, "Record a flow with Recorder(directory=…) first."
            )
        return cls(directory)

    @classmethod
    def of(cls, *frames: Frame) -> Trajectory:
        """Frames in memory; of frames with one index the first is taken."""
        made = cls()
        for frame in frames:
            if frame.index not in made._records:
                made.add(frame.index, frame.value, frame.dataset)
        return made

    def add(self, index: int, value: float, dataset: LabeledDataset) -> None:
        """Record a frame, unless the same one is there."""
        if not self.wants(index, value):
            return
        if self.directory is None:
            self._datasets[index] = dataset
        else:
            rows = slice(len(dataset))
            self.write_rows(self.directory, Frame(index, value, dataset), rows, 0, 1)
        self.commit(index, value)

    def wants(self, index: int, value: float) -> bool:
        """Whether a frame is missing; one of another flow is dropped with all later ones."""
        if self._records.get(index) == value:
            return False
        if index in self._records:
            self.forget_after(index - 1)
        return True

    @staticmethod
    def write_rows(directory: Path, frame: Frame, rows: slice, shard: int, shards: int) -> None:
        """Write some rows as one of the files of a frame, which counts once it is committed."""
        tensors, facts = pack_rows(frame.dataset, rows, shard)
        facts |= {"index": frame.index, "value": frame.value}
        write_tensors(frame_path(directory, frame.index, shard, shards), tensors, facts)

    def commit(self, index: int, value: float, shards: int = 1) -> None:
        """Log a frame whose files are complete."""
        if self.directory is not None:
            record = {"index": index, "value": value} | ({"shards": shards} if shards > 1 else {})
            append_line(self.directory / "frames.jsonl", record)
        self._records[index], self._shards[index] = value, shards

    def forget_after(self, index: int) -> None:
        """Drop the frames of later steps."""
        later = [known for known in self._records if known > index]
        if later and self.directory is not None:
            log = self.directory / "frames.jsonl"
            keep_lines(log, is_frame, lambda record: record["index"] <= index)
        for known in later:
            del self._records[known]
            self._datasets.pop(known, None)
            shards = self._shards.pop(known, 1)
            if self.directory is not None:
                for shard in range(shards):
                    frame_path(self.directory, known, shard, shards).unlink(missing_ok=True)

    def mend(self) -> None:
        """Remove damaged lines from the log, before writing to it."""
        if self.directory is not None:
            keep_lines(self.directory / "frames.jsonl", is_frame, lambda record: True)

    @property
    def indices(self) -> list[int]:
        """The step numbers of the frames."""
        return sorted(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, position: int) -> Frame:
        index = self.indices[position]
        dataset = (
            self._datasets[index] if self.directory is None else self._read(self.directory, index)
        )
        return Frame(index, self._records[index], dataset)

    def _read(self, directory: Path, index: int) -> LabeledDataset:
        shards = self._shards[index]
        paths = [frame_path(directory, index, shard, shards) for shard in range(shards)]
        parts = [read_tensors(path) for path in paths]
        for path, (_, facts) in zip(paths, parts, strict=True):
            if facts.get("index", index) != index:
                raise damaged(path, f"it is the frame of step {facts['index']}")
        with unpacking(paths[0]):
            return unpack_dataset(*join_rows(parts))

    def __iter__(self) -> Iterator[Frame]:
        return (self[position] for position in range(len(self)))

    def __repr__(self) -> str:
        place = "in memory" if self.directory is None else f"in {self.directory}"
        return f"Trajectory({len(self)} frames {place})"


def frame_path(directory: Path, index: int, shard: int = 0, shards: int = 1) -> Path:
    """Where a frame, or one of several files of it, is stored."""
    part = f".{shard + 1}-of-{shards}" if shards > 1 else ""
    return directory / "frames" / f"{index:06d}{part}.safetensors"
