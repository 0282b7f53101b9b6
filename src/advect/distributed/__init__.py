"""One flow on several processes, machines or GPUs: each rank owns rows of the particles, and of
every matrix (n, m).

The same script runs alone and under ``torchrun``. Features, labels and laws are on every rank,
which is n numbers for each feature; costs, kernels and plans, which are n × m, are cut by rows. See
docs/scaling.md."""

from advect._util.ranks import Group, LostRankError, Traffic, group
from advect.distributed.run import flow

__all__ = ["Group", "LostRankError", "Traffic", "flow", "group"]
