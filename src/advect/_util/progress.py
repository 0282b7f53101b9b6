"""How far a long piece of work is: a bar on a terminal, else a line every few seconds, or a
function of the caller's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Literal

from advect.errors import InputError

Progress = Callable[[int, int], object] | Literal[False] | None


@contextmanager
def track(
    total: int,
    label: str,
    progress: Progress = None,
    *,
    stream: IO[str] | None = None,
    patience: float = 1.0,
    interval: float = 5.0,
) -> Iterator[Callable[[int], None]]:
    """Gives ``advance(k)``, to be called when k more of ``total`` are done.

    Args:
        total: how many there are; 0 when that is not known.
        label: what to call the work.
        progress: None shows it on stderr; False is silent; a function is called with (done, total).
        stream: where to show it; stderr by default.
        patience: seconds of work before a terminal gets a bar.
        interval: seconds between lines where there is no terminal.

    Raises:
        InputError: ``progress`` is none of these.

    Example:
        >>> with track(3, "reading", lambda done, total: print(f"{done}/{total}")) as advance:
        ...     advance(2)
        ...     advance(1)
        2/3
        3/3
    """
    if progress is not None and progress is not False and not callable(progress):
        raise InputError(
            "progress must be None, False or a function of (done, total)",
            repr(progress),
            "Pass one of these.",
        )
    shown = (
        _Shown(total, label, stream or sys.stderr, patience, interval) if progress is None else None
    )
    done = 0

    def advance(k: int) -> None:
        nonlocal done
        done += k
        if shown is not None:
            shown.update(done)
        elif progress:
            progress(done, total)

    try:
        yield advance
    finally:
        if shown is not None and shown.bar is not None:
            shown.bar.stop()


def time_left(remaining: float, pace: float) -> str:
    """How long so many more take at so many a second.

    Example:
        >>> time_left(30, 2.0), time_left(400, 1.0), time_left(9000, 0.5)
        ('15 s', '6:40 min', '5:00 h')
    """
    seconds = round(max(remaining, 0) / pace)
    if seconds < 120:
        return f"{seconds} s"
    return (
        f"{seconds // 60}:{seconds % 60:02d} min"
        if seconds < 7200
        else f"{seconds // 3600}:{seconds % 3600 // 60:02d} h"
    )


class _Shown:
    def __init__(
        self, total: int, label: str, stream: IO[str], patience: float, interval: float
    ) -> None:
        self.total, self.label, self.stream, self.interval = total, label, stream, interval
        self.begun = time.monotonic()
        self.next = self.begun + (patience if stream.isatty() else interval)
        self.bar: Any = None
        self.task: Any = None

    def update(self, done: int) -> None:
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.task, completed=done)
        elif now >= self.next:
            self.next = now + self.interval
            if self.stream.isatty():
                self._start(done)
            else:
                pace = done / (now - self.begun) if now > self.begun else 0.0
                rate = f", {pace:.3g}/s" if pace else ""
                left = f", {time_left(self.total - done, pace)} left" if self.total and pace else ""
                print(
                    f"{self.label}: {done}/{self.total or '?'}{rate}{left}",
                    file=self.stream,
                    flush=True,
                )

    def _start(self, done: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress as Bar,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self.bar = Bar(*columns, console=Console(file=self.stream), transient=True)
        self.task = self.bar.add_task(self.label, total=self.total or None, completed=done)
        self.bar.start()
