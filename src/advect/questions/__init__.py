"""Questions that people bring to labeled datasets, one call each: which dataset is nearest, which
samples are wrong, is generated data any good, did the data drift.
"""

from advect.questions.compare import compare
from advect.questions.compare_result import Compared

__all__ = ["Compared", "compare"]
