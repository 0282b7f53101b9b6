"""Digests name contents: equal in every process, and independent of where a class lives."""

import advect as ad
from advect.data.digest import digest


def test_equal_content_has_one_digest():
    assert digest(ad.Sinkhorn(epsilon=0.1)) == digest(ad.Sinkhorn(epsilon=0.1))
    assert digest(ad.Sinkhorn(epsilon=0.1)) != digest(ad.Sinkhorn(epsilon=0.2))
    x = [1.0, 2.0]
    assert digest(x, x) == digest(x, list(x))  # shared references do not count
    assert digest((1, 2), 3) != digest(1, (2, 3))


def test_classes_of_advect_may_move(monkeypatch):
    before = digest(ad.ExactOT())
    monkeypatch.setattr(ad.ExactOT, "__module__", "advect.elsewhere")
    assert digest(ad.ExactOT()) == before
