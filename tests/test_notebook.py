"""Objects as a notebook shows them, and names that are looked for in the wrong room."""

import json
import re

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


NAMED = SOURCE.replace(classes=(EVIL, "b", "c"))
HALF = NAMED.replace(y=torch.where(torch.arange(24) < 12, NAMED.y, -1))
FLOW = {"n_steps": 2, "progress": False}


def index():
    made = ad.DatasetIndex(SOURCE)
    made.add(EVIL, SOURCE)
    return made


RESULTS = {  # what the text says, and the call
    "failed pairs|datasets +2": lambda: ad.pairwise({EVIL: SOURCE, "b": TARGET}, progress=False),
    "few samples +24": lambda: ad.apps.transfer(TARGET, NAMED, methods="borrowed", **FLOW),
    "samples +24": lambda: ad.apps.repurpose(
        lambda x: x[:, :1] @ x[:1, :1].expand(1, 3), SOURCE, NAMED, **FLOW
    ),
    "known labels +12": lambda: ad.apps.label(HALF, progress=False),
    "suspected label errors": lambda: ad.audit(NAMED, TARGET, progress=False),
    "beyond the floor": lambda: ad.compare(NAMED, NAMED, repeats=2, progress=False),
    "drifted +no": lambda: ad.drift(NAMED, NAMED, progress=False),
    "samples of a +24": lambda: ad.interpolate(NAMED, TARGET, 0.5),
    "datasets +1": index,
    "nearest +": lambda: index().nearest(TARGET, rerank=0),
    "": lambda: ad.ClassMatching.between(NAMED, TARGET).coupling,
}


@pytest.mark.parametrize("text", RESULTS)
def test_results_as_text_html_page_and_json_escape_names(text, tmp_path):
    shown = RESULTS[text]()
    assert re.search(text, str(shown)) and EVIL not in shown._repr_html_()
    if text:
        json.dumps(shown.to_dict(), allow_nan=False)
        page = shown.report(tmp_path / "page.html").read_text(encoding="utf-8")
        assert EVIL not in page and "&lt;b&gt;evil" in page + shown._repr_html_()


def test_a_name_of_a_room_says_which():
    for name, room in (("repurpose", "apps"), ("EntropicMap", "maps")):
        with pytest.raises(AttributeError, match=f"it is advect.{room}.{name}"):
            getattr(ad, name)
    with pytest.raises(AttributeError, match="dir"):
        _ = ad.nothing_of_this_name
    assert not hasattr(ad, "__wrapped__")
