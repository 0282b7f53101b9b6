"""What people come for, as functions: ``repurpose`` a frozen model on other data, ``transfer`` a
dataset to a few samples.
"""

from advect.apps.carry import CarryOptions
from advect.apps.choice import Choice
from advect.apps.comparison import Comparison
from advect.apps.condensing import Condensed, condense
from advect.apps.evaluation import TransferScores, evaluate_transfer
from advect.apps.label import Labelled, label
from advect.apps.labelings import Labeling
from advect.apps.query import query
from advect.apps.repurpose import Repurposed, RepurposeOptions, repurpose
from advect.apps.training import joined
from advect.apps.transfer import TransferOptions, Transferred, transfer

__all__ = [
    "CarryOptions",
    "Choice",
    "Comparison",
    "Condensed",
    "Labeling",
    "Labelled",
    "RepurposeOptions",
    "Repurposed",
    "TransferOptions",
    "TransferScores",
    "Transferred",
    "condense",
    "evaluate_transfer",
    "joined",
    "label",
    "query",
    "repurpose",
    "transfer",
]
