"""Ctrl-C during a flow: the first asks it to stop after the current step, the second ends the process.
SIGTERM, and SIGHUP of a closed terminal, do the same. Files are complete at any moment."""

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

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it, and a killed process cannot show it again


class Interruptible:
    """A context in which signals are requests, and a callback that then ends the flow."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruptible:
        if threading.current_thread() is threading.main_thread():  # others have no signals
            heard = [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._request) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for name in self._before:
            signal.signal(name, signal.SIG_DFL)
        # written directly: a handler may run in the middle of a print
        cursor = _SHOW_CURSOR if sys.stderr is not None and sys.stderr.isatty() else b""
        with suppress(OSError):  # the terminal may be gone
            os.write(2, cursor + b"\nstopping after this step; once more stops at once\n")

    def __call__(self, step: Step) -> None:
        if self.requested:
            raise KeyboardInterrupt
