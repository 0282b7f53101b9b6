"""The ranks of one flow: joining and leaving, and the few collectives they use.

Every collective goes through ``Group``, which counts bytes and turns a failure (a rank has died, or
does not answer within the timeout) into ``LostRankError``. A
process that dies closes its connections, which gloo sees at once; one that hangs counts as dead after the
timeout. A rank that ends with an error closes its connections, so the others stop as well."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from advect._util import AdvectError, InputError, check_positive, refuse_if


def rows_of(n: int, rank: int, size: int) -> slice:
    """The rows of one rank. They are consecutive, and the numbers of rows of two ranks differ by at most one.

    Example:
        >>> [rows_of(7, rank, 3) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    least, more = divmod(n, size)
    start = rank * least + min(rank, more)
    return slice(start, start + least + (rank < more))


class LostRankError(AdvectError, RuntimeError):
    """Another rank has failed or does not answer, so this one cannot continue.

    Example:
        >>> import advect as ad
        >>> issubclass(LostRankError, AdvectError)
        True
    """


@dataclass(eq=False)
class Group:
    """The ranks that share a flow; a single process unless ``group`` has joined several.

    Attributes:
        rank: of this process, from 0.  size: how many there are.
        device: where this rank's tensors should be.
        sent: bytes of all messages so far.
        parted: whether the group has ended; collectives are no longer possible.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    sent: int = 0
    parted: bool = False

    def rows(self, n: int) -> slice:
        """Which of n rows are this rank's."""
        return rows_of(n, self.rank, self.size)

    def sum(self, values: Tensor) -> Tensor:
        """Σ over ranks, the same bits on all of them."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def of_first(self, values: Tensor) -> Tensor:
        """The tensors of rank 0, on every rank."""
        return self.sum(values if self.rank == 0 else torch.zeros_like(values))

    def max(self, values: Tensor) -> Tensor:
        """The largest over ranks, entry by entry."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def largest(self, number: float) -> float:
        """The largest of the ranks' numbers."""
        return float(self.max(torch.tensor([number], dtype=torch.float64, device=self.device)))

    def each(self, function: Callable[[], Any]) -> Any:
        """The result of the function on this rank. An error on one rank is raised on all ranks."""
        result, failure = None, None
        try:
            result = function()
        except InputError as error:
            failure = error
        if self.largest(float(failure is not None)):
            raise failure or InputError(
                "another rank raised an error for its rows", "an error there", "See its message."
            )
        return result

    def _reduced(self, values: Tensor, operation: Any) -> Tensor:
        if self.size == 1:
            return values
        values = values.contiguous().clone()
        with self._collective(values):
            dist.all_reduce(values, op=operation)
        return values

    def gather(self, rows: Tensor, n: int) -> Tensor:
        """All n rows, from each rank's own."""
        if self.size == 1:
            return rows
        most = -(-n // self.size)  # shards differ by a row at most: shorter ones are padded
        mine = rows.new_zeros(most, *rows.shape[1:])
        mine[: len(rows)] = rows
        every = rows.new_empty(self.size * most, *rows.shape[1:])
        parts = list(every.split(most))
        with self._collective(every):
            dist.all_gather(parts, mine)
        return torch.cat(
            [part[: _length(rows_of(n, rank, self.size))] for rank, part in enumerate(parts)]
        )

    def first(self, function: Callable[[], Any]) -> Any:
        """The result of the function on rank 0 (plain JSON), on every rank. An error on rank 0 is raised
        everywhere.
        """
        if self.size == 1:
            return function()
        answer: dict[str, Any] = {}
        failure: BaseException | None = None
        if self.rank == 0:
            try:
                answer = {"value": function()}
            except InputError as error:
                answer, failure = {"input": [error.what, str(error.got), error.remedy]}, error
            except Exception as error:
                answer, failure = {"failed": f"{type(error).__name__}: {error}"}, error
        answer = self._broadcast(answer)
        if failure is not None:
            raise failure
        if "input" in answer:
            raise InputError(*answer["input"])
        if "failed" in answer:
            raise LostRankError(
                f"rank 0 failed ({answer['failed']}), and rank {self.rank} of {self.size} stops with "
                "it."
            )
        return answer["value"]

    def _broadcast(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A small JSON object from rank 0 to all."""
        content = torch.frombuffer(bytearray(json.dumps(answer).encode()), dtype=torch.uint8).to(
            self.device
        )
        length = torch.tensor([len(content)], device=self.device)
        with self._collective(length):
            dist.broadcast(length, src=0)
        content = content if self.rank == 0 else content.new_empty(int(length))
        with self._collective(content):
            dist.broadcast(content, src=0)
        return json.loads(bytes(content.tolist()))

    def wait(self) -> None:
        """Wait until every rank has called this method."""
        self.sum(torch.zeros(1, device=self.device))

    def require_same(self, what: str, *tensors: Tensor) -> None:
        """An error on every rank if these tensors are not the same on all, to the bit."""
        if self.size == 1:
            return
        marks = self.gather(
            torch.tensor([_fingerprint(tensors)], device=self.device), self.size
        ).tolist()
        others = [rank for rank, mark in enumerate(marks) if mark != marks[0]]
        refuse_if(
            others,
            f"{what} must be the same on every rank",
            f"others on rank {', '.join(map(str, others))} than on rank 0",
            "Give every rank the same files and seeds, and stochastic integrators a generator "
            "of the same seed.",
        )

    @contextmanager
    def _collective(self, payload: Tensor) -> Iterator[None]:
        if self.parted:
            raise LostRankError(
                f"rank {self.rank} of {self.size} was interrupted or has lost another rank. Start "
                "all ranks again."
            )
        begun = time.perf_counter()
        try:
            yield
        except RuntimeError as error:  # the base class of all errors of torch.distributed
            self.parted = True
            waited = time.perf_counter() - begun
            reason = (
                str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            )
            raise LostRankError(
                f"rank {self.rank} of {self.size} has lost another rank, which failed or did not "
                f"answer for {waited:.1f} s "
                f"({reason}). Start all ranks again and resume from the last checkpoint."
            ) from error
        self.sent += payload.numel() * payload.element_size()


@contextmanager
def group(*, backend: str | None = None, timeout: float = 300.0) -> Iterator[Group]:
    """Join the ranks that ``torchrun`` has started; a group of one where there are none.

    An existing process group is used and not closed.

    Args:
        backend: of torch.distributed; by default nccl where there is a GPU, gloo otherwise.
        timeout: seconds to wait for a rank that does not answer. It must be longer than the work of rank 0
            alone between two steps (checkpoints, metrics). With gloo, the end of a process is noticed at
            once.

    Example:
        >>> import advect as ad
        >>> with ad.distributed.group() as ranks:
        ...     print(ranks.rank, ranks.size)
        0 1
    """
    check_positive("timeout", timeout)
    joined = not dist.is_initialized()
    if joined and int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        yield Group(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        return
    backend = backend or (
        dist.get_backend() if not joined else "nccl" if torch.cuda.is_available() else "gloo"
    )
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if joined:
        _join(backend, timeout)
    try:
        ranks = Group(dist.get_rank(), dist.get_world_size(), device)
        yield ranks
        if not ranks.parted:
            ranks.wait()  # no rank ends while another one needs it
    finally:
        if joined:
            dist.destroy_process_group()


def _join(backend: str, timeout: float) -> None:
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise LostRankError(
            f"the ranks could not connect ({reason}). Start them with torchrun, which sets "
            "RANK, WORLD_SIZE, MASTER_ADDR "
            "and MASTER_PORT, and check that the machines reach each other."
        ) from error


def _length(rows: slice) -> int:
    return rows.stop - rows.start


def _fingerprint(tensors: tuple[Tensor, ...]) -> int:
    """A fingerprint of bits and positions; the sums are exact in any order."""
    total = 0
    for tensor in tensors:
        whole = torch.int32 if tensor.element_size() == 4 else torch.int64
        bits = tensor.detach().contiguous().reshape(-1).view(whole)
        places = 1 + torch.arange(min(len(bits), _BLOCK), device=bits.device)
        for block in bits.split(_BLOCK):
            total = (31 * total + int((block * places[: len(block)]).sum()) + len(block)) % (
                1 << 62
            )
    return total


_BLOCK = 1 << 22
