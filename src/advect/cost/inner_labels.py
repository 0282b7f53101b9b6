"""Label distances by a transport problem for each pair of classes, which is solved on the processor
wherever the data are.

The samples go there once, the distances come back with their derivatives in one piece, and the
gradient is then a product on the device: nothing waits for a pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from advect._util.facts import remembered
from advect.data.dataset import LabeledDataset

Cloud = tuple[Tensor, Tensor]  # samples (n, d) and weights (n,)
Squared = Callable[[Cloud, Cloud], Tensor]


def class_samples(x: Tensor, y: Tensor, weights: Tensor) -> dict[int, Cloud]:
    """The samples of each class that has any, with weights that sum to one."""
    parts = {}
    for code in y.unique().tolist():
        rows = y == code
        mass = weights[rows].double()
        parts[code] = (
            x[rows],
            mass / mass.sum() if bool(mass.sum() > 0) else torch.full_like(mass, 1 / len(mass)),
        )
    return parts


def distances_on_host(
    source: LabeledDataset, target: LabeledDataset, squared: Squared, wanted: Tensor
) -> Tensor:
    """W₂² of the ``wanted`` pairs of classes (k, k'), zero for the others; differentiable."""
    first, second = (data.label_samples() for data in (source, target))
    hosts = [tuple(map(_host, side)) for side in (first, second)]
    found: Any = _OnHost.apply
    return found(first[0], second[0], first[1], second[1], hosts, squared, wanted.cpu().tolist())


def _host(tensor: Tensor) -> Tensor:
    """A copy on the processor, made once."""
    return remembered(tensor, "host", lambda: tensor.detach().cpu())


class _OnHost(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        other: Tensor,
        y: Tensor,
        other_y: Tensor,
        hosts: list[tuple[Tensor, Tensor, Tensor]],
        squared: Squared,
        wanted: list[list[bool]],
    ) -> Tensor:
        ctx.same = hosts[0][0] is hosts[1][0]
        ctx.needs = ctx.needs_input_grad[:2]
        shape = len(wanted), len(wanted[0])
        table = torch.zeros(shape, dtype=torch.float64)
        # for each class of the other side, how the distance to it changes with each sample
        slopes = [
            torch.zeros(k, *host[0].shape, dtype=torch.float64) if needs else torch.zeros(0)
            for k, host, needs in zip(reversed(shape), hosts, ctx.needs, strict=True)
        ]
        if ctx.same:
            slopes[1] = slopes[0]
        clouds = [class_samples(*host) for host in hosts]
        rows = [
            {k: (host[1] == k).nonzero()[:, 0] for k in side}
            for host, side in zip(hosts, clouds, strict=True)
        ]
        for i, j in ((i, j) for i in clouds[0] for j in clouds[1]):
            if not wanted[i][j] or (ctx.same and i >= j):
                continue
            ends = [
                (part[0].clone().requires_grad_(needs), part[1])
                for part, needs in zip((clouds[0][i], clouds[1][j]), ctx.needs, strict=True)
            ]
            with torch.enable_grad():
                value = squared(*ends)
            table[i, j] = value.detach()
            if ctx.same:
                table[j, i] = table[i, j]
            moving = [end[0] for end in ends if end[0].requires_grad]
            pulls = iter(torch.autograd.grad(value, moving) if moving else ())
            for side, (end, at, to) in enumerate(zip(ends, (i, j), (j, i), strict=True)):
                if end[0].requires_grad:
                    slopes[side][to, rows[side][at]] = next(pulls).double()
        sent = [table.flatten(), *(part.flatten() for part in slopes[: 1 if ctx.same else 2])]
        parts = torch.cat(sent).to(x.device).split([len(part) for part in sent])
        ctx.save_for_backward(y, other_y, *parts[1:])
        ctx.shapes = [part.shape for part in slopes]
        return parts[0].reshape(shape).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        grad = grads[0].double()
        codes, slopes = ctx.saved_tensors[:2], ctx.saved_tensors[2:]
        if ctx.same:
            grad = grad + grad.mT
        pulls: list[Tensor | None] = [None, None]
        for side in range(1 if ctx.same else 2):
            if ctx.needs[side]:
                each = (grad if side == 0 else grad.mT)[codes[side]].mT  # (k', n)
                pull = (each[:, :, None] * slopes[side].reshape(ctx.shapes[side])).sum(dim=0)
                pulls[side] = pull.to(grads[0].dtype)
        return (*pulls, None, None, None, None, None)
