"""Questions that people bring to labeled datasets, one call each: which dataset is nearest, which
samples are wrong, is generated data any good, did the data drift.
"""

from advect.questions.embedding import DatasetEmbedding, embed
from advect.questions.embedding_sketch import EmbeddingSketch
from advect.questions.index import DatasetIndex
from advect.questions.neighbors import Neighbor, Neighbors

__all__ = [
    "DatasetEmbedding",
    "DatasetIndex",
    "EmbeddingSketch",
    "Neighbor",
    "Neighbors",
    "embed",
]
