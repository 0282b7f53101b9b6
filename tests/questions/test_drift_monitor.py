"""``ad.DriftMonitor``: its level over many windows, its file, what is refused."""

import json
import os

import pytest
import torch

import advect as ad
from advect.questions import drift_monitor


def gaussians(n=60, seed=0, shift=0.0, d=2):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = (torch.arange(n) % 2).tolist()
    return ad.LabeledDataset(x + shift + 3 * torch.tensor(y)[:, None], y)


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.slow
def test_windows_are_remembered_in_a_file(tmp_path, fast):
    place = tmp_path / "state.json"
    for day in range(3):  # a new process each time
        monitor = ad.DriftMonitor(gaussians(), place)
        found = monitor.update(gaussians(seed=1 + day), f"day {day}", progress=False)
        assert not found.drifted and found.level == pytest.approx(0.05 / 30)
    found = monitor.update(gaussians(seed=9, shift=2.0), progress=False)
    assert found.drifted and found["joint"].adjusted <= 0.05 / 30
    kept = json.loads(place.read_text())
    assert [one["window"] for one in kept["windows"]] == ["day 0", "day 1", "day 2", "4"]
    assert [one["drifted"] for one in monitor.windows] == [False, False, False, True]
    assert len(monitor.alarms) == 1 and monitor.alarms[0]["notes"]
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_repeated_window_is_not_counted_again(tmp_path, fast):
    monitor = ad.DriftMonitor(gaussians(), tmp_path / "state.json")
    first = monitor.update(gaussians(seed=1), progress=False)
    monitor.update(gaussians(seed=2), progress=False)
    before = (tmp_path / "state.json").read_bytes()
    again = monitor.update(gaussians(seed=1), progress=False)
    assert again.to_dict() == first.to_dict() and (tmp_path / "state.json").read_bytes() == before
    relabeled = gaussians(seed=1)
    monitor.update(relabeled.replace(y=1 - relabeled.y), progress=False)
    assert len(monitor.windows) == 3


def test_a_window_is_tested_at_its_share_of_the_level(monkeypatch):
    """Between the two levels: drift for ``ad.drift``, none for the monitor."""
    asked = []

    def noted(*sides, level, n_permutations, **options):
        asked.append((level, n_permutations))
        return ad.drift(*sides, level=level, n_permutations=n_permutations, **options)

    monkeypatch.setattr(drift_monitor, "drift", noted)
    monitor = ad.DriftMonitor(gaussians(), horizon=30)
    monitor.update(gaussians(seed=1), progress=False)
    assert len(asked) == 1  # a quick look is enough
    window = gaussians(seed=5, shift=0.55)
    found = monitor.update(window, progress=False)
    assert len(asked) == 3 and asked[-1][1] >= 30 / 0.05 * 5 - 1
    smallest = min(test.adjusted for test in found.tests)
    assert 0.05 / 30 < smallest <= 0.05 and not found.drifted
    assert ad.drift(gaussians(), window, progress=False).drifted


def test_another_reference_or_setting_is_refused(tmp_path, fast):
    place = tmp_path / "state.json"
    ad.DriftMonitor(gaussians(), place).update(gaussians(seed=1), progress=False)
    before = place.read_bytes()
    with pytest.raises(ad.InputError, match="another reference"):
        ad.DriftMonitor(gaussians(seed=5), place)
    for name, value in {"level": 0.1, "horizon": 7, "embedding": None, "seed": 3}.items():
        with pytest.raises(ad.InputError, match=f"another {name}"):
            ad.DriftMonitor(gaussians(), place, **{name: value})
    assert place.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"format": "other"}',
        '{"format": "advect drift monitor 1"}',
        '{"format": "advect drift monitor 1", "settings": {}, "windows": [3]}',
        "[" * 10000,
    ],
)
def test_a_damaged_state_is_refused_and_left(tmp_path, text):
    place = tmp_path / "state.json"
    place.write_text(text)
    with pytest.raises(ad.InputError, match=r"state\.json"):
        ad.DriftMonitor(gaussians(), place)
    assert place.read_text() == text


def test_odd_places_are_refused(tmp_path):
    with pytest.raises(ad.InputError):
        ad.DriftMonitor(gaussians(), tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ad.InputError):
        ad.DriftMonitor(gaussians(), tmp_path / "pipe")
    for bad in ({"level": 0}, {"level": 2.0}, {"horizon": 0}):
        with pytest.raises(ad.InputError):
            ad.DriftMonitor(gaussians(), **bad)


def test_a_failure_while_writing_leaves_the_state_as_it_was(tmp_path, monkeypatch):
    place = tmp_path / "state.json"
    monitor = ad.DriftMonitor(gaussians(), place)
    monitor.update(gaussians(seed=1), progress=False)
    before = place.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        monitor.update(gaussians(seed=2), progress=False)
    assert place.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_a_second_writer_waits_its_turn(tmp_path, fast):
    from advect._util.lock import Hold

    place = tmp_path / "state.json"
    monitor = ad.DriftMonitor(gaussians(), place)
    seen = []

    def other():
        try:
            monitor.update(gaussians(seed=1), progress=False)
        except ad.InputError as error:
            seen.append(str(error))

    import threading

    with Hold(place):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen and not place.exists()
