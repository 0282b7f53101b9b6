"""The few constants of the package that tests change, so that small problems take the code paths of
large ones. Nothing else in the tests of the core names a private object of it."""

SMALL_BLOCKS = {
    "advect.ot.cost.ENTRIES": 9_000,
    "advect.ot.cost._BLOCKS_AT_ONCE": 3,
    "advect.ot.kernel._CACHED_ENTRIES": 8_000,
    "advect.data.laws.wasserstein._BATCH_ENTRIES": 1_000,
}


def small_blocks(monkeypatch):
    """Several blocks of rows, and of pairs of laws, at the sizes of tests."""
    for name, entries in SMALL_BLOCKS.items():
        monkeypatch.setattr(name, entries)


def float32_iterations(monkeypatch, entries=0):
    """Solve problems of more than ``entries`` entries in float32, as large ones are."""
    for place in ("kernel", "sinkhorn"):
        monkeypatch.setattr(f"advect.ot.{place}.SMALL", entries)
