"""The recorded frames of a flow: in memory, or in a run directory read back one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advect._util import refuse_if
from advect.data.dataset import LabeledDataset
from advect.data.store import (
    damaged,
    pack_dataset,
    read_tensors,
    unpack_dataset,
    unpacking,
    write_tensors,
)
from advect.io.formats.guard import check_plain
from advect.io.logs import Record, append_line, is_frame, keep_lines, read_lines


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
        self._records: dict[int, Record] = {}
        self._datasets: dict[int, LabeledDataset] = {}
        if directory is not None:
            log = read_lines(directory / "frames.jsonl", is_frame)
            self._records = {record["index"]: record for record in log}

    @classmethod
    def open(cls, directory: str | Path) -> Trajectory:
        """The frames of a run directory."""
        directory = Path(directory)
        refuse_if(
            not (directory / "frames.jsonl").exists(),
            "no recorded frames",
            directory,
            "Record a flow with Recorder(directory=…) first.",
        )
        return cls(directory)

    @classmethod
    def of(cls, *frames: Frame) -> Trajectory:
        """Frames in memory; of frames with one index the first is taken."""
        trajectory = cls()
        for frame in reversed(frames):
            trajectory._records.pop(frame.index, None)
            trajectory.add(frame.index, frame.value, frame.dataset)
        return trajectory

    def add(self, index: int, value: float, dataset: LabeledDataset) -> None:
        """Record a frame, unless it exists already."""
        if not self.wants(index, value):
            return
        if self.directory is None:
            self._datasets[index] = dataset
        else:
            tensors, facts = pack_dataset(dataset)
            write_tensors(
                _path(self.directory, index), tensors, facts | {"index": index, "value": value}
            )
            append_line(self.directory / "frames.jsonl", {"index": index, "value": value})
        self._records[index] = {"index": index, "value": value}

    def wants(self, index: int, value: float) -> bool:
        """Whether a frame is missing; one of another flow is dropped with all later ones."""
        record = self._records.get(index)
        if record is not None and record["value"] != value:
            self.forget_after(index - 1)
        return record is None or record["value"] != value

    def forget_after(self, index: int) -> None:
        """Drop the frames of later steps."""
        later = [record for record in self._records.values() if record["index"] > index]
        if later and self.directory is not None:
            log = self.directory / "frames.jsonl"
            keep_lines(log, is_frame, lambda record: record["index"] <= index)
            for record in later:
                _path(self.directory, record["index"]).unlink(missing_ok=True)
        for record in later:
            del self._records[record["index"]]
            self._datasets.pop(record["index"], None)

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
        record = self._records[self.indices[position]]
        index, value = record["index"], record["value"]
        if self.directory is None:
            return Frame(index, value, self._datasets[index])
        path = _path(self.directory, index)
        tensors, facts = read_tensors(path)
        if facts.get("index", index) != index:
            raise damaged(path, f"it is the frame of step {facts['index']}")
        with unpacking(path):
            return Frame(index, value, unpack_dataset(tensors, facts))

    def __iter__(self) -> Iterator[Frame]:
        return (self[position] for position in range(len(self)))

    def __repr__(self) -> str:
        place = "in memory" if self.directory is None else f"in {self.directory}"
        return f"Trajectory({len(self)} frames {place})"


def _path(directory: Path, index: int) -> Path:
    """The file of a frame; an error if it or the folder of frames is a link."""
    path = directory / "frames" / f"{index:06d}.safetensors"
    refuse_if(path.parent.is_symlink(), "not a directory", path.parent, "Remove the link.")
    check_plain(path)
    return path
