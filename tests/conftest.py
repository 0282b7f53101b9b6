"""What holds for every test: one thread for each worker, as many workers as cores, coverings of grids, and the
processor time of all workers at the end.

Started in the background of a shell, processes ignore Ctrl-C, and so would all that the tests start and interrupt."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: also for what the tests start

import resource
import signal

import covering
import joblib
import psutil
import pytest
import torch

torch.set_num_threads(1)  # the tests' matrices are small, and the workers share the cores
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

WORKERS = pytest.StashKey[list[float]]()  # the processor seconds of workers that have ended


def processor_seconds(*, children: bool) -> float:
    """Of this process so far; with children, also of those that ended and those that run."""
    used = [resource.getrusage(resource.RUSAGE_SELF)]
    seconds = 0.0
    if children:
        used.append(resource.getrusage(resource.RUSAGE_CHILDREN))
        for child in psutil.Process().children(recursive=True):
            try:
                seconds += sum(child.cpu_times()[:4])  # its own and those of its dead children
            except psutil.Error:
                continue  # ended meanwhile
    return seconds + sum(one.ru_utime + one.ru_stime for one in used)


def pytest_configure(config) -> None:
    covering.WHOLE = config.option.markexpr != "not slow"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config) -> int:
    """``-n auto``: cores that this process may use, also in a container."""
    return joblib.cpu_count()


@pytest.hookimpl(tryfirst=True)  # before cases are left out by their marks
def pytest_collection_modifyitems(items) -> None:
    covering.mark_the_rest(items)


def pytest_sessionfinish(session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["processor"] = processor_seconds(children=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    spent = getattr(node, "workeroutput", {}).get("processor", 0.0)
    node.config.stash.setdefault(WORKERS, []).append(spent)


def pytest_terminal_summary(terminalreporter, config) -> None:
    workers = config.stash.get(WORKERS, [])
    total = sum(workers) + processor_seconds(children=not workers)
    terminalreporter.write_line(f"processor time: {total:.0f} s")
