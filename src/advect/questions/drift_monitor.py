"""Windows that come one after the other: ``ad.DriftMonitor``, with a memory in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
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
from advect.data.formats.guard import check_plain, reading
from advect.errors import InputError
from advect.questions.drift import drift
from advect.questions.drift_result import QUESTIONS, Drift

FORMAT = "advect drift monitor 1"
_SCREEN = 499  # permutations of the first look
_SUSPECT = 0.1  # adjusted p-values above which there is no second look


@dataclass(frozen=True)
class DriftMonitor:
    """Compares windows with a reference as they come, so that a job that runs every day does not
    raise an alarm by itself.

    A test of level 5 % a day is wrong every third week. Here ``level`` is the chance of any false
    alarm in ``horizon`` windows in a row: each window is tested at ``level / horizon`` (Bonferroni,
    so windows may depend on one another through the reference). The level is the same for each
    window and never used up. A smaller one needs more permutations: windows get a quick look, and
    the full number where that gives cause, which can only make alarms rarer.

    Args:
        reference: what windows are compared with.
        state: a JSON file to keep what was seen in; it is written whole or not at all, by one
            process at a time. None: in this object only, ``windows`` says it.
        level: the chance of any false alarm in ``horizon`` windows.
        horizon: how many windows that is, such as 30 days.
        embedding, max_samples, seed: as in ``ad.drift``.

    Raises:
        InputError: a state of another reference or of other settings, a damaged one.

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

    def __post_init__(self) -> None:
        if check_positive("level", self.level) >= 1:
            raise InputError("level is a probability", self.level, "Pass 0.05, for instance.")
        check_count("horizon", self.horizon)
        if self._place is not None:
            self._read()

    @property
    def window_level(self) -> float:
        """The level that each window is tested at."""
        return self.level / self.horizon

    @property
    def windows(self) -> tuple[Mapping[str, Any], ...]:
        """What was found in each window, the first one first."""
        return tuple(self._read())

    @property
    def alarms(self) -> tuple[Mapping[str, Any], ...]:
        """The windows in which drift was found."""
        return tuple(one for one in self.windows if one["drifted"])

    def update(
        self, window: LabeledDataset, name: str | None = None, *, progress: Progress = None
    ) -> Drift:
        """Compare the next window, and remember what was found.

        A window that was seen before, label for label, is answered as before and not counted again,
        so that a job may be repeated. One whose labels came in the meantime counts as another.

        Args:
            window: the next samples.
            name: what to call it, such as a date; by default its number.
            progress: as in ``ad.drift``.
        """
        mark = digest(window)
        with self._held():
            seen = self._read()
            before = next((k for k, one in enumerate(seen) if one["digest"] == mark), None)
            number = len(seen) if before is None else before
            found = self._compared(window, self.seed + number, progress)
            if before is None:
                seen.append(_record(found, mark, str(number + 1) if name is None else str(name)))
                self._write(seen)
        return found

    def _compared(self, window: LabeledDataset, seed: int, progress: Progress) -> Drift:
        enough = 2 * math.ceil(len(QUESTIONS) / self.window_level)
        options: dict[str, Any] = {
            "embedding": self.embedding,
            "max_samples": self.max_samples,
            "seed": seed,
            "progress": progress,
        }
        screen = max(_SCREEN, math.ceil(len(QUESTIONS) / _SUSPECT))
        if enough > screen:
            first = drift(self.reference, window, level=_SUSPECT, n_permutations=screen, **options)
            if not first.drifted:
                return replace(first, level=self.window_level)
        return drift(
            self.reference,
            window,
            level=self.window_level,
            n_permutations=max(enough, _SCREEN),
            **options,
        )

    # the file

    @property
    def _place(self) -> Path | None:
        return None if self.state is None else Path(self.state).expanduser()

    @property
    def _settings(self) -> dict[str, Any]:
        return {
            "reference": digest(self.reference),
            "level": self.level,
            "horizon": self.horizon,
            "embedding": digest(self.embedding),
            "max_samples": self.max_samples,
            "seed": self.seed,
        }

    @contextmanager
    def _held(self) -> Iterator[None]:
        with nullcontext() if self._place is None else Hold(self._place):
            yield

    def _read(self) -> list[dict[str, Any]]:
        place = self._place
        if place is None:
            return self._seen
        check_plain(place)
        if not place.exists():
            above = next((folder for folder in place.absolute().parents if folder.exists()), place)
            if not above.is_dir():
                raise InputError("a folder on the way is a file", above, "Choose another place.")
            return []
        with reading(place, "the state of a drift monitor", ValueError, KeyError, TypeError):
            kept = json.loads(place.read_bytes())
            if kept["format"] != FORMAT:
                raise ValueError(f"format {kept['format']!r}")
            settings, windows = dict(kept["settings"]), [dict(one) for one in kept["windows"]]
            if any(not {"digest", "drifted", "window"} <= one.keys() for one in windows):
                raise ValueError("a window without its answer")
        for name, value in self._settings.items():
            if settings.get(name) != value:
                raise InputError(
                    f"the state was made with another {name}",
                    place,
                    "Pass the same as before, or start another state.",
                )
        return windows

    def _write(self, windows: list[dict[str, Any]]) -> None:
        place = self._place
        if place is None:
            return
        kept = {"format": FORMAT, "settings": self._settings, "windows": windows}
        text = json.dumps(kept, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(place, (text + "\n").encode())


def _record(found: Drift, mark: str, name: str) -> dict[str, Any]:
    facts = found.as_dict()
    return {
        "window": name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "digest": mark,
        **{key: facts[key] for key in ("drifted", "found", "n", "labels", "level")},
        "adjusted": {name: test["adjusted"] for name, test in facts["tests"].items()},
        **{key: facts[key] for key in ("changed_classes", "changed_shares", "sentences")},
    }
