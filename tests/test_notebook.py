"""Objects as a notebook shows them, and names that are looked for in the wrong room."""

from __future__ import annotations

import pytest
import torch

import advect as ad

SOURCE = ad.datasets.gaussians(24, generator=torch.Generator().manual_seed(0))
TARGET = ad.datasets.gaussians(24, shift=(4.0, 0.0), generator=torch.Generator().manual_seed(1))
EVIL = "<b>evil</b>"

OBJECTS = {
    "OTDD(target=LabeledDataset(n=24": ad.OTDD(TARGET),
    "SlicedOTDD(target=": ad.SlicedOTDD(TARGET),
    "0.5 * Internal()": 0.5 * ad.Internal(),
    "OTDD(": ad.OTDD(TARGET) + ad.Internal(),
    "StopWhen(tol=0.001)": ad.StopWhen(tol=1e-3),
    "Recorder(every=5)": ad.Recorder(every=5),
    "Progress(n_steps=10)": ad.Progress(10),
    "Metric(name='speed'": ad.Metric("speed", lambda rho: 0.0),
    "Sinkhorn(epsilon=0.5": ad.Sinkhorn(epsilon=0.5),
    "GroundCost(feature=SquaredEuclidean()": ad.GroundCost(),
}


@pytest.mark.parametrize("text", OBJECTS)
def test_objects_say_what_makes_them(text):
    assert repr(OBJECTS[text]).startswith(text)
    assert " object at 0x" not in repr(OBJECTS[text])


def test_a_flow_without_a_recorder_has_its_ends():
    result = ad.flow(SOURCE, ad.OTDD(TARGET), n_steps=3)
    assert result.trajectory.indices == [0, 3]
    for frame, data in zip(result.trajectory, (SOURCE, result.dataset), strict=True):
        assert torch.equal(frame.dataset.x, data.x) and frame.value in result.values
    assert ad.flow(SOURCE, ad.OTDD(TARGET), n_steps=0).trajectory.indices == [0]


def test_tables_of_results_escape_names():
    pairs = ad.pairwise({EVIL: SOURCE, "b": TARGET}, progress=False)
    matching = ad.ClassMatching.between(SOURCE.replace(classes=(EVIL, "b", "c")), TARGET)
    few = TARGET.sample(6, balanced=True, generator=torch.Generator().manual_seed(0))
    transferred = ad.apps.transfer(SOURCE, few)
    for shown in (pairs, matching.coupling, transferred):
        text = shown._repr_html_()
        assert "<table>" in text and EVIL not in text


def test_a_name_of_a_room_says_which():
    for name, room in (("repurpose", "apps"), ("EntropicMap", "maps")):
        with pytest.raises(AttributeError, match=f"it is advect.{room}.{name}"):
            getattr(ad, name)
    with pytest.raises(AttributeError, match="dir"):
        _ = ad.nothing_of_this_name
    assert not hasattr(ad, "__wrapped__")
