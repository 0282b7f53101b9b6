"""What each rank does in the tests of ``advect.distributed``: ``python distributed_worker.py TASK
FOLDER``, or under torchrun. The tests also run the cases in one process, without a group."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from flow_cases import EXACT_LAWS, FEATURES_ONLY, draw, labeled, memberships
from safetensors.torch import save_file

import advect as ad
from advect.ot.cost import DenseCost
from advect.ot.sharded import ShardedCost

# few iterations: a loaded machine needs milliseconds for a collective
CLOSE = ad.Sinkhorn(epsilon=1.0, tol=1e-9)
THROUGH = ad.FeatureDriven(through_laws=True)


def pair(dtype=torch.float64, empty=0, sizes=((13, 17, 11), (9, 12, 16)), dim=3, doubt=0.0):
    """Two weighted datasets; the first ``empty`` samples of each have no mass; a share ``doubt`` of the labels is of all
    classes."""
    source = labeled(sizes[0], dim, seed=1, weighted=True)
    target = labeled(sizes[1], dim, seed=2, shift=2.0, apart=1.0, weighted=True)
    sides = []
    for data in (source, target):
        data.weights[:empty] = 0
        if doubt:
            share = doubt * draw(len(data), 1).sigmoid()
            shares = (1 - share) * memberships(data) + share / len(data.classes)
            data = data.replace(probabilities=shares)
        sides.append(data.replace(weights=data.weights / data.weights.sum()).to(dtype=dtype))
    return sides


LARGER = {"sizes": ((170, 200, 160), (180, 150, 190)), "dim": 5}
CASES = {
    "fd": {"cost": EXACT_LAWS},
    "fd through laws": {"cost": EXACT_LAWS, "dynamics": THROUGH},
    "fd without mass": {"cost": EXACT_LAWS, "data": {"empty": 3}, "dynamics": THROUGH},
    "fd doubt": {"cost": EXACT_LAWS, "data": {"empty": 3, "doubt": 0.6}, "dynamics": THROUGH},
    "fd relative epsilon": {"cost": EXACT_LAWS, "solver": ad.Sinkhorn(ad.Relative(0.1), tol=1e-9)},
    "fl": {"cost": EXACT_LAWS, "dynamics": ad.JointFixedLabels()},
    "vl": {"cost": EXACT_LAWS, "dynamics": ad.JointVariableLabels(every=10)},
    "features only": {"cost": FEATURES_ONLY},
    "means": {"cost": ad.GroundCost(label=ad.MeansOnly(), label_weight=2.0), "dynamics": THROUGH},
    "embedding": {
        "cost": ad.GroundCost(feature=ad.Embedding(lambda x: torch.cat([x, x.sin()], dim=1))),
        "dynamics": THROUGH,
    },
    "sum": {
        "cost": EXACT_LAWS,
        "plus": 0.5 * ad.Potential(ad.norm()) + 0.1 * ad.Interaction(ad.repulsion()),
        "integrator": ad.Adam(0.1),
    },
    "noise": {"cost": EXACT_LAWS, "integrator": ad.EulerMaruyama(0.2, temperature=0.1), "seed": 7},
    "blocks": {
        "cost": EXACT_LAWS,
        "dynamics": THROUGH,
        "data": LARGER,
        "memory_limit": "500kB",  # a matrix of 530 × 520 takes 2.2 MB
        "solver": ad.Sinkhorn(epsilon=5.0, tol=1e-9),
        "n_steps": 1,
    },
    "float32": {
        "cost": EXACT_LAWS,
        "data": {"dtype": torch.float32, **LARGER},
        "solver": ad.Sinkhorn(epsilon=1.0, tol=1e-6),
        "n_steps": 2,
    },
}
QUICK = ("fd doubt", "blocks")
FEW = ("fd without mass", "fd doubt", "fl", "vl", "blocks")
MOST = (*FEW, "fd through laws", "fd relative epsilon", "means", "embedding", "sum")
MOST += ("noise", "float32")


def problem(name, group=None):
    """Source, functional and options of a case, on the ranks of a group or without."""
    case = CASES[name]
    source, target = pair(**case.get("data", {}))
    options = {"cost": case["cost"], "solver": case.get("solver", CLOSE)}
    if group is not None:
        options |= {"group": group, "memory_limit": case.get("memory_limit")}
    functional = ad.OTDD(target, **options)
    if "plus" in case:
        functional = functional + case["plus"]
    walk = {"dynamics": case.get("dynamics"), "n_steps": case.get("n_steps", 3)}
    walk["integrator"] = case.get("integrator", ad.Euler(0.3))
    if "seed" in case:
        walk["generator"] = torch.Generator().manual_seed(case["seed"])
    return source, functional, walk


def outcome(result):
    """What two runs of a case are compared by."""
    data, values = result.dataset, torch.tensor(result.values, dtype=torch.float64)
    laws = {} if data.law is None else {"means": data.law.means, "S": data.law.covariances()}
    return {"x": data.x, "y": data.y, "values": values} | laws


def compare(folder, group, names=tuple(CASES)):
    tensors = {}
    for name in names:
        source, functional, walk = problem(name, group)
        result = ad.distributed.flow(source, functional, group=group, **walk)
        for key, value in outcome(result).items():
            tensors[f"{name}/{key}"] = value.contiguous()
    save_file(tensors, Path(folder, f"rank-{group.rank}.safetensors"))


def quick(folder, group):
    compare(folder, group, QUICK)
    manners(folder, group)
    # a solve of shared rows takes the same decisions as that of all rows
    matrix, solver = draw(30, 25).square(), ad.Sinkhorn(0.05, reach=2.0)
    own = DenseCost(matrix[group.rows(30)])
    shared, whole = solver.solve(ShardedCost(own, 30, group)), solver.solve(matrix)
    assert shared.n_iter == whole.n_iter and abs(shared.value - whole.value) < 1e-12
    rows = torch.arange(7.0)[group.rows(7)]
    sent = group.sent
    assert group.gather(rows, 7).tolist() == [*range(7)] and group.sent == sent + 8 * 4
    assert group.sum(torch.ones(1)).item() == group.size == 2
    assert group.of_first(torch.tensor([5.0 + group.rank])).item() == 5
    assert group.largest(float(group.rank)) == 1
    for other in (torch.arange(3.0), torch.arange(3.0).double()):  # numbers of both sizes
        group.require_same("numbers", other)
        with pytest.raises(ad.InputError, match="others on rank 1 than on rank 0"):
            group.require_same("numbers", other + group.rank)


def most(folder, group):
    compare(folder, group, MOST)
    manners(folder, group)


def manners(folder, group):
    """Callbacks, frames, refusals."""
    source, functional, walk = problem("fd", group)
    seen, run = [], Path(folder, "run")
    width = ad.Metric("width", lambda rho: rho.x.max() - rho.x.min())
    stop = ad.StopWhen(seconds=1e-9 if group.rank == 0 else 1e9)  # only rank 0 would
    watch = [ad.Recorder(every=1, directory=run), ad.Checkpoint(run, every=1), width]
    watch.append(lambda step: seen.append(step.index))
    result = ad.distributed.flow(source, functional, group=group, callbacks=watch, **walk)
    assert result.status == "completed" and result.trajectory.indices == [0, 1, 2, 3]
    assert torch.equal(result.trajectory[-1].dataset.x, result.dataset.x)
    assert seen == ([0, 1, 2, 3] if group.rank == 0 else [])
    assert len(result.metrics["width"]) == (4 if group.rank == 0 else 0)
    stopped = ad.distributed.flow(source, functional, group=group, callbacks=[stop], **walk)
    assert (stopped.status, stopped.n_steps) == ("stopped", 0)
    assert "have passed" in stopped.message

    again = lambda **change: ad.distributed.flow(source, functional, group=group, **walk | change)
    with pytest.raises(ad.InputError, match="holds frames"):
        again(callbacks=[ad.Recorder(directory=run)])
    with pytest.raises(ad.InputError, match="the same on every rank"):
        functional(source.replace(x=source.x + group.rank))
    noisy = ad.EulerMaruyama(0.1)  # without a generator of one seed
    assert "generator" in again(integrator=noisy).message  # the state of the second step is refused
    with pytest.raises(ad.InputError, match="fewer ranks"):
        functional(source.subset(torch.tensor([0])))

    def fail(step):
        raise ZeroDivisionError("on rank 0")

    kind = ZeroDivisionError if group.rank == 0 else RuntimeError
    with pytest.raises(kind, match="on rank 0"):
        again(callbacks=[fail])


class Deadly(ad.Functional):
    """Nothing; but at its fourth call, one rank sends itself a signal, if there is one."""

    def __init__(self, number, group, folder):
        self.number, self.group, self.folder, self.calls = number, group, folder, 0

    def __call__(self, rho):
        self.calls += 1
        chosen = self.group.rank == int(os.environ.get("VICTIM", "1"))
        if chosen and self.number is not None and self.calls == 4:
            Path(self.folder, "died").write_text(str(time.time()))
            os.kill(os.getpid(), self.number)
        return rho.x.sum() * 0


def walk(folder, group, n_steps=8, resume=None, number=None):
    """A flow with frames and checkpoints, that may die on the way."""
    source, functional, options = problem("fd through laws", group)
    run = Path(folder, "run")
    options |= {"n_steps": n_steps, "integrator": ad.Adam(0.1), "resume": resume}
    options["callbacks"] = [ad.Checkpoint(run, every=2), ad.Recorder(every=1, directory=run)]
    functional = functional + Deadly(number, group, folder)
    return ad.distributed.flow(source, functional, group=group, **options)


def resume(folder, group):
    walk(folder, group, resume=Path(folder, "run"))


def die(folder, group):
    walk(folder, group, number=signal.SIGKILL)


def hang(folder, group):
    walk(folder, group, number=signal.SIGSTOP)


def interrupt(folder, group):
    """Ctrl-C reaches every rank, or the victim alone."""
    if os.environ.get("VICTIM") is None:
        os.environ["VICTIM"] = str(group.rank)
    result = walk(folder, group, number=signal.SIGINT)
    assert (result.status, result.n_steps) == ("interrupted", 2)


def go_on(folder, group):
    """From where two ranks died, to step 6; and a few cases on this number of ranks."""
    walk(folder, group, n_steps=6, resume=Path(folder, "run"))
    compare(folder, group, FEW)


def main():
    task, folder = sys.argv[1:]
    with ad.distributed.group(timeout=float(os.environ.get("TIMEOUT", "120"))) as group:
        try:
            globals()[task](folder, group)
        except RuntimeError:  # LostRankError, as the tests see
            Path(folder, f"lost-{group.rank}").write_text(str(time.time()))
            raise


if __name__ == "__main__":
    main()
