"""What every map promises: rows in, rows out, one by one, and a file that gives the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from advect.maps.base import Map
from advect.testing.problems import require, small_pair


def check_map(fresh: Map) -> None:
    """Try a map of one's own: fit, carry, save, load.

    Args:
        fresh: a map that is not fitted yet; it is fitted here on twelve pairs.

    Raises:
        AssertionError: says which promise is broken.

    Example:
        >>> import advect as ad
        >>> ad.testing.check_map(ad.maps.NearestMap())
    """
    source, other = small_pair()
    end = source.replace(x=source.x + 1)
    fitted = fresh.fit(source, end)
    require(fitted is fresh, "fit must return the map itself")
    moved = fitted.transform(source.x)
    require(moved.shape == source.x.shape, "samples must come back in their shape", moved.shape)
    require(moved.dtype == source.x.dtype, "samples must come back in their dtype", moved.dtype)
    require(bool(torch.isfinite(moved).all()), "what a map gives must be finite")
    require(torch.equal(moved, fitted.transform(source.x)), "a map must give the same twice")
    rows = torch.cat([fitted.transform(row) for row in source.x.split(1)])
    near = torch.allclose(rows, moved, rtol=1e-6, atol=1e-8)
    require(near, "what becomes of a sample must not depend on those beside it")
    carried = fitted.transform(other.replace(y=torch.full_like(other.y, -1), classes=()))
    require(len(carried) == len(other), "a dataset of other samples must come back as a dataset")
    with tempfile.TemporaryDirectory() as folder:
        path = fitted.save(Path(folder, "map.safetensors"))
        again = type(fitted).load(path)
    require(
        torch.equal(again.transform(source.x), moved), "a saved map must give the same, bit for bit"
    )
