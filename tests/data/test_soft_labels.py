"""Datasets whose labels are probabilities: made, cut, stored, read and written."""

import pytest
import torch
from flow_cases import memberships

import advect as ad
from advect.data.laws import Full

P = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5], [1.0, 0.0, 0.0]]
P = torch.tensor(P, dtype=torch.float64)
X = torch.arange(8.0).reshape(4, 2)
LAWS = ad.Gaussians(torch.zeros(4, 2), Full(torch.eye(2).repeat(4, 1, 1)))
NAMES = {"classes": ["cat", "dog", "fox"], "columns": ["kilos", "age"]}
DATA = ad.LabeledDataset(X, weights=[1, 2, 3, 4], probabilities=P, **NAMES)


def test_probabilities_are_checked():
    assert DATA.labels == ["cat", "dog", "fox", "cat"]
    assert DATA.class_mass.tolist() == pytest.approx([0.545, 0.295, 0.16])
    assert DATA.hard().class_mass.tolist() == pytest.approx([0.5, 0.2, 0.3])
    nearly = ad.LabeledDataset(X, probabilities=(P * 1.0001).to(torch.float32))
    assert torch.allclose(nearly.probabilities.sum(1), torch.ones(4).double(), atol=1e-15)
    own = ad.LabeledDataset(X, ["dog", "dog", "fox", "cat"], probabilities=P)
    assert own.labels == ["dog", "dog", "fox", "cat"]
    given = P.clone()
    kept = ad.LabeledDataset(X, probabilities=given)
    given[0] = 0
    assert kept.probabilities[0, 0] == 0.7  # a copy


@pytest.mark.parametrize(
    ("given", "options", "message"), [(P * 1.1, {}, "sum to one"), (P - 0.1, {}, "negative"), (P[:3], {}, "shape"),
    (P, {"classes": ["a", "b"]}, "shape"), (P[:, 0], {}, "shape"), (P * torch.nan, {}, "finite"),
    ("often", {}, "must be numbers"), (P, {"y": ["a", "b", "a", "b"]}, "a class for each of 3 columns"),
    (P, {"y": [0, None, 1, 2]}, "1 missing"), (P, {"law": LAWS, "law_index": range(4)}, "law for each class")],
)  # fmt: skip
def test_bad_probabilities(given, options, message):
    with pytest.raises(ad.InputError, match=message):
        ad.LabeledDataset(X, probabilities=given, **options)


def test_parts_keep_their_rows_and_new_labels_are_certain():
    assert torch.equal(DATA.subset([3, 0]).probabilities, P[[3, 0]])
    assert torch.equal(DATA.without([1]).probabilities, P[[0, 2, 3]])
    assert DATA.replace(y=DATA.y).probabilities is None
    assert DATA.replace(x=DATA.x + 1, classes=("u", "v", "w")).has_soft_labels
    assert DATA.to(dtype=torch.float64).has_soft_labels
    assert DATA.balanced().class_mass.tolist() == pytest.approx([1 / 3] * 3, abs=1e-9)
    hard = DATA.hard()
    certain = hard.replace(probabilities=memberships(hard))
    assert torch.allclose(certain.balanced().weights, hard.balanced().weights)
    for side in ad.harmonize(DATA, DATA.hard(), scale="pooled"):
        assert side.labels == DATA.labels
    assert ad.harmonize(DATA, DATA.hard())[0].has_soft_labels


def test_balanced_weights_where_probabilities_leave_no_way():
    """All samples alike: no weights give classes one mass."""
    data = ad.LabeledDataset([[0.0], [1.0]], probabilities=[[0.8, 0.2], [0.8, 0.2]])
    assert data.balanced().weights.tolist() == [0.5, 0.5]


def test_states_on_disk(tmp_path):
    callbacks = [ad.Checkpoint(tmp_path), ad.Recorder(directory=tmp_path)]
    ad.flow(DATA, ad.Potential(ad.norm()), n_steps=1, callbacks=callbacks)
    frame = ad.Trajectory.open(tmp_path)[-1].dataset
    assert torch.equal(frame.probabilities, P) and frame.labels == DATA.labels
    resumed = ad.flow(DATA, ad.Potential(ad.norm()), n_steps=2, resume=tmp_path)
    assert torch.equal(resumed.dataset.probabilities, P)


@pytest.mark.parametrize("suffix", ["npz", "csv", "tsv.gz", "parquet"])
@pytest.mark.parametrize("names", [["cat", "dog", "fox"], [3, 1, 2]], ids=["text", "numbers"])
def test_files_keep_them(tmp_path, suffix, names):
    data = DATA.replace(classes=tuple(names))
    path = data.save(tmp_path / f"pets.{suffix}")
    back = ad.datasets.load(path)
    assert back.classes == tuple(names) and back.labels == data.labels
    assert torch.equal(back.probabilities, P) and back.columns == DATA.columns
    assert torch.allclose(back.weights, DATA.weights, rtol=1e-15)
    drawn = ad.datasets.load(path, n=3, seed=1)
    rows = [data.x.tolist().index(row) for row in drawn.x.tolist()]
    assert torch.equal(drawn.probabilities, P[rows])
    plain = ad.datasets.load(f"{path}?probabilities=false")
    assert not plain.has_soft_labels and plain.columns == DATA.columns
    assert plain.labels == data.labels


def test_tables_of_others(tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text("kilos,p_cat,p_dog,kind\n4,0.75,0.25,cat\n20,0.1,0.9,dog\n")
    by_prefix = ad.datasets.load(f"{path}?probabilities=p_&label=kind")
    assert by_prefix.classes == ("cat", "dog") and by_prefix.columns == ("kilos",)
    assert by_prefix.probabilities.tolist() == [[0.75, 0.25], [0.1, 0.9]]
    named = ad.datasets.load(f"{path}?probabilities=p_dog,p_cat&columns=kilos")
    assert named.labels == ["p_cat", "p_dog"] and named.classes == ("p_dog", "p_cat")
    for asked in ("q_", "p_cat", "p_cat,p_cat", "p_cat,7"):
        with pytest.raises(ad.InputError):
            ad.datasets.load(f"{path}?probabilities={asked}&label=kind")
    for row, word in (("4,0.75,often", "often"), ("4,0.75,0.25,cow", "cow")):
        path.write_text(f"kilos,p_cat,p_dog{',label' * (word == 'cow')}\n{row}\n")
        with pytest.raises(ad.InputError, match=word):
            ad.datasets.load(f"{path}?probabilities=p_")


def test_where_there_is_no_place_for_them(tmp_path):
    odd = DATA.replace(classes=(("a", 1), "b", "c"))
    with pytest.raises(ad.InputError, match="class names"):
        odd.save(tmp_path / "odd.csv")
    assert ad.datasets.load(odd.save(tmp_path / "odd.npz")).classes == odd.classes


def test_frames_and_torch_datasets():
    frame = DATA.to_pandas(weights="mass")
    assert list(frame.columns)[-3:] == ["probability[cat]", "probability[dog]", "probability[fox]"]
    back = ad.LabeledDataset.from_frame(frame, label="label", weights="mass")
    assert torch.equal(back.probabilities, P) and back.columns == DATA.columns
    plain = ad.LabeledDataset.from_frame(frame, "label", weights="mass", probabilities=False)
    assert not plain.has_soft_labels and plain.columns == DATA.columns
    bare = ad.LabeledDataset.from_frame(frame.drop(columns=["label", "mass"]), label=None)
    assert bare.labels == DATA.labels
    pairs = DATA.to_torch()
    assert pairs[0][1].tolist() == pytest.approx([0.7, 0.2, 0.1])
    loader = torch.utils.data.DataLoader(pairs, batch_size=3)
    for given in (pairs, loader, torch.utils.data.Subset(pairs, range(4))):
        assert ad.LabeledDataset.from_torch(given).labels == DATA.labels
    rows = [pairs[row] for row in range(4)]
    with pytest.raises(ad.InputError, match="probabilities=True"):
        ad.LabeledDataset.from_torch(rows, classes=DATA.classes)
    back = ad.LabeledDataset.from_torch(rows, classes=DATA.classes, probabilities=True)
    assert torch.allclose(back.probabilities, P, atol=1e-7)
