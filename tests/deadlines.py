"""An error instead of a hang."""

import signal
from contextlib import contextmanager


class Hang(BaseException):
    """Nothing that a reader would take for an error of the file."""


@contextmanager
def within(seconds):
    def late(*_):
        raise Hang(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
