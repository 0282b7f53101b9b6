"""The flows against closed forms: contraction, Gaussian paths, Langevin, heat, porous medium, aggregation, order."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from flow_cases import EXACT_LAWS, FEATURES_ONLY, draw, seeded, states
from numpy.testing import assert_allclose
from oracles import optimal_matrix
from scipy.stats import norm as gaussian
from torch.testing import assert_close

import advect as ad
from advect.functionals.interaction import Radial


def cloud(x, y=None, weights=None):
    """Samples in float64, all of one class unless told."""
    x = torch.as_tensor(x, dtype=torch.float64)
    x = x[:, None] if x.ndim == 1 else x
    return ad.LabeledDataset(x, [0] * len(x) if y is None else y, weights=weights)


def covariance(data):
    """Covariance with n in the denominator."""
    centred = data.x - data.x.mean(dim=0)
    return centred.T @ centred / len(data)


class TestContraction:
    """A step of size τ on ½W₂² moves each particle by τ (T(x) − x). The plan stays optimal along the geodesic, so the
    distance shrinks by exactly 1 − τ and the energy by (1 − τ)². Relative tolerance 1e-9: the costs are made by a
    matrix product with an absolute error near 1e-15, and the energies compared stay above 1e-4 of the first."""

    def check(self, source, target, tau, rest=0.0, cost=FEATURES_ONLY, **options):
        n_steps = min(10, max(1, int(math.log(1e-4) / (2 * math.log(1 - tau)))))
        energy = ad.OTDD(target, cost=cost, solver=ad.ExactOT())
        run = states(source, energy, n_steps, integrator=ad.Euler(tau), **options)
        for step in run:
            expected = (1 - tau) ** (2 * step.index) * (run[0].value - rest)
            assert step.value - rest == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("tau", [0.01, 0.1, 0.35, 0.5, 0.9])
    @pytest.mark.parametrize("dim", [1, 2, 7])
    def test_equal_sizes_uniform_weights(self, tau, dim):
        self.check(cloud(draw(20, dim, seed=1)), cloud(3 + 2 * draw(20, dim, seed=2)), tau)

    @pytest.mark.parametrize("tau", [0.1, 0.5])
    def test_unequal_weights_matched_one_to_one(self, tau):
        """On the line the optimal plan is monotone: sorted points with the same weights in order are matched one to one."""
        weights = 0.1 + draw(15, seed=3).abs()
        x, y = draw(15, seed=4).sort().values, 5 + draw(15, seed=5).sort().values
        self.check(cloud(x, weights=weights), cloud(y, weights=weights), tau)

    @pytest.mark.parametrize("tau", [0.1, 0.5])
    def test_split_masses_contract_to_the_barycentres(self, tau):
        """With twice as many target points each particle feeds two of them, T(x) is their middle, and what cannot be
        transported away is the spread of each pair: F_k − F_∞ = (1 − τ)^(2k) (F_0 − F_∞). On the line the middles
        are in the order of the particles, so the plan stays optimal."""
        y = draw(30, seed=6).sort().values
        rest = float(((y[1::2] - y[::2]) / 2).square().mean() / 2)
        self.check(cloud(3 + draw(15, seed=7)), cloud(y), tau, rest)

    @pytest.mark.parametrize("tau", [0.1, 0.5])
    def test_detached_laws_under_an_affine_map(self, tau):
        """fd with Bures, one class: if y = A x + b with A symmetric positive, the estimated laws follow the Gaussian
        geodesic of the same map, so the label part shrinks by (1 − τ)² as well, and with it the whole energy."""
        x = draw(25, 2, seed=8)
        matrix = torch.tensor([[2.0, 0.6], [0.6, 0.8]], dtype=torch.float64)
        options = {"cost": EXACT_LAWS, "dynamics": ad.FeatureDriven(through_laws=False)}
        self.check(cloud(x), cloud(x @ matrix + 4), tau, **options)


@pytest.mark.parametrize("tau", [0.1, 0.4])
def test_the_path_to_an_affine_image(tau):
    """y = A x with A symmetric positive definite: A is the gradient of a convex function, hence the optimal map,
    and

        x_k = ((1 − (1 − τ)^k) A + (1 − τ)^k I) x_0 ,     Σ_k = M_k Σ_0 M_k .

    1e-12 relative: a few roundings each step."""
    x = draw(200, 2, seed=1) @ torch.tensor([[1.0, 0.4], [0.0, 0.5]], dtype=torch.float64)
    matrix = torch.tensor([[0.7, -0.5], [-0.5, 2.0]], dtype=torch.float64)
    shuffled = (x @ matrix)[torch.randperm(200, generator=torch.Generator().manual_seed(2))]
    energy = ad.OTDD(cloud(shuffled), cost=FEATURES_ONLY, solver=ad.ExactOT())
    for step in states(cloud(x), energy, 8, integrator=ad.Euler(tau)):
        left = (1 - tau) ** step.index
        path = (1 - left) * matrix + left * torch.eye(2, dtype=torch.float64)
        assert_close(step.dataset.x, x @ path, rtol=1e-12, atol=1e-12)
        expected = path @ covariance(cloud(x)) @ path
        assert_close(covariance(step.dataset), expected, rtol=1e-12, atol=1e-12)


def two_classes(dim, seed, stretch):
    """Two classes of 12 and 24 samples, 40 apart, so that classes are matched one to one; covariances well conditioned."""
    low = draw(12, dim, seed=seed) * stretch
    high = draw(24, dim, seed=seed + 1) * torch.linspace(0.5, 1.5, dim, dtype=torch.float64) + 40
    mixed = torch.cat([low, high]) @ (
        torch.eye(dim, dtype=torch.float64) + 0.2 * torch.tril(torch.ones(dim, dim), -1).double()
    )
    return cloud(mixed, [0] * 12 + [1] * 24)


class TestLawMotion:
    """jd-fl, exact transport, classes matched one to one: each law descends ½W₂² to its own target law with mass 1,
    whatever the mass of its class. Tolerances 1e-10: roots of well-conditioned matrices (condition below 100) cost
    about 1e-13."""

    def run(self, motion, dim=2, tau=0.2, n_steps=6, label=None):
        source, target = two_classes(dim, 1, 1.0), two_classes(dim, 5, 2.0)
        energy = ad.OTDD(target, cost=ad.GroundCost(label=label or ad.Bures()), solver=ad.ExactOT())
        options = {"dynamics": ad.JointFixedLabels(motion), "integrator": ad.Euler(tau)}
        return target.laws(), states(source, energy, n_steps, **options)

    @pytest.mark.parametrize("tau", [0.05, 0.3])
    @pytest.mark.parametrize("motion", ["bures", "factored"])
    def test_covariances_follow_the_geodesic(self, motion, tau):
        """A step is S ← ((1 − τ) I + τ T) S ((1 − τ) I + τ T); k steps are the geodesic at 1 − (1 − τ)^k; means go
        straight."""
        target, run = self.run(motion, tau=tau)
        start, one = run[0].dataset.laws(), torch.eye(2, dtype=torch.float64)
        for before, step in pairwise(run):
            left = (1 - tau) ** step.index
            laws = step.dataset.laws()
            means = target.means + left * (start.means - target.means)
            assert_close(laws.means, means, rtol=1e-10, atol=1e-10)
            for k in range(2):
                goal = target.covariances()[k]
                for origin, share in (
                    (before.dataset.laws().covariances()[k], tau),
                    (start.covariances()[k], 1 - left),
                ):
                    path = (1 - share) * one + share * optimal_matrix(origin, goal)
                    expected = path @ origin @ path
                    assert_close(laws.covariances()[k], expected, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("tau", [0.1, 0.7])
    def test_diagonal_deviations_go_straight(self, tau):
        """W₂² of diagonal laws is Euclidean in (μ, s), so s_k = s' + (1 − τ)^k (s_0 − s'), to rounding."""
        target, run = self.run("diagonal", 3, tau, label=ad.Bures(diagonal=True))
        goal, start = target.covariance.scales(), run[0].dataset.laws().covariance.scales()
        for step in run:
            expected = goal + (1 - tau) ** step.index * (start - goal)
            assert_close(step.dataset.laws().covariance.scales(), expected, rtol=1e-12, atol=1e-12)

    def test_euclidean_projects_what_would_turn_negative(self):
        """Toward point masses the gradient in S is ½ I: a step of 0.5 takes ¼ off every eigenvalue, and 0 is the least."""
        source = cloud(draw(30, 2, seed=1) * torch.tensor([1.0, 0.1], dtype=torch.float64))
        target = cloud(torch.zeros(30, 2))
        options = {"dynamics": ad.JointFixedLabels("euclidean"), "integrator": ad.Euler(0.5)}
        run = states(source, ad.OTDD(target, solver=ad.ExactOT()), 8, **options)
        spectra = [torch.linalg.eigvalsh(step.dataset.laws().covariances()[0]) for step in run]
        assert_close(spectra[1], (spectra[0] - 0.25).clamp_min(0), rtol=0, atol=1e-12)
        values = [step.value for step in run]
        assert all(after <= before for before, after in pairwise(values))
        assert all(spectrum.min() >= -1e-15 for spectrum in spectra)  # rounding


def test_langevin_mean_decays_and_variance_grows_as_they_must():
    """x ← (1 − τk) x + √(2τT) ξ is a Gaussian autoregression: all laws are known. Statistics of N particles are
    compared within 4 standard errors, √(v/N) for means and v √(2/N) for variances; generators are seeded."""
    n, tau, k, temperature, factor = 20_000, 0.1, 2.0, 0.7, 0.8
    spring = ad.Potential(lambda x, y: k * x.square().sum(1) / 2)
    options = {"integrator": ad.EulerMaruyama(tau, temperature=temperature), "generator": seeded(1)}
    stationary = temperature / (k * (1 - tau * k / 2))
    for step in states(cloud(torch.full((n,), 3.0)), spring, 12, **options)[1:]:
        x, left = step.dataset.x, factor**step.index
        variance = stationary * (1 - left**2)
        assert x.mean().item() == pytest.approx(3 * left, abs=4 * math.sqrt(variance / n))
        assert x.var().item() == pytest.approx(variance, abs=4 * variance * math.sqrt(2 / n))


@pytest.mark.parametrize("time", [0.25, 1.0])
def test_blobs_follow_the_heat_equation(time):
    """Internal(power=1) on quantiles of N(0, 1), n = 400, h = 0.2, τ = 0.01: variance + 2t.

    For a Gaussian the two smoothing errors of order h² cancel and h⁴ = 0.16 % is left; 0.1 % is measured. Held to 1 %.
    The quantiles of N(0, 1 + 2t) are met as well, away from the tails, where a blob of width h sees few particles."""
    n = 400
    quantiles = gaussian.ppf((np.arange(n) + 0.5) / n)
    source = cloud(torch.from_numpy(quantiles))
    heat = ad.Internal(power=1, bandwidth=0.2)
    last = states(source, heat, round(time / 0.01), integrator=ad.Euler(0.01))[-1].dataset
    assert (covariance(last) - covariance(source)).item() == pytest.approx(2 * time, rel=0.01)
    inner = slice(n // 20, -n // 20)
    expected = math.sqrt(1 + 2 * time) * quantiles[inner]
    assert_allclose(last.x[inner, 0].numpy(), expected, atol=0.01 * math.sqrt(1 + 2 * time))


def test_a_porous_medium_is_that_of_barenblatt():
    """∂_t ρ = (ρ²)_xx, the flow of ∫ρ² (f(r) = r^m/(m − 1), m = 2, velocity −2ρ_x), has the solution

        ρ(x, t) = t^(−1/3) (C − x² t^(−2/3) / 12)₊ ,     support radius R t^(1/3) ,   variance R² t^(2/3) / 5 ,

    and mass one gives R³ = 9: ∫ = 4CR/3 with C = R²/12. Its quantiles are R t^(1/3) · 2 sin(arcsin(2p − 1)/3).
    With n = 200, h = 0.1 and τ = 0.02 from t = 1 to 8 the radius is 0.2 % off and the second moment 0.1 % (h²
    over the variance); both are held to 1 %, and every particle to 1 % of the radius."""
    n, radius, first, last = 200, 9 ** (1 / 3), 1.0, 8.0
    places = 2 * np.sin(np.arcsin(2 * (np.arange(n) + 0.5) / n - 1) / 3)
    source = cloud(torch.from_numpy(radius * first ** (1 / 3) * places))
    porous, euler = ad.Internal(power=2, bandwidth=0.1), ad.Euler((last - first) / 350)
    run = states(source, porous, 350, integrator=euler)
    for step in (run[100], run[350]):
        time = first + step.index * (last - first) / 350
        x, variance = step.dataset.x, covariance(step.dataset)
        growth = (x.abs().max() / source.x.abs().max()).item()
        assert growth == pytest.approx(time ** (1 / 3), rel=0.01)
        assert variance.item() == pytest.approx(radius**2 / 5 * time ** (2 / 3), rel=0.01)
        exact = radius * time ** (1 / 3)
        assert_allclose(x[:, 0].numpy(), exact * places, atol=0.01 * exact)


class TestAggregation:
    @pytest.mark.slow
    @pytest.mark.parametrize("tau", [0.1, 0.5])
    def test_uniform_steady_state(self, tau):
        """W = x²/2 − |x| gathers any cloud on the line to the uniform law on mean ± 1.

        The first variation of ½∬W is W ∗ ρ, constant on the support of a steady state; its second derivative there
        is ∫W''dρ = 1 − 2ρ, as (|x|)'' = 2δ. So ρ = ½ on an interval of length 2, centred at the mean, which never
        moves since W is even. For particles, the i-th from the left of n has velocity −(x_i − m) + (2i − n + 1)/n:
        it goes straight to p_i = m + (2i − n + 1)/n, the quantiles of that law, and Euler's steps are x_k − p = (1
        − τ)^k (x_0 − p) exactly, for they keep the order. Tolerance 1e-12: rounding."""
        n = 101
        source = cloud(5 * draw(n, seed=1))
        gather = ad.Interaction(lambda dx, same: (dx.square() / 2 - dx.abs()).sum(-1))
        rank = source.x[:, 0].argsort().argsort().double()[:, None]
        place = source.x.mean() + (2 * rank - n + 1) / n
        n_steps = math.ceil(math.log(1e-6) / math.log(1 - tau))
        run = states(source, gather, n_steps, integrator=ad.Euler(tau))
        for step in run:
            expected = place + (1 - tau) ** step.index * (source.x - place)
            assert_close(step.dataset.x, expected, rtol=0, atol=1e-12)
        final = run[-1].dataset.x
        assert (final.max() - final.min()).item() == pytest.approx(2, abs=2 / n + 1e-4)

    def test_classes_attract_alone(self):
        """attraction() acts within classes of mass p: each contracts by 1 − τp around its own mean."""
        source = cloud(draw(30, 2, seed=3), [0] * 10 + [1] * 20)
        step = states(source, ad.Interaction(ad.attraction()), 1, integrator=ad.Euler(0.3))[1]
        for name, mass in ((0, 1 / 3), (1, 2 / 3)):
            before, after = source.of_class(name).x, step.dataset.of_class(name).x
            expected = before.mean(0) + (1 - 0.3 * mass) * (before - before.mean(0))
            assert_close(after, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("control", [ad.FixedSteps(), ad.Backtracking()])
@pytest.mark.parametrize(("integrator", "order"), [(ad.Euler, 1), (ad.Heun, 2)])
def test_integrators_are_of_their_order(integrator, order, control):
    """V = x⁴/4: x' = −x³ has the solution x_0 / √(1 + 2 x_0² t). The error at time 1 is c τ^p + O(τ^(p + 1)), so the
    slope in logarithms is p within the 10 % that the next order leaves at these steps."""
    source, taus = cloud(torch.linspace(-1, 1, 50)), (0.04, 0.02, 0.01, 0.005)
    exact = source.x / (1 + 2 * source.x.square()).sqrt()
    quartic = ad.Potential(lambda x, y: x.pow(4).sum(1) / 4)
    options = [{"integrator": integrator(tau), "control": control} for tau in taus]
    runs = [
        states(source, quartic, round(1 / each["integrator"].step_size), **each) for each in options
    ]
    errors = [(run[-1].dataset.x - exact).abs().max().item() for run in runs]
    assert 0.9 < np.polyfit(np.log(taus), np.log(errors), 1)[0] - order + 1 < 1.1
    assert all(1.8 < (a / b) ** (1 / order) < 2.2 for a, b in pairwise(errors))


class TestNumberOfParticles:
    """Listing every particle as two copies of half the mass changes neither measure nor flow: the step size is flow time.

    1e-12: sums run in another order, and Sinkhorn (tol 1e-10) makes the same iterations on both up to that rounding."""

    source = cloud(draw(25, 2, seed=1), torch.arange(25) % 3, draw(25, seed=2).abs() + 0.2)
    target = cloud(draw(30, 2, seed=3) + 3, torch.arange(30) % 2)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "functional", [ad.Potential(lambda x, y: torch.log(torch.cosh(x)).sum(1) * (1 + y)),
        ad.Interaction(ad.repulsion()), ad.Interaction(lambda dx, same: torch.log(torch.cosh(dx)).sum(-1)),
        ad.Internal(2, bandwidth=0.5) + ad.Internal(1, bandwidth=0.5),
        ad.OTDD(target, cost=FEATURES_ONLY, solver=ad.Sinkhorn(tol=1e-10)), ad.OTDD(
        target, cost=ad.GroundCost(label=ad.MeansOnly()), solver=ad.Sinkhorn(tol=1e-10))],
        ids=["potential", "radial", "interaction", "internal", "sinkhorn", "sinkhorn-means"],
    )  # fmt: skip
    def test_copies_change_nothing(self, functional):
        order = torch.randperm(50, generator=torch.Generator().manual_seed(4))
        twice = torch.arange(25).repeat(2)[order]
        sources = self.source, self.source.subset(twice)
        runs = [states(each, functional, 10, integrator=ad.Euler(0.1)) for each in sources]
        first, second = (run[-1].dataset.x for run in runs)
        assert (first[twice] - second).abs().max().item() <= 1e-12

    def test_weights_are_multiplicities(self):
        """A particle of weight 2/3 moves like two of weight 1/3 at its place, and pulls like them."""
        heavy = cloud([[0.0], [1.0]], weights=[2.0, 1.0])
        gather = ad.Interaction(Radial(lambda squared, same: squared / 2))
        x = states(heavy, gather, 1, integrator=ad.Euler(0.3))[1].dataset.x.flatten().tolist()
        assert x == pytest.approx([0.3 / 3, 1 - 0.3 * 2 / 3], abs=1e-15)
