"""Is a flow worth it? What is right of samples that nobody used, after the flow, without it, and by
the map's posterior alone; and one sentence on what to use."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advect.apps.labelings import ANSWERS, CLUSTERS, Labeling

FLOW, NO_FLOW, POSTERIOR = "flow", "no flow", "posterior"
# the simplest first: of ways that are as good, it is recommended
WAYS = (NO_FLOW, POSTERIOR, FLOW)
_SAID = {
    FLOW: "flow, then ask the model",
    NO_FLOW: "do not flow: ask the model directly and read it through the class matching",
    POSTERIOR: "do not flow: the classifier that the map goes by does {how} without the model",
}
_SHORT = {FLOW: "after the flow", NO_FLOW: "asked directly", POSTERIOR: "by the posterior alone"}


@dataclass(frozen=True)
class Comparison:
    """What each way got right of samples whose labels it did not use, and what follows.

    Attributes:
        accuracies: share of right answers by way (``"flow"``, ``"no flow"``, ``"posterior"``);
            empty where there were too few labels to keep some aside, or none.
        n: how many samples were kept aside.
        recommended: one of the ways.
        why: in one sentence.

    Example:
        >>> found = compared({"flow": ["a", "b"], "no flow": ["a", "a"]}, ["a", "b"])
        >>> found.accuracies, found.recommended
        ({'no flow': 0.5, 'flow': 1.0}, 'flow')
        >>> print(found)
        Flow, then ask the model: of 2 samples kept aside 100.0 % right after the flow, 50.0 % asked directly.
    """

    accuracies: dict[str, float]
    n: int
    recommended: str
    why: str

    def __str__(self) -> str:
        return self.why


def compared(answers: Mapping[str, Sequence[Hashable]], truth: Sequence[Hashable]) -> Comparison:
    """The accuracies of ways, and the simplest that is within a standard error of the best.

    The error is that with two right and two wrong answers more (Agresti and Coull 1998): all right of
    a few is not certainty."""
    n = len(truth)
    right = {
        way: float(np.mean([a == b for a, b in zip(answers[way], truth, strict=True)]))
        for way in WAYS
        if way in answers
    }
    best = max(right.values())
    share = (best * n + 2) / (n + 4)
    error = math.sqrt(share * (1 - share) / n)
    chosen = next(way for way in right if right[way] >= best - error)
    order = sorted(right, key=lambda way: (-right[way], way != chosen))
    figures = ", ".join(f"{100 * right[way]:.1f} % {_SHORT[way]}" for way in order)
    figures = figures.replace(" % ", " % right ", 1)
    ahead = all(right[chosen] > right[way] for way in right if way != chosen)
    said = _SAID[chosen].format(how="better" if ahead else "as well")
    return Comparison(
        right,
        n,
        chosen,
        f"{said[0].upper()}{said[1:]}: of {n} samples kept aside {figures}.",
    )


def too_few(n: int) -> Comparison:
    """What can be said where no labels could be kept aside."""
    why = f"Nothing can be compared: {n} labeled samples are too few to keep some aside."
    return Comparison({}, 0, FLOW, why)


def without_labels(labeling: Labeling) -> Comparison:
    """What the agreement of a model with clusters says."""
    kappa = f"its answers agree with clusters, κ = {labeling.agreement:.2f}"
    if labeling.kind == ANSWERS:
        more = _beside(labeling, "hold together better than clusters")
        why = f"Do not flow: the model knows such data ({kappa}){more}; ask it directly."
        return Comparison({}, 0, NO_FLOW, why)
    if labeling.kind == CLUSTERS:
        why = (
            "Flow by the clusters of the samples: the model does not know such data (its answers "
            f"agree little with clusters, κ = {labeling.agreement:.2f}), so that asked directly it "
            "would guess; that a cluster is what the model calls it cannot be told without labels."
        )
        return Comparison({}, 0, FLOW, why)
    more = _beside(labeling, "these hold together better than its answers")
    why = f"Flow by the clusters of the model's features: it knows such data ({kappa}){more}."
    return Comparison({}, 0, FLOW, why)


def _beside(labeling: Labeling, said: str) -> str:
    if not labeling.silhouettes:
        return ""
    first, second = sorted(labeling.silhouettes.values(), reverse=True)
    return f", and {said} (silhouette {first:.2f} beside {second:.2f})"
