"""Functionals against numpy, loops and central differences; their algebra and their memory."""

import math

import numpy as np
import oracles
import pytest
import torch
from flow_cases import draw, first_velocity, labeled, value_at

import advect as ad
from advect.functionals import interaction
from advect.functionals.interaction import Radial

MATRICES, OFFSETS = draw(3, 2, 4, seed=11), draw(3, 2, seed=12)
DIRECTION, CENTRE, ZERO = draw(4, seed=13), draw(4, seed=14), torch.zeros(2)


def affine(matrices, offsets):
    """‖A x − b‖ for one sample in numpy, with one matrix and offset or those of its class."""

    def value(x, y):
        matrix = matrices[y] if matrices.ndim == 3 else matrices
        offset = offsets[y] if offsets.ndim == 2 else offsets
        return np.linalg.norm(matrix.numpy() @ x - offset.numpy())

    return value


POTENTIALS = {  # name: (potential, the same for one sample in numpy)
    "norm": (ad.norm(), lambda x, y: np.linalg.norm(x)),
    "affine": (ad.affine_norm(MATRICES[0], OFFSETS[0]), affine(MATRICES[0], OFFSETS[0])),
    "affine no offset": (ad.affine_norm(MATRICES[0]), affine(MATRICES[0], ZERO)),
    "affine each": (ad.affine_norm(MATRICES, OFFSETS), affine(MATRICES, OFFSETS)),
    "affine each, no offset": (ad.affine_norm(MATRICES), affine(MATRICES, ZERO)),
    "affine shared offset": (ad.affine_norm(MATRICES, OFFSETS[1]), affine(MATRICES, OFFSETS[1])),
    "affine shared matrix": (ad.affine_norm(MATRICES[2], OFFSETS), affine(MATRICES[2], OFFSETS)),
    "affine some": (
        ad.affine_norm(MATRICES, OFFSETS, classes=[0, 2]),
        lambda x, y: affine(MATRICES, OFFSETS)(x, y) if y in (0, 2) else 0.0,
    ),
    "ball": (ad.ball(CENTRE, 1.5), lambda x, y: max(np.linalg.norm(x - CENTRE.numpy()) - 1.5, 0)),
    "hinge": (
        ad.hinge(DIRECTION),
        lambda x, y: max(0, (1 if y == 1 else -1) * (x @ DIRECTION.numpy())),
    ),
    "hinge options": (
        ad.hinge(DIRECTION, 0.3, margin=0.7, positive=[0, 2]),
        lambda x, y: max(0, 0.7 + (1 if y in (0, 2) else -1) * (x @ DIRECTION.numpy() - 0.3)),
    ),
    "collapse": (ad.collapse(2), lambda x, y: x[2] ** 2 / 2),
    "collapse value": (ad.collapse(-1, 0.4), lambda x, y: (x[-1] - 0.4) ** 2 / 2),
}


def velocity_of(energy, data):
    return first_velocity(data, energy, ad.FeatureDriven())["x"]


def assert_gradient(energy, data, rtol):
    """−velocity · mass is the gradient, to what central differences with step 1e-6 leave."""
    velocity = velocity_of(energy, data)
    gradient = oracles.central_differences(lambda x: energy(data.replace(x=x)).item(), data.x)
    torch.testing.assert_close(-velocity * data.weights[:, None], gradient, rtol=rtol, atol=1e-8)


class TestPotential:
    data = labeled([5, 4, 6], 4, 3, weighted=True)

    @pytest.mark.parametrize("name", POTENTIALS)
    def test_ready_made(self, name):
        v, plain = POTENTIALS[name]
        energy = ad.Potential(v)
        rows = zip(self.data.weights, self.data.x.numpy(), self.data.y.tolist(), strict=True)
        expected = float(sum(weight * plain(x, y) for weight, x, y in rows))
        assert energy(self.data).item() == pytest.approx(expected, rel=1e-13)
        assert_gradient(energy, self.data, rtol=1e-7)

    @pytest.mark.parametrize("name", ["norm", "affine no offset", "affine each, no offset", "ball"])
    def test_no_direction_at_the_minimum(self, name):
        v, _ = POTENTIALS[name]
        origin = CENTRE if name == "ball" else torch.zeros(4, dtype=torch.float64)
        data = ad.LabeledDataset(origin.repeat(2, 1), [0, 1])
        assert not velocity_of(ad.Potential(v), data).any()

    def test_separates_classes(self):
        """The flow of the hinge ends at its minimum, 0: linearly separated with the margin asked for."""
        data = labeled([20, 20], 2, 1, apart=0.0)
        result = ad.flow(data, ad.Potential(ad.hinge([1.0, 0.0], 0.2, margin=0.3)), n_steps=60)
        side = result.dataset.x[:, 0] - 0.2
        assert result.values[-1] == 0
        assert side[result.dataset.y == 1].max() <= -0.3
        assert side[result.dataset.y == 0].min() >= 0.3


INTERACTIONS = {  # name: (radial form, general form, one pair in numpy)
    "repulsion": (
        ad.repulsion(),
        lambda dx, same: torch.exp(-torch.linalg.vector_norm(dx, dim=-1)) * ~same,
        lambda d, same: 0.0 if same else math.exp(-np.linalg.norm(d)),
    ),
    "repulsion length": (
        ad.repulsion(2.5),
        lambda dx, same: torch.exp(-torch.linalg.vector_norm(dx, dim=-1) / 2.5) * ~same,
        lambda d, same: 0.0 if same else math.exp(-np.linalg.norm(d) / 2.5),
    ),
    "spreading": (
        ad.spreading(),
        lambda dx, same: -dx.square().sum(-1) * ~same,
        lambda d, same: 0.0 if same else -float(d @ d),
    ),
    "attraction": (
        ad.attraction(),
        lambda dx, same: dx.square().sum(-1) / 2 * same,
        lambda d, same: float(d @ d) / 2 if same else 0.0,
    ),
    "own": (
        Radial(lambda squared, same: torch.log1p(squared) + same),
        lambda dx, same: torch.log1p(dx.square().sum(-1)) + same,
        lambda d, same: math.log1p(d @ d) + same,
    ),
}


class TestInteraction:
    data = labeled([7, 4, 6], 3, 5, weighted=True)

    @pytest.mark.parametrize("name", INTERACTIONS)
    @pytest.mark.parametrize("entries", [1, 100, 4_000_000])
    def test_blocks_forms_and_double_loop(self, monkeypatch, name, entries):
        """Rows one by one, in blocks with a remainder, all at once; radial or general: the same, to 1e-12."""
        monkeypatch.setattr(interaction, "_BLOCK_ENTRIES", entries)
        radial, general, plain = INTERACTIONS[name]
        x, y, w = self.data.x.numpy(), self.data.y.numpy(), self.data.weights.numpy()
        pairs = [(i, j) for i in range(len(x)) for j in range(len(x))]
        expected = sum(w[i] * w[j] * plain(x[i] - x[j], bool(y[i] == y[j])) for i, j in pairs) / 2
        velocities = []
        for form in (radial, general):
            assert ad.Interaction(form)(self.data).item() == pytest.approx(expected, rel=1e-12)
            velocities.append(velocity_of(ad.Interaction(form), self.data))
        torch.testing.assert_close(velocities[0], velocities[1], rtol=1e-12, atol=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", INTERACTIONS)
    def test_gradient(self, name):
        assert_gradient(ad.Interaction(INTERACTIONS[name][0]), self.data, rtol=1e-7)

    def test_what_does_not_depend_on_differences_does_not_move(self):
        for w in (lambda dx, same: same.double(), lambda dx, same: 0 * dx.sum(-1)):
            assert not velocity_of(ad.Interaction(w), self.data).any()

    @pytest.mark.parametrize("name", INTERACTIONS)
    def test_coinciding_points(self, name):
        """Two particles at one place have no direction: finite velocities, as if the pair were not there."""
        x = self.data.x.clone()
        x[8], x[9] = x[0], x[1]  # of another class
        radial, general, _ = INTERACTIONS[name]
        forms = ad.Interaction(radial), ad.Interaction(general)
        a, b = (velocity_of(form, self.data.replace(x=x)) for form in forms)
        assert bool(torch.isfinite(a).all())
        # ‖dx‖² of a coinciding pair is 0 only up to rounding
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("name", INTERACTIONS)
    def test_far_from_the_origin(self, name, dtype):
        """Only differences count. A shift by 4096 rounds the features themselves to 2.5e-4 in float32 and 5e-13 in
        float64; the shifted features, moved back exactly, are the fair comparison, and then a rounding of the
        differences is left."""
        # Once: ‖x‖² + ‖x'‖² − 2x·x' without a common centre loses all digits of the differences far from the origin.
        far = (self.data.x + 4096).to(dtype)
        near = far - 4096
        energy = ad.Interaction(INTERACTIONS[name][0])
        tolerance = 1e-5 if dtype == torch.float32 else 1e-11
        shifted, plain = (self.data.replace(x=x) for x in (far, near))
        assert energy(shifted).item() == pytest.approx(energy(plain).item(), rel=tolerance)
        velocities = [velocity_of(energy, data) for data in (shifted, plain)]
        torch.testing.assert_close(*velocities, rtol=10 * tolerance, atol=10 * tolerance)


def internal_by_loops(data, power, h):
    x, w = data.x.numpy(), data.weights.numpy()
    total = 0.0
    for i in range(len(x)):
        kernel = np.exp(-((x[i] - x) ** 2).sum(1) / (2 * h**2))
        kernel /= (2 * math.pi * h**2) ** (x.shape[1] / 2)
        density = (w * kernel).sum()
        total += w[i] * (math.log(density) if power == 1 else density ** (power - 1) / (power - 1))
    return total


class TestInternal:
    data = labeled([7, 4, 6], 2, 6, weighted=True)

    @pytest.mark.parametrize("power", [1, 1.5, 2, 3])
    def test_value_and_gradient(self, power):
        """Values to 1e-12; gradients to the 1e-7 of central differences with step 1e-6."""
        energy = ad.Internal(power, bandwidth=0.8)
        expected = internal_by_loops(self.data, power, 0.8)
        assert energy(self.data).item() == pytest.approx(expected, rel=1e-12)
        assert_gradient(energy, self.data, rtol=1e-6)

    @pytest.mark.parametrize("dim", [1, 2, 5])
    def test_silverman(self, dim):
        """Without a bandwidth, σ (4 / ((d + 2) n))^(1/(d + 4)) with σ² the mean variance of the coordinates."""
        data = labeled([30], dim, 7)
        deviation = math.sqrt(data.x.numpy().var(axis=0, ddof=1).mean())
        given = ad.Internal(bandwidth=deviation * (4 / ((dim + 2) * 30)) ** (1 / (dim + 4)))
        assert ad.Internal()(data).item() == pytest.approx(given(data).item(), rel=1e-12)

    def test_silverman_of_points_that_coincide(self):
        """σ counts as 1."""
        one = ad.LabeledDataset(torch.zeros(4, 3).double(), [0] * 4)
        given = ad.Internal(bandwidth=(4 / (5 * 4)) ** (1 / 7))
        assert ad.Internal()(one).item() == pytest.approx(given(one).item(), rel=1e-12)

    def test_a_flow_descends_one_functional(self):
        """The width is that of the first call: later velocities are gradients of the values, to 1e-7 as above."""
        # Once it was taken anew at each call and not differentiated: gradients of the second call
        # were those of another value.
        energy, moved = ad.Internal(), self.data.replace(x=1.7 * self.data.x)
        state = energy.begin(self.data)
        x = moved.x.clone().requires_grad_()
        (found,) = torch.autograd.grad(energy.terms(moved.replace(x=x), state)[0]["Internal"], x)
        value = lambda x: value_at(energy, moved.replace(x=x), state)
        expected = oracles.central_differences(value, moved.x)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)

    def test_the_width_is_kept_and_forgotten(self):
        energy, other = ad.Internal(), 2 * ad.Internal()
        moved = self.data.replace(x=1.7 * self.data.x)
        fresh = energy(moved).item()
        assert ad.Internal(bandwidth=0.5).begin(self.data) == {}
        _, state = energy.terms(self.data, energy.begin(self.data))
        once, twice = (value_at(each, moved, state) for each in (energy, other))
        assert twice == 2 * once != 2 * fresh
        assert other(moved).item() == value_at(other, moved, {}) == 2 * fresh

    @pytest.mark.parametrize("light", [1e-11, 1e-13, 1e-100])
    def test_silverman_of_a_light_sample(self, light):
        """Its width is that of two samples, (x − x')²/2 whatever their weights; once 1 − Σ w² cancelled."""
        data = ad.LabeledDataset([[0.0], [2.0]], [0, 0], weights=[1.0, light])
        given = ad.Internal(bandwidth=math.sqrt(2) * (4 / 3) ** 0.2)
        assert ad.Internal()(data).item() == pytest.approx(given(data).item(), rel=1e-6)


class TestAlgebra:
    data = labeled([4, 5], 2, 1)
    f, g = ad.Potential(ad.norm()), ad.Interaction(ad.attraction())

    def test_values(self):
        f, g = self.f(self.data).item(), self.g(self.data).item()
        for combined, expected in (
            (self.f + self.g, f + g),
            (self.f - self.g, f - g),
            (-self.f, -f),
            (3 * self.f, 3 * f),
            (self.f * 0.5, f / 2),
            (2 * (self.f + 3 * self.g) - 0.5 * self.f, 2 * (f + 3 * g) - f / 2),
            (-(self.f - self.g) * 2, -2 * (f - g)),
            (0 * self.f, 0.0),
        ):
            expected = pytest.approx(expected, rel=1e-14, abs=1e-14)
            assert combined(self.data).item() == value_at(combined, self.data, {}) == expected

    def test_names_differ(self):
        f, g = self.f, self.g
        for total in (f + g, f + f + f, 0.5 * f + f, 2 * (f + g + f), (f + g) + (g + (f + f))):
            assert len(total.terms(self.data, {})[0]) == total.name.count("+") + 1
        assert list((f - g).terms(self.data, {})[0]) == ["Potential", "-1 Interaction"]
        assert list((f + f).terms(self.data, {})[0]) == ["Potential", "Potential (2)"]

    def test_terms_of_a_flow(self):
        result = ad.flow(self.data, self.f + 0.5 * self.g, n_steps=3)
        assert list(result.terms) == ["Potential", "0.5 Interaction"]
        for k, value in enumerate(result.values):
            assert value == pytest.approx(sum(part[k] for part in result.terms.values()), rel=1e-14)


class Counting(ad.Functional):
    """A potential that remembers how often it has been asked."""

    def begin(self, rho):
        return {"calls": torch.tensor(0)}

    def terms(self, rho, state):
        value = (rho.weights * rho.x.square().sum(1)).sum()
        return {self.name: value}, {"calls": state["calls"] + 1}


class TestMemory:
    source = labeled([9, 8], 2, 1)
    near, far = labeled([7, 9], 2, 2, shift=1.0), labeled([6, 6], 2, 3, shift=4.0)

    def build(self):
        counting, first = Counting(), 0.5 * ad.OTDD(self.near) + ad.Potential(ad.norm())
        return first + 2 * (ad.OTDD(self.far) + 3 * counting) - counting

    def test_state_passes_through_sums_and_factors(self):
        total = self.build()
        state = total.begin(self.source)
        for shift in (0.0, 0.1, 0.2):
            _, state = total.terms(self.source.replace(x=self.source.x + shift), state)
        calls = [int(value) for key, value in state.items() if key.endswith("calls")]
        assert calls.count(3) >= 2 and all(isinstance(v, torch.Tensor) for v in state.values())

    def test_restored_memory_keeps_epsilon(self):
        """A relative epsilon is fixed by the first state of a flow; restored, it does not follow the later one."""
        energy = ad.OTDD(self.far)
        _, state = energy.terms(self.source, {})
        moved = self.source.replace(x=self.source.x * 5)
        assert energy.terms(moved, state)[1]["epsilon"] == state["epsilon"]
        assert energy.terms(moved, {})[1]["epsilon"] > 1.1 * state["epsilon"]

    def test_target_is_that_of_the_first_part_with_one(self):
        total = self.build()
        assert total.target is self.near and (3 * total).target is self.near
        assert ad.SlicedOTDD(self.far).target is self.far
        assert (ad.Potential(ad.norm()) - ad.Internal()).target is None
        assert total.options["solver"] == ad.OTDD(self.near).solver


class TestOTDDFunctional:
    source, target = labeled([9, 12], 2, 1, weighted=True), labeled([10, 6, 8], 2, 2, shift=2.0)

    @pytest.mark.parametrize(
        "label",
        [ad.Bures(), ad.Bures(diagonal=True), ad.MeansOnly(), ad.NoLabels(), ad.ExactLabelOT()],
    )
    @pytest.mark.parametrize(
        "solver", [ad.ExactOT(), ad.Sinkhorn(tol=1e-10)], ids=["exact", "sinkhorn"]
    )
    def test_value_is_the_energy(self, label, solver):
        """1e-9: the same three problems, each to 1e-10 of mass; the functional reads values and not potentials."""
        cost = ad.GroundCost(label=label, label_weight=0.7)
        energy = ad.OTDD(self.target, cost=cost, solver=solver)
        expected = ad.otdd(self.source, self.target, cost=cost, solver=solver)
        assert energy(self.source).item() == pytest.approx(expected.energy, rel=1e-9)
        parts = sum(float(part.sum()) for part in expected.contributions)
        assert expected.energy == pytest.approx(parts, rel=1e-9)

    def test_warm_start_saves_work_and_changes_nothing(self, monkeypatch):
        """The second call at the same place starts from its own solution; both answers are within the tolerance of 1e-9."""
        iterations, solve = [], ad.Sinkhorn.solve

        def counted(self, *args, **kwargs):
            solution = solve(self, *args, **kwargs)
            iterations.append(solution.n_iter)
            return solution

        monkeypatch.setattr(ad.Sinkhorn, "solve", counted)
        energy = ad.OTDD(self.target, solver=ad.Sinkhorn(epsilon=0.05, tol=1e-9))
        terms, state = energy.terms(self.source, {})
        cold, warm = terms["OTDD"].item(), value_at(energy, self.source, state)
        assert iterations[1] < iterations[0] / 2
        assert warm == pytest.approx(cold, rel=1e-8)
        again = energy(self.source).item()
        assert iterations[2] == iterations[0]
        assert again == cold


DATA = labeled([4, 5], 2, 1)
NORM = ad.Potential(ad.norm())
BAD = [
    lambda: ad.Potential(3.0),
    lambda: ad.Potential(lambda x, y: x)(DATA),
    lambda: ad.Potential(lambda x, y: x.sum())(DATA),
    lambda: ad.affine_norm([[1.0, 0.0]], [1.0, 2.0]),
    lambda: ad.affine_norm([1.0, 0.0]),
    lambda: ad.affine_norm([[1.0]], 1.0),
    lambda: ad.ball([0.0], -1.0),
    lambda: ad.hinge([1.0], margin=-1.0),
    lambda: ad.Interaction(3.0),
    lambda: ad.Interaction(lambda dx, same: dx)(DATA),
    lambda: ad.Interaction(Radial(lambda squared, same: squared.sum()))(DATA),
    lambda: ad.repulsion(0.0),
    lambda: ad.Internal(0.5),
    lambda: ad.Internal(-1),
    lambda: ad.Internal(bandwidth=0),
    lambda: ad.Internal("2"),
    lambda: NORM * NORM,
    lambda: math.nan * NORM,
    lambda: ad.OTDD(draw(3, 2)),
    lambda: ad.OTDD(labeled([3], 3, 1))(DATA),
]


@pytest.mark.every_case
@pytest.mark.parametrize("make", BAD)
def test_bad_input(make):
    with pytest.raises(ad.InputError):
        make()


def test_what_is_no_functional():
    with pytest.raises(TypeError):
        NORM + 1
    with pytest.raises(NotImplementedError):
        ad.Functional()(DATA)
