"""
One flow on several processes
=============================

``ad.distributed.flow`` cuts the particles by rows: each process owns its part of every n × m
matrix. The same script runs alone, under ``torchrun`` on one machine, or on many. For flows too
large for one machine; here two processes show that the answer is the same.
"""

# %%
# The script that every process runs. In earnest it is a file of yours, started by ``torchrun
# --nproc-per-node=2 script.py``.

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

SCRIPT = """
import json, torch, advect as ad
torch.set_num_threads(1)
source, target = ad.datasets.load("toy:gaussians?n=400"), ad.datasets.load("toy:rings?n=400&seed=1")
with ad.distributed.group() as ranks:
    result = ad.distributed.flow(
        source, ad.OTDD(target, group=ranks), group=ranks, integrator=ad.Euler(0.3), n_steps=10
    )
    if ranks.rank == 0:
        print(json.dumps({"values": result.values, "ranks": ranks.size, "sent": ranks.sent}))
"""
script = Path(tempfile.mkdtemp()) / "flow_on_ranks.py"
script.write_text(SCRIPT)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


def run(ranks):
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    command = [sys.executable, str(script)]
    started = [
        subprocess.Popen(
            command, env={**os.environ, **common, "RANK": str(rank)}, stdout=subprocess.PIPE
        )
        for rank in range(ranks)
    ]
    said = started[0].communicate(timeout=100)[0]
    for process in started[1:]:
        process.communicate(timeout=100)
    return json.loads(said)


# %%
# Sums are added in another order, so that values agree to rounding.

found = {ranks: run(ranks) for ranks in (1, 2)}
one, two = (found[ranks]["values"] for ranks in (1, 2))
off = max(abs(a - b) / b for a, b in zip(one, two, strict=True))
print(
    f"values differ by at most {off:.1e}; {found[2]['sent'] / 1e6:.2f} MB went between the processes"
)
figure, axis = plt.subplots(figsize=(6.5, 4), layout="constrained")
axis.semilogy(one, "o-", markersize=10, alpha=0.4, label="one process")
axis.semilogy(two, "x-", label="two processes")
axis.set(title=f"The same flow, apart by {off:.0e}", xlabel="step", ylabel="½ OTDD²")
axis.legend()
