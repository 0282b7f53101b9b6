"""An error instead of a hang, or of a gigabyte that is taken."""

import resource
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
    room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + (1 << 20)  # in kB
    try:
        yield
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < room
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
