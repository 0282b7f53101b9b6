"""Many small decompositions in parallel, one thread each: threads within one would gain little."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_WORTHWHILE = 100  # rows below which starting threads takes longer than the work


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], rows: int
) -> list[Result]:
    """``[function(item) for item in items]`` without gradients, for matrices of about so many rows."""
    items, threads = list(items), torch.get_num_threads()
    workers = min(threads, len(items)) if rows >= _WORTHWHILE else 1
    alone = torch.no_grad()(function)
    try:
        if workers <= 1:
            torch.set_num_threads(1)
            return [alone(item) for item in items]
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(alone, items))
    finally:
        torch.set_num_threads(threads)  # torch's default for new threads, and that of this one
