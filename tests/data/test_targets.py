"""Continuous targets in datasets, files, frames and torch's datasets."""

import pytest
import torch

import advect as ad

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
Y = 1e6 + torch.rand(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def house(**more):
    names = {"columns": ["rooms", "floor"], "target_columns": ["price"]}
    return ad.LabeledDataset(X, targets=Y, **names, **more)


def test_a_dataset_with_targets_has_one_class():
    data = house()
    assert data.classes == ("all",) and bool(data.labeled.all())
    assert data.targets.dtype == torch.float64 and data.targets.shape == (6, 1)
    assert "targets=1" in repr(data) and "price" in data._repr_html_()
    both = ad.LabeledDataset(X, list("aabbab"), targets=torch.rand(6, 2))
    assert both.classes == ("a", "b") and both.targets.shape == (6, 2)


def test_targets_go_with_their_samples():
    data = house(weights=[1, 2, 3, 4, 5, 6])
    assert torch.equal(data.subset([4, 1]).targets, data.targets[[4, 1]])
    assert torch.equal(data.without([0]).targets, data.targets[1:])
    one, other = data.split(0.5, generator=torch.Generator().manual_seed(0))
    assert sorted([*one.targets.flatten(), *other.targets.flatten()]) == sorted(Y)
    assert torch.equal(data.to(dtype=torch.float64).targets, data.targets)
    assert torch.equal(data.replace(x=data.x + 1).targets, data.targets)
    assert data.replace(x=data.x[:2], y=data.y[:2], weights=data.weights[:2]).targets is None


BAD = [
    [1.0, float("nan"), 3, 4, 5, 6], list("abcdef"), [1.0, 2.0], torch.zeros(6, 0),
    torch.zeros(6) > 1, torch.zeros(6, dtype=torch.complex64), torch.zeros(6, 2, 2),
]  # fmt: skip


def test_bad_targets():
    for targets in BAD:
        with pytest.raises(ad.InputError, match="targets"):
            ad.LabeledDataset(X, targets=targets)
    for names in (["a", "b"], [3]):
        with pytest.raises(ad.InputError, match="target_columns"):
            ad.LabeledDataset(X, targets=Y, target_columns=names)


@pytest.mark.parametrize("suffix", ["npz", "csv", "tsv.gz", "parquet"])
@pytest.mark.parametrize("labels", [None, list("aabbab")], ids=("bare", "labeled"))
@pytest.mark.parametrize("shape", [(2,), (1, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_files_give_back_what_they_got(tmp_path, suffix, labels, shape, dtype):
    y = torch.stack([Y, -Y], 1)
    columns = {"columns": ["u", "v"], "target_columns": ["price", "rent"]}
    options = {"targets": y, **(columns if len(shape) == 1 else {})}
    data = ad.LabeledDataset(X.to(dtype).reshape(6, *shape) / 3, labels, **options)
    path = data.save(tmp_path / f"data.{suffix}")
    is_table = suffix != "npz"
    options = {"target": list(data.target_columns or ("target", "target1"))} if is_table else {}
    options |= {"dtype": "float64"} if is_table and dtype == torch.float64 else {}
    back = ad.datasets.load(path, **options)
    assert torch.equal(back.x, data.x) and torch.equal(back.targets, data.targets)
    assert (back.labels, back.sample_shape) == (data.labels, data.sample_shape)
    assert (back.columns, back.x.dtype) == (data.columns, data.x.dtype)
    few = ad.datasets.load(path, n=3, seed=2, **options)
    whole = data.sample(3, generator=torch.Generator().manual_seed(2))
    assert torch.equal(few.targets, whole.targets) and torch.equal(few.x, whole.x)


def test_references_name_targets(tmp_path):
    path = tmp_path / "homes.csv"
    path.write_text("rooms,label,price\n1,0.5,1.25\n2,1.5,2\n3,2.5,3\n")
    one = ad.datasets.load(f"csv:{path}?target=price")
    assert one.columns == ("rooms",) and one.targets.flatten().tolist() == [1.25, 2, 3]
    two = ad.datasets.load(f"{path}?target=label,price")
    assert two.target_columns == ("label", "price") and two.x.dtype == torch.float32
    with pytest.raises(ad.InputError, match="unknown target column"):
        ad.datasets.load(path, target="prise")
    with pytest.raises(ad.InputError, match="a column of features"):
        ad.datasets.load(path, target=["rooms", "label", "price"])
    with pytest.raises(ad.InputError, match="option of the dataset"):
        ad.datasets.load("digits", target="price")


def test_frames_and_torch():
    data = house()
    frame = data.to_pandas()
    assert list(frame.columns) == ["rooms", "floor", "price"]
    back = ad.LabeledDataset.from_frame(frame, target="price")
    assert torch.equal(back.targets, data.targets) and back.columns == data.columns
    x, y = data.numpy()
    assert x.shape == (6, 2) and y.tolist() == Y.tolist()
    pairs = data.to_torch()
    found = ad.LabeledDataset.from_torch(pairs, targets=True).targets
    assert torch.equal(found, Y.float().double()[:, None])
    loader = torch.utils.data.DataLoader(pairs, batch_size=4)
    assert len(ad.LabeledDataset.from_torch(loader, targets=True).targets) == 6
    wide = torch.utils.data.TensorDataset(X, torch.rand(6, 3))
    assert ad.LabeledDataset.from_torch(wide, targets=True).targets.shape == (6, 3)
    with pytest.raises(ad.InputError, match="must be"):
        ad.LabeledDataset.from_torch([(X[0], "a")], targets=True)
