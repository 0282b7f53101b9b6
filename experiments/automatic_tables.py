"""Tables of ``automatic``, and of the defaults of flows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from statistics import fmean
from typing import Any

from tables import Experiment, markdown

from advect._util import defaults

_USED_BY = (
    "ad.flow with a functional, ad.iterate, ad.OTDD, ad.otdd; advect flow -f, advect distance",
    "ad.flow(source, target), ad.DatasetTransport, ad.apps.repurpose; advect flow A B",
    "ad.apps.transfer; advect transfer",
)
_REASONS = {  # for each number that differs from the situation before it
    "": {
        "n_steps": "flow time 10: an exact distance falls by the factor exp(-10)",
        "step_size": "short enough for a path that can be looked at and compared with theory",
        "label_weight": "the paper's cost, so that distances can be compared with published ones",
        "epsilon": "1 % of the mean cost: below the noise of samples, and quick to solve",
        "tol": "a step of 0.1 does not see less; near the target it is made smaller by itself",
    },
    " to use": {
        "n_steps": "flow time 6: what is left, exp(-6), is less than what a model or a map sees",
        "step_size": "only the end is used, and steps twice as long end in the same place",
        "label_weight": "what comes out is read by its classes: they must hold together on the way",
    },
    " to a few samples": {
        "label_weight": "a few samples say little about their class: labels must keep classes apart",
        "epsilon": "in proportion to the label weight, so that samples do not end in averages",
    },
}
_HEAD = {  # what a column is called in the table
    "not moved": "not moved",
    "not moved, source's scale": "not moved, one scale",
    "explicit defaults": "explicit defaults",
    "automatic, by law": "by law",
    "automatic": "**automatic**",
    "POT Sinkhorn": "Sinkhorn",
    "POT Sinkhorn, class groups": "Sinkhorn, groups",
    "POT EMD": "EMD",
    "POT EMD, class by class": "EMD by class",
    "class means": "class means",
    "class covariances": "class covariances",
    "target's labels only": "target's labels only",
}


_NUMBERED = ", classes as numbers"  # a control, not one of the pairs


def automatic() -> Experiment:
    """The pairs, without the control."""
    found = Experiment.read("automatic")
    cells = {name: cell for name, cell in found.cells.items() if _NUMBERED not in name}
    return replace(
        found, cells=cells, planned={p: n for p, n in found.planned.items() if _NUMBERED not in p}
    )


def automatic_table() -> str:
    """One row for each pair: mean accuracies, and the gain of the automatic choice with its interval."""
    found, rows = automatic(), []
    for setting, cells in found.groups.items():
        if cells:
            means = {way: found.mean(setting, way).partition(" ")[0] for way in _HEAD}
            gain = found.gain(setting, found.recommended, found.baseline)
            means[found.recommended] = f"**{means[found.recommended]}** ({gain})"
            rows.append([setting, *means.values()])
    return markdown(["source → target", *_HEAD.values()], rows) if rows else f"*{found.draws}*"


def automatic_verdict() -> str:
    """In how many pairs the automatic choice is above and below, by means and significantly."""
    found = automatic()
    return " ".join(
        f"Against *{over}*: higher in {sum(gain.mean > 0 for gain in gains)} of {len(gains)} pairs, "
        f"significantly in {sum(gain.sign > 0 for gain in gains)}; significantly lower in "
        f"{sum(gain.sign < 0 for gain in gains)}; {fmean(gain.mean for gain in gains):+.1f} points on average."
        for over in ("not moved", "explicit defaults")
        if (gains := found.gains(found.recommended, over))
    )


def defaults_table() -> str:
    """The three situations, and why their numbers differ."""
    kinds = {"LOOK": defaults.LOOK, "USE": defaults.USE, "FEW": defaults.FEW}
    shown = [one.name for one in fields(defaults.FlowDefaults)]
    rows = [
        [f"`{name}`", *(f"{getattr(held, name):g}" for held in kinds.values())] for name in shown
    ]
    rows.append(["used by", *_USED_BY])
    return markdown(["", "explicit flows", "automatic flows", "flows to few samples"], rows)


def defaults_reasons() -> str:
    """A list of reasons, one for each number, and one for each that differs."""
    kinds = (defaults.LOOK, defaults.USE, defaults.FEW)
    return "\n".join(
        f"- `{name}` {getattr(held, name):g}{words}: {why}."
        for held, (words, reasons) in zip(kinds, _REASONS.items(), strict=True)
        for name, why in reasons.items()
    )


WORDS: dict[str, Callable[..., Any]] = {
    "automatic": automatic,
    "automatic_table": automatic_table,
    "automatic_verdict": automatic_verdict,
    "defaults_table": defaults_table,
    "defaults_reasons": defaults_reasons,
}
