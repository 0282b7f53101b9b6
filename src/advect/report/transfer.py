"""The pages of training sets for a few samples: which ways were tried and what each named right, what
the sets hold, and how samples look; and of accuracies over several draws. One file each, without
scripts.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_count
from advect.apps.evaluation import TransferScores
from advect.apps.transfer import Transferred
from advect.report.charts import curve_chart
from advect.report.class_tables import MOST_CLASSES, heat
from advect.report.page import made_with, page_place, plain_page, write_page
from advect.report.samples import Samples
from advect.report.scores import mean_row, share_row
from advect.report.story import chosen
from advect.report.summary import described

_MOST_SHOWN = 40  # classes with their samples
_OPTIONS = ("among", "n", "few_share", "seed", "label", "label_weight", "solver")
_BASE = "target only"


def write_transfer_report(
    made: Transferred,
    path: str | Path,
    *,
    title: str = "Training sets for a few samples",
    each: int = 8,
    flow: bool | None = None,
) -> Path:
    """Write a page about training sets that ``ad.apps.transfer`` made, as one HTML file that needs no
    network and runs no script.

    Args:
        made: what ``ad.apps.transfer`` returned.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        each: how many samples of each class to show.
        flow: also tell of the paper's flow, which runs then; by default only where it has run
            already, since ``made.result`` or one of its forms was looked at.

    Returns:
        The path of the file.

    Raises:
        InputError: a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> source = ad.datasets.load("digits", n=200)
        >>> few = ad.datasets.load("digits", n=30, seed=9, balanced=True)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = ad.apps.transfer(source, few).report(f"{folder}/page.html", title="<Digits>")
        ...     print("&lt;Digits&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    place, each = page_place(path), check_count("each", each)
    ran = "result" in vars(made) if flow is None else flow
    return write_page(place, _page(made, title, each, ran))


def _page(made: Transferred, title: str, each: int, flow: bool) -> str:
    sets = {"few": made.few, "source": made.source, "recommended": made.recommended}
    shown_sets = {"the few": made.few}
    if made.added is not None:
        shown_sets[f"added by {made.choice.way}"] = made.added
    if flow:
        sets |= {"final, of the flow": made.final, "way, of the flow": made.way}
        shown_sets["where the flow ended"] = made.final
        if made.mapped is not None:
            sets["mapped, of the flow"] = made.mapped
    looks = Samples(*shown_sets.values())
    names = [name for name, count in made.few.counts.items() if count][:_MOST_SHOWN]
    return plain_page(
        "transfer.html.jinja",
        title=title,
        notes=[],
        tiles=_tiles(made),
        reason=made.choice.reason,
        scores=_scores(made),
        held_out=made.choice.held_out,
        sets=[(name, described(data, len(data))) for name, data in sets.items()],
        counts=[_count_row(made, name) for name in names],
        groups=[
            {
                "name": str(name),
                "kinds": [
                    {"title": text, "cards": looks.of_class(data, name, each)}
                    for text, data in shown_sets.items()
                ],
            }
            for name in names
        ],
        heads=looks.columns,
        flow=_flow(made) if flow else None,
        setup={
            **chosen(made.options, _OPTIONS),
            **made_with(),
        },
    )


def _tiles(made: Transferred) -> list[tuple[str, str]]:
    choice = made.choice
    tiles = [
        ("few samples", f"{len(made.few):,}"),
        ("source samples", f"{len(made.source):,}"),
        ("to train on", f"{len(made.recommended):,}"),
        ("chosen way", choice.way),
    ]
    if choice.way in choice.accuracies:
        tiles.append(("right, of held-out samples", f"{choice.accuracies[choice.way]:.1%}"))
    if "shots" in choice.accuracies and choice.way != "shots":
        gain = choice.accuracies[choice.way] - choice.accuracies["shots"]
        tiles.append(("gain over the few alone", f"{100 * gain:+.1f} points"))
    return tiles


def _scores(made: Transferred) -> list[dict[str, Any]]:
    choice = made.choice
    return [
        share_row(way, right, choice.held_out, taken="chosen" if way == choice.way else "")
        for way, right in sorted(choice.accuracies.items(), key=lambda pair: -pair[1])
    ]


def _count_row(made: Transferred, name: Any) -> tuple[str, str, str, str]:
    added = 0 if made.added is None else made.added.counts.get(name, 0)
    code = made.recommended.classes.index(name)
    mass = float(made.recommended.weights[made.recommended.y == code].sum())
    return str(name), f"{made.few.counts[name]:,}", f"{added:,}", f"{mass:.1%}"


def _flow(made: Transferred) -> dict[str, Any]:
    values = [(k, value) for k, value in enumerate(made.result.values) if np.isfinite(value)]
    coupling = made.matching.coupling
    return {
        "facts": {
            "steps": f"{made.result.n_steps:,} ({made.result.status})",
            "nearest to one of the few with the same label": f"{made.purity:.1%}",
            "left within a fifth of the way from one of the few": f"{made.landed:.1%}",
        },
        "pairs": list(made.matching.hard.items()),
        "matching": heat(coupling, share=True) if max(coupling.shape) <= MOST_CLASSES else None,
        "chart": curve_chart("Objective", "step", "value", values) if len(values) > 1 else None,
    }


def write_scores_report(
    scores: TransferScores, path: str | Path, *, title: str = "Does the source help?"
) -> Path:
    """Write a page about accuracies that ``ad.apps.evaluate_transfer`` measured, as one HTML file that
    needs no network and runs no script.

    Args:
        scores: what ``ad.apps.evaluate_transfer`` returned.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.

    Returns:
        The path of the file.

    Raises:
        InputError: a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> scores = ad.apps.TransferScores({"target only": [0.5, 0.7, 0.6], "+ final": [0.6, 0.7, 0.7]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(scores.report(f"{folder}/scores.html").name)
        scores.html
    """
    place, ways = page_place(path), list(scores.accuracies)
    best = max(ways, key=scores.mean)
    draws = max(len(values) for values in scores.accuracies.values())
    text = plain_page(
        "scores.html.jinja",
        title=title,
        notes=["One draw says nothing of how much another would differ."] if draws < 2 else [],
        tiles=[
            ("ways of training", f"{len(ways)}"),
            ("draws", f"{draws}"),
            ("best", best),
            ("right, on the test part", f"{scores.mean(best):.1%}"),
        ],
        scores=[_mean(scores, way, best) for way in ways],
        gains=[_gain(scores, way) for way in ways if way != _BASE] if _BASE in ways else [],
        base=_BASE,
        draws=[(way, [f"{100 * v:.1f}" for v in scores.accuracies[way]]) for way in ways],
        numbers=range(1, draws + 1),
        setup=made_with(),
    )
    return write_page(place, text)


def _mean(scores: TransferScores, way: str, best: str) -> dict[str, Any]:
    mean, half = scores.mean(way), scores.interval(way)
    known = math.isfinite(half)
    return mean_row(
        way,
        mean,
        (mean - half, mean + half) if known else None,
        taken="best" if way == best else "",
        about=f"± {100 * half:.1f}" if known else "one draw",
    )


def _gain(scores: TransferScores, way: str) -> tuple[str, str, str]:
    """By how much a way is above the few alone on the same draws, and what that says."""
    mean, half = scores.gain(way)
    told = f"{100 * mean:+.1f}" + (f" ± {100 * half:.1f}" if math.isfinite(half) else "")
    if not math.isfinite(half) or abs(mean) <= half:
        return way, told, "within chance"
    return way, told, "helps" if mean > 0 else "harms"
