"""Kernels that stream: the same sums without a cost, and the door they come through."""

import pytest
import torch

import advect as ad


@pytest.fixture
def registered():
    stream = Counting()
    ad.ot.register_stream("cpu", stream)
    yield stream
    ad.ot.register_stream("cpu", None)


class Counting(ad.ot.TorchStream):
    """The reference, which notes that it was asked."""

    asked = 0

    def log_sums(self, *arguments):
        self.asked += 1
        return super().log_sums(*arguments)


@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_the_reference_keeps_the_promises_of_a_kernel(rows):
    ad.testing.check_kernel(lambda cost: ad.ot.StreamedKernel(cost, ad.ot.TorchStream(rows)))


def test_kernels_by_rows_keep_them_too():
    ad.testing.check_kernel(lambda cost: cost.kernel())
    ad.testing.check_kernel(lambda cost: cost.kernel(room=0))


def test_a_wrong_stream_is_found():
    class Wrong(ad.ot.TorchStream):
        def log_sums(self, x, y, shift, epsilon, labels):
            return super().log_sums(x, y, shift, epsilon, None)  # without what labels cost

    with pytest.raises(AssertionError, match="must be K v"):
        ad.testing.check_kernel(lambda cost: ad.ot.StreamedKernel(cost, Wrong()))


def test_distances_go_through_what_is_registered(registered):
    generator = torch.Generator().manual_seed(0)
    a, b = (ad.datasets.gaussians(200, generator=generator).to(dtype=torch.float64) for _ in "ab")
    solver = ad.Sinkhorn(epsilon=1.0)
    streamed = ad.otdd(a, b, solver=solver, memory_limit="200kB").energy
    assert registered.asked
    asked = registered.asked
    assert streamed == pytest.approx(ad.otdd(a, b, solver=solver).energy, rel=1e-9)
    assert registered.asked == asked  # matrices that fit are kept


def test_only_streams_are_registered():
    with pytest.raises(ad.InputError, match="stream"):
        ad.ot.register_stream("cpu", torch.logsumexp)


@pytest.mark.parametrize("device", ["cuda:0", "nope", 5])
def test_streams_serve_kinds_of_devices(device):
    with pytest.raises(ad.InputError, match=r"kind.*Pass ['\"]c"):
        ad.ot.register_stream(device, ad.ot.TorchStream())


@pytest.mark.parametrize("change", [lambda sums: sums[:, None], lambda sums: sums[:-1], list])
def test_what_a_stream_returns_is_one_number_for_each_point(change):
    class Wrong(ad.ot.TorchStream):
        def log_sums(self, x, y, shift, epsilon, labels):
            return change(super().log_sums(x, y, shift, epsilon, labels))

    with pytest.raises(ad.InputError, match=r"one number for each point; got .*Return \(12,\)"):
        ad.testing.check_kernel(lambda cost: ad.ot.StreamedKernel(cost, Wrong()))
