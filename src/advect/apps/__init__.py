"""Applications: make a training set (``transfer``), use a frozen model on other data (``repurpose``),
and label a pool of samples (``label``).
"""

from advect.apps.label import label
from advect.apps.repurpose import repurpose
from advect.apps.transfer import transfer

__all__ = ["label", "repurpose", "transfer"]
