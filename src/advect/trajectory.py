"""The recorded frames of a flow: in memory, or in a run directory read back one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advect.data import LabeledDataset
from advect.errors import InputError
from advect.storage import append_line, keep_lines, pack_dataset, read_lines, read_tensors, unpack_dataset, write_tensors


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
        if directory is not None:
            for record in read_lines(directory / "frames.jsonl"):
                self._records[record["index"]] = record["value"]

    @classmethod
    def open(cls, directory: str | Path) -> Trajectory:
        """The frames of a run directory."""
        directory = Path(directory)
        if not (directory / "frames.jsonl").exists():
            raise InputError("no recorded frames", directory, "Record a flow with Recorder(directory=…) first.")
        return cls(directory)

    def add(self, index: int, value: float, dataset: LabeledDataset) -> None:
        """Keep a frame; one that is there already (after a resume) is left as it is, unless the flow went another way."""
        if self._records.get(index) == value:
            return
        if index in self._records:
            self.forget_after(index - 1)
        if self.directory is None:
            self._datasets[index] = dataset
        else:
            tensors, facts = pack_dataset(dataset)
            write_tensors(self._path(index), tensors, facts)
            append_line(self.directory / "frames.jsonl", {"index": index, "value": value})
        self._records[index] = value

    def forget_after(self, index: int) -> None:
        """Drop the frames of later steps."""
        later = [known for known in self._records if known > index]
        if later and self.directory is not None:
            keep_lines(self.directory / "frames.jsonl", lambda record: record["index"] <= index)
        for known in later:
            del self._records[known]
            self._datasets.pop(known, None)
            if self.directory is not None:
                self._path(known).unlink(missing_ok=True)

    def _path(self, index: int) -> Path:
        assert self.directory is not None
        return self.directory / "frames" / f"{index:06d}.safetensors"

    @property
    def indices(self) -> list[int]:
        """The step numbers of the frames."""
        return sorted(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, position: int) -> Frame:
        index = self.indices[position]
        dataset = self._datasets[index] if self.directory is None else unpack_dataset(*read_tensors(self._path(index)))
        return Frame(index, self._records[index], dataset)

    def __iter__(self) -> Iterator[Frame]:
        return (self[position] for position in range(len(self)))

    def __repr__(self) -> str:
        place = "in memory" if self.directory is None else f"in {self.directory}"
        return f"Trajectory({len(self)} frames {place})"
