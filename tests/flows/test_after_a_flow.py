"""Every dynamics × every solver × everything one does with a result, in one table: it works, or
refuses with a true reason.

Solvers have one epsilon, and mini-batches and kernels take all samples: the values of flows,
distances, pairs and ranks are then one number."""

import math
import tempfile
from functools import lru_cache
from itertools import product
from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
import torch
from covering import covering
from flow_cases import labeled

import advect as ad
import advect.distributed
from advect import viz
from advect.flows.snapshots import load_snapshot

DYNAMICS = {
    "fd": ad.FeatureDriven(),
    "fd detached": ad.FeatureDriven(through_laws=False),
    "jd-fl": ad.JointFixedLabels(),
    "jd-fl factored": ad.JointFixedLabels(ad.FactoredMotion()),
    "jd-fl diagonal": ad.JointFixedLabels(ad.DiagonalMotion()),
    "jd-vl": ad.JointVariableLabels(),
    "jd-vl diagonal": ad.JointVariableLabels(laws=ad.DiagonalMotion()),
}
INNER = ad.Sinkhorn(epsilon=2.0, tol=1e-9)
SOLVERS = {
    "sinkhorn": {"solver": INNER},
    "exact": {"solver": ad.ExactOT()},
    "mini-batch": {"solver": ad.MiniBatch(INNER, size=80)},
    "low rank": {"solver": ad.NystromSinkhorn(100, epsilon=2.0, tol=1e-11)},
    "blocks": {"solver": INNER, "memory_limit": 140_000},
}
N_STEPS = 3


class Run:
    """A short flow with frames and checkpoints, and what led to it."""

    def __init__(self, dynamics, solver):
        self.source, self.target = (
            labeled((24, 26, 22), 2, seed=1, weighted=True),
            labeled((25, 22, 24), 2, seed=2, shift=2.0),
        )
        self.folder = Path(tempfile.mkdtemp())
        self.dynamics, self.solver = dynamics, SOLVERS[solver]
        self.recorder = ad.Recorder()
        self.result = self.flow(
            self.source, callbacks=[self.recorder, ad.Checkpoint(self.folder / "run", every=1)]
        )

    def energy(self):
        return ad.OTDD(self.target, **self.solver)

    def flow(self, source, dynamics=None, n_steps=N_STEPS, **options):
        dynamics = DYNAMICS[dynamics or self.dynamics]
        return ad.flow(
            source,
            self.energy(),
            dynamics=dynamics,
            integrator=ad.Euler(0.1),
            n_steps=n_steps,
            **options,
        )

    def distance(self, data=None):
        return ad.otdd(data or self.result.dataset, self.target, **self.solver)


@lru_cache
def run_of(dynamics, solver):
    return Run(dynamics, solver)


# What one does with a result
# -------------------------------------------------------------------------------------------------


def distance(run):
    found = run.distance()
    assert found.energy == pytest.approx(run.result.values[-1], rel=1e-5)
    assert found.plan().shape == (72, 71) and float(found.plan().sum()) == pytest.approx(
        1, rel=1e-4
    )


def class_tables(run):
    found, data = run.distance(), run.result.dataset
    wanted = ad.bures(data.class_laws(), run.target.moments()).sqrt()
    np.testing.assert_allclose(found.class_distances.values, wanted, rtol=1e-6)
    np.testing.assert_allclose(found.class_matching.values.sum(axis=1), data.class_mass, rtol=1e-9)
    np.testing.assert_allclose(found.class_coupling.values.sum(axis=1), data.class_mass, rtol=1e-4)


def class_matching(run):
    matching = ad.ClassMatching.between(run.result.dataset, run.target)
    assert set(matching.hard) == set(run.result.dataset.classes) and matching.apply(
        [[1, 0, 0]]
    ).sum() == pytest.approx(1)
    back = ad.ClassMatching.between(run.target, run.result.dataset)
    np.testing.assert_allclose(back.coupling.values, matching.coupling.values.T, atol=1e-9)


def names_of_classes(run):
    for by in ("transport", "nearest"):
        assert len(ad.classes.align(run.result.dataset, run.target, by).labels) == 72


def nearest_map(run):
    fitted = ad.maps.NearestMap().fit(run.result)
    torch.testing.assert_close(fitted.transform(run.source.x), run.result.dataset.x)
    _saved(fitted, run)


def entropic_map(run):
    fitted = ad.maps.EntropicMap().fit(run.result)
    moved = fitted.transform(run.source)
    assert float((moved.x - run.result.dataset.x).square().mean()) < float(
        (run.source.x - run.result.dataset.x).square().mean()
    )
    _saved(fitted, run)


def neural_map(run):
    fitted = ad.maps.NeuralMap(epochs=2).fit(run.result)
    assert bool(fitted.transform(run.source.x).isfinite().all())
    _saved(fitted, run)


def _saved(fitted, run):
    path = fitted.save(run.folder / f"{fitted.kind}.map")
    torch.testing.assert_close(
        ad.maps.load(path).transform(run.source.x), fitted.transform(run.source.x)
    )


def report(run):
    page = run.result.report(run.folder / "flow.html", run.target).read_text()
    assert "Classes are not compared" not in page and len(page) > 10_000


def figures(run):
    frames, found = run.result.trajectory, run.distance()
    made = [
        viz.particles([run.result.dataset], target=run.target),
        viz.particle_grid({"flow": frames}, target=run.target),
        viz.paths(frames),
        viz.curves(run.result),
        viz.class_counts(frames),
        viz.class_table(found.class_distances),
        viz.coupling(found),
        viz.coupling_matrix(found),
    ]
    assert all(isinstance(figure, matplotlib.figure.Figure) for figure in made)


def film(run):
    assert (
        viz.animation(run.result.trajectory, run.folder / "film.gif", target=run.target)
        .stat()
        .st_size
        > 1000
    )


def files(run):
    for name in ("end.npz", "end.parquet"):
        back = ad.datasets.load(run.result.dataset.save(run.folder / name, overwrite=True))
        torch.testing.assert_close(back.x, run.result.dataset.x, rtol=0, atol=0)
        assert back.labels == run.result.dataset.labels


def checkpoint(run):
    kept, data = load_snapshot(run.folder / "run").dataset, run.result.dataset
    torch.testing.assert_close(kept.x, data.x, rtol=0, atol=0)
    assert (kept.law is None) == (data.law is None) and kept.labels == data.labels
    if data.law is not None:
        assert type(kept.law.covariance) is type(data.law.covariance)
        torch.testing.assert_close(kept.law.covariances(), data.law.covariances(), rtol=0, atol=0)
    assert run.distance(kept).energy == pytest.approx(run.distance().energy, rel=1e-12)


def another_flow(run):
    for dynamics in DYNAMICS:
        start = DYNAMICS[dynamics].start(run.result.dataset)
        again = run.flow(run.result.dataset, dynamics, n_steps=1)
        assert again.values[0] == pytest.approx(run.distance(start).energy, rel=1e-5), dynamics


def pairs(run):
    found = ad.pairwise(
        {"end": run.result.dataset, "target": run.target, "start": run.source},
        progress=False,
        **run.solver,
    )
    assert not found.errors
    assert found["end", "target"] == pytest.approx(run.distance().value, rel=1e-9)


def kept_pairs(run):
    """A store of pairs tells datasets with other laws apart."""
    moved, sets = run.result.dataset, {"target": run.target}
    still = moved.replace(law=None, law_index=None)
    for data in (moved, still):
        found = ad.pairwise(
            {"end": data, **sets}, progress=False, store=run.folder / "pairs", **run.solver
        )
        assert found["end", "target"] == pytest.approx(run.distance(data).value, rel=1e-9)


def resume(run):
    with tempfile.TemporaryDirectory() as folder:
        run.flow(run.source, n_steps=1, callbacks=[ad.Checkpoint(Path(folder) / "half", every=1)])
        again = run.flow(run.source, resume=Path(folder) / "half")
    assert again.values == run.result.values and torch.equal(again.dataset.x, run.result.dataset.x)


def ranks(run):
    """Of one process; several are compared with one in test_distributed."""
    with ad.distributed.group() as group:
        if not isinstance(run.solver["solver"], ad.Sinkhorn):
            with pytest.raises(ad.InputError, match="a sharded flow needs a Sinkhorn solver"):
                ad.OTDD(run.target, group=group, **run.solver)
            return
        energy = ad.OTDD(run.target, group=group, **run.solver)
        options = {"dynamics": DYNAMICS[run.dynamics], "integrator": ad.Euler(0.1), "n_steps": 1}
        again = ad.distributed.flow(run.result.dataset, energy, group=group, **options)
    alone = run.flow(run.result.dataset, n_steps=1)
    assert again.values == pytest.approx(alone.values, rel=1e-6)
    torch.testing.assert_close(again.dataset.x, alone.dataset.x, rtol=1e-5, atol=1e-5)


def slices(run):
    found = ad.sliced_otdd(
        run.result.dataset, run.target, 50, generator=torch.Generator().manual_seed(0)
    )
    assert (
        0 < found.value < 1.001 * ad.otdd(run.result.dataset, run.target, solver=ad.ExactOT()).value
    )


def parts(run):
    """A part of the particles, in another dtype, on its way through a distance."""
    data = run.result.dataset
    half = data.subset(torch.arange(0, 72, 2))
    assert run.distance(half).value > 0 and len(half.class_laws()) == 3
    assert run.distance(data.to(dtype=torch.float32)).value == pytest.approx(
        run.distance().value, rel=1e-4
    )
    first, second = data.split(0.5, generator=torch.Generator().manual_seed(0))
    assert (
        ad.otdd(first, second, **run.solver).value > 0 and run.distance(data.balanced()).value > 0
    )


def standard_form(run):
    """``harmonize`` works on samples: it says so to a dataset that carries laws, and how to go
    on.
    """
    data = run.result.dataset
    if data.law is not None:
        with pytest.raises(ad.InputError, match=r"replace\(law=None, law_index=None\)"):
            ad.harmonize(data, run.target)
    a, b = ad.harmonize(data.replace(law=None, law_index=None), run.target)
    assert a.dim == b.dim


QUICK = [distance, class_tables, checkpoint, ranks]
SLOWER = [
    class_matching,
    slices,
    parts,
    names_of_classes,
    nearest_map,
    entropic_map,
    neural_map,
    report,
    figures,
    files,
    another_flow,
    pairs,
    kept_pairs,
    resume,
    standard_form,
]
ONLY_SLOW = [film]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("action", QUICK, ids=lambda action: action.__name__)
def test_with_every_solver(action, dynamics, solver):
    action(run_of(dynamics, solver))


@pytest.mark.parametrize("dynamics", ["fd", "jd-fl factored", "jd-vl", "jd-vl diagonal"])
@pytest.mark.parametrize("action", SLOWER, ids=lambda action: action.__name__)
def test_with_one_solver(action, dynamics):
    action(run_of(dynamics, "sinkhorn"))


GRID = [
    {"dynamics": dynamics, "solver": solver, "action": action.__name__}
    for dynamics, solver, action in product(DYNAMICS, SOLVERS, [*SLOWER, *ONLY_SLOW])
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [GRID[place] for place in sorted(covering(GRID, 2))],
    ids=lambda case: " ".join(case.values()),
)
def test_every_pair(case):
    globals()[case["action"]](run_of(case["dynamics"], case["solver"]))


@pytest.mark.slow
@pytest.mark.every_pair
@pytest.mark.parametrize("dynamics", [name for name in DYNAMICS if name.startswith("jd")])
@pytest.mark.parametrize(
    "feature", [ad.SquaredEuclidean(), ad.Sketch(2)], ids=["squared", "sketch"]
)
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("dim", [3, 12])
def test_a_class_of_one_sample(dynamics, feature, diagonal, dim):
    """Its law is a point. Once: NaN gradients from roots of zero variances."""
    source, target = labeled((6, 7, 1), dim, seed=1), labeled((5, 1, 8), dim, seed=2, shift=2.0)
    cost = ad.GroundCost(feature=feature, label=ad.Bures(diagonal=diagonal))
    result = ad.flow(source, ad.OTDD(target, cost=cost), dynamics=DYNAMICS[dynamics], n_steps=2)
    assert result.values[-1] < result.values[0] or result.status == "stalled"
    found = ad.otdd(result.dataset, target, cost=cost)
    assert (
        np.isfinite(found.class_distances.values).all()
        and len(ad.ClassMatching.between(result.dataset, target).hard) == 3
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "clustering", [ad.DBSCAN(0.01, 2), ad.DBSCAN(50.0), ad.KMeans(5), ad.KMeans(1)], ids=repr
)
def test_classes_that_are_born_and_die(clustering):
    source, target = labeled((12, 13, 5), 2, seed=1), labeled((11, 14), 2, seed=2, shift=2.0)
    dynamics = ad.JointVariableLabels(clustering=clustering)
    result = ad.flow(
        source, ad.OTDD(target), dynamics=dynamics, n_steps=3, callbacks=[ad.Recorder()]
    )
    data, filled = result.dataset, [name for name, count in result.dataset.counts.items() if count]
    table = ad.otdd(data, target).class_distances.values
    assert [bool(row.all()) for row in np.isfinite(table)] == [
        name in filled for name in data.classes
    ]
    assert list(ad.ClassMatching.between(data, target).hard) == filled
    for way in (ad.FeatureDriven(), ad.JointFixedLabels(), ad.JointVariableLabels()):
        assert math.isfinite(ad.flow(data, ad.OTDD(target), dynamics=way, n_steps=1).values[-1])
    assert len(viz.class_counts(result.trajectory).axes) == 1


def test_many_dimensions_say_which_laws_they_need():
    """Diagonal laws of particles against full ones of classes: refused, and the remedy works, for
    the flow and after it.
    """
    source, target = labeled((8, 9), 70, seed=1), labeled((7, 6), 70, seed=2, shift=2.0)
    with pytest.raises(
        ad.InputError, match=r"diagonal laws against full ones.*Use Bures\(diagonal=True\)"
    ):
        ad.flow(source, ad.OTDD(target), dynamics=ad.JointVariableLabels(), n_steps=1)
    energy = ad.OTDD(target, cost=ad.GroundCost(label=ad.Bures(diagonal=True)))
    data = ad.flow(source, energy, dynamics=ad.JointVariableLabels(), n_steps=1).dataset
    assert (
        len(ad.ClassMatching.between(data, target).hard) == 2
    )  # the mixtures of diagonal laws are full
    assert len(ad.ClassMatching.between(data, target, cost=energy.cost).hard) == 2


def test_rows_of_figures_have_names():
    with pytest.raises(ad.InputError, match="frames by name.*viz.particles"):
        viz.particle_grid([labeled((4, 4), 2, seed=1)])
