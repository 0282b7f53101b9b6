"""Tables of other libraries go in and come back with units, categories and index; arrays through DLPack."""

import numpy as np
import pandas as pd
import pytest
import torch

import advect as ad

N = 12
FRAME = pd.DataFrame(
    {"height": np.linspace(150, 190, N).astype("f4"), "age": np.arange(N), "smokes": np.arange(N) % 2 == 0}
    | {"coat": pd.Categorical(["x", "y", "x"] * 4, categories=["y", "x", "z"])}
    | {"kind": pd.Categorical(["lo", "hi"] * 6, categories=["lo", "mid", "hi"])},
    index=pd.Index([f"r{k}" for k in range(N)], name="patient"),
)  # fmt: skip
READ = {"label": "kind", "categorical": "onehot"}


@pytest.mark.parametrize("library", ["pandas", "arrow", "polars", "huggingface"])
def test_tables_and_back(library):
    if library == "huggingface":
        pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    table = getattr(ad.LabeledDataset.from_frame(FRAME, **READ), f"to_{library}")()
    data = ad.LabeledDataset.from_frame(table, **READ)
    space = ad.FeatureSpace.fit(data, data.replace(x=2 * data.x), scale="pooled")
    back = space.invert(ad.flow(space.apply(data), ad.Potential(ad.norm()), n_steps=0).dataset)
    frame = back.subset(range(N - 1, -1, -1)).to_pandas().iloc[::-1]
    options = {"check_categorical": False, "check_dtype": False, "check_names": False}
    pd.testing.assert_frame_equal(frame, FRAME, **options, rtol=1e-6)
    for name in ("coat", "kind"):
        assert list(frame[name].cat.categories) == list(FRAME[name].cat.categories)
    assert frame.age.dtype == np.int64 and frame.smokes.dtype == bool


def test_anndata_and_back():
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    from scipy.sparse import random

    x = random(N, 2, 0.5, format="csr", dtype="f4", rng=0)
    var = pd.DataFrame(index=["g1", "g2"])
    cells = anndata.AnnData(X=x, obs=FRAME[["kind", "height", "age"]], var=var)
    read = {"label": "kind", "target": "height", "weights": "age"}
    back = ad.LabeledDataset.from_frame(cells, **read).to_anndata(weights="age")
    assert np.array_equal(back.X, x.toarray()) and back.X.dtype == np.float32
    assert back.var_names.equals(cells.var_names) and back.obs_names.equals(cells.obs_names)
    assert list(back.obs.kind.cat.categories) == ["lo", "mid", "hi"]
    assert list(back.obs.kind) == list(FRAME.kind) and (back.obs.height == FRAME.height).all()
    cells.var_names = ["kind", "b"]
    for label, word in (("knd", "Did you mean 'kind'"), ("b", "of obs"), ("kind", "Rename")):
        with pytest.raises(ad.InputError, match=word):
            ad.LabeledDataset.from_frame(cells, label=label)


def test_the_index_follows_the_samples():
    data = ad.LabeledDataset(np.eye(3), [("a", 1), "b", 2], index=["u", "v", "w"])
    assert list(data.subset([2, 0]).index) == ["w", "u"]
    assert data.replace(x=torch.eye(2), y=[0, 0], weights=None).index is None
    for bad in (lambda: data.replace(index=["a"]), lambda: data.replace(index=3), data.to_arrow):
        with pytest.raises(ad.InputError, match="index|one type"):
            bad()


def foreign(tensor):
    """An array that has DLPack and nothing else."""
    methods = {"__dlpack__": lambda self, **options: tensor.__dlpack__(**options)}
    return type(
        "Array", (), methods | {"__dlpack_device__": lambda self: tensor.__dlpack_device__()}
    )()


def test_arrays_of_other_libraries():
    x, y = torch.arange(4.0).reshape(2, 2), torch.tensor([0, 1])
    data = ad.LabeledDataset(foreign(x), foreign(y), weights=foreign(torch.ones(2)))
    x += 9
    assert data.x.tolist() == [[0, 1], [2, 3]] and data.labels == [0, 1]
    with pytest.raises(ad.InputError, match="features"):
        ad.LabeledDataset(foreign(x.requires_grad_()))  # cannot be exported
