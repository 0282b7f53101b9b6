"""Tests of successive windows with a state on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advect._util.atomic import write_atomically
from advect._util.checks import check_count, check_positive
from advect._util.lock import Hold
from advect._util.progress import Progress
from advect.classes.embedding import Embedded
from advect.data.dataset import LabeledDataset
from advect.data.digest import digest
from advect.errors import InputError
from advect.io.formats.guard import check_plain, reading
from advect.questions.drift import drift
from advect.questions.drift_result import QUESTIONS, Drift

FORMAT = "advect drift monitor 1"
_QUICK_PERMUTATIONS = 499
_QUICK_LEVEL = 0.1


@dataclass(frozen=True)
class DriftMonitor:
    """Compare successive windows with a reference, with a bound on the number of false alarms.

    ``level`` is the probability of any false alarm in ``horizon`` windows: each window is tested at
    ``level / horizon`` (Bonferroni). Windows get a quick test first, and the full number of
    permutations if that is significant, which can only reduce false alarms.

    Args:
        reference: the dataset to compare with.
        state: JSON file for the results, written atomically by one process at a time; None keeps
            them in memory.
        level: probability of any false alarm in ``horizon`` windows.
        horizon: number of windows, such as 30 days.
        embedding, max_samples, seed: as in ``ad.drift``.

    Example:
        >>> import tempfile, advect as ad
        >>> reference = ad.datasets.load("toy:gaussians?n=150")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor = ad.DriftMonitor(reference, f"{folder}/state.json")
        ...     quiet = monitor.update(ad.datasets.load("toy:gaussians?n=150&seed=1"), "Monday")
        ...     moved = ad.datasets.load("toy:gaussians?n=150&seed=2&shift=2,0")
        ...     alarm = ad.DriftMonitor(reference, f"{folder}/state.json").update(moved, "Tuesday")
        ...     [(one["window"], one["drifted"]) for one in monitor.windows]
        [('Monday', False), ('Tuesday', True)]
    """

    reference: LabeledDataset
    state: str | Path | None = None
    level: float = 0.05
    horizon: int = 30
    embedding: Embedded = "auto"
    max_samples: int = 1500
    seed: int = 0
    _seen: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)

    @property
    def _place(self) -> Path | None:
        return None if self.state is None else Path(self.state).expanduser()

    def __post_init__(self) -> None:
        if check_positive("level", self.level) >= 1:
            raise InputError("level must be below 1", self.level, "Pass 0.05, for instance.")
        check_count("horizon", self.horizon)
        if self._place is not None:
            self._read()

    @property
    def window_level(self) -> float:
        """Level of the test of each window."""
        return self.level / self.horizon

    @property
    def windows(self) -> tuple[Mapping[str, Any], ...]:
        """Results of all windows, in order."""
        return tuple(self._read())

    @property
    def alarms(self) -> tuple[Mapping[str, Any], ...]:
        """Results of the windows with drift."""
        return tuple(one for one in self.windows if one["drifted"])

    def update(
        self, window: LabeledDataset, name: str | None = None, *, progress: Progress = None
    ) -> Drift:
        """Test the next window and store the result.

        A window that was seen before is not counted again, so a job may be repeated. A window with
        new labels counts as another window. ``name`` is its number by default.
        """
        mark = digest(window)
        with nullcontext() if self._place is None else Hold(self._place):
            seen = self._read()
            before = next((k for k, one in enumerate(seen) if one["digest"] == mark), None)
            number = len(seen) if before is None else before
            found = self._compared(window, self.seed + number, progress)
            if before is None:
                seen.append(_record(found, mark, str(number + 1) if name is None else str(name)))
                if self._place is not None:
                    state = {"format": FORMAT, "settings": self._settings, "windows": seen}
                    text = json.dumps(state, indent=1, ensure_ascii=False, allow_nan=False)
                    write_atomically(self._place, (text + "\n").encode())
        return found

    def _compared(self, window: LabeledDataset, seed: int, progress: Progress) -> Drift:
        enough = 2 * math.ceil(len(QUESTIONS) / self.window_level)
        options: dict[str, Any] = {"embedding": self.embedding, "max_samples": self.max_samples}
        options |= {"seed": seed, "progress": progress}
        screen = max(_QUICK_PERMUTATIONS, math.ceil(len(QUESTIONS) / _QUICK_LEVEL))
        if enough > screen:
            first = drift(
                self.reference, window, level=_QUICK_LEVEL, n_permutations=screen, **options
            )
            if not first.drifted:
                return replace(first, level=self.window_level)
        options |= {"level": self.window_level, "n_permutations": max(enough, _QUICK_PERMUTATIONS)}
        return drift(self.reference, window, **options)

    @property
    def _settings(self) -> dict[str, Any]:
        names = ("level", "horizon", "max_samples", "seed")
        digests = {name: digest(getattr(self, name)) for name in ("reference", "embedding")}
        return digests | {name: getattr(self, name) for name in names}

    def _read(self) -> list[dict[str, Any]]:
        place = self._place
        if place is None:
            return self._seen
        check_plain(place)
        if not place.exists():
            above = next((folder for folder in place.absolute().parents if folder.exists()), place)
            if not above.is_dir():
                what = "a parent of the state is not a directory"
                raise InputError(what, above, "Choose another path.")
            return []
        with reading(place, "the state of a drift monitor", ValueError, KeyError, TypeError):
            kept = json.loads(place.read_bytes())
            if kept["format"] != FORMAT:
                raise ValueError(f"format {kept['format']!r}")
            settings, windows = dict(kept["settings"]), [dict(one) for one in kept["windows"]]
            if any(not {"digest", "drifted", "window"} <= one.keys() for one in windows):
                raise ValueError("a window without a result")
        for name, value in self._settings.items():
            if settings.get(name) != value:
                remedy = f"Pass the same {name}, or another state."
                raise InputError(f"the state was written with another {name}", place, remedy)
        return windows


def _record(found: Drift, mark: str, name: str) -> dict[str, Any]:
    facts = found.to_dict()
    return {
        "window": name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "digest": mark,
        **{key: facts[key] for key in ("drifted", "found", "n", "labels", "level")},
        "adjusted": {name: test["adjusted"] for name, test in facts["tests"].items()},
        **{key: facts[key] for key in ("changed_classes", "changed_shares", "notes")},
    }
