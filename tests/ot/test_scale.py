"""Bounded memory: solves in blocks of rows against dense ones, the size of what is allocated, and mini-batches."""

import weakref

import oracles
import pytest
import torch
from flow_cases import labeled as classes_of
from internals import float32_iterations, small_blocks
from oracles import cost as cost_of, weighted_points
from torch.utils._python_dispatch import TorchDispatchMode

import advect as ad
from advect.ot import divergence
from advect.ot.cost import BlockedCost


@pytest.fixture(autouse=True)
def as_large(monkeypatch):
    small_blocks(monkeypatch)
    float32_iterations(monkeypatch, 1_000)


def clouds(dtype=torch.float64, zeros=False):
    x, y, a, b = weighted_points(220, 180, zeros=zeros)
    return x.to(dtype), y.to(dtype), a, b


class Held(TorchDispatchMode):
    """The most bytes that tensors held at any time, the most entries of a tensor in float64, and how many exponentials were
    taken."""

    def __init__(self):
        super().__init__()
        self.alive, self.bytes, self.most, self.wide, self.exponentials = set(), 0, 0, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(part, torch.Tensor) and part.layout == torch.strided:
                self.see(part.untyped_storage())
                self.wide = max(self.wide, part.numel() * (part.dtype == torch.float64))
        if func in (torch.ops.aten.exp_.default, torch.ops.aten.exp.default):
            self.exponentials += result.numel()
        return result

    def see(self, storage):
        place, size = storage._cdata, storage.nbytes()
        if place not in self.alive:
            self.alive.add(place)
            self.bytes += size
            self.most = max(self.most, self.bytes)
            weakref.finalize(storage, self.drop, place, size)

    def drop(self, place, size):
        self.alive.discard(place)
        self.bytes -= size


def labeled(n, seed, shift=0.0, dtype=torch.float32):
    """Three classes in five dimensions, with weights."""
    sizes = [n // 3, n // 3, n - 2 * (n // 3)]
    return classes_of(sizes, 5, seed, shift=shift, apart=3.0, weighted=True).to(dtype=dtype)


@pytest.mark.parametrize("limit", ["two", "2 GiX", 0, -1, True, float("nan"), float("inf"), [1]])
def test_limits(limit):
    for make in (ad.Sinkhorn, lambda **options: ad.OTDD(labeled(9, 0), **options)):
        with pytest.raises(ad.InputError, match="memory_limit"):
            make(memory_limit=limit)
        assert make(memory_limit=" 2 gib ") is not None


@pytest.mark.parametrize("limit", [None, "1kB", "2MB"])  # room for all, no kernel, and one
class TestSolve:
    @pytest.mark.parametrize("zeros", [False, True])
    @pytest.mark.parametrize("epsilon", [0.5, 0.02, 0.002])
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-8)])
    def test_as_dense(self, limit, zeros, epsilon, dtype, tolerance):
        x, y, a, b = clouds(dtype=dtype, zeros=zeros)
        cost = cost_of(x, y).to(dtype)
        solvers = [ad.Sinkhorn(epsilon, memory_limit=room) for room in (None, limit)]
        dense, other = (solver.solve(cost, a, b) for solver in solvers)
        assert other.converged
        assert other.value == pytest.approx(dense.value, rel=tolerance)
        for mine, his in zip(other.potentials, dense.potentials, strict=True):
            shift = mine - his
            assert float(shift.max() - shift.min()) < 1e3 * tolerance * float(cost.max())
        plan = dense.plan().to(other.plan())
        # of an entry of the plan
        rounding = 6 * torch.finfo(dtype).eps * float(cost.max()) / epsilon
        atol = max(30 * tolerance, rounding) * float(plan.max())
        torch.testing.assert_close(other.plan(), plan, atol=atol, rtol=0)
        for found in (dense, other):
            products = found.coupling @ y, found.coupling.T @ x
            wanted = (plan @ y.to(plan)).to(y), (plan.T @ x.to(plan)).to(x)
            torch.testing.assert_close(products, wanted, atol=50 * atol, rtol=0)

    def test_the_divergence_of_an_underflow_and_of_itself(self, limit):
        generator = torch.Generator().manual_seed(1)
        x, y = (torch.rand(60, 2, generator=generator, dtype=torch.float64) for _ in range(2))
        far = cost_of(x, y + 100)  # C/ε ~ 1e7: the plain kernel underflows everywhere
        solver = ad.Sinkhorn(epsilon=1e-3, tol=1e-6, max_iter=100_000, memory_limit=limit)
        found = solver.solve(far)
        assert found.converged
        assert found.value == pytest.approx(ad.ExactOT().solve(far).value, rel=1e-5)
        costs = [cost_of(p, q) for p, q in ((x, y), (x, x), (y, y))]
        solvers = [ad.Sinkhorn(0.02, memory_limit=room) for room in (None, limit)]
        dense, other = (divergence(*costs, solver=solver).value for solver in solvers)
        assert other == pytest.approx(dense, rel=1e-7)
        assert divergence(*[costs[1]] * 3, solver=solvers[1]).value == 0


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("10kB", r"rows of costs, 46\.6 KiB"),  # features, and 16 rows four times
        ("100kB", r"90 to 80 samples needs 225\.0 KiB"),  # four matrices
    ],
)
def test_exact_transport_needs_its_matrix(limit, said):
    with pytest.raises(ad.InputError, match=said):
        ad.otdd(labeled(90, 0), labeled(80, 1), solver=ad.ExactOT(), memory_limit=limit)


COSTS = {
    "default": ad.GroundCost(),
    "no labels": ad.GroundCost(label=ad.NoLabels()),
    "means, weight 3": ad.GroundCost(label=ad.MeansOnly(), label_weight=3.0),
    "embedding": ad.GroundCost(feature=ad.Embedding(lambda x: torch.tanh(x[:, :3] / 4))),
}
LIMITS = {"nothing fits": 2**17, "one matrix fits": 2**19 + 2**17, "two fit": 2**20 + 2**17}


class TestDistance:
    @pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
    @pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
    def test_as_dense(self, cost, limit):
        a, b = labeled(312, 0), labeled(290, 1, shift=0.7)
        dense, bounded = ad.otdd(a, b, cost=cost), ad.otdd(a, b, cost=cost, memory_limit=limit)
        assert bounded.value == pytest.approx(dense.value, rel=1e-5)
        assert bounded.epsilon == pytest.approx(dense.epsilon, rel=1e-5)
        atol = 1e-4 * dense.energy / 312
        ends = bounded.contributions[0], dense.contributions[0]
        torch.testing.assert_close(*ends, atol=atol, rtol=1e-2)
        assert abs(bounded.class_coupling.values - dense.class_coupling.values).max() < 1e-5
        atol = 1e-3 * float(dense.plan().max())
        torch.testing.assert_close(bounded.plan(), dense.plan(), atol=atol, rtol=0)

    @pytest.mark.slow
    @pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
    def test_gradient(self, cost):
        gradients = []
        for limit in (None, 2**18):
            a = labeled(300, 0, dtype=torch.float64)
            b = labeled(280, 1, shift=0.7, dtype=torch.float64)
            x, y = a.x.requires_grad_(), b.x.requires_grad_()
            ad.otdd(a.replace(x=x), b.replace(x=y), cost=cost, memory_limit=limit).loss.backward()
            gradients.append((x.grad, y.grad))
        torch.testing.assert_close(gradients[1], gradients[0], atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("limit", ["1kB", None])
def test_a_limit_is_kept(limit):
    """Where there is room for no kernel, none is made beside the matrix that was given."""
    x, y, a, b = clouds()
    cost = cost_of(x, y)
    with Held() as held:
        assert ad.Sinkhorn(0.05, memory_limit=limit).solve(cost, a, b).converged
    assert (held.most < 1.5 * cost.nbytes) == (limit is not None)


@pytest.mark.every_case
@pytest.mark.parametrize("matrices", [0.99, 1.01, 1.99, 2.01])
def test_what_fits_is_computed_once(matrices):
    """Costs and K, or one over the other, beside three blocks of rows; else each product computes costs again."""
    (x, y, a, b), made = clouds(), []
    matrix = cost_of(x, y)
    step = 9_000 // 180  # rows of a block
    room = int((matrices * 220 + 3 * step) * 180 * 8)
    make = lambda rows: made.append(len(matrix[rows])) or matrix[rows]
    cost = BlockedCost.of(make, (220, 180), room=room, like=matrix)
    assert cost.mean(a, b) == pytest.approx(float(a @ matrix @ b)) and sum(made) == 220
    made.clear()
    with Held() as held:
        found = ad.Sinkhorn(0.02).solve(cost, a, b)
    passes = 1 if matrices > 1 else found.n_iter + 1
    assert sum(made) == 220 * passes
    assert (held.exponentials <= 10 * matrix.numel()) == (matrices > 1)
    plan = found.coupling @ y
    assert sum(made) == 220 * (passes + (matrices < 1)) and plan.shape == (220, 3)
    found.released()
    torch.testing.assert_close(found.coupling @ y, plan)
    assert sum(made) == 220 * (passes + 1 + (matrices < 1))


@pytest.mark.parametrize(("room", "used"), [(0.5, 0.2), (1, 0.8), (3, 1.8), (6, 3.5)])
def test_a_distance_holds_no_more_than_its_limit_and_makes_use_of_it(room, used):
    """In matrices; all three, with what a solve takes beside them, are kept from six on."""
    source, target, matrix = labeled(400, 0), labeled(350, 1, shift=0.7), 400 * 400 * 4
    with Held() as held:
        assert ad.otdd(source, target, memory_limit=int(room * matrix)).converged
    assert used * matrix <= held.most <= room * matrix


WORK = {  # epsilon, reach: iterations of a cold solve, and exponentials for each entry of the cost
    (0.1, None): (20, 10),
    (0.02, 0.5): (42, 13),
    (0.004, None): (97, 16),
    (0.004, 0.5): (80, 16),
}


@pytest.mark.every_case
@pytest.mark.parametrize(("case", "most"), WORK.items(), ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_work_of_a_cold_start(case, most, dtype):
    """Annealing, Newton steps and absorptions are worth their while; a large problem in float32 has no matrix in
    float64."""
    x, y, a, b = clouds()
    cost = cost_of(x, y).to(dtype)
    with Held() as held:
        found = ad.Sinkhorn(case[0], reach=case[1]).solve(cost, a, b)
    assert found.converged and most[0] / 2 <= found.n_iter <= most[0]
    alone = ad.Sinkhorn(case[0], reach=case[1]).solve_self(cost_of(x, x).to(dtype), a)
    wide = dtype == torch.float64  # errors of a self-problem at least halve, down to rounding
    assert alone.n_iter <= (36 if wide else 16) and alone.epsilon == case[0]
    assert alone.marginal_error <= (2e-14 if wide else 6e-6) and alone.converged
    assert held.exponentials <= most[1] * cost.numel()
    assert dtype == torch.float64 or held.wide < cost.numel()


def test_no_matrix_is_made_in_a_step():
    source, target = labeled(400, 0), labeled(350, 1, shift=2.0)
    energy = ad.OTDD(target, solver=ad.Sinkhorn(ad.Relative(0.1), tol=1e-3), memory_limit=2**18)
    with Held() as held:
        step = next(iter(ad.iterate(source, energy)))
    assert step.value > 0 and held.most < 400 * 350 * 4


class TestMiniBatch:
    @pytest.mark.slow
    @pytest.mark.parametrize("batches", [None, 1, 2, 9])
    @pytest.mark.parametrize("heavy", [1.0, 500.0])
    def test_drawn_samples_move_by_their_transport_and_others_stay(self, batches, heavy):
        # Once: a mean over parts with equal weights moved the samples of light parts many times too far.
        generator = torch.Generator().manual_seed(0)
        shift = torch.tensor([5.0, -2.0])
        x, weights = torch.randn(101, 2, generator=generator), torch.ones(101)
        weights[0] = heavy
        source = ad.LabeledDataset(x, [0] * 101, weights=weights)
        target = ad.LabeledDataset(shift[None], [0])  # one point: T(x) is known for every part
        solver = ad.MiniBatch(ad.ExactOT(), 10, batches)
        energy = ad.OTDD(target, cost=COSTS["no labels"], solver=solver)
        moved = ad.flow(source, energy, integrator=ad.Euler(1.0), n_steps=1).dataset.x
        stayed = (moved == x).all(dim=1)
        if batches is None:
            assert not stayed.any()
            torch.testing.assert_close(moved, shift.expand(101, 2), rtol=0, atol=1e-4)
        elif batches < 9:
            drawn = moved[~stayed]
            assert len(drawn) in range(9 * batches, 10 * batches + 1)
            torch.testing.assert_close(drawn, shift.expand(len(drawn), 2), rtol=0, atol=1e-4)

    def test_one_batch_of_everything_is_the_distance(self):
        a, b = labeled(120, 0), labeled(110, 1, shift=0.7)
        whole, parts = ad.otdd(a, b), ad.otdd(a, b, solver=ad.MiniBatch(size=200))
        assert parts.value == pytest.approx(whole.value, rel=1e-5)
        assert parts.epsilon == pytest.approx(whole.epsilon, rel=1e-5)
        atol = 1e-3 * float(whole.plan().max())
        torch.testing.assert_close(parts.plan(), whole.plan(), atol=atol, rtol=0)
        assert 0 < parts.divergence.cross.marginal_error < 1e-4

    def test_mean_of_the_divergences_of_parts(self):
        """Against parts cut by hand, with the label laws of the whole."""
        a, b = labeled(120, 0, dtype=torch.float64), labeled(90, 1, shift=0.7, dtype=torch.float64)
        solver = ad.MiniBatch(ad.Sinkhorn(epsilon=1.0), size=40)
        solved = ad.otdd(a, b, solver=solver).divergence
        matrices = [ad.GroundCost().between(*pair).matrix() for pair in ((a, b), (a, a), (b, b))]
        values, masses = [], []
        reached = solved.cross.plan() > 0  # the rows and columns of a part are those of a block
        for columns in reached.unique(dim=0):
            i, j = (reached == columns).all(dim=1).nonzero()[:, 0], columns.nonzero()[:, 0]
            part = [matrices[0][i][:, j], matrices[1][i][:, i], matrices[2][j][:, j]]
            own = [w / w.sum() for w in (a.weights[i], b.weights[j])]
            values.append(divergence(*part, *own, solver=ad.Sinkhorn(epsilon=1.0)).value)
            masses.append(float(a.weights[i].sum()))
        assert len(values) == 3 and sum(masses) == pytest.approx(1.0)
        masses, values = (torch.tensor(part, dtype=torch.float64) for part in (masses, values))
        assert solved.value == pytest.approx(float(masses @ values), rel=1e-8)
        for part in solved.contributions:
            assert float(part.sum()) == pytest.approx(solved.value / 2)
        assert sorted(solved.values) == pytest.approx(sorted(values.tolist()), rel=1e-8)
        spread = (1.5 * (masses * (values - solved.value)).square().sum()).sqrt()
        assert solved.standard_error == pytest.approx(float(spread), rel=1e-6)
        two = ad.otdd(a, b, solver=ad.MiniBatch(solver.solver, size=40, batches=2)).divergence
        shares = torch.tensor(two.masses).double() / sum(two.masses)
        gaps = shares * (torch.tensor(two.values).double() - two.value)
        assert two.standard_error == pytest.approx(float((2 * gaps.square().sum()).sqrt()))
        assert two.drawn == pytest.approx(sum(two.masses)) and two.drawn < 0.99
        a = a.replace(weights=torch.full_like(a.weights, 1 / 120))
        even = ad.otdd(a, b, solver=solver).divergence
        spread = float(torch.tensor(even.values).std()) / 3**0.5
        assert even.standard_error == pytest.approx(spread, rel=1e-6)

    def test_every_sample_is_used_once(self):
        a, b = (
            labeled(n, n).replace(weights=torch.full((n,), 1 / n, dtype=torch.float64))
            for n in (120, 90)
        )
        solution = ad.otdd(a, b, solver=ad.MiniBatch(size=30)).divergence.cross
        plan = solution.plan().double()
        torch.testing.assert_close(plan.sum(1), a.weights, atol=1e-6, rtol=0)
        assert solution.marginal_error < 0.6  # the shorter side is used unevenly, and it says so
        f, g = solution.potentials
        assert float(a.weights @ f + b.weights @ g) == pytest.approx(solution.value)
        products = solution.coupling @ b.x, solution.coupling.T @ a.x
        rows, columns, masses = solution.coupling.entries()
        torch.testing.assert_close(masses, plan[plan > 0])
        assert torch.equal(torch.stack([rows, columns], dim=1), plan.nonzero())
        assert solution.coupling.T.shape == (90, 120)
        wanted = (plan @ b.x.double()).float(), (plan.T @ a.x.double()).float()
        torch.testing.assert_close(products, wanted, atol=1e-5, rtol=1e-4)

    @pytest.mark.slow
    @pytest.mark.parametrize("cost", [COSTS["default"], COSTS["embedding"]])
    def test_gradient_by_finite_differences(self, cost):
        a, b = labeled(60, 0, dtype=torch.float64), labeled(50, 1, shift=1.0, dtype=torch.float64)
        solver = ad.MiniBatch(ad.Sinkhorn(epsilon=1.0, tol=1e-11), size=20)
        energy = ad.OTDD(b, cost=cost, solver=solver)
        found, expected = oracles.slopes(lambda x: energy(a.replace(x=x)), a.x)
        assert found == pytest.approx(expected, rel=1e-5)

    def test_misuse(self):
        for options in ({"size": 0}, {"batches": 0}, {"seed": -1}):
            with pytest.raises(ad.InputError):
                ad.MiniBatch(**options)
