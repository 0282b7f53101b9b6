"""Flows of data with continuous targets: features alone, and features and targets."""

import pytest
import torch

import advect as ad

EXACT = ad.ExactOT()
INTEGRATORS = (ad.Euler(0.3), ad.Heun(0.3), ad.Momentum(0.1), ad.Adam(0.1))


def table(n, seed, shift=0.0, aim=lambda y: y):
    """x in three columns, a noisy linear target."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=draw, dtype=torch.float64) + shift
    y = (x - shift) @ torch.tensor([1.0, 2.0, -1.0]).double()
    y = y + 0.1 * torch.randn(n, generator=draw, dtype=torch.float64)
    return ad.LabeledDataset(x, targets=aim(y))


def test_an_exact_shift_shrinks_by_the_step_in_features_and_targets():
    a = table(20, 0)
    b = a.replace(x=a.x + 3, targets=50 * a.targets.mean() + a.targets + 700)
    options = {"integrator": ad.Euler(0.25), "control": ad.FixedSteps(), "n_steps": 4}
    result = ad.flow(a, ad.OTDD(b, solver=EXACT), dynamics=ad.JointTargets(), **options)
    left = (1 - 0.25) ** 4  # T(x) − x and T(y) − y, whatever the units
    rho = result.dataset
    assert torch.allclose(b.x - rho.x, left * (b.x - a.x), atol=1e-9)
    assert torch.allclose(b.targets - rho.targets, left * (b.targets - a.targets), atol=1e-6)
    assert result.values[-1] == pytest.approx(left**2 * result.values[0], rel=1e-6)


def test_units_of_targets_do_not_change_a_flow():
    a, b = table(15, 0), table(12, 1, shift=1.0)
    ends = []
    for unit in (1.0, 1e6):
        sides = [d.replace(targets=unit * d.targets) for d in (a, b)]
        for integrator in (ad.Euler(0.2), ad.Adam(0.1)):
            options = {"dynamics": ad.JointTargets(), "integrator": integrator}
            found = ad.flow(sides[0], ad.OTDD(sides[1]), n_steps=5, **options)
            ends.append(torch.cat([found.dataset.x, found.dataset.targets / unit], 1))
    assert torch.allclose(ends[0], ends[2], atol=1e-6)
    assert torch.allclose(ends[1], ends[3], atol=1e-6)


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
@pytest.mark.parametrize("dynamics", [ad.FeatureDriven(), ad.JointTargets()], ids=repr)
def test_every_integrator_goes_down(integrator, dynamics):
    options = {"dynamics": dynamics, "integrator": integrator, "n_steps": 6}
    result = ad.flow(table(15, 0), ad.OTDD(table(12, 1, 1.0)), **options)
    assert result.values[-1] < result.values[0]


@pytest.mark.slow
@pytest.mark.parametrize("dynamics", [ad.JointTargets(), ad.FeatureDriven()], ids=repr)
def test_a_flow_that_is_resumed_is_the_same_to_the_bit(tmp_path, dynamics):
    a, b = table(15, 0), table(12, 1, 1.0)
    energy = ad.OTDD(b, cost=ad.GroundCost(label=ad.TargetValues()))
    options = {"dynamics": dynamics, "integrator": ad.Adam(0.1)}
    recorder = ad.Recorder(every=3, directory=tmp_path)
    whole = ad.flow(a, energy, n_steps=6, callbacks=[recorder], **options)
    ad.flow(a, energy, n_steps=3, callbacks=[ad.Checkpoint(tmp_path / "c", every=3)], **options)
    again = ad.flow(a, energy, n_steps=6, resume=tmp_path / "c", **options)
    assert torch.equal(whole.dataset.x, again.dataset.x)
    assert torch.equal(whole.dataset.targets, again.dataset.targets)
    assert torch.equal(ad.Trajectory.open(tmp_path)[-1].dataset.targets, whole.dataset.targets)


def test_solvers_blocks_and_parts():
    a, b = table(40, 0), table(30, 1, 1.0)
    solver = ad.Sinkhorn(epsilon=0.5)
    whole, parts = (ad.otdd(a, b, solver=solver, memory_limit=n) for n in (None, 40_000))
    assert parts.value == pytest.approx(whole.value, rel=1e-6)
    energy = ad.OTDD(b, solver=ad.MiniBatch(size=20))
    result = ad.flow(a, energy, dynamics=ad.JointTargets(), n_steps=3)
    assert torch.isfinite(result.dataset.targets).all()


def test_who_cannot_move_targets_says_so():
    a, b = table(8, 0), table(8, 1)
    for dynamics in (ad.JointFixedLabels(), ad.JointVariableLabels()):
        with pytest.raises(ad.InputError, match="needs classes"):
            ad.flow(a, ad.OTDD(b), dynamics=dynamics, n_steps=1)
    plain = ad.LabeledDataset(a.x, [0] * 8)
    with pytest.raises(ad.InputError, match="needs continuous targets"):
        ad.flow(plain, ad.Potential(ad.norm()), dynamics=ad.JointTargets(), n_steps=1)
    with pytest.raises(ad.InputError, match="needs continuous targets"):
        ad.flow(a, ad.OTDD(ad.LabeledDataset(b.x, [0] * 8)), n_steps=1)


def test_the_unit_of_targets_is_that_of_the_features():
    """√(q · variance of the target / variance of the features), where no cost says another."""
    a = table(15, 0)
    expected = (a.targets.var(dim=0, correction=0) / a.x.var(dim=0, correction=0).sum()).sqrt()
    torch.testing.assert_close(ad.JointTargets().start(a).target_unit, expected)
    flat = a.replace(targets=torch.full_like(a.targets, 3.0))
    assert float(ad.JointTargets().start(flat).target_unit) == 1
