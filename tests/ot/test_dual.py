"""The dual of a small problem against its formulas, away from the solution: derivatives, gaps and errors.

Iterations with a wrong Newton matrix reach the same solution later, and a bound that is too large is still a
bound; so both are compared with what they stand for."""

import math

import pytest
import torch
from oracles import cost as cost_of, kl, primal_value
from scipy.special import logsumexp

import advect as ad
from advect.ot.cost import DenseCost
from advect.ot.dual import CAP, Balanced, Penalised, Scale, _divergence
from advect.ot.iteration import Iteration

WIDE, NARROW = torch.float64, torch.float32
UNITS = pytest.mark.parametrize(("dtype", "u"), [(NARROW, 2.0**-24), (WIDE, 2.0**-53)])
EPSILON, RHO = 0.3, 0.64


class Point:
    """A problem, and scalings of a filled kernel with matched rows; ``rho`` is infinite where it is balanced."""

    def __init__(self, penalised, n=9, m=7, seed=0):
        generator = torch.Generator().manual_seed(seed)
        x, y = (torch.rand(k, 2, generator=generator, dtype=WIDE) for k in (n, m))
        a, b = (torch.rand(k, generator=generator, dtype=WIDE) + 0.2 for k in (n, m))
        f, g = (0.1 * torch.randn(k, generator=generator, dtype=WIDE) for k in (n, m))
        self.cost, self.a, self.b = cost_of(x, y + 0.4), a / a.sum(), b / b.sum()
        self.rho = RHO if penalised else math.inf
        self.marginals = Penalised(self.a, self.b, RHO) if penalised else Balanced(self.a, self.b)
        self.kernel = DenseCost(self.cost).kernel()
        self.f, self.g = self.marginals.absorb(f + 3.0, g, EPSILON, WIDE)
        self.kernel.fill(self.f, self.g, EPSILON)
        self.matrix = torch.cat([part for _, part in self.kernel.pieces()])
        self.v = torch.exp(0.2 * torch.randn(m, generator=generator, dtype=WIDE))
        self.product = self.kernel.times(self.b * self.v)
        self.u = self.marginals.row_scaling(self.product)
        self.column = self.kernel.transposed(self.a * self.u)

    @property
    def potentials(self):
        return self.f + EPSILON * self.u.log(), self.g + EPSILON * self.v.log()

    def plan(self, f, g):
        return self.a[:, None] * self.b * torch.exp((f[:, None] + g - self.cost) / EPSILON)

    def dual(self, g):
        """max_f D(f, g), its gradient in g, and the best f, by the formulas of ``advect.ot.dual``."""
        rho, damping = self.rho, 1 / (1 + EPSILON / self.rho)
        f = logsumexp((g - self.cost).numpy() / EPSILON, b=self.b[None], axis=1)
        f = -damping * EPSILON * torch.as_tensor(f)
        plan = self.plan(f, g)
        if rho == math.inf:
            return float(self.a @ f + self.b @ g), self.b - plan.sum(0), f
        value = -rho * (self.a @ torch.expm1(-f / rho) + self.b @ torch.expm1(-g / rho))
        gradient = self.b * torch.exp(-g / rho) - plan.sum(0)
        return float(value + EPSILON * (1 - plan.sum())), gradient, f


@pytest.mark.parametrize("penalised", [False, True])
class TestProximalSteps:
    def test_value_gradient_and_best_potentials(self, penalised):
        at = Point(penalised)
        f, g = at.potentials
        value, gradient, best = at.dual(g)
        torch.testing.assert_close(f, best)
        residual, error = at.marginals.residual(at.v, at.column, at.product)
        torch.testing.assert_close(residual, gradient)
        mass = float((at.b * torch.exp(-g / at.rho)).sum())
        assert error == pytest.approx(float(gradient.abs().sum()) / mass)
        assert at.marginals.mass == pytest.approx(mass)
        v = at.marginals.column_scaling(at.column, at.v)  # the best g for this f
        best = logsumexp((f[:, None] - at.cost).numpy() / EPSILON, b=at.a[:, None], axis=0)
        best = -EPSILON / (1 + EPSILON / at.rho) * torch.as_tensor(best)
        torch.testing.assert_close(at.g + EPSILON * v.log(), best)
        u = at.marginals.row_scaling(at.kernel.times(at.b * v))
        # the dual in units of ε, up to a constant
        rise = float(at.marginals.dual(u, v) - at.marginals.dual(at.u, at.v))
        assert EPSILON * rise == pytest.approx(at.dual(best)[0] - value, rel=1e-9)
        assert rise > 0

    def test_the_newton_matrix_is_the_derivative_of_the_gradient(self, penalised):
        at, h = Point(penalised), 1e-5
        residual, _ = at.marginals.residual(at.v, at.column, at.product)
        diagonal, weights = at.marginals.curvature(residual, at.u, at.v)
        right, g = at.matrix * at.b * at.v, at.potentials[1]
        found = torch.diag(diagonal) - right.T @ (weights[:, None] * right)
        steps = h * torch.eye(len(g), dtype=WIDE)
        wanted = [(at.dual(g - e)[1] - at.dual(g + e)[1]) / (2 * h) for e in steps]
        torch.testing.assert_close(found, EPSILON * torch.stack(wanted), atol=1e-8, rtol=1e-6)

    def test_absorbing_keeps_the_plan_and_removes_the_common_drift(self, penalised):
        """Means are equal, or, with a penalty, the masses that the potentials imply."""
        at, f, g = Point(penalised), torch.arange(9.0).double(), torch.arange(5.0, -2, -1).double()
        one, two = at.marginals.absorb(f, g, EPSILON, WIDE)
        torch.testing.assert_close(one[:, None] + two, f[:, None] + g)
        if penalised:
            one, two = at.a * torch.exp(-one / RHO) * 9, at.b * torch.exp(-two / RHO) * 7
        assert float(one.mean()) == pytest.approx(float(two.mean()))

    @pytest.mark.parametrize(("m", "cold", "warm"), [(20, 24, 10), (150, 75, 52)])
    def test_steps_near_the_solution_are_newtons(self, penalised, m, cold, warm):
        """Few are needed for twelve digits, with systems that are solved directly, and by conjugate gradients."""
        at = Point(penalised, 40, m)
        loop = Iteration(DenseCost(at.cost), at.kernel, at.marginals, 0.01)
        assert loop.solve(None, 1e-13, 1000) and loop.n_iter <= cold
        f, g = loop.potentials()
        loop.n_iter, g = 0, g + 3e-3 * torch.linspace(-1, 1, m).double()
        assert loop.solve((f, g), 1e-12, 1000) and loop.n_iter <= warm


@pytest.mark.parametrize("ends", [(0.8, 1.3), (0.1, 5.0), (0.0, 1.0)])
def test_the_certificate_of_any_potentials(ends):
    """The value is the dual at potentials that imply the mass of the plan, the error twice its duality gap."""
    at, factors = Point(True), torch.linspace(*ends, 9, dtype=WIDE)  # so that rows are not matched
    cost, ends = at.cost, (float(at.cost.min()), float(at.cost.max()))
    scalings = at.u * factors.clamp_min(1e-300), at.v
    potentials = at.f + EPSILON * scalings[0].log(), at.potentials[1]
    made = at.marginals.certificate(
        at.kernel, scalings, potentials, Scale((9, 7), *ends, EPSILON), math.nan
    )
    f, g = made.potentials
    plan = at.plan(f, g)
    torch.testing.assert_close(made.factors[0][:, None] * at.matrix * made.factors[1], plan)
    sums, weights = (plan.sum(1), plan.sum(0)), (at.a, at.b)
    implied = at.a * torch.exp(-f / RHO), at.b * torch.exp(-g / RHO)
    for masses in (implied[0], implied[1], plan):
        assert made.mass == pytest.approx(float(masses.sum()))
    value = RHO * sum(float((w - i).sum()) for w, i in zip(weights, implied, strict=True))
    assert made.value == pytest.approx(value + EPSILON * (1 - float(plan.sum())), rel=1e-12)
    off = sum(float((s - i).abs().sum()) for s, i in zip(sums, implied, strict=True))
    assert made.marginal_error == pytest.approx(off / made.mass)
    primal = primal_value(plan, cost, *weights, EPSILON) + RHO * sum(map(kl, sums, weights))
    gap = RHO * sum(map(kl, sums, implied))
    assert primal - made.value == pytest.approx(gap, rel=1e-9)
    best = ad.Sinkhorn(EPSILON, tol=1e-13, reach=RHO**0.5).solve(cost, *weights).value
    assert best - made.value <= made.value_error
    span = ends[1] - ends[0] + max(float(p.max() - p.min()) for p in (f, g))
    # near the solution Σ w (1 − p/w)² stands for Σ w KL(p/w), of which it is between 1.6 and 2.4 times
    assert min(2 * gap, off / 2 * span) <= made.value_error * (1 + 1e-9)
    assert made.value_error <= min(4.8 * gap, off / 2 * span) * (1 + 1e-9) + 1e-12


def test_the_marginal_error_of_given_potentials():
    """The L1 error of both marginals; None as soon as that of the rows is above what is allowed."""
    at = Point(False)
    f, g = at.potentials
    f, g = at.marginals.absorb(f + EPSILON * math.log(1.1), g, EPSILON, WIDE)
    at.kernel.fill(f, g, EPSILON)
    rows, columns = (at.plan(f, g).sum(dim) for dim in (1, 0))
    error = float((rows - at.a).abs().sum() + (columns - at.b).abs().sum())
    assert float((rows - at.a).abs().sum()) == pytest.approx(0.1)
    assert at.marginals.unit_error(at.kernel, 0.101) == pytest.approx(error)
    assert at.marginals.unit_error(at.kernel, 0.099) is None


@pytest.mark.parametrize("ratio", [0.0, 0.3, -0.49, 0.49, -0.51, 0.51, -3.0, 1.0])
def test_a_divergence_from_implied_masses(ratio):
    """Σ w r² where p = w (1 − r) is within a half of w = a e^(−f/ρ), else w − p + p log(p/w)."""
    a, f = torch.tensor([0.2, 0.5]).double(), torch.tensor([0.3, -1.0]).double()
    w = a * torch.exp(-f / RHO)
    p = w * (1 - ratio)
    exact = w - p + torch.xlogy(p, p / w)
    wanted = w * ratio**2 if abs(ratio) < 0.5 else exact
    assert _divergence(p, a, f, RHO) == pytest.approx(float(wanted.sum()), rel=1e-12, abs=1e-15)


class TestScale:
    """The bounds of rounding by hand: u is the unit of the dtype, 2u the spacing of numbers at 1."""

    SCALE, EXTREMES = Scale((100, 64), -2.0, 3.0, 0.5), (-1.0, 6.0, -9.0, 1.0)

    @UNITS
    def test_error_of_a_balanced_value(self, dtype, u):
        """½ ‖residual‖₁ (range of costs and of potentials), or with ε for rows that are not matched; and
        4u (|f| + |g| + |C|), and (8 + √n) u for sums of numbers up to the range and ε."""
        assert self.SCALE.largest == 3.0 and Scale((1, 1), -4.0, 3.0, 0.5).largest == 4.0
        for shape in ((100, 64), (64, 100)):
            assert Scale(shape, 0.0, 3.0, 0.5).sums_rounding(dtype) == pytest.approx(18 * u)
        rounding, find = 4 * u * (6 + 9 + 3) + 18 * u * (15.0 + 0.5), self.SCALE.value_error
        for residual in (0.0, 1e-3):
            found = [find(dtype, residual, self.EXTREMES, matched=m) for m in (True, False)]
            wanted = [residual * 15 / 2 + rounding, residual * 15.5 + rounding]
            assert found == pytest.approx(wanted, rel=1e-12)
        swapped = find(dtype, 1e-3, self.EXTREMES[2:] + self.EXTREMES[:2])
        assert swapped == find(dtype, 1e-3, self.EXTREMES)
        for value in (math.inf, math.nan):
            assert find(dtype, value, self.EXTREMES) == math.inf

    @UNITS
    def test_error_of_a_penalised_value(self, dtype, u):
        """Twice the gap, or the residual times the range, whichever is smaller."""
        f, g = torch.tensor([-1.0, 6.0]).double(), torch.tensor([-9.0, 1.0]).double()
        rounding, sums = 4 * u * (6 + 9 + 3) + 18 * u * 0.5, 18 * u
        for one, two in ((f, g), (g, f)):
            find = lambda gap, off, rho, f=one, g=two: self.SCALE.gap_error(
                dtype, gap, off, rho, f, g
            )
            assert find(1e-4, 1.0, 2.0) == pytest.approx(2e-4 + 4 * sums**2 + rounding, rel=1e-12)
            assert find(0.0, 1.0, 5.0) == pytest.approx(10 * sums**2 + rounding, rel=1e-12)
            assert find(1.0, 1e-3, 2.0) == pytest.approx((5e-4 + sums) * 15 + rounding, rel=1e-12)
            assert find(math.inf, 1e-3, 2.0) == find(1e-4, math.nan, 2.0) == math.inf

    @UNITS
    def test_which_problems_a_dtype_suffices_for(self, dtype, u):
        """Entries of the plan are right to 12 u |C|/ε ≤ 1e-3, the value to 1e-4 |C|, sums to a tolerance."""
        for share, enough in ((1.01, True), (0.99, False)):
            if dtype == NARROW:  # in float64, such an epsilon is refused
                scale = Scale((100, 1), 0.0, 4.0, 4 * 12 * u / CAP * share)
                assert scale.suffices(dtype) == enough
                assert (scale.failure_reason(dtype, 0.0, 0.0) is None) == enough
            scale = Scale((100, 1), -4.0, 4.0, 4 * 1e-4 / (18 * u) / share - 8.0)
            assert scale.suffices(dtype) == enough
            least = {NARROW: 2e-6, WIDE: 1e-13}[dtype]
            assert self.SCALE.suffices(dtype, share * least) == enough

    def test_tolerances(self):
        """1e-5 and 1e-8, or 2u |C|/ε where that is more, up to 1e-3."""
        assert [self.SCALE.tolerance(WIDE, cost) for cost in (NARROW, WIDE)] == [1e-5, 1e-8]
        assert [self.SCALE.tolerance(dtype) for dtype in (NARROW, WIDE)] == [2e-6, 1e-13]
        small = Scale((9, 9), -2.0, 1.0, 1e-3)
        assert small.tolerance(NARROW) == small.tolerance(NARROW, NARROW) == 2.0**-22 * 1e3
        assert Scale((9, 9), 0.0, 1.0, 1e-6).tolerance(NARROW) == CAP == 1e-3

    def test_what_is_refused(self):
        """An epsilon below the spacing of numbers of the size of the costs; an error above 2 max(tol, 1e-3) |C|."""
        Scale((2, 2), -8.0, 4.0, 1.01 * 8 * 2.0**-52)
        with pytest.raises(ad.InputError, match="epsilon must be above"):
            Scale((2, 2), -8.0, 4.0, 0.99 * 8 * 2.0**-52)
        for tol, most in ((1e-9, 6e-3), (1e-2, 6e-2)):
            assert self.SCALE.failure_reason(WIDE, 0.99 * most, tol) is None
            assert "error of the value" in str(self.SCALE.failure_reason(WIDE, 1.01 * most, tol))
        assert Scale((2, 2), 0.0, 0.0, 1.0).failure_reason(WIDE, 0.0, 0.0) is None
