"""An error instead of a hang, or of a gigabyte that is taken."""

import resource
import signal
from contextlib import contextmanager


class Hang(BaseException):
    """Nothing that a reader would take for an error of the file."""


@contextmanager
def within(seconds, of_work=False):
    """So many seconds, or as many of the processor."""

    def late(*_):
        raise Hang(f"still waiting after {seconds} s")

    number, timer = signal.SIGALRM, signal.ITIMER_REAL
    if of_work:
        number, timer = signal.SIGPROF, signal.ITIMER_PROF
    before = signal.signal(number, late)
    signal.setitimer(timer, seconds)
    room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + (1 << 20)  # in kB
    try:
        yield
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < room
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
