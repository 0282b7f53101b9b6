"""``advect distance --sliced``: a sliced distance in the place of the exact one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advect._util.checks import check_known
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad

FORMS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "principal": {"directions": "principal"},
    "moments": {"projection": "moments"},
}


def check(standard_error: int | None, solver: set[str]) -> None:
    """Nothing is asked for that only the exact distance has."""
    if standard_error is not None or solver:
        raise InputError(
            "a sliced distance is sorted, not solved, and its error is that of its lines",
            "--standard-error" if standard_error is not None else "--solver",
            "Leave out --sliced, or that option.",
        )


def sliced(
    name: str,
    a: ad.LabeledDataset,
    b: ad.LabeledDataset,
    cost: dict[str, Any],
    lines: int,
    seed: int,
) -> tuple[dict[str, Any], str]:
    """What is known of a sliced distance, and a line that says it; ``cost`` holds the options that
    were given for the ground cost.
    """
    import torch

    import advect as ad

    check_known("sliced distance", name, FORMS)
    label, weight = cost.get("label", "bures"), cost.get("label_weight", 1.0)
    others = sorted(set(cost) - {"label", "label_weight"})
    if others or label not in ("bures", "none"):
        given = others or [f"label {label}"]
        raise InputError(
            "a sliced distance has no ground cost but the weight of labels",
            ", ".join(given),
            "Leave out --sliced, or those options of the cost.",
        )
    found = ad.sliced_otdd(
        a,
        b,
        lines,
        label_weight=0.0 if label == "none" else weight,
        generator=torch.Generator().manual_seed(seed),
        **FORMS[name],
    )
    facts = {
        "sliced": name,
        "value": found.value,
        "energy": found.energy,
        "standard_error": found.standard_error,
        "projections": found.n_projections,
        "n": [len(a), len(b)],
    }
    line = (
        f"sliced distance {found.value:.6g} (energy {found.energy:.6g} ± {found.standard_error:.2g}"
    )
    return facts, f"{line}, {name}, {found.n_projections} lines)"
