"""Questions that people bring to labeled datasets, one call each: which dataset is nearest, which
samples are wrong, is generated data any good, did the data drift.
"""

from advect.questions.audit import audit
from advect.questions.audit_result import Audit

__all__ = ["Audit", "audit"]
