"""Missing values in every reader, against numpy; images of other proportions and broken ones, against Pillow."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image

import advect as ad
from advect.errors import InputError
from advect.spaces import FeatureSpace

FRAME = pd.DataFrame(
    {
        "age": [60.0, np.nan, 40.0, 20.0],
        "beds": [1, 2, None, 9],
        "smokes": [True, None, False, True],
        "ward": ["a", "b", None, "a"],
        "kind": ["x", "y", "x", "y"],
    }
)
NUMBERS = FRAME[["age", "beds", "smokes"]].astype(float).to_numpy()


def readers(directory):
    frame = FRAME.drop(columns="ward")
    frame.to_csv(directory / "t.csv", index=False)
    frame.to_parquet(directory / "t.parquet", index=False)
    labels = np.array(["x", "y", "x", "y"])
    np.savez(directory / "t.npz", x=NUMBERS, y=labels, columns=["age", "beds", "smokes"])
    np.save(directory / "t.npy", NUMBERS)
    for name in ("t.csv?label=kind", "t.parquet?label=kind", "t.npz", "t.npy"):
        sign = "&" if "?" in name else "?"
        yield lambda missing, name=name, sign=sign: ad.datasets.load(
            f"{directory}/{name}" + (missing and f"{sign}missing={missing}")
        )
    for made in (frame, pl.from_pandas(frame)):
        yield lambda missing, made=made: ad.LabeledDataset.from_frame(
            made, label="kind", missing=missing or None
        )


def test_missing_values_of_every_reader(tmp_path):
    gaps = np.isnan(NUMBERS)
    filled = np.where(gaps, np.nanmedian(NUMBERS, axis=0), NUMBERS)
    for read in readers(tmp_path):
        with pytest.raises(InputError, match="missing='median'"):
            read("")
        with pytest.raises(InputError, match="indicator"):
            read("mean")
        with pytest.warns(UserWarning, match="3 missing cells"):
            assert np.allclose(read("median").x, filled)
        with pytest.warns(UserWarning, match="2 rows"):
            dropped = read("drop")
        assert np.allclose(dropped.x, NUMBERS[[0, 3]])
        assert not dropped.classes or dropped.labels == ["x", "y"]
        with pytest.warns(UserWarning, match="medians"):
            marked = read("indicator")
        assert np.allclose(marked.x, np.hstack([filled, gaps]))


def test_indicators_are_columns_of_both_sides_alike():
    with pytest.warns(UserWarning, match="missing"):
        first, second = (
            ad.LabeledDataset.from_frame(part, "kind", categorical="onehot", missing="indicator")
            for part in (FRAME, FRAME[["age", "beds", "smokes", "ward", "kind"]].iloc[[0, 2, 1, 3]])
        )
    assert first.columns == second.columns and "ward=a missing" in first.columns
    assert ad.harmonize(first, second)[1].columns == first.columns
    with pytest.raises(InputError, match="at least one value"):
        ad.LabeledDataset.from_frame(pd.DataFrame({"a": [np.nan, np.nan]}), missing="median")


@pytest.mark.parametrize("fit", ["pad", "crop", "stretch"])
def test_proportions_of_images(tmp_path, fit):
    """A centred white square in a wide image: pad and crop keep it square."""
    wide = np.zeros((20, 40), np.uint8)
    wide[5:15, 15:25] = 255
    (tmp_path / "a").mkdir()
    Image.fromarray(wide).save(tmp_path / "a" / "1.png")
    read = ad.datasets.load(tmp_path, size=40, fit=fit).samples[0]
    data = ad.LabeledDataset(torch.from_numpy(wide)[None] / 255)
    space = FeatureSpace.fit(data, ad.LabeledDataset(torch.zeros(1, 40, 40)), fit=fit)
    for image in (read, space.apply(data).samples[0]):
        bright = image > 0.5
        sides = bright.any(dim=1).sum().item(), bright.any(dim=0).sum().item()
        assert sides == {"pad": (10, 10), "crop": (20, 20), "stretch": (20, 10)}[fit]
    back = space.invert(space.apply(data)).samples[0]
    torch.testing.assert_close(back[:, 12:28], data.samples[0, :, 12:28], atol=1e-5, rtol=0)
    assert FeatureSpace.from_dict(space.to_dict()).describe() == space.describe()
    with pytest.raises(InputError, match="stretch"):
        FeatureSpace.fit(data, data, fit="squash")


def test_corrupt_images_are_counted_and_skipped(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for row in range(3):
            Image.new("L", (4, 4), 80 * row).save(tmp_path / name / f"{row}.png")
    broken = tmp_path / "a" / "0.png"
    broken.write_bytes(broken.read_bytes()[:30])
    with pytest.raises(InputError, match="on_error"):
        ad.datasets.load(str(tmp_path))
    with pytest.warns(UserWarning, match="1 images"):
        data = ad.datasets.load(f"folder:{tmp_path}?on_error=skip")
    assert data.counts == {"a": 2, "b": 3} and data.x[0, 0] == pytest.approx(80 / 255)
