"""Questions that people bring to labeled datasets, one call each: which dataset is nearest, which
samples are wrong, is generated data any good, did the data drift.
"""

from advect.questions.audit import audit
from advect.questions.audit_result import Audit
from advect.questions.compare import compare
from advect.questions.compare_result import Compared
from advect.questions.drift import drift
from advect.questions.drift_monitor import DriftMonitor
from advect.questions.drift_result import ClassDrift, Drift, DriftTest, Trade
from advect.questions.embedding import DatasetEmbedding, embed
from advect.questions.embedding_sketch import EmbeddingSketch
from advect.questions.index import DatasetIndex
from advect.questions.neighbors import Neighbor, Neighbors

__all__ = [
    "Audit",
    "ClassDrift",
    "Compared",
    "DatasetEmbedding",
    "DatasetIndex",
    "Drift",
    "DriftMonitor",
    "DriftTest",
    "EmbeddingSketch",
    "Neighbor",
    "Neighbors",
    "Trade",
    "audit",
    "compare",
    "drift",
    "embed",
]
