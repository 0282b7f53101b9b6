"""One flow on several processes, machines or GPUs. Each rank owns rows of the particles and of every
n × m matrix; see docs/large-data.md."""

from advect.distributed.run import flow
from advect.ot.ranks import group

__all__ = ["flow", "group"]
