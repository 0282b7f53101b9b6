"""Progress of long work: a bar on a terminal, lines elsewhere, or a function of the caller."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Literal

from advect._util.checks import refuse_if

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
    """Give ``advance(k)``, to be called when k more of ``total`` (0 if unknown) are done.

    ``progress`` None shows a bar on a terminal after ``patience`` seconds, and elsewhere a line after
    ``interval`` seconds and at most every ``interval`` seconds; False is silent; a function is called with (done, total).

    Example:
        >>> with track(2, "reading", lambda done, total: print(f"{done}/{total}")) as advance:
        ...     advance(2)
        2/2
    """
    refuse_if(
        progress is not None and progress is not False and not callable(progress),
        "progress must be None, False or a function of (done, total)",
        repr(progress),
        "Pass one of these.",
    )
    place = stream or sys.stderr
    done, begun, bar = 0, time.monotonic(), None
    next_time = begun + (patience if place.isatty() else interval)
    one_at_a_time = threading.RLock()

    def advance(k: int) -> None:
        nonlocal done, bar, next_time
        with one_at_a_time:
            done += k
            now = time.monotonic()
            if progress is not None:
                if progress:
                    progress(done, total)
            elif bar is not None:
                bar.update(done)
            elif now >= next_time and place.isatty():
                bar = Bar(place, label, total, done)
            elif now >= next_time:
                next_time = now + interval
                left = time_left(total - done, done / max(now - begun, 1e-9)) if total else ""
                print(f"{label}: {done}/{total or '?'}{left}", file=place, flush=True)

    first = threading.Timer(next_time - begun, advance, [0])  # long work before the first advance
    if progress is None:
        first.start()
    try:
        yield advance
    finally:
        first.cancel()
        if bar is not None:
            bar.stop()


def time_left(remaining: float, pace: float) -> str:
    """The time for so many more at so many per second, as the end of a line.

    Example:
        >>> time_left(400, 1.0)
        ', 0:06:40 left'
    """
    if pace <= 0:
        return ""
    seconds = round(max(remaining, 0) / pace)
    return f", {seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d} left"


class Bar:
    """A bar on a terminal with ``more`` text columns, whose fields are set with each update."""

    def __init__(
        self,
        stream: IO[str],
        label: str,
        total: int,
        done: int = 0,
        more: Sequence[str] = (),
        transient: bool = True,
        **fields: Any,
    ) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            *(progress.TextColumn(text) for text in more),
            console=Console(file=stream),
            transient=transient,
        )
        self._task = self._bar.add_task(label, total=total or None, completed=done, **fields)
        self._bar.start()

    def update(self, done: int, **fields: Any) -> None:
        self._bar.update(self._task, completed=done, **fields)

    def stop(self) -> None:
        self._bar.stop()
