"""Ctrl-C during a flow: the first asks it to stop after the step it is in, the second ends the process at once.

Files are whole at any moment, so even the second loses no more than the steps since the last checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advect.flow import Step

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it, and a killed process cannot show it again


class Interruptible:
    """A context in which Ctrl-C is a request, and a callback that ends the flow when there has been one."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruptible:
        if threading.current_thread() is threading.main_thread():  # others have no signals
            self._before = {number: signal.signal(number, self._request) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for name in _SIGNALS:
            signal.signal(name, signal.SIG_DFL)
        # Straight to the file: a handler may run in the middle of a print.
        cursor = _SHOW_CURSOR if sys.stderr is not None and sys.stderr.isatty() else b""
        os.write(2, cursor + b"\nstopping after this step; once more stops at once\n")

    def __call__(self, step: Step) -> None:
        if self.requested:
            raise KeyboardInterrupt


class NotedInterrupt:
    """A context in which Ctrl-C raises KeyboardInterrupt as ever, and is remembered."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> NotedInterrupt:
        self._active = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._active:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._active:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt
