"""Data quality: label errors and outliers, evaluation of synthetic data, drift, and the nearest dataset."""

from advect.questions.audit import audit
from advect.questions.compare import compare
from advect.questions.drift import drift
from advect.questions.embedding import embed
from advect.questions.index import DatasetIndex

__all__ = ["DatasetIndex", "audit", "compare", "drift", "embed"]
