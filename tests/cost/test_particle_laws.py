"""One law for each particle, as a jd-vl flow leaves them: joined where a class is asked for, shared where they are
equal."""

import numpy as np
import pytest
import torch
from flow_cases import draw, labeled
from internals import small_blocks

import advect as ad
from advect.data.laws import Diagonal, Factored, Full


def points_of(laws):
    """2d points of equal weight for each law that have its mean and covariance: μ ± √d times the columns of a root."""
    values, vectors = np.linalg.eigh(laws.covariances().double().numpy())
    roots = (vectors * np.sqrt(np.maximum(values, 0))[:, None]).swapaxes(1, 2) * laws.dim**0.5
    means = laws.means.double().numpy()[:, None]
    return np.concatenate([means + roots, means - roots], axis=1)  # (k, 2d, d)


def full(k, d, seed):
    factors = draw(k, d, d, seed=seed)
    return Full(factors.mT @ factors)


def factored(k, d, seed):
    sizes = tuple((3 * j) % 5 for j in range(k))  # some are points
    return Factored(draw(sum(sizes), d, seed=seed), sizes)


def diagonal(k, d, seed):
    return Diagonal(draw(k, d, seed=seed).abs())


@pytest.mark.parametrize("kind", [full, factored, diagonal])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_moments_of_a_mixture(kind, dtype, rounding, offset):
    """Mean and covariance of points that have the moments of the laws, by numpy; far from the origin too."""
    laws = ad.Gaussians(draw(7, 3, seed=1) + offset, kind(7, 3, seed=2)).to(dtype=dtype)
    groups = torch.tensor([0, 2, 2, 0, 2, 0, 0])
    mass = torch.tensor([0.1, 0.2, 0.0, 0.3, 0.3, 0.05, 0.05])
    joined = laws.joined(groups, mass, 3)
    assert joined.means.dtype == dtype and len(joined) == 3
    for group in (0, 2):
        chosen = (groups == group).numpy()
        cloud, weights = points_of(laws)[chosen].reshape(-1, 3), mass.double().numpy()[chosen]
        weights = np.repeat(weights, 6)  # points of each law
        mean = np.average(cloud, axis=0, weights=weights)
        wanted = np.cov(cloud.T, aweights=weights, ddof=0)
        np.testing.assert_allclose(joined.means[group], mean, rtol=rounding)
        np.testing.assert_allclose(joined.covariances()[group], wanted, rtol=rounding, atol=1e-5)
    assert not joined.means[1].any() and not joined.covariances()[1].any()  # no laws: a point


@pytest.fixture(scope="module", params=["bures", "diagonal"])
def problem(request):
    """What a short flow leaves, and its target: more laws than are treated by a thin product."""
    source = labeled((30, 25, 25), 2, seed=1, weighted=True)
    target = labeled((9, 8, 7), 2, seed=2, shift=2.0)
    cost = ad.GroundCost(label=ad.Bures(diagonal=request.param == "diagonal"))
    walk = {"dynamics": ad.JointVariableLabels(laws=request.param), "integrator": ad.Euler(0.2)}
    return ad.flow(source, ad.OTDD(target, cost=cost), n_steps=2, **walk).dataset, target


class TestSolvers:
    """Blocked and mini-batch solves of what a jd-vl flow leaves, against dense ones."""

    solver = ad.Sinkhorn(ad.Relative(0.3), tol=1e-10)

    def solved(self, problem, **options):
        x = problem[0].x.detach().clone().requires_grad_()
        means = problem[0].law.means.detach().clone().requires_grad_()
        data = problem[0].replace(x=x, law=ad.Gaussians(means, problem[0].law.covariance))
        distance = ad.otdd(data, problem[1], **{"solver": self.solver} | options)
        distance.loss.backward()
        return distance.energy, x.grad, means.grad

    @pytest.mark.parametrize(
        "options", [{"memory_limit": 2**19}, {"solver": ad.MiniBatch(solver, size=100)}]
    )
    def test_as_dense(self, problem, options):
        dense, other = self.solved(problem), self.solved(problem, **options)
        assert other[0] == pytest.approx(dense[0], rel=1e-7)
        for gradient, wanted in zip(other[1:], dense[1:], strict=True):
            atol = 1e-7 * float(wanted.abs().max())
            torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=atol)

    def test_equal_laws_make_one_row(self):
        source, target = labeled((40, 50), 2, seed=1), labeled((30, 60), 2, seed=2, shift=2.0)
        started = ad.JointVariableLabels().start(source)
        found, wanted = (ad.GroundCost().between(z, target).matrix() for z in (started, source))
        assert len(started.law) == 90
        torch.testing.assert_close(found, wanted)

    def test_a_table_that_does_not_fit_is_refused_before_it_is_made(self, problem):
        data, target = problem
        with pytest.raises(ad.InputError, match=r"label laws need"):
            ad.otdd(data, target, memory_limit=60_000)
        assert ad.otdd(data, target, memory_limit=2**19).value > 0


def test_pairs_of_laws_in_parts(monkeypatch):
    """Once: the products of all pairs at once, 1 GiB for 1,000 laws in 8 dimensions."""
    means, factors = (draw(40, *shape).requires_grad_() for shape in ((3,), (3, 3)))
    other = ad.Gaussians(draw(30, 3), full(30, 3, seed=4))
    found = []
    for _ in range(2):
        distances = ad.bures(ad.Gaussians(means, Full(factors.mT @ factors)), other)
        slopes = torch.autograd.grad(distances.sqrt().sum(), [means, factors])
        found.append([distances.detach(), *slopes])
        small_blocks(monkeypatch)
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weight", [0.5, 3.0])
def test_diagonal_laws_of_single_samples_are_points(weight):
    """With diagonal laws, Bures and its diagonal form are one cost, by a table or by points."""
    x, means, scales = (draw(70, 4, seed=seed) for seed in range(3))
    target = labeled((30, 40), 4, seed=5, shift=1.0)
    law = ad.Gaussians(target.laws().means, Diagonal(target.laws().covariance.scales()))
    target, found = target.replace(law=law), []
    for diagonal in (False, True):
        leaves = [part.clone().requires_grad_() for part in (x, means, scales.abs())]
        law = ad.Gaussians(leaves[1], Diagonal(leaves[2]))
        data = ad.LabeledDataset(leaves[0], [0] * 70, law=law, law_index=range(70))
        cost = ad.GroundCost(label=ad.Bures(diagonal=diagonal), label_weight=weight)
        energy = ad.OTDD(target, cost=cost, solver=ad.Sinkhorn(1.0, tol=1e-11))(data)
        found.append([energy.detach(), *torch.autograd.grad(energy, leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
