"""``ad.Log`` writes runs that the tracker's own reader opens."""

import struct

import pytest

import advect as ad

VALUES = [12.0, 8.0, 4.0, 2.0]
NAMES = {"value", "speed", "seconds", "terms/Potential", "terms/Potential 2", "spread"}


def follow(writer, **options):
    data, norm = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"]), ad.Potential(ad.norm())
    spread = ad.Metric("spread", lambda rho: rho.x.max() - rho.x.min())
    callbacks = [spread, ad.Log(writer, metrics=[spread], **options)]
    ad.flow(data, norm + norm, integrator=ad.Euler(1.0), n_steps=3, callbacks=callbacks)


def test_tensorboard(tmp_path):
    name = "tensorboard.backend.event_processing.event_accumulator"
    reader = pytest.importorskip(name, reason="tensorboard is not installed")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        follow(writer)
    run = reader.EventAccumulator(str(tmp_path)).Reload()
    assert set(run.Tags()["scalars"]) == NAMES
    assert [(at.step, at.value) for at in run.Scalars("value")] == list(enumerate(VALUES))


def test_mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("flows")
    with mlflow.start_run() as run:
        follow(mlflow)
    client, key = mlflow.MlflowClient(), run.info.run_id
    assert client.get_run(key).data.metrics.keys() == NAMES
    assert [at.value for at in client.get_metric_history(key, "value")] == VALUES


@pytest.mark.slow
def test_wandb(tmp_path):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    settings = wandb.Settings(console="off", silent=True)
    with wandb.init(mode="offline", project="test", dir=str(tmp_path), settings=settings) as run:
        follow(run, every=3)
    wandb.teardown()  # waits for the process that writes
    raw, at, rows = next(tmp_path.glob("wandb/offline-*/*.wandb")).read_bytes(), 7, []
    while at < len(raw):  # records of a LevelDB log, of one block here
        size, at = struct.unpack("<H", raw[at + 4 : at + 6])[0], at + 7
        items = Record.FromString(raw[at : at + size]).history.item
        rows += [{(i.key or i.nested_key[0]): i.value_json for i in items}] if items else []
        at += size
    assert [(int(row["_step"]), float(row["value"])) for row in rows] == [(0, 12.0), (3, 2.0)]
    assert rows[0].keys() >= NAMES


def test_what_is_no_tracker():
    bad = [{"writer": writer} for writer in ("text", None, dict, ad)]
    for options in (*bad, {"metrics": [len]}, {"every": 0}):
        with pytest.raises(ad.InputError, match="tracker|Metric|every"):
            ad.Log(**{"writer": type("Logger", (), {"log": print})(), **options})
