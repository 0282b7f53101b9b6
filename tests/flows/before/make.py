"""Makes the files of this folder, by the version whose files later ones must open: checkpoints, a
run directory, maps, and in ``expected.json`` what that version found when it went on from them.

    PYTHONPATH=<that version>/src python tests/flows/before/make.py
"""

import contextlib
import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch

import advect as ad
from advect.cli.app import main as command

HERE = Path(__file__).parent
FIRST, LAST = 3, 6  # steps at which a checkpoint was taken, and to which flows went on
MAPS = {
    "nearest": lambda: ad.maps.NearestMap(k=3),
    "entropic": lambda: ad.maps.EntropicMap(epsilon=0.5),
    "neural": lambda: ad.maps.NeuralMap(epochs=2, restarts=1, progress=False),
}
RUN = ["flow", "toy:gaussians?n=20", "toy:gaussians?n=18&shift=4,0&seed=1"]
OPTIONS = ["--functional", "otdd", "--functional", "0.1*norm", "--dynamics", "jd-fl", "--no-report"]


def labeled(sizes, dim, seed, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = torch.randn(len(y), dim, generator=generator, dtype=torch.float64)
    return ad.LabeledDataset(x + 1.5 * y[:, None] + shift, y.tolist())


def cases():
    """Flows by name: source, functional, options."""
    source, target = labeled([9, 8], 2, 1), labeled([10, 8], 2, 2, shift=2.0)
    near = source.replace(x=source.x + 1e-4).to(dtype=torch.float32)
    lots = ad.Sinkhorn(ad.Relative(0.1), tol=1e-9)
    batches = ad.MiniBatch(ad.Sinkhorn(epsilon=0.5, tol=1e-9), size=8)
    total = ad.OTDD(target, solver=lots) + 0.2 * ad.Potential(ad.norm()) + 0.1 * ad.Internal()
    mixed = 0.5 * ad.SlicedOTDD(target, 20) + 2 * (
        ad.Interaction(ad.repulsion()) + ad.OTDD(target, solver=lots)
    )
    return {
        "fd": (source, ad.OTDD(target), {}),
        "fd, smaller steps": (source, ad.OTDD(target), {"integrator": ad.Euler(3.0)}),
        "fd, exact": (source, ad.OTDD(target, solver=ad.ExactOT()), {}),
        "fd, exact labels": (
            source,
            ad.OTDD(target, cost=ad.GroundCost(label=ad.ExactLabelOT()), solver=lots),
            {"integrator": ad.Momentum(0.05)},
        ),
        "jd-fl": (
            source,
            ad.OTDD(target),
            {"dynamics": ad.JointFixedLabels(), "integrator": ad.Momentum(0.05)},
        ),
        "jd-vl": (
            source,
            ad.OTDD(target, solver=lots),
            {"dynamics": ad.JointVariableLabels(), "integrator": ad.Adam(0.05)},
        ),
        "minibatch": (source, ad.OTDD(target, solver=batches), {"integrator": ad.Adagrad(0.1)}),
        "sum": (source, total, {}),
        "mixed": (source, mixed, {"integrator": ad.Euler(0.1)}),
        "sliced": (source, ad.SlicedOTDD(target, 20), {"integrator": ad.Euler(0.3)}),
        "near, in float32": (near, ad.OTDD(source.to(dtype=torch.float32)), {}),
        "noise": (
            source,
            ad.Potential(ad.norm()),
            {
                "integrator": ad.EulerMaruyama(0.1, temperature=0.2),
                "generator": torch.Generator().manual_seed(5),
            },
        ),
    }


def numbers(result):
    """What is compared: the values after the checkpoint, and where the flow ended."""
    return {"values": result.values[FIRST:], "x": result.dataset.x.double().tolist()}


def file_of(name):
    return HERE / f"{name.replace(', ', '-').replace(' ', '-')}.safetensors"


def newest(run):
    return max(Path(run).glob("checkpoint-*"), key=lambda path: path.stat().st_mtime_ns)


def emptied(module):
    """A network with few entries that are not 0, so that its file can be packed small."""
    for parameter in module.parameters():
        kept = torch.zeros_like(parameter)
        kept[:4] = parameter.detach()[:4]
        parameter.data = kept


def main():
    expected = {}
    for name, (source, functional, options) in cases().items():
        with tempfile.TemporaryDirectory() as run:
            checkpoint = {"callbacks": [ad.Checkpoint(run, every=FIRST)]}
            ad.flow(source, functional, n_steps=FIRST, **options, **checkpoint)
            shutil.copy(newest(run), file_of(name))
        result = ad.flow(source, functional, n_steps=LAST, resume=file_of(name), **options)
        assert result.n_steps == LAST, (name, result)
        expected[name] = numbers(result)
    source, functional, _ = cases()["jd-fl"]
    with tempfile.TemporaryDirectory() as run, ad.distributed.group() as ranks:
        energy = ad.distributed.ShardedOTDD(functional.target, group=ranks)
        watch = {"callbacks": [ad.Checkpoint(run, every=FIRST)], "group": ranks}
        ad.distributed.flow(source, energy, n_steps=FIRST, **watch)
        shutil.copy(newest(run), file_of("on ranks"))
        resumed = ad.distributed.flow(source, energy, n_steps=LAST, resume=run, group=ranks)
        expected["on ranks"] = numbers(resumed)
    moved = source.replace(x=2 * source.x + 1)
    for name, make in MAPS.items():
        fitted = make().fit(source, moved)
        if name == "neural":
            emptied(fitted._module)
        with tempfile.TemporaryDirectory() as folder:
            saved = fitted.save(Path(folder, "map.safetensors"))
            (HERE / f"map-{name}.gz").write_bytes(gzip.compress(saved.read_bytes(), mtime=0))
        expected[f"map {name}"] = fitted.transform(source.x[:4] + 0.1).tolist()
    shutil.rmtree(HERE / "run", ignore_errors=True)
    sys.argv, words = ["advect"], [*RUN, *OPTIONS, "--n-steps", str(FIRST), "-o", "run"]
    with contextlib.chdir(HERE):
        assert command(words) == 0
    with tempfile.TemporaryDirectory() as folder:
        longer = shutil.copytree(HERE / "run", Path(folder, "run"))
        assert command(["resume", str(longer), "--n-steps", str(LAST), "--no-report"]) == 0
        frames = ad.Trajectory.open(longer)
        expected["run"] = {"values": [frame.value for frame in frames][FIRST:]}
        expected["run"]["x"] = frames[-1].dataset.x.double().tolist()
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
