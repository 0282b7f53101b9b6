"""What people come for, as functions: ``repurpose`` a frozen model on other data, ``transfer`` a
dataset to a few samples.
"""

from advect.apps.carry import CarryOptions
from advect.apps.evaluation import TransferScores, evaluate_transfer
from advect.apps.label import Labelled, label
from advect.apps.query import query
from advect.apps.repurpose import Repurposed, RepurposeOptions, repurpose
from advect.apps.transfer import TransferOptions, Transferred, joined, transfer

__all__ = [
    "CarryOptions",
    "Labelled",
    "RepurposeOptions",
    "Repurposed",
    "TransferOptions",
    "TransferScores",
    "Transferred",
    "evaluate_transfer",
    "joined",
    "label",
    "query",
    "repurpose",
    "transfer",
]
