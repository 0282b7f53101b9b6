"""How far a long piece of work is: a bar on a terminal, else a line every few seconds, or a
function of the caller's.
"""

from __future__ import annotations

import html
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import IO, Any, Literal

from advect.errors import InputError

_OFTEN = 0.2  # seconds between two updates of a notebook

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
    shown, done = None, 0
    if progress is None:
        shown = _Shown(total, label, stream or sys.stderr, patience, interval)

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
    if seconds < 7200:
        return f"{seconds // 60}:{seconds % 60:02d} min"
    return f"{seconds // 3600}:{seconds % 3600 // 60:02d} h"


def shows_bars(stream: IO[str]) -> bool:
    """Whether a bar can be shown: on a terminal, or in a notebook in place of stderr.

    Example:
        >>> import io
        >>> shows_bars(io.StringIO())
        False
    """
    if stream.isatty():
        return True
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return stream is sys.stderr and type(shell).__name__ == "ZMQInteractiveShell"


class Bar:
    """A bar on a terminal, or in a notebook: done of total, time left, and ``more`` columns of rich, whose fields are
    set with each update.
    """

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
        kind = _TerminalBar if stream.isatty() else _NotebookBar
        self._bar = kind(stream, label, total, done, more, transient, fields)

    def update(self, done: int, **fields: Any) -> None:
        self._bar.update(done, fields)

    def stop(self) -> None:
        self._bar.stop()


class _TerminalBar:
    def __init__(
        self,
        stream: IO[str],
        label: str,
        total: int,
        done: int,
        more: Sequence[str],
        transient: bool,
        fields: dict[str, Any],
    ) -> None:
        from rich import progress
        from rich.console import Console

        columns = (progress.BarColumn(), progress.MofNCompleteColumn())
        texts = [progress.TextColumn(text) for text in ("{task.description}", *more)]
        self._bar = progress.Progress(
            texts[0],
            *columns,
            progress.TimeRemainingColumn(),
            *texts[1:],
            console=Console(file=stream),
            transient=transient,
        )
        self._task = self._bar.add_task(label, total=total or None, completed=done, **fields)
        self._bar.start()

    def update(self, done: int, fields: dict[str, Any]) -> None:
        self._bar.update(self._task, completed=done, **fields)

    def stop(self) -> None:
        self._bar.stop()


class _NotebookBar:
    """One output of a cell, which is written over: it needs no widgets."""

    def __init__(
        self,
        stream: IO[str],
        label: str,
        total: int,
        done: int,
        more: Sequence[str],
        transient: bool,
        fields: dict[str, Any],
    ) -> None:
        display = importlib.import_module("IPython.display").display  # there, in a notebook
        self.label, self.total, self.done, self.more = label, total, done, more
        self.transient, self.fields, self._shown = transient, fields, time.monotonic()
        self._begun, self._first = self._shown, done
        self._cell = display({"text/html": self.html}, raw=True, display_id=True)

    @property
    def html(self) -> str:
        """A bar and a line of text."""
        task = SimpleNamespace(fields={name: str(value) for name, value in self.fields.items()})
        pace = (self.done - self._first) / max(time.monotonic() - self._begun, 1e-9)
        left = time_left(self.total - self.done, pace) if self.total and pace else ""
        parts = [f"{self.done}/{self.total or '?'}", f"{left} left" if left else ""]
        parts += [text.format(task=task) for text in self.more]
        said = ", ".join(part for part in parts if part)
        bar = f'<progress max="{self.total}" value="{self.done}"></progress> ' if self.total else ""
        return f"{bar}<code>{html.escape(f'{self.label}: {said}')}</code>"

    def update(self, done: int, fields: dict[str, Any]) -> None:
        self.done, self.fields = done, self.fields | fields
        if time.monotonic() - self._shown >= _OFTEN or done == self.total:
            self._write(self.html)

    def stop(self) -> None:
        self._write("" if self.transient else self.html)

    def _write(self, text: str) -> None:
        self._shown = time.monotonic()
        if self._cell is not None:
            self._cell.update({"text/html": text}, raw=True)


class _Shown:
    def __init__(
        self, total: int, label: str, stream: IO[str], patience: float, interval: float
    ) -> None:
        self.total, self.label, self.stream, self.interval = total, label, stream, interval
        self.begun = time.monotonic()
        self.next = self.begun + (patience if shows_bars(stream) else interval)
        self.bar: Bar | None = None

    def update(self, done: int) -> None:
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(done)
        elif now >= self.next:
            self.next = now + self.interval
            if shows_bars(self.stream):
                self.bar = Bar(self.stream, self.label, self.total, done)
                return
            pace = done / (now - self.begun) if now > self.begun else 0.0
            rate = f", {pace:.3g}/s" if pace else ""
            left = f", {time_left(self.total - done, pace)} left" if self.total and pace else ""
            line = f"{self.label}: {done}/{self.total or '?'}{rate}{left}"
            print(line, file=self.stream, flush=True)
