"""One answer whatever a cost is kept in: every kind of cost with every solver, and plans of every
kind by their products.
"""

import pytest
import torch

import advect as ad
from advect.ot.cost import BlockedCost, DenseCost, as_cost
from advect.ot.plan import DensePlan, ScatteredPlan, SparsePlan
from advect.ot.ranks import Group
from advect.ot.sharded import ShardedCost
from advect.ot.solver import divergence


def clouds(zeros=False, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(n, 3, generator=generator, dtype=torch.float64) for n in (60, 50))
    a, b = (torch.rand(n, generator=generator, dtype=torch.float64) + 0.1 for n in (60, 50))
    if zeros:
        a[:9], b[-7:] = 0, 0
    return x.to(dtype), (y + 0.3).to(dtype), a / a.sum(), b / b.sum()


def half_squared(x, y):
    return torch.cdist(x, y).square() / 2


def blocked(matrix, room):
    return BlockedCost.of(lambda rows: matrix[rows], tuple(matrix.shape), room=room, like=matrix)


def sharded(matrix):
    alone = Group()
    return ShardedCost(DenseCost(matrix[alone.rows(len(matrix))]), len(matrix), alone)


KINDS = {
    "matrix": lambda matrix: matrix,
    "dense": DenseCost,
    "dense, no room for a kernel": lambda matrix: DenseCost(matrix, room=0),
    "blocked, nothing kept": lambda matrix: blocked(matrix, 0),
    "blocked, all kept": lambda matrix: blocked(matrix, 2**24),
    "sharded": sharded,
    "sharded, in blocks": lambda matrix: ShardedCost(blocked(matrix, 0), len(matrix), Group()),
}
SOLVERS = {
    "sinkhorn": ad.Sinkhorn(epsilon=0.05),
    "relative": ad.Sinkhorn(ad.Relative(0.02)),
    "exact": ad.ExactOT(),
    "parts": ad.MiniBatch(ad.Sinkhorn(epsilon=0.05), size=25),
    "exact parts": ad.MiniBatch(ad.ExactOT(), size=25),
}


def given(kind, solver, matrix):
    """The cost of this kind; the simplex refuses rows whose matrix has no room, which is tested
    elsewhere.
    """
    room = kind == "blocked, nothing kept" or kind == "sharded, in blocks"
    return blocked(matrix, 2**24) if room and "exact" in solver else KINDS[kind](matrix)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", SOLVERS)
class TestTable:
    @pytest.mark.parametrize("zeros", [False, True])
    def test_solve(self, kind, solver, zeros):
        x, y, a, b = clouds(zeros)
        matrix = half_squared(x, y)
        plain = SOLVERS[solver].solve(matrix, a, b)
        found = SOLVERS[solver].solve(given(kind, solver, matrix.clone()), a, b)
        assert found.converged == plain.converged
        assert found.value == pytest.approx(plain.value, rel=1e-7)
        assert found.epsilon == pytest.approx(plain.epsilon, rel=1e-12)
        torch.testing.assert_close(found.plan(), plain.plan(), atol=1e-8, rtol=0)
        torch.testing.assert_close(found.coupling @ y, plain.plan() @ y, atol=1e-8, rtol=0)
        torch.testing.assert_close(found.coupling.T @ x, plain.plan().T @ x, atol=1e-8, rtol=0)

    def test_divergence_and_itself(self, kind, solver):
        x, y, a, b = clouds()
        costs = [half_squared(*pair) for pair in ((x, y), (x, x), (y, y))]
        kept = [given(kind, solver, cost.clone()) for cost in costs]
        plain = divergence(*costs, a, b, solver=SOLVERS[solver])
        assert divergence(*kept, a, b, solver=SOLVERS[solver]).value == pytest.approx(
            plain.value, rel=1e-6
        )
        if solver in ("sinkhorn", "relative"):
            same = [given(kind, solver, costs[1].clone()) for _ in range(3)]
            assert divergence(*same, a, a, solver=SOLVERS[solver]).value == 0


@pytest.mark.parametrize("kind", list(KINDS)[1:])
def test_what_every_cost_knows(kind):
    x, y, a, b = clouds(dtype=torch.float32)
    matrix = half_squared(x, y)
    cost = KINDS[kind](matrix)
    assert as_cost(cost) is cost and cost.shape == (60, 50) and cost.dtype == torch.float32
    assert cost.extremes() == (float(matrix.min()), float(matrix.max()))
    assert cost.mean(a, b) == pytest.approx(float(a @ matrix.double() @ b), rel=1e-6)
    rows, columns = torch.tensor([3, 1, 59]), torch.tensor([0, 49])
    assert torch.equal(cost.rows(rows), matrix[rows]) and torch.equal(cost.dense(), matrix)
    assert torch.equal(cost.rows(slice(2, 9), columns), matrix[2:9][:, columns])
    assert torch.equal(cost.select(rows, columns).dense(), matrix[rows][:, columns])
    assert torch.equal(cost.rows(rows, out=torch.empty(3, 50)), matrix[rows])


@pytest.mark.parametrize("kind", list(KINDS)[1:])
def test_kernels_have_one_answer(kind):
    x, y, a, b = clouds()
    matrix = half_squared(x, y)
    f, g = matrix.mean(1), torch.zeros(50, dtype=torch.float64)
    expected = torch.exp((f[:, None] + g - matrix) / 0.1)
    kernel = KINDS[kind](matrix).kernel(torch.float64)
    assert kernel.most() == float(matrix.max())
    near, far = kernel.softmins(g, a, b, 0.1)
    torch.testing.assert_close(near, -0.1 * (-matrix / 0.1 + b.log()).logsumexp(1))
    torch.testing.assert_close(
        far, -0.1 * ((near[:, None] - matrix) / 0.1 + a.log()[:, None]).logsumexp(0)
    )
    kernel.fill(f, g, 0.1)
    product, back = kernel.sweep(b, lambda part, rows: a[rows] / part)
    for found, right in (
        (kernel.times(b), expected @ b),
        (kernel.transposed(a), expected.T @ a),
        (product, expected @ b),
        (back, expected.T @ (a / (expected @ b))),
        (torch.cat([part.clone() for _, part in kernel.pieces()]), expected),
        (kernel.plan(a, b).dense(), a[:, None] * expected * b),
    ):
        torch.testing.assert_close(found, right)
    kernel.release()
    torch.testing.assert_close(kernel.times(b), expected @ b)
    assert kernel.marginal_error(a, b, 1e9) == pytest.approx(
        float((a * (expected @ b - 1).abs()).sum() + (b * (expected.T @ a - 1).abs()).sum())
    )
    assert kernel.marginal_error(a, b, 1e-9) is None


class TestPlans:
    def test_products_and_pieces(self):
        generator = torch.Generator().manual_seed(0)
        matrix = torch.rand(6, 5, generator=generator, dtype=torch.float64)
        rows, columns = torch.tensor([4, 0, 2]), torch.tensor([3, 1])
        part = DensePlan(matrix[rows][:, columns])
        cut = torch.zeros(6, 5, dtype=torch.float64)
        cut[rows[:, None], columns] = 0.25 * matrix[rows][:, columns]
        plans = (
            (DensePlan(matrix), matrix),
            (SparsePlan(matrix.to_sparse()), matrix),
            (ScatteredPlan([(0.25, rows, columns, part)], (6, 5)), cut),
        )
        u, v = torch.rand(6, 2, generator=generator), torch.rand(5, 2, generator=generator)
        for plan, right in plans:
            torch.testing.assert_close(plan.dense(), right)
            torch.testing.assert_close(plan @ v, right.float() @ v)
            torch.testing.assert_close(plan.T @ u, right.T.float() @ u)
            whole = torch.zeros(6, 5, dtype=torch.float64)
            for at, onto, piece in plan.pieces():
                places = torch.arange(6)[at][:, None], torch.arange(5)[onto]
                whole.index_put_(places, piece, accumulate=True)
            torch.testing.assert_close(whole, right)


class TestOwnSolver:
    def test_two_methods_are_enough(self):
        """A class that knows nothing of the package but ``Solution`` works in distances, flows and
        parts.
        """

        class Plain:
            def solve(self, cost, a=None, b=None, init=None):
                found = ad.ExactOT().solve(cost, a, b)
                assert isinstance(cost, torch.Tensor)
                return ad.ot.Solution(
                    found.value, found.potentials, 0.0, True, 0, 0.0, found.plan(), 1e-12
                )

            def solve_self(self, cost, a=None, init=None):
                return self.solve(cost, a, a)

        generator = torch.Generator().manual_seed(0)
        source = ad.datasets.gaussians(30, generator=generator)
        target = ad.datasets.gaussians(30, shift=(5.0, 0.0), generator=generator)
        exact = ad.otdd(source, target, solver=ad.ExactOT())
        for solver in (Plain(), ad.MiniBatch(Plain(), size=50)):
            assert ad.otdd(source, target, solver=solver).value == pytest.approx(exact.value)
        energy = ad.OTDD(target, solver=Plain())
        result = ad.flow(source, energy, integrator=ad.Euler(1.0), n_steps=1)
        assert result.values[1] < 0.1 * result.values[0]


class TestSharded:
    def test_weights_of_zero_need_all_rows(self):
        x, y, *_ = clouds()
        cost = ShardedCost(DenseCost(half_squared(x, y)[:30]), 60, Group(rank=0, size=2))
        with pytest.raises(ad.InputError, match="rows on 2 ranks"):
            cost.select(torch.arange(3), torch.arange(3))
        with pytest.raises(ad.InputError, match=r"Use ad\.Sinkhorn"):
            cost.dense()
