"""Ctrl-C during a flow: the first asks it to stop after the step it is in, the second ends the
process at once.

So do SIGTERM, and SIGHUP of a terminal that was closed.

Files are whole at any moment, so even the second loses no more than the steps since the last
checkpoint."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advect.flows.loop import Step

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it, and a killed process cannot show it again


class Interruptible:
    """A context in which Ctrl-C is a request, and a callback that ends the flow when there has been
    one.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruptible:
        obey()
        if threading.current_thread() is threading.main_thread():  # others have no signals
            heard = [
                number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
            ]  # in the background
            self._before = {number: signal.signal(number, self._request) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for name in self._before:
            signal.signal(name, signal.SIG_DFL)
        # Straight to the file: a handler may run in the middle of a print.
        cursor = _SHOW_CURSOR if sys.stderr is not None and sys.stderr.isatty() else b""
        with suppress(OSError):  # the terminal may be gone
            os.write(2, cursor + b"\nstopping after this step; once more stops at once\n")

    def __call__(self, step: Step) -> None:
        if self.requested:
            raise KeyboardInterrupt


class NotedInterrupt:
    """A context in which Ctrl-C raises KeyboardInterrupt as ever, and is remembered until the
    context ends.

    Python drops an exception that is raised in a callback (of a weak reference, say, while a module
    is imported), and a library that is being loaded may turn it into an error of its own: ``obey``
    then raises it again, at the next moment when work could begin. Contexts may be nested; the
    outermost remembers."""

    _outermost: NotedInterrupt | None = None

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> NotedInterrupt:
        main_thread = threading.current_thread() is threading.main_thread()
        if main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            NotedInterrupt._outermost = self
        return NotedInterrupt._outermost or self

    def __exit__(self, *_: object) -> None:
        if NotedInterrupt._outermost is self:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            NotedInterrupt._outermost = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt


def obey() -> None:
    """Raise KeyboardInterrupt if one came, and was lost, since the command began.

    Example:
        >>> obey()
    """
    noted = NotedInterrupt._outermost
    if noted is not None and noted.came:
        raise KeyboardInterrupt
