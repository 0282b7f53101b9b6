"""Integrators and schedules against torch.optim and closed forms, every option."""

import math

import pytest
import torch
from flow_cases import bowl, draw, labeled, states

import advect as ad

MAKES = ad.Euler, ad.EulerMaruyama, ad.Momentum, ad.Adam


class TestIntegrators:
    """Velocities are −∇V for a potential whatever the weights, so the schemes are those of torch.optim on Σ V(x_i)."""

    source = ad.LabeledDataset(draw(6, 3, seed=1), [0] * 6, weights=[1, 2, 3, 4, 5, 6])

    @pytest.mark.parametrize(
        ("ours", "theirs"), [(ad.Euler(0.05), lambda p: torch.optim.SGD(p, 0.05)),
        (ad.Momentum(0.02), lambda p: torch.optim.SGD(p, 0.02, momentum=0.9)),
        (ad.Momentum(0.02, momentum=0.0), lambda p: torch.optim.SGD(p, 0.02)), (
        ad.Momentum(0.02, momentum=0.5, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.02, momentum=0.5, nesterov=True)),
        (ad.Adam(0.1), lambda p: torch.optim.Adam(p, 0.1)), (ad.Adam(0.1, beta1=0.5, beta2=0.8, floor=1e-3),
        lambda p: torch.optim.Adam(p, 0.1, betas=(0.5, 0.8), eps=1e-3)),
        (ad.EulerMaruyama(0.05, temperature=0.0), lambda p: torch.optim.SGD(p, 0.05))],
    )  # fmt: skip
    def test_as_torch(self, ours, theirs):
        last = states(self.source, ad.Potential(bowl), 40, integrator=ours)[-1].dataset.x
        x = self.source.x.clone().requires_grad_()
        optimizer = theirs([x])
        for _ in range(40):
            optimizer.zero_grad()
            bowl(x).sum().backward()
            optimizer.step()
        torch.testing.assert_close(last, x.detach(), rtol=1e-10, atol=1e-10)

    def test_noise_is_what_it_says(self):
        """x + τ v + √(2 τ T) ξ with ξ from the generator, on the features alone."""
        integrator = ad.EulerMaruyama(0.2, temperature=0.3)
        generator = torch.Generator().manual_seed(7)
        velocity = {"x": draw(5, 2, seed=1), "mean": draw(3, 2, seed=2)}
        displacement, state = integrator.displace(velocity, integrator.init(velocity), 0, generator)
        noise = torch.randn(5, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        expected = 0.2 * velocity["x"] + math.sqrt(0.12) * noise
        torch.testing.assert_close(displacement["x"], expected, rtol=0, atol=1e-15)
        assert torch.equal(displacement["mean"], 0.2 * velocity["mean"])
        assert state == {}

    @pytest.mark.parametrize("integrator", [make(0.1) for make in MAKES])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_all_tensors_move_and_keep_their_type(self, integrator, dtype):
        source = labeled([5, 7], 2, 1).to(dtype=dtype)
        energy = ad.OTDD(labeled([6, 6], 2, 2, shift=3.0).to(dtype=dtype))
        dynamics, generator = ad.JointFixedLabels(), torch.Generator().manual_seed(0)
        options = {"dynamics": dynamics, "integrator": integrator, "generator": generator}
        first, *_, last = states(source, energy, 3, **options)
        before, after = dynamics.parameters(first.dataset), dynamics.parameters(last.dataset)
        for name in ("x", "mean", "factor"):
            assert after[name].dtype == dtype
            assert not torch.equal(before[name], after[name])
        assert last.value < first.value

    def test_heun_is_the_exponential_to_second_order(self):
        """On ½‖x‖² a step of size τ multiplies by 1 − τ + τ²/2."""
        square = ad.Potential(lambda x, y: x.square().sum(1) / 2)
        last = states(self.source, square, 5, integrator=ad.Heun(lambda k: 0.1 * (k + 1)))[-1]
        factor = math.prod(1 - t + t**2 / 2 for t in (0.1, 0.2, 0.3, 0.4, 0.5))
        torch.testing.assert_close(last.dataset.x, factor * self.source.x, rtol=1e-13, atol=0)

    @pytest.mark.parametrize("make", MAKES)
    def test_schedules(self, make):
        """A schedule is asked for every step by its number, counted from 0, and each step is that much longer."""
        velocity, asked = {"x": draw(4, 2)}, []

        def schedule(step):
            asked.append(step)
            return 0.1 * (step + 1)

        options = {"temperature": 0.0} if make is ad.EulerMaruyama else {}
        varied, constant = make(schedule, **options), make(0.1, **options)
        state = constant.init(velocity)
        for step in range(3):
            longer, _ = varied.displace(velocity, state, step, None)
            plain, state = constant.displace(velocity, state, step, None)
            torch.testing.assert_close(longer["x"], (step + 1) * plain["x"], rtol=1e-14, atol=0)
        assert asked == [0, 1, 2]

    def test_decay(self):
        """Euler on ½‖x‖² multiplies by Π (1 − τ_k), to rounding."""
        schedule = ad.Decay(0.4, half_life=2, last=0.15)
        assert [schedule(k) for k in (0, 2, 4)] == [0.4, 0.2, 0.15]
        assert ad.Decay(0.4, half_life=2)(20) == pytest.approx(0.4 / 1024)
        square = ad.Potential(lambda x, y: x.square().sum(1) / 2)
        last = states(self.source, square, 6, integrator=ad.Euler(schedule))[-1]
        factor = math.prod(1 - max(0.4 * 0.5 ** (k / 2), 0.15) for k in range(6))
        torch.testing.assert_close(last.dataset.x, factor * self.source.x, rtol=1e-13, atol=0)

    @pytest.mark.parametrize(
        ("make", "name", "values"), [(ad.Momentum, "momentum", (1.0, -0.1)), (ad.Adam, "beta1", (1.0,)),
        (ad.Adam, "beta2", (-0.1, math.nan)), (ad.Adam, "floor", (0.0,)),
        (ad.EulerMaruyama, "temperature", (-1.0, "hot")), (lambda first: ad.Decay(first, 1), "first", (0.0,)),
        (lambda half_life: ad.Decay(0.1, half_life), "half_life", (0,)),
        (lambda last: ad.Decay(0.1, 1, last), "last", (-1,)),
        *((make, "step_size", (0, -0.1, math.nan, math.inf, "0.1", None)) for make in MAKES)],
    )  # fmt: skip
    def test_bad_options(self, make, name, values):
        for value in values:
            with pytest.raises(ad.InputError, match=name):
                make(**{name: value})
