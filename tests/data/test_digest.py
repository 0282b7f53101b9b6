"""Results on disk are found by digests: what was stored before classes moved must still be found."""

from pathlib import Path

import numpy as np
import pytest
import torch

import advect as ad
from advect.apps import pairwise_table, sweep
from advect.data.digest import digest

X = torch.arange(12.0).reshape(6, 2)
Y = ["a", "b"] * 3


def with_law(covariance):
    return ad.LabeledDataset(X, Y, law=ad.Gaussians(torch.zeros(2, 2), covariance))


FULL = ad.Full(torch.eye(2).expand(2, 2, 2).clone())
# recorded with the version of before; the numbers must never change
STORED = {
    "1605c8fe5f54e4dfb689b99151e94f8b": ad.Gaussians(torch.zeros(2, 2), FULL),
    "a9e4a74896ae23276d7a218386a297f3": with_law(FULL),
    "65c0f3f4396e86fa8dd61539fa1c8522": with_law(ad.Factored(torch.ones(4, 2), (2, 2))),
    "45dd63f9d647cf0ee19f7a3a5ae39921": with_law(ad.Diagonal(torch.ones(2, 2))),
    "8517a4b2ab3e3db70061150fff545c30": ad.LabeledDataset(X, Y, columns=["u", "v"]),
    "26486f10c24b91967c0ac9287dc920cd": X,
    "d61074f321b8fae790da43f10fd0d3b9": np.float64(1),
    "74104d1e6458a9ed6a5037f7830404d4": np.float32(1),
    "7e60b85fe5c4cec4c54b5985eeb250f5": np.array([1, "a"], dtype=object),
    "4260227f17462fdeb567f5387cccc29c": {"a": 1},
    "08ca11a15090377c4fcddba628256c13": {1, 2},
    "d20ba973f68c479d98ab3b777e69d5c0": (1, 2),
    "fd0e6c532afa90f5db0fc02e5e474ac7": ad.Sinkhorn(epsilon=0.1),
    "9d3de4028f979dc61442848eddc05580": ad.ExactOT(),
    "2cd323a02c30d0162bf81c1515240a01": ad.GroundCost(),
    "b264ed236c866beb6f598f4e3e497814": ad.GroundCost(label=ad.MeansOnly()),
    "3850fe0a69d5b89868219aa4347f1c74": ad.Euler(0.1),
    "1eb87aca8fcdfd1a8a94376f0b832848": ad.JointVariableLabels(),
    "1aeff0a86d2516d9c55fd47764faff5b": Path("a/b"),
}


@pytest.mark.parametrize("name", STORED)
def test_digests_are_those_of_before(name):
    assert digest(STORED[name]) == name


def test_stores_of_before_are_found():
    """Pairs of format 1 had no standard errors: they are computed again, and their tables are read."""
    assert (pairwise_table.FORMAT, sweep._FORMAT) == ("advect.pairwise/2", "advect.sweep/1")
