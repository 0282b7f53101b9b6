"""Every member of a family passes the check of its family, and what breaks a promise does not."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from covering import one_of_each
from flow_cases import memberships

import advect as ad
from advect import testing
from advect.data.laws import Diagonal, Factored, Full, Gaussians, bures
from advect.testing.checks import small_pair

SOURCE, TARGET = small_pair()
ROOT = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TIGHT = ad.Sinkhorn(epsilon=0.5, tol=1e-9)

SOFT = [
    data.replace(probabilities=share * memberships(data) + 0.1)
    for share, data in ((0.8, SOURCE), (0.7, TARGET))
]

COSTS = {
    "Bures": ad.GroundCost(),
    "Bures, diagonal": ad.GroundCost(label=ad.Bures(diagonal=True)),
    "MeansOnly": ad.GroundCost(label=ad.MeansOnly()),
    "NoLabels": ad.GroundCost(label=ad.NoLabels()),
    "ExactLabelOT": ad.GroundCost(label=ad.ExactLabelOT()),
    "ByName": ad.GroundCost(label=ad.ByName()),
    "ByName beside Bures": ad.GroundCost(label=ad.ByName(plus=ad.Bures())),
    "Embedding": ad.GroundCost(feature=ad.Embedding(lambda x: torch.cat([x, x.square()], 1))),
    "TargetValues": ad.GroundCost(label=ad.TargetValues()),
}
FUNCTIONALS = {
    "OTDD": ad.OTDD(TARGET, solver=TIGHT),
    "OTDD, reach": ad.OTDD(TARGET, solver=replace(TIGHT, reach=2.0)),
    "OTDD, exact": ad.OTDD(TARGET, solver=ad.ExactOT()),
    "OTDD, exact labels": ad.OTDD(TARGET, cost=COSTS["ExactLabelOT"], solver=TIGHT),
    "OTDD, soft labels": ad.OTDD(SOFT[1], solver=TIGHT),
    "OTDD, names": ad.OTDD(TARGET, cost=COSTS["ByName beside Bures"], solver=TIGHT),
    "OTDD, parts": ad.OTDD(TARGET, solver=ad.MiniBatch(size=6)),
    "SlicedOTDD": ad.SlicedOTDD(TARGET),
    "Potential": ad.Potential(ad.norm()),
    "Interaction": ad.Interaction(ad.repulsion()),
    "Internal": ad.Internal(),
    "sum": ad.OTDD(TARGET, solver=TIGHT) + 0.1 * ad.Potential(ad.norm()) + ad.Internal(),
}
COVARIANCES = {
    "Full": Full(ROOT.mT @ ROOT),
    "Full, singular": Full(ROOT[:, :1].mT @ ROOT[:, :1]),
    "Diagonal": Diagonal(ROOT[0].abs()),
    "Factored": Factored(ROOT.reshape(-1, 4)[:7], (2, 4, 1)),
}
INTEGRATORS = (ad.Euler(0.2), ad.Heun(0.2), ad.Momentum(0.1))
INTEGRATORS += (ad.Adam(0.1), ad.EulerMaruyama(0.1))
MAPS = (
    ad.maps.NearestMap,
    ad.maps.EntropicMap,
    lambda: ad.maps.NeuralMap(epochs=2),
    lambda: ad.maps.FlowMatchingMap(updates=5),
)


@pytest.mark.parametrize("name", one_of_each(FUNCTIONALS))
def test_functionals(name):
    testing.check_functional(FUNCTIONALS[name], SOURCE, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", one_of_each(FUNCTIONALS))
def test_looking_changes_nothing(name):
    """A flow goes the same way, bit for bit, if its functional is evaluated elsewhere between the steps and moves another
    dataset at the same time."""
    functional, integrator = FUNCTIONALS[name], ad.Euler(0.1)
    alone = list(islice(ad.iterate(SOURCE, functional, integrator=integrator), 3))
    starts = (SOURCE, SOURCE.replace(x=SOURCE.x - 2))
    walks = [ad.iterate(start, functional, integrator=integrator) for start in starts]
    for expected in alone:
        step, other = map(next, walks)
        assert torch.equal(step.dataset.x, expected.dataset.x) and step.terms == expected.terms
        moving = step.dataset.replace(x=step.dataset.x.clone().requires_grad_() + 0.1)
        functional(moving).backward()
        functional.terms(moving, step.state)
        functional.terms(other.dataset, functional.begin(other.dataset))


@pytest.mark.parametrize("name", COSTS)
def test_costs(name):
    pair = [data.replace(targets=data.x[:, :1].sin()) for data in (SOURCE, TARGET)]
    testing.check_cost(COSTS[name], *(pair if name.startswith("Target") else (SOURCE, TARGET)))


@pytest.mark.parametrize("name", ["Bures", "Embedding"])
def test_costs_of_soft_labels(name):
    testing.check_cost(COSTS[name], *SOFT)


@pytest.mark.parametrize("covariance", COVARIANCES.values(), ids=COVARIANCES)
def test_covariances_are_those_of_the_dense_matrices(covariance):
    dense, k = covariance.dense(), len(covariance)
    diagonals, last = dense.diagonal(dim1=1, dim2=2), torch.tensor([k - 1])
    assert float(torch.linalg.eigvalsh(dense).min()) >= -1e-8 * float(dense.abs().max())
    means = torch.zeros(dense.shape[:2], dtype=dense.dtype)
    own, plain = Gaussians(means, covariance), Gaussians(means, Full(dense))
    wanted = bures(plain, plain)
    for promise, found, right in (
        ("matrices are symmetric", dense, dense.mT),
        ("traces()", covariance.traces(), diagonals.sum(1)),
        ("scales()² are the variances", covariance.scales().square(), diagonals),
        ("take(i)", covariance.take(last).dense(), dense[last]),
        ("with_tensors", covariance.with_tensors(covariance.tensors()).dense(), dense),
        ("W₂²", bures(own, own), wanted),
        ("W₂² to other kinds", bures(own, plain), wanted),
    ):
        torch.testing.assert_close(found, right, rtol=1e-7, atol=1e-7, msg=promise)
    narrow = covariance.to(dtype=torch.float32).dense()
    assert narrow.dtype == torch.float32
    assert covariance.to(dtype=torch.float32).compressed.rows.dtype == torch.float64
    torch.testing.assert_close(narrow.double(), dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "solver",
    [ad.ExactOT(), ad.Sinkhorn(), ad.Sinkhorn(epsilon=0.1), ad.Sinkhorn(epsilon=0.1, reach=0.7)],
    ids=repr,
)
def test_solvers(solver):
    testing.check_solver(solver)


def test_a_solver_that_is_no_subclass():
    class Plain:
        solve, solve_self = ad.ExactOT().solve, ad.ExactOT().solve_self

    class Twice(Plain):
        solve = Tilted().solve

    testing.check_solver(Plain())
    with pytest.raises(AssertionError, match="value"):
        testing.check_solver(Twice())
    with pytest.raises(ad.InputError, match="solver must be a transport solver"):
        testing.check_solver("exact")


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
def test_integrators(integrator):
    testing.check_integrator(integrator)


@pytest.mark.parametrize("make", MAPS)
def test_maps(make):
    testing.check_map(make())


# What breaks a promise


class Forgetful(ad.Functional):
    """Remembers in itself."""

    calls = 0

    def __call__(self, rho):
        self.calls += 1
        return (rho.weights * rho.x.square().sum(1)).sum() * (1 + 0.1 * self.calls)


class Detached(ad.Functional):
    def __call__(self, rho):
        return (rho.weights * rho.x.detach().square().sum(1)).sum() + 0 * rho.x.sum()


class Overwriting(ad.Functional):
    def begin(self, rho):
        return {"calls": torch.zeros(())}

    def terms(self, rho, state):
        state["calls"] += 1
        return {"x": (rho.weights * rho.x.square().sum(1)).sum()}, state


class Growing(Overwriting):
    """A state that changes the value."""

    def terms(self, rho, state):
        value = (rho.weights * rho.x.square().sum(1)).sum() * (1 + state["calls"])
        return {"x": value}, {"calls": state["calls"] + 1}


class Plain(ad.Functional):
    def __call__(self, rho):
        return float(rho.x.square().sum())


class Numbers(ad.Functional):
    def begin(self, rho):
        return {"calls": 0.0}

    def terms(self, rho, state):
        return {"x": (rho.weights * rho.x.square().sum(1)).sum()}, {"calls": torch.ones(())}


class Tilted(ad.ExactOT):
    """States a value that it has not."""

    def solve(self, cost, a=None, b=None, init=None):
        solution = super().solve(cost, a, b, init)
        return replace(solution, value=2 * solution.value)


class Loose(ad.Sinkhorn):
    """Says that it has converged where it has not."""

    def solve(self, cost, a=None, b=None, init=None):
        with pytest.warns(ad.errors.ConvergenceWarning):
            solution = ad.Sinkhorn(0.01, max_iter=2).solve(cost, a, b)
        return replace(solution, converged=True)


class Uphill(ad.Euler):
    def displace(self, velocity, state, step, generator):
        moved, state = super().displace(velocity, state, step, generator)
        return {name: -v for name, v in moved.items()}, state


class Counting(ad.Integrator):
    """Remembers in itself."""

    def __init__(self):
        self.calls = 0

    def displace(self, velocity, state, step, generator):
        self.calls += 1
        return {name: v / (2 + self.calls) for name, v in velocity.items()}, state


class Crowd(ad.maps.Map, kind="crowd of a test"):
    """What becomes of a sample depends on those beside it."""

    def learn(self, start, end):
        self.by = end.x.mean(0)

    def move(self, x, codes):
        return x - x.mean(0) + self.by


class Lost(Crowd, kind="lost of a test"):
    def move(self, x, codes):
        return x + self.by

    def unpack(self, tensors, facts):
        self.by = 2 * tensors["by"]


def distances(a, b):
    return torch.cdist(a.laws().means, b.laws().means).square()


def a_cost(parts):
    testing.check_cost(ad.GroundCost(**parts), SOURCE, TARGET)


BROKEN = [
    (testing.check_functional, Forgetful, "terms must add up|the same at each call"),
    (testing.check_functional, Detached, "the gradient must be that of the value"),
    (testing.check_functional, Overwriting, "return a new state"),
    (testing.check_functional, Growing, "not the value"),
    (testing.check_functional, Plain, "must be a tensor.*float"),
    (testing.check_functional, Numbers, r"flat dictionary.*'calls': 'float'.*begin\(rho\)"),
    (a_cost, lambda: {"label": lambda a, b: distances(a, b).triu()}, "symmetric"),
    (a_cost, lambda: {"label": lambda a, b: distances(a, b) + 1}, "nothing to itself"),
    (a_cost, lambda: {"feature": ad.Embedding(torch.detach)}, "gradient"),
    (testing.check_solver, Tilted, "value"),
    (testing.check_solver, Loose, "marginals"),
    (testing.check_integrator, Uphill, "must decrease"),
    (testing.check_integrator, Counting, "the same"),
    (testing.check_map, Crowd, "other samples"),
    (testing.check_map, Lost, "bit for bit"),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("check", "make", "promise"), BROKEN)
def test_what_breaks_a_promise_is_found(check, make, promise):
    with pytest.raises((AssertionError, ad.InputError), match=promise):
        check(make())
