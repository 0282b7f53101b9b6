"""An index on disk: what is near, what is kept, and what a killed process leaves."""

import os
import signal
import time
import warnings

import numpy as np
import pytest
import torch

import advect as ad
from advect._util import atomic
from advect._util.atomic import is_leftover
from advect.errors import DamageWarning, InputError


def blobs(shift, n=40, seed=0, labels=("a", "b", "c")):
    data = ad.datasets.gaussians(
        n, shift=(float(shift), 0.0), generator=torch.Generator().manual_seed(seed)
    )
    return ad.LabeledDataset(data.x, [labels[code] for code in data.y.tolist()])


@pytest.fixture
def index(tmp_path):
    made = ad.DatasetIndex.create(tmp_path / "index", blobs(0), keep=30)
    for shift in (0, 1, 5, 20):
        made.add(f"at/{shift}", blobs(shift))
    return made


class TestFinding:
    def test_nearest_by_embeddings_and_by_otdd(self, index):
        for rerank in (0, 10):
            found = index.nearest(blobs(2, seed=1), k=3, rerank=rerank)
            assert found.names == ("at/1", "at/0", "at/5")
            assert (found[0].otdd is None) == (rerank == 0)
            assert all(row.low <= row.sliced <= row.high for row in found)

    def test_exact_distances_are_those_of_otdd(self, index):
        query = blobs(2, n=25, seed=1)
        found = index.nearest(query, k=4)
        for row in found:
            kept = blobs(float(row.name[3:])).sample(30, generator=torch.Generator().manual_seed(0))
            assert row.otdd == pytest.approx(ad.otdd(query, kept, solver=ad.ExactOT()).value)

    def test_embeddings_are_those_of_embed(self, index):
        vectors, names = index.vectors()
        assert names == index.names == ("at/0", "at/1", "at/20", "at/5")
        assert np.allclose(vectors[0], ad.embed(blobs(0)).vector)
        expected = [[np.linalg.norm(one - other) for other in vectors] for one in vectors]
        assert np.allclose(index.distances(), expected)

    def test_by_name_without_itself(self, index):
        assert index.nearest("at/0", k=9).names == ("at/1", "at/5", "at/20")

    def test_other_classes_and_numbers_of_them(self, index):
        two = blobs(5).subset(blobs(5).y < 2)
        index.add("two", ad.LabeledDataset(two.x, ["x" if y else "z" for y in two.y.tolist()]))
        assert set(index.nearest(two, k=2).names) == {"two", "at/5"}

    def test_images_of_other_sizes_and_channels(self, tmp_path):
        digits = ad.datasets.load("digits", n=100)
        space = ad.FeatureSpace.fit(digits, digits, size=6)
        index = ad.DatasetIndex.create(tmp_path / "index", space).add("digits", digits)
        large = ad.FeatureSpace.fit(digits, digits, size=16, channels="rgb").apply(digits)
        assert large.sample_shape == (16, 16, 3)
        planes = ad.LabeledDataset(large.samples.permute(0, 3, 1, 2), large.labels)
        # enlarged, then made small again: blurred a little
        one, two = (index.nearest(data, k=1)[0].sliced for data in (large, planes))
        dark = index.nearest(digits.replace(x=digits.x * 0.5), k=1)[0].sliced
        assert one == pytest.approx(two, rel=1e-4)
        assert one < 0.5 * dark

    def test_looking_at_it(self, index):
        assert "at/20" in str(index) and index.to_dict()["datasets"][0]["name"] == "at/0"
        found = index.add("<b>", blobs(0)).nearest(blobs(0), k=1)
        assert "&lt;b&gt;" in found._repr_html_()
        page = index.report(index.path.parent / "page.html").read_text(encoding="utf-8")
        assert "&lt;b&gt;" in page and "<b>" not in page
        assert "at/0" in index and "nobody" not in index and len(index) == 5


class TestOnDisk:
    def test_add_and_remove_touch_no_other_file(self, index):
        def content():
            return {path.name: path.read_bytes() for path in (index.path / "sets").iterdir()}

        before = content()
        index.add("new", blobs(3))
        assert {name: content()[name] for name in before} == before
        index.remove("new")
        assert content() == before

    def test_a_name_is_taken_once(self, index):
        with pytest.raises(InputError, match="of this name"):
            index.add("at/0", blobs(9))
        index.add("at/0", blobs(9), overwrite=True)
        assert index.nearest(blobs(9), k=1).names == ("at/0",)
        with pytest.raises(InputError, match="unknown dataset"):
            index.remove("at/99")
        for bad in ("", "  ", "two\nlines"):
            with pytest.raises(InputError, match="one line"):
                index.add(bad, blobs(0))

    @pytest.mark.parametrize(
        "name", ["../../evil", "/etc/passwd", "ü/ö", "a" * 300, ".", "CON", "A", "a"]
    )
    def test_any_name_is_a_file_inside(self, index, name):
        index.add(name, blobs(3))
        assert name in index.names
        assert len(list((index.path / "sets").iterdir())) == 5
        assert sorted(os.listdir(index.path)) == ["index.safetensors", "sets"]
        index.remove(name)

    def test_another_process_sees_what_was_added(self, index):
        other = ad.DatasetIndex(index.path)
        assert len(other) == 4
        index.add("new", blobs(3))
        assert "new" in other.names
        index.add("new", blobs(4), overwrite=True)
        assert other.nearest(blobs(4), k=1)[0].sliced < 1e-9
        index.remove("new")
        assert "new" not in other.names

    def test_damage_is_said_and_left_out(self, index):
        files = sorted((index.path / "sets").iterdir())
        whole = files[0].read_bytes()
        files[0].write_bytes(whole[: len(whole) // 2])
        with pytest.warns(DamageWarning, match="left out"):
            assert len(index.names) == 3

    def test_what_is_no_index(self, tmp_path):
        with pytest.raises(InputError, match="no index"):
            ad.DatasetIndex(tmp_path)
        (tmp_path / "index.safetensors").write_text("[]")
        with pytest.raises(InputError, match="damaged"):
            ad.DatasetIndex(tmp_path)
        (tmp_path / "index.json").write_text("{}")
        with pytest.raises(InputError, match="0.2"):
            ad.DatasetIndex(tmp_path)
        with pytest.raises(InputError, match="not empty"):
            ad.DatasetIndex.create(tmp_path, blobs(0))
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="directory"):
            ad.DatasetIndex.create(tmp_path / "file", blobs(0))

    def test_what_does_not_fit(self, index):
        before = sorted(os.listdir(index.path / "sets"))
        for bad, message in (
            (ad.LabeledDataset(torch.zeros(3, 5), ["a", "b", "c"]), "shape"),
            (ad.LabeledDataset(torch.zeros(3, 2), ["a", None, "c"]), "label for each"),
            (np.zeros((3, 2)), "LabeledDataset"),
        ):
            with pytest.raises(InputError, match=message):
                index.add("bad", bad)
            with pytest.raises(InputError, match=message):
                index.nearest(bad)
        assert sorted(os.listdir(index.path / "sets")) == before
        with pytest.raises(InputError, match="unknown dataset"):
            index.nearest("nobody")
        with pytest.raises(InputError, match="no other datasets"):
            ad.DatasetIndex.create(index.path.parent / "empty", blobs(0)).nearest(blobs(0))


def adding(path, kind, report):
    """Add datasets one after the other, and say so after each."""
    index, data = ad.DatasetIndex(path), blobs(3, n=60)
    os.write(report, b"ready\n")
    for turn in range(10_000):
        index.add("replaced", data, overwrite=True)
        index.add(f"{kind}/{turn}", data)
        os.write(report, f"{turn}\n".encode())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_kill_9_while_adding_loses_nothing(index):
    """Killed at random moments, some of them within a write: what was said to be added is there and
    whole, what was there before is unchanged, and nothing is half there."""
    before = {path.name: path.read_bytes() for path in (index.path / "sets").iterdir()}
    index.add("replaced", blobs(7))
    sure = left = 0
    draws = np.random.default_rng(0)
    for attempt in range(20):
        heard, report = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                adding(index.path, attempt, report)
            finally:
                os._exit(1)
        os.close(report)
        with os.fdopen(heard) as lines:
            assert lines.readline() == "ready\n"
            time.sleep(draws.uniform(0, 0.15))
            os.kill(child, signal.SIGKILL)
            said = lines.read().split()
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of damage
            entries = {entry.name: entry for entry in ad.DatasetIndex(index.path).entries()}
        for name in ("replaced", *(f"{attempt}/{turn}" for turn in said)):
            sample = entries[name].sample()
            assert sample is not None and len(sample) == 30
        sure += len(said)
        left += any(is_leftover(name) for name in os.listdir(index.path / "sets"))
        assert {name: (index.path / "sets" / name).read_bytes() for name in before} == before
    assert sure > 0 and left > 0, "some were killed between writes, and some within one"
    # a process that writes next clears what the killed ones left
    atomic._tidied.clear()
    ad.DatasetIndex(index.path).add("last", blobs(0))
    assert all(name.endswith(".safetensors") for name in os.listdir(index.path / "sets"))
