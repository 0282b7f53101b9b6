"""A door for kernels that never write a cost down: sums over pairs of points, by whoever does them
best on a device (KeOps, FlashSinkhorn, a kernel of one's own).

All that entropic transport asks of the cost C_ij = ½‖x_i − y_j‖² + T[c_i, c'_j] are sums

    log Σ_j exp(h_j − C_ij/ε)         and         Σ_j exp((f_i + g_j − C_ij)/ε) v_j

A ``Stream`` makes these from the points. ``register_stream`` says which one serves a kind of device;
costs in blocks whose kernel has no room in memory then go through it, in distances and flows alike.
Without one, and for costs that are no squared distances, rows are made in blocks as ever
(``advect.ot.row_kernel``), which is what ``TorchStream`` does too, as the reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from advect._util.checks import check_kind
from advect.errors import InputError
from advect.ot.cost import Cost, Labels
from advect.ot.kernel import Kernel
from advect.ot.log_sums import fill_kernel


class Stream(ABC):
    """Sums over pairs of points. One's own writes ``log_sums``; ``products`` where it is faster than
    the logarithms of its positive and its negative part.

    Example:
        >>> import torch, advect as ad
        >>> class Plain(ad.ot.Stream):
        ...     def log_sums(self, x, y, shift, epsilon, labels):
        ...         costs = torch.cdist(x, y).square() / 2
        ...         if labels is not None:
        ...             costs = costs + labels.values.to(x)[labels.codes[0]][:, labels.codes[1]]
        ...         return torch.logsumexp(shift - costs / epsilon, dim=1)
        >>> ad.testing.check_kernel(lambda cost: ad.ot.StreamedKernel(cost, Plain()), rtol=1e-7)
    """

    @abstractmethod
    def log_sums(
        self, x: Tensor, y: Tensor, shift: Tensor, epsilon: float, labels: Labels | None
    ) -> Tensor:
        """log Σ_j exp(shift_j − C_ij/ε), (n,), where a shift may be −inf."""

    def products(
        self,
        x: Tensor,
        y: Tensor,
        potentials: tuple[Tensor, Tensor],
        epsilon: float,
        v: Tensor,
        labels: Labels | None,
    ) -> Tensor:
        """Σ_j exp((f_i + g_j − C_ij)/ε) v_j, (n,), for numbers v of either sign."""
        f, g = (part.to(v.dtype) / epsilon for part in potentials)
        parts = (v.clamp_min(0), (-v).clamp_min(0))
        up, down = (
            _one_each(self.log_sums(x, y, g + part.log(), epsilon, labels), x) for part in parts
        )
        return torch.exp(f + up) - torch.exp(f + down)


class TorchStream(Stream):
    """The reference, in plain torch: so many rows of costs at a time.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> sums = ad.ot.TorchStream().log_sums(x, x, torch.zeros(2), 1.0, None).exp()
        >>> [round(one, 4) for one in sums.tolist()]    # 1 + exp(-2)
        [1.1353, 1.1353]
    """

    def __init__(self, rows: int = 1024) -> None:
        self.rows = rows

    def log_sums(
        self, x: Tensor, y: Tensor, shift: Tensor, epsilon: float, labels: Labels | None
    ) -> Tensor:
        squares, parts = y.square().sum(dim=1), []
        for rows in torch.arange(len(x), device=x.device).split(self.rows):
            costs = torch.addmm(
                x[rows].square().sum(dim=1)[:, None] + squares, x[rows], y.T, alpha=-2
            )
            costs = costs.clamp_min_(0).div_(2)
            if labels is not None:
                table = labels.values.to(costs)[labels.codes[0][rows]]
                costs += table.index_select(1, labels.codes[1])
            parts.append(torch.logsumexp(shift - costs / epsilon, dim=1))
        return torch.cat(parts)


class StreamedKernel(Kernel):
    """The kernel of a cost between points, by a ``Stream``; nothing n × m is kept."""

    def __init__(self, cost: Cost, stream: Stream, dtype: torch.dtype | None = None) -> None:
        points = cost.points
        assert points is not None, "a stream needs points"
        self.source, self.stream, self.shape = cost, stream, cost.shape
        self.dtype = dtype or cost.dtype
        self.ends = points.x.to(self.dtype), points.y.to(self.dtype)
        self.labels: Labels | None = points.labels

    @property
    def cost_dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def costly(self) -> bool:
        return True

    def most(self) -> float:
        return self.source.extremes()[1]

    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        self.f, self.g, self.epsilon = f, g, epsilon

    def times(self, v: Tensor) -> Tensor:
        return self._products(self.ends, (self.f, self.g), v, self.labels)

    def transposed(self, u: Tensor) -> Tensor:
        return self._products(self.ends[::-1], (self.g, self.f), u, _turned(self.labels))

    def _products(
        self,
        ends: tuple[Tensor, ...],
        potentials: tuple[Tensor, Tensor],
        v: Tensor,
        labels: Labels | None,
    ) -> Tensor:
        x, y = ends
        columns = v[:, None] if v.ndim == 1 else v
        found = [
            _one_each(self.stream.products(x, y, potentials, self.epsilon, column, labels), x)
            for column in columns.T
        ]
        return torch.stack(found, dim=1).reshape(len(x), *v.shape[1:])

    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        product = self.times(v)
        return product, self.transposed(between(product, slice(None)))

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        for block in self.source.blocks():
            rows = self.source.rows(block).to(self.dtype)
            yield block, fill_kernel(rows, self.f[block], self.g, self.epsilon, rows.clone())

    def softmins(
        self, g: Tensor, a: Tensor, b: Tensor, epsilon: float, damping: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        f = self._softmin(self.ends, g, b, epsilon, self.labels) * damping
        return f, damping * self._softmin(self.ends[::-1], f, a, epsilon, _turned(self.labels))

    def _softmin(
        self,
        ends: tuple[Tensor, ...],
        potential: Tensor,
        weights: Tensor,
        epsilon: float,
        labels: Labels | None,
    ) -> Tensor:
        (x, y), shift = ends, (potential / epsilon + weights.log()).to(self.dtype)
        sums = _one_each(self.stream.log_sums(x, y, shift, epsilon, labels), x)
        return -epsilon * sums.double()

    def widened(self) -> StreamedKernel:
        return StreamedKernel(self.source, self.stream, torch.float64)

    def seconds(self) -> float:
        return 0.0  # it is what was asked for

    def release(self) -> None:
        return


def _one_each(sums: Tensor, x: Tensor) -> Tensor:
    """What a stream has made, one number for each point; an error where it is anything else."""
    what = "a stream must return a tensor with one number for each point"
    remedy = f"Return ({len(x)},); ad.testing.check_kernel tries it."
    check_kind(what, sums, Tensor, remedy)
    if sums.shape != (len(x),):
        raise InputError(what, f"shape {tuple(sums.shape)}", remedy)
    return sums


class _Turned:
    """Labels with rows and columns exchanged."""

    def __init__(self, labels: Labels) -> None:
        self.values, self.codes = labels.values.mT, (labels.codes[1], labels.codes[0])


def _turned(labels: Labels | None) -> Labels | None:
    return None if labels is None else _Turned(labels)


_STREAMS: dict[str, Stream] = {}


def register_stream(device: str, stream: Stream | None) -> None:
    """Let a stream serve all costs in blocks on a kind of device ("cuda", "cpu"), or none again.

    It serves where a kernel does not fit into ``memory_limit`` and the cost is one of points:
    squared distances of features, with any label cost that has a table of laws.

    Example:
        >>> import advect as ad
        >>> ad.ot.register_stream("cpu", ad.ot.TorchStream())
        >>> data = ad.datasets.gaussians(90)
        >>> streamed = ad.otdd(data, data, memory_limit="100kB").value
        >>> ad.ot.register_stream("cpu", None)
        >>> streamed < 1e-3
        True
    """
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError):
        raise InputError("no such kind of device", repr(device), 'Pass "cuda" or "cpu".') from None
    if kind != device:
        raise InputError(
            "a stream serves all devices of a kind", repr(device), f"Pass {kind!r}."
        ) from None
    if stream is None:
        _STREAMS.pop(kind, None)
        return
    remedy = "Pass an object of a subclass of ad.ot.Stream."
    check_kind("a stream makes sums over pairs of points", stream, Stream, remedy)
    _STREAMS[kind] = stream


def streamed(cost: Cost, dtype: torch.dtype | None, room: int | None) -> StreamedKernel | None:
    """The kernel by the stream of the device, where there is one and the kernel has no room."""
    stream = _STREAMS.get(cost.device.type)
    room = cost.room if room is None else room
    if stream is None or room is None or cost.bytes(dtype) <= room or cost.points is None:
        return None
    return StreamedKernel(cost, stream, dtype)
