"""Ready for other devices: dtypes follow the inputs, and a steady flow step rarely waits for the
device.

Each ``float(tensor)``, ``bool(tensor)`` or ``.tolist()`` is a wait (``aten::_local_scalar_dense``
for each number), counted here on the CPU by a dispatch mode. What remains: the checks of inputs and
of finite results, some for each step; one for an iteration of a self-problem or of conjugate
gradients; three for a Newton step and two for a Sinkhorn step of the solver (errors, line search,
range of scalings)."""

from typing import ClassVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import advect as ad
from advect.functionals import SlicedOTDD, sliced_otdd


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for a device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            self.count += 1
        return func(*args, **kwargs)


class Dtypes(TorchDispatchMode):
    """Sizes of tensors by dtype, of those as large as the data."""

    def __init__(self, least):
        super().__init__()
        self.least, self.seen = least, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else (result,):
            if (
                isinstance(part, torch.Tensor)
                and part.is_floating_point()
                and part.numel() >= self.least
            ):
                self.seen.add(part.dtype)
        return result


def labeled(n, seed, shift=0.0, dtype=torch.float32, d=4):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) + 3 * y[:, None] + shift
    return ad.LabeledDataset(x.to(dtype), y)


class Counted(ad.Sinkhorn):
    """Remembers its iterations."""

    log: ClassVar[list[int]] = []

    def solve(self, *arguments, **options):
        solution = super().solve(*arguments, **options)
        self.log.append(solution.n_iter)
        return solution

    def solve_self(self, *arguments, **options):
        solution = super().solve_self(*arguments, **options)
        self.log.append(solution.n_iter)
        return solution


@pytest.mark.slow
@pytest.mark.parametrize(
    "label", [ad.NoLabels(), ad.MeansOnly(), ad.Bures(diagonal=True)], ids=repr
)
@pytest.mark.parametrize("limit", [None, "1MB"], ids=["dense", "blocked"])
def test_waits_of_a_steady_step(label, limit):
    source, target = labeled(600, 0), labeled(550, 1, shift=2.0)
    Counted.log.clear()
    energy = ad.OTDD(
        target, cost=ad.GroundCost(label=label), solver=Counted(tol=1e-3), memory_limit=limit
    )
    walk = ad.iterate(
        source, energy, integrator=ad.Euler(0.02)
    )  # slow enough for the solver's tolerance to stay
    for _ in range(4):
        next(walk)
    Counted.log.clear()
    with Waits() as waits:
        next(walk)
    iterations = sum(Counted.log)
    assert len(Counted.log) == 2
    assert waits.count <= 60 + 3 * iterations


def test_waits_of_a_sliced_step_do_not_grow():
    counts = []
    for n, projections in ((200, 20), (900, 80)):
        walk = ad.iterate(
            labeled(n, 0), SlicedOTDD(labeled(n, 1), projections), integrator=ad.Euler(0.2)
        )
        next(walk)
        with Waits() as waits:
            next(walk)
        counts.append(waits.count)
    assert counts[0] == counts[1] <= 40


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
class TestDtype:
    @pytest.mark.parametrize("limit", [None, "2MB"], ids=["dense", "blocked"])
    def test_matrices_have_the_dtype_of_the_data(self, dtype, limit, monkeypatch):
        monkeypatch.setattr(
            ad.Sinkhorn, "certify", lambda *_, **__: None
        )  # it looks at single blocks in float64, by design
        a, b = labeled(700, 0, dtype=dtype), labeled(650, 1, 2.0, dtype=dtype)
        with Dtypes(650 * 20) as seen:  # larger than the features
            distance = ad.otdd(
                a, b, solver=ad.Sinkhorn(epsilon=ad.Relative(0.2)), memory_limit=limit
            )
        assert seen.seen == {dtype}
        assert distance.potentials[0].dtype == torch.float64  # by design: potentials and values are

    def test_flows_keep_it(self, dtype):
        source, target = labeled(80, 0, dtype=dtype), labeled(70, 1, 2.0, dtype=dtype)
        for functional in (
            ad.OTDD(target),
            ad.OTDD(target, memory_limit="80kB"),
            ad.OTDD(target, solver=ad.MiniBatch(size=30)),
            ad.OTDD(target, solver=ad.NystromSinkhorn(rank=100)),
            SlicedOTDD(target, 10),
        ):
            assert ad.flow(source, functional, n_steps=2).dataset.x.dtype == dtype

    def test_mixed_inputs_are_promoted(self, dtype):
        a, b = labeled(60, 0, dtype=dtype), labeled(50, 1, 2.0, dtype=torch.float64)
        assert ad.otdd(a, b).plan().dtype == torch.float64
        assert sliced_otdd(a, b, 5).energy > 0
