"""Questions that people bring to labeled datasets, one call each: which dataset is nearest, which
samples are wrong, is generated data any good, did the data drift.
"""

from advect.questions.compare import compare
from advect.questions.compare_result import Compared
from advect.questions.drift import drift
from advect.questions.drift_monitor import DriftMonitor
from advect.questions.drift_result import ClassDrift, Drift, DriftTest, Trade

__all__ = [
    "ClassDrift",
    "Compared",
    "Drift",
    "DriftMonitor",
    "DriftTest",
    "Trade",
    "compare",
    "drift",
]
