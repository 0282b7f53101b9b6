"""``ad.Log`` writes runs that the tracker's own reader opens."""

import struct

import pytest

import advect as ad
from advect.flows.callbacks import Metric

WANTED = {"value": [12.0, 8.0, 4.0, 2.0], "spread": [4.0, 4.0, 4.0, 2.0]}
NAMES = {"value", "speed", "seconds", "terms/Potential", "terms/Potential 2", "spread"}


def follow(writer, **options):
    data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
    spread = Metric("spread", lambda rho: rho.x.max() - rho.x.min())
    callbacks = [spread, ad.Log(writer, metrics=[spread], **options)]
    objective = ad.Potential(ad.norm()) + ad.Potential(ad.norm())
    ad.flow(data, objective, integrator=ad.Euler(1.0), n_steps=3, callbacks=callbacks)


def test_tensorboard(tmp_path):
    why = "tensorboard is not installed"
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason=why
    )
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        follow(writer)
    run = reader.EventAccumulator(str(tmp_path)).Reload()
    assert set(run.Tags()["scalars"]) == NAMES
    for name, values in WANTED.items():
        assert [(at.step, at.value) for at in run.Scalars(name)] == list(enumerate(values))


def test_mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("flows")
    with mlflow.start_run() as run:
        follow(mlflow)
    client = mlflow.MlflowClient()
    assert client.get_run(run.info.run_id).data.metrics.keys() == NAMES
    for name, values in WANTED.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [(at.step, at.value) for at in history] == list(enumerate(values))


@pytest.mark.slow
def test_wandb(tmp_path):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    settings = wandb.Settings(console="off", silent=True)
    with wandb.init(mode="offline", project="test", dir=str(tmp_path), settings=settings) as run:
        follow(run, every=3)
    wandb.teardown()  # waits for the process that writes
    (path,) = tmp_path.glob("wandb/offline-*/*.wandb")
    raw, at, history = path.read_bytes(), 7, []  # records of a LevelDB log, of one block here
    while at < len(raw):
        _, size, _ = struct.unpack("<IHB", raw[at : at + 7])
        items = Record.FromString(raw[at + 7 : at + 7 + size]).history.item
        history += (
            [{item.key or item.nested_key[0]: item.value_json for item in items}] if items else []
        )
        at += 7 + size
    found = [(int(row["_step"]), float(row["value"])) for row in history]
    assert found == [(0, 12.0), (3, 2.0)] and history[0].keys() >= NAMES


def test_what_is_no_tracker():
    for writer in ("text", None, dict, ad):
        with pytest.raises(ad.InputError, match="tracker"):
            ad.Log(writer)
    with pytest.raises(ad.InputError, match="Metric"):
        ad.Log(print_metrics(), metrics=[len])
    with pytest.raises(ad.InputError, match="every"):
        ad.Log(print_metrics(), every=0)


def print_metrics():
    class Printer:
        def log_metrics(self, values, step):
            print(step, values)

    return Printer()
