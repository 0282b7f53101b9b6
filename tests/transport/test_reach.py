"""Mass that a reach leaves behind: in distances, flows, notes and on the command line."""

import pytest
import torch

import advect as ad


def pair():
    """Two classes on either side; the source has an outlier class."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    x[20:30] += 6
    x[30:] += 500
    y = torch.randn(40, 2, generator=generator, dtype=torch.float64) + 0.5
    y[10:] += 6
    names = ["a"] * 20 + ["b"] * 10 + ["odd"] * 10
    return ad.LabeledDataset(x, names), ad.LabeledDataset(y, ["a"] * 10 + ["b"] * 30)


def test_what_is_left_is_told_by_class():
    source, target = pair()
    blind = ad.GroundCost(label=ad.NoLabels())
    found = ad.otdd(source, target, cost=blind, solver=ad.Sinkhorn(0.2, reach=2.0))
    left = found.left_in_source
    assert found.converged and left["odd", "left"] == pytest.approx(0.25)
    assert left.values[:, 1].sum() == pytest.approx(1 - found.mass_left)
    assert found.left_in_target.values[:, 1].sum() == pytest.approx(1 - found.mass_left)
    assert found.class_coupling.values.sum() == pytest.approx(1 - found.mass_left)
    assert found.notes[0].what.startswith(f"{found.mass_left:.0%} of the mass is not transported")
    near = ad.otdd(source, target, cost=blind, solver=ad.Sinkhorn(0.2, reach=0.01))
    assert near.notes[0].remedy == "Raise reach."
    whole = ad.otdd(source, target, cost=blind)
    assert whole.mass_left == 0 and "not transported" not in str(whole.notes)


def test_class_shares_need_not_be_met():
    source, target = pair()
    source = source.subset(source.y < 2)
    for reach, told in ((None, True), (2.0, False)):
        notes = ad.otdd(source, target, solver=ad.Sinkhorn(reach=reach)).notes
        assert any("Class proportions differ" in note.what for note in notes) == told


@pytest.mark.slow
@pytest.mark.parametrize(
    "dynamics", [ad.FeatureDriven(), ad.JointFixedLabels(), ad.JointVariableLabels()]
)
def test_flows_leave_what_is_out_of_reach(dynamics):
    source, target = pair()
    cost = ad.GroundCost(label_weight=0.1)
    energy = ad.OTDD(target, cost=cost, solver=ad.Sinkhorn(0.3, tol=1e-4, reach=3.0))
    result = ad.flow(source, energy, dynamics=dynamics, n_steps=4)
    assert result.values[-1] < result.values[0] and result.unconverged == 0
    moved = (result.dataset.x - source.x).norm(dim=1)
    assert float(moved[:30].mean()) > 1e-2 and float(moved[30:].mean()) < 3
    assert 0.2 < float(result.state["mass_left"]) < 0.6
    assert any("not transported" in note.what for note in result.notes)
