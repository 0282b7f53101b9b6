"""Ready for other devices: dtypes follow the inputs, nothing mixes devices, and a steady flow step
waits for the device a handful of times.

There is no GPU here: ``advect.testing.Waits`` pretends one. The route that a device takes (ticks that
nobody watches, decompositions in one batch, inner problems on the processor) really runs, and is
compared with that of the processor."""

from itertools import islice

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import advect as ad
from advect._util.batched_norms import batched_norms
from advect._util.nuclear import nuclear_norms
from advect.cost.rounding import product_unit
from advect.functionals import SlicedOTDD, sliced_otdd
from advect.testing import Waits


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


MOST = 10  # waits in a steady step, whatever the labels cost and whatever moves
LABELS = {
    "none": ad.NoLabels(),
    "means": ad.MeansOnly(),
    "bures": ad.Bures(),
    "diagonal": ad.Bures(diagonal=True),
    "exact": ad.ExactLabelOT(),
    "by name": ad.ByName(2.0, plus=ad.Bures()),
    "values": ad.TargetValues(),
    "laws": ad.TargetLaws(),
}
DYNAMICS = {
    "fd": ad.FeatureDriven(),
    "fd detached": ad.FeatureDriven(through_laws=False),
    "jd-fl": ad.JointFixedLabels(),
    "jd-vl": ad.JointVariableLabels(),
}
WITHOUT_LAWS = ("exact", "values", "laws")  # of particles: they compare samples or targets
CASES = [
    (label, dynamics)
    for label in LABELS
    for dynamics in DYNAMICS
    if not (dynamics.startswith("jd") and label in WITHOUT_LAWS)
    and (label, dynamics) != ("by name", "jd-vl")  # refused: laws of samples have no names
]
QUICK = [("bures", "fd"), ("exact", "fd"), ("bures", "jd-vl")]


def small(label, dtype=torch.float64, d=3):
    """Two datasets for a label cost, with targets where it is about them."""
    sets = [labeled(n, seed, shift, dtype, d) for n, seed, shift in ((36, 0, 0.0), (30, 1, 2.0))]
    if label in ("values", "laws"):
        sets = [ad.LabeledDataset(data.x, targets=data.x[:, :1].exp()) for data in sets]
    return sets


def put(data, waits):
    """The dataset on the pretended device."""
    names = ("x", "y", "weights", "targets")
    return data.replace(**{name: waits.on_device(getattr(data, name)) for name in names})


def walk(sets, label, dynamics, **options):
    cost = ad.GroundCost(label=LABELS[label], **options.pop("features", {}))
    energy = ad.OTDD(sets[1], cost=cost, **options)
    return ad.iterate(sets[0], energy, dynamics=DYNAMICS[dynamics], integrator=ad.Euler(0.02))


def most_waits(label, dynamics, **options):
    """Of some steady steps, those of the one with the most: how many, and where."""
    found = []
    with Waits() as waits:
        sets = [put(data, waits) for data in small(label, torch.float32, options.pop("d", 3))]
        steps = walk(sets, label, dynamics, **options)
        list(islice(steps, 3))
        for _ in range(4):
            waits.clear()
            next(steps)
            found.append((waits.count, dict(waits.places)))
    return max(found, key=lambda each: each[0])


@pytest.mark.slow
@pytest.mark.parametrize(("label", "dynamics"), QUICK)
def test_waits_of_a_steady_step(label, dynamics):
    count, places = most_waits(label, dynamics)
    assert count <= MOST, places


@pytest.mark.slow
@pytest.mark.parametrize(("label", "dynamics"), CASES)
@pytest.mark.parametrize("options", [{}, {"memory_limit": "24kB"}, {"d": 12}], ids=str)
def test_waits_of_every_label_cost_and_dynamics(label, dynamics, options):
    if "memory_limit" in options and dynamics == "jd-vl" and label != "none":
        pytest.skip("a table of the laws of particles is as large as the cost")
    if "memory_limit" in options and label == "values":
        options = {"memory_limit": "28kB"}  # its points have a column more
    count, places = most_waits(label, dynamics, **options)
    assert count <= MOST, places


@pytest.mark.slow
def test_waits_with_a_sketch():
    count, places = most_waits("bures", "fd", d=12, features={"feature": ad.Sketch(4)})
    assert count <= MOST, places


def both(label, dynamics, steps):
    """The last of some steps, on the processor and on the pretended device, in float64."""
    here = list(islice(walk(small(label), label, dynamics), steps))[-1]
    with Waits() as waits:
        sets = [put(data, waits) for data in small(label)]
        there = list(islice(walk(sets, label, dynamics), steps))[-1]
        found = there.dataset.x.cpu()
    return here, there, found


@pytest.mark.slow
@pytest.mark.parametrize(("label", "dynamics"), QUICK[:2])
def test_the_route_of_a_device_gives_the_same(label, dynamics):
    here, there, x = both(label, dynamics, 3)
    assert there.value == pytest.approx(here.value, rel=1e-12)
    torch.testing.assert_close(x, here.dataset.x, rtol=1e-12, atol=1e-12)
    assert float(there.state["iterations"]) == float(here.state["iterations"])


@pytest.mark.slow
@pytest.mark.parametrize(("label", "dynamics"), CASES)
def test_every_route_of_a_device_gives_the_same(label, dynamics):
    here, there, x = both(label, dynamics, 4)
    assert there.value == pytest.approx(here.value, rel=1e-10)
    torch.testing.assert_close(x, here.dataset.x, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("sizes", "d"), [(((7, 9, 4), (5, 9)), 20), (((30, 12), (25, 40, 3)), 12), (((4,) * 3,) * 2, 4)]
)
def test_decompositions_in_one_batch_are_those_one_by_one(sizes, d, symmetric):
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(sum(part), d, generator=generator).double() for part in sizes]
    factors[0][0] = factors[0][1]  # a direction less
    found = []
    for norms in (nuclear_norms, batched_norms):
        a, b = (part.clone().requires_grad_() for part in factors)
        b, b_sizes = (a, sizes[0]) if symmetric else (b, sizes[1])
        made = norms(a, sizes[0], b, b_sizes)
        (made * torch.arange(1.0, 1 + made.numel()).view_as(made).double()).sum().backward()
        found.append((made.detach(), a.grad, b.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12 * float(one.abs().max()))


def test_tensors_of_two_devices_are_not_mixed():
    with Waits() as waits:
        x = waits.on_device(torch.ones(3))
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)
        assert (x + torch.tensor(1.0)).sum().item() == 6
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wait", "count"),
    [
        (lambda x: float(x.sum()), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x[x > 1], 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: torch.unique(x), 1),
        (lambda x: x.long().bincount(), 2),
        (lambda x: x.cpu(), 1),
        (lambda x: torch.equal(x, x), 1),
        (lambda x: torch.tensor([1.0], device=x.device), 1),
        (lambda x: x.new_tensor([1.0]), 1),
        (lambda x: torch.linalg.eigh(torch.outer(x, x)), 1),
        (lambda x: torch.linalg.svdvals(torch.outer(x, x)), 2),
        (lambda x: x.repeat_interleave(x.long()), 1),
        (lambda x: torch.where(x > 1, x, 0).cumsum(0) @ x, 0),
        (lambda x: torch.full((3,), 2.0, device=x.device) + x[1:].sum(), 0),
    ],
)
def test_what_waits(wait, count):
    with Waits() as waits:
        x = waits.on_device(torch.arange(1.0, 4.0))
        wait(x)
    assert waits.count == count


def test_waits_of_a_sliced_step_do_not_grow():
    counts = []
    for n, projections in ((60, 10), (150, 30)):
        with Waits() as waits:
            sets = [put(labeled(n, seed), waits) for seed in (0, 1)]
            steps = ad.iterate(sets[0], SlicedOTDD(sets[1], projections), integrator=ad.Euler(0.2))
            next(steps)
            waits.clear()
            next(steps)
        counts.append(waits.count)
    assert counts[0] == counts[1] <= 40


def test_tf32_is_in_the_bounds():
    cuda, exact = torch.device("cuda"), torch.finfo(torch.float32).eps / 2
    assert product_unit(torch.float32, cuda) == exact
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert product_unit(torch.float32, cuda) == 2.0**-11
        assert product_unit(torch.float32, torch.device("cpu")) == exact
        assert product_unit(torch.float64, cuda) == torch.finfo(torch.float64).eps / 2
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
class TestDtype:
    @pytest.mark.slow
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

    @pytest.mark.slow
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
