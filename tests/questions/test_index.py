"""An index of datasets: what is near, what is stored, and what a killed process leaves."""

import os

import numpy as np
import pytest
import torch

import advect as ad
from advect.errors import InputError


def blobs(shift, n=40, seed=0, labels=("a", "b", "c")):
    generator = torch.Generator().manual_seed(seed)
    data = ad.datasets.gaussians(n, shift=(float(shift), 0.0), generator=generator)
    return ad.LabeledDataset(data.x, [labels[code] for code in data.y.tolist()])


@pytest.fixture
def index():
    made = ad.DatasetIndex(blobs(0), keep=30)
    for shift in (0, 1, 5, 20):
        made.add(f"at/{shift}", blobs(shift))
    return made


def test_nearest_by_embeddings_and_by_otdd(index):
    for rerank in (0, 10):
        found = index.nearest(blobs(2, seed=1), k=3, rerank=rerank)
        assert found.names == ("at/1", "at/0", "at/5")
        assert (found.rows[0].otdd is None) == (rerank == 0)
    assert index.nearest("at/0", k=9).names == ("at/1", "at/5", "at/20")


def test_exact_distances_are_those_of_otdd(index):
    query = blobs(2, n=25, seed=1)
    for row in index.nearest(query, k=4).rows:
        kept = blobs(float(row.name[3:])).sample(30, generator=torch.Generator().manual_seed(0))
        assert row.otdd == pytest.approx(ad.otdd(query, kept, solver=ad.ExactOT()).value)


def test_vectors_are_those_of_embed(index):
    vectors = index.vectors()
    assert index.names == ("at/0", "at/1", "at/5", "at/20") and len(index) == 4
    assert np.allclose(vectors[0], ad.embed(blobs(0)).vector)


def test_images_of_other_sizes_and_channels():
    digits = ad.datasets.load("digits", n=100)
    index = ad.DatasetIndex(ad.FeatureSpace.fit(digits, digits, size=6))
    index.add("digits", digits)
    large = ad.FeatureSpace.fit(digits, digits, size=16, channels="rgb").apply(digits)
    assert large.sample_shape == (16, 16, 3)
    planes = ad.LabeledDataset(large.samples.permute(0, 3, 1, 2), large.labels)
    # enlarged, then made small again: blurred a little
    dark = digits.replace(x=digits.x * 0.5)
    one, two, other = (index.nearest(data, k=1).rows[0].sliced for data in (large, planes, dark))
    assert one == pytest.approx(two, rel=1e-4)
    assert one < 0.5 * other


@pytest.mark.parametrize("label_weight", [1.0, 0.0])
def test_a_saved_index_gives_the_same_answers(label_weight, tmp_path):
    index = ad.DatasetIndex(blobs(0), keep=30, label_weight=label_weight, seed=3)
    index.add("../../a", blobs(0))
    index.add("ü/ö", blobs(5, labels=("x", ("y", 1), 3)))
    path = index.save(tmp_path / "new" / "sets.index")
    assert os.listdir(tmp_path) == ["new"] and os.listdir(tmp_path / "new") == ["sets.index"]
    other, query = ad.DatasetIndex.load(path), blobs(2, seed=1)
    assert other.nearest(query).to_dict() == index.nearest(query).to_dict()
    assert other.nearest("ü/ö").to_dict() == index.nearest("ü/ö").to_dict()
    assert (other.names, other.keep) == (index.names, 30)
    other.remove("ü/ö")
    assert ad.DatasetIndex.load(other.save(path)).names == ("../../a",)


def test_bad_names_and_data_are_refused(index):
    with pytest.raises(InputError, match="of this name"):
        index.add("at/0", blobs(9))
    index.add("at/0", blobs(9), overwrite=True)
    assert index.nearest(blobs(9), k=1).names == ("at/0",)
    for bad in ("", "  ", "two\nlines"):
        with pytest.raises(InputError, match="one line"):
            index.add(bad, blobs(0))
    for bad, message in (
        (ad.LabeledDataset(torch.zeros(3, 5), ["a", "b", "c"]), "shape"),
        (ad.LabeledDataset(torch.zeros(3, 2), ["a", None, "c"]), "label for each"),
        (np.zeros((3, 2)), "LabeledDataset"),
    ):
        for call in (lambda bad=bad: index.add("bad", bad), lambda bad=bad: index.nearest(bad)):
            with pytest.raises(InputError, match=message):
                call()
    assert "bad" not in index.names
    for call in (index.nearest, index.remove):
        with pytest.raises(InputError, match="unknown dataset"):
            call("nobody")
    with pytest.raises(InputError, match="no other datasets"):
        ad.DatasetIndex(blobs(0)).nearest(blobs(0))


def test_damaged_and_other_files_are_refused(index, tmp_path):
    path = index.save(tmp_path / "sets.index")
    content = path.read_bytes()
    flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    for damaged in (content[: len(content) // 2], flipped, b"[]", b""):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            ad.DatasetIndex.load(path)
    for other in (path, tmp_path):
        with pytest.raises(InputError, match="something else"):
            index.save(other)
    with pytest.raises(InputError, match="no such file"):
        ad.DatasetIndex.load(tmp_path)
