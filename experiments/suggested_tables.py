"""Tables of ``suggested``: advice beside the defaults and beside the best of a grid; and the defaults themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from statistics import fmean
from typing import Any

from tables import Experiment, markdown

from advect._util import defaults

_USED_BY = (
    "ad.flow(source, ad.OTDD(target)), ad.iterate, ad.otdd; advect distance",
    "ad.flow(source, target), ad.apps.repurpose, ad.DatasetTransport; advect flow",
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
        "n_steps": "flow time 15, after which little changes",
        "step_size": "only the end is used, and a step that raises the objective is shortened",
        "label_weight": "keeps classes together on the way; at 1 the distance of samples outweighs them",
        "epsilon": "of the mean feature cost about both means, so that it does not grow with the label weight",
    },
    " to a few samples": {
        "step_size": "as measured with few samples",
        "label_weight": "a few samples say little about their class: labels must keep classes apart",
        "epsilon": "in proportion to the label weight, so that samples do not end in averages",
    },
}
_NAMED = ("defaults", "defaults, equal mass", "suggested")


def _run(found: Experiment) -> list[str]:
    """The settings that have a draw."""
    return [setting for setting, cells in found.groups.items() if cells]


def _best(found: Experiment, setting: str, part: str) -> float:
    """The best mean of the grid in a setting: highest accuracy, lowest of what is left."""
    ways = [way for way in found.columns if way.startswith("grid")]
    means = [fmean(found.values(setting, way, part=part)) for way in ways]
    return (max if part == "accuracies" else min)(means)


def suggested_table() -> str:
    """One row for each pair."""
    found, rows = Experiment.read("suggested"), []
    for setting in _run(found):
        row = [setting]
        for part, scale, digits in (("accuracies", 1, 1), ("left", 100, 1)):
            means = [fmean(found.values(setting, way, part=part)) for way in _NAMED]
            means.append(_best(found, setting, part))
            row += [f"{scale * mean:.{digits}f}" for mean in means]
        row += [
            f"{100 * fmean(found.values(setting, way, part='left, as drawn')):.1f}"
            for way in ("defaults", "suggested")
        ]
        rows.append(row)
    head = ["source → target", "accuracy: defaults", "equal mass", "suggested", "best of grid"]
    head += ["left: defaults", "equal mass", "suggested", "best of grid"]
    head += ["left, as drawn: defaults", "suggested"]
    return markdown(head, rows) if found.cells else f"*{found.draws}*"


def suggested_verdict() -> str:
    """How often advice is above or below, and how far from the best of the grid."""
    found = Experiment.read("suggested")
    if not found.cells:
        return f"*{found.draws}*"
    said = []
    for part, scale, name in (("accuracies", 1, "accuracy"), ("left", 100, "what is left")):
        sign = 1 if part == "accuracies" else -1
        ahead, equal, off = [], [], []
        for setting in _run(found):
            plain, same, own = (fmean(found.values(setting, way, part=part)) for way in _NAMED)
            ahead.append(sign * scale * (own - plain))
            equal.append(sign * scale * (own - same))
            off.append(sign * scale * (_best(found, setting, part) - own))
        n = len(ahead)
        said.append(
            f"In {name} it is better than the defaults on {sum(x > 0 for x in ahead)} of {n} pairs and worse on "
            f"{sum(x < 0 for x in ahead)} (by {fmean(ahead):.1f} points on average, {min(ahead):+.1f} at worst), than the "
            f"defaults with equal mass better on {sum(x > 0 for x in equal)} and worse on {sum(x < 0 for x in equal)} "
            f"({fmean(equal):+.1f} on average, {min(equal):+.1f} at worst); the best of the grid, chosen after the fact "
            f"for each pair, is {fmean(off):.1f} points better on average and {max(off):.1f} at most."
        )
    spent = {
        way: fmean(cell["flow"][way]["seconds"] for cell in found.cells.values()) for way in _NAMED
    }
    said.append(
        f"A flow takes {spent['suggested']:.1f} processor seconds as suggested and {spent['defaults']:.1f} by default."
    )
    return " ".join(said)


def defaults_table() -> str:
    """The three situations, and why their numbers differ."""
    kinds = {"LOOK": defaults.LOOK, "USE": defaults.USE, "FEW": defaults.FEW}
    shown = [one.name for one in fields(defaults.FlowDefaults)]
    rows = [
        [f"`{name}`", *(f"{getattr(held, name):g}" for held in kinds.values())] for name in shown
    ]
    rows.append(["used by", *_USED_BY])
    return markdown(["", "to look at", "to use", "to a few samples"], rows)


def defaults_reasons() -> str:
    """A list of reasons, one for each number, and one for each that differs."""
    kinds = (defaults.LOOK, defaults.USE, defaults.FEW)
    return "\n".join(
        f"- `{name}` {getattr(held, name):g}{words}: {why}."
        for held, (words, reasons) in zip(kinds, _REASONS.items(), strict=True)
        for name, why in reasons.items()
    )


WORDS: dict[str, Callable[..., Any]] = {
    "suggested_table": suggested_table,
    "suggested_verdict": suggested_verdict,
    "defaults_table": defaults_table,
    "defaults_reasons": defaults_reasons,
}
