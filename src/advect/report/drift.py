"""The page of a drift: what was asked and found, class by class, and what the window looks like
beside the reference. One file, without scripts.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count
from advect.data.dataset import LabeledDataset
from advect.questions.drift_result import Drift, DriftTest
from advect.report.charts import null_chart
from advect.report.encoding import Shades, picture_uri
from advect.report.page import filled, page_place, part, versions, write_page

_SIDE = 72  # pixels of a picture
_MOST_CLASSES, _MOST_COLUMNS, _MOST_PAIRS = 60, 12, 10
_LOOKED_AT = 400  # samples of a side among which the farthest are looked for


def write_drift_report(
    found: Drift, path: str | Path, *, title: str = "Drift", each: int = 7
) -> Path:
    """Write a page about what ``ad.drift`` found, as one HTML file that needs no network and runs no
    script.

    Args:
        found: what ``ad.drift`` or ``DriftMonitor.update`` returned.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        each: how many images of each class to show from either side.

    Returns:
        The path of the file.

    Raises:
        InputError: a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_drift_report
        >>> data = ad.datasets.load("toy:gaussians?n=80")
        >>> found = ad.drift(data, data.replace(x=data.x + 9))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_drift_report(found, f"{folder}/drift.html", title="A & B")
        ...     print("A &amp; B" in path.read_text(encoding="utf-8"))
        True
    """
    place, each = page_place(path), check_count("each", each)
    return write_page(place, _page(found, title, each))


def _page(found: Drift, title: str, each: int) -> str:
    from markupsafe import Markup

    classes = found.classes[:_MOST_CLASSES]
    left = len(found.classes) - len(classes)
    return filled(
        "drift.html.jinja",
        title=title,
        style=Markup(part("style.css") + part("labels.css") + part("drift.css")),
        drifted=found.drifted,
        sentences=[*found.sentences, *([f"{left} more classes are not shown."] if left else [])],
        tiles=_tiles(found),
        tests=[_test_row(test, found.level) for test in found.tests],
        charts=[
            null_chart(_chart_title(test), test.permuted, _observed(test))
            for test in found.tests
            if len(test.permuted)
        ],
        classes=[_class_row(found, one) for one in classes],
        pairs=[_pair_row(found, one) for one in found.trades[:_MOST_PAIRS]] if found.traded else [],
        pictures=_pictures(found, each),
        columns=_columns(found),
        setup={
            "level": f"{found.level:g}, over the tests together (Holm)",
            "permutations": f"{found.n_permutations:,} of each test, seed {found.seed}",
            "versions": versions(),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
    )


def _tiles(found: Drift) -> list[tuple[str, str]]:
    n, m = len(found.reference), len(found.window)
    return [
        ("drift", "found" if found.drifted else "not found"),
        ("smallest adjusted p", _number(min(t.adjusted for t in found.tests if t.tested))),
        ("samples before and now", f"{n:,} and {m:,}"),
        ("labels before and now", f"{found.labels_reference:,} and {found.labels_window:,}"),
        ("classes changed", f"{len({*found.changed_classes, *found.changed_shares}):,}"),
        ("pairs that trade", f"{len(found.traded):,}"),
    ]


def _observed(test: DriftTest) -> float:
    spread, mean = test.permuted.std(), test.permuted.mean()
    return float(mean + test.excess * spread)


def _chart_title(test: DriftTest) -> str:
    return f"{test.question[0].upper()}{test.question[1:]}"


def _test_row(test: DriftTest, level: float) -> dict[str, Any]:
    return {
        "question": test.question,
        "adjusted": _number(test.adjusted),
        "p": _number(test.p_value),
        "excess": _number(test.excess),
        "n": f"{test.n_reference:,} and {test.n_window:,}",
        "found": test.adjusted <= level,
        "tested": test.tested,
    }


def _class_row(found: Drift, one: Any) -> dict[str, Any]:
    top = max(max(each.share_reference, each.share_window) for each in found.classes) or 1.0
    return {
        "name": str(one.name),
        "state": {"new": "new", "gone": "none in the window"}.get(one.state, ""),
        "counts": f"{one.n_reference:,} and {one.n_window:,}",
        "before": f"{100 * one.share_reference:.1f} %",
        "now": f"{100 * one.share_window:.1f} %",
        "width_before": round(100 * one.share_reference / top, 1),
        "width_now": round(100 * one.share_window / top, 1),
        "share_p": _number(one.share_adjusted),
        "share_found": one.name in found.changed_shares,
        "shift": _number(one.shift, 2),
        "p": _number(one.adjusted),
        "found": one.name in found.changed_classes,
    }


def _pair_row(found: Drift, one: Any) -> dict[str, Any]:
    return {
        "first": str(one.first),
        "second": str(one.second),
        "p": _number(one.p_value),
        "forth": f"{_percent(one.forth_before)} → {_percent(one.forth)}",
        "back": f"{_percent(one.back_before)} → {_percent(one.back)}",
        "found": one in found.traded,
    }


def _pictures(found: Drift, each: int) -> list[dict[str, Any]]:
    """For images: the mean and some samples of either side, of the classes that changed; of all
    samples where labels are missing.
    """
    before, after = found.reference, found.window
    shades = Shades.of(before.sample_shape, before.x, after.x)
    if shades is None or not found.drifted:
        return []
    traded = [name for one in found.traded for name in (one.first, one.second)]
    names = dict.fromkeys([*found.changed_classes, *traded, *found.changed_shares])
    rows = []
    for name in list(names)[:12]:
        one, other = _of_class(before, name), _of_class(after, name)
        rows.append({"name": f"Class {name}", "rows": _two_rows(shades, one, other, each)})
    if not rows:
        rows.append({"name": "All samples", "rows": _two_rows(shades, before.x, after.x, each)})
    return rows


def _of_class(data: LabeledDataset, name: Any) -> Tensor:
    if name not in data.classes:
        return data.x[:0]
    return data.x[data.y == data.classes.index(name)]


def _two_rows(shades: Shades, one: Tensor, other: Tensor, each: int) -> list[dict[str, Any]]:
    """The mean of a side, and its samples that are farthest from the samples of the other."""
    found = []
    for name, mine, yours in (("reference", one, other), ("window", other, one)):
        if not len(mine):
            found.append({"name": name, "about": "no samples", "uris": []})
            continue
        some, others = mine[:_LOOKED_AT].double(), yours[:_LOOKED_AT].double()
        rows = torch.arange(len(some))
        if len(others):
            apart = torch.cdist(some, others)
            if len(others) > 1:  # its own copy on the other side says nothing
                apart = apart.topk(min(3, len(others)), largest=False).values
            rows = apart.mean(dim=1).argsort(descending=True, stable=True)
        shown = torch.cat([mine.double().mean(dim=0, keepdim=True), some[rows[:each]]])
        pictures = [picture_uri(image) for image in shades.pixels(shown, _SIDE)]
        found.append({"name": name, "about": f"{len(mine):,} samples", "uris": pictures})
    return found


def _columns(found: Drift) -> list[dict[str, str]]:
    """For tables: the columns whose means or deviations moved most."""
    before, after = found.reference, found.window
    if len(before.sample_shape) > 1:
        return []
    one, other = before.x.double(), after.x.double()
    both = torch.cat([one, other])
    spread = both.std(dim=0, unbiased=False)
    moved = (other.mean(dim=0) - one.mean(dim=0)) / torch.where(spread > 0, spread, torch.inf)
    names = before.columns or [f"x{place}" for place in range(before.dim)]
    order = np.argsort(-moved.abs().cpu().numpy(), kind="stable")[:_MOST_COLUMNS]
    return [
        {
            "name": str(names[place]),
            "before": f"{float(one[:, place].mean()):.4g} ± {float(one[:, place].std(unbiased=False)):.2g}",
            "now": f"{float(other[:, place].mean()):.4g} ± {float(other[:, place].std(unbiased=False)):.2g}",
            "moved": f"{float(moved[place]):+.2f}",
        }
        for place in order.tolist()
    ]


def _percent(share: float) -> str:
    return "none" if math.isnan(share) else f"{100 * share:.0f} %"


def _number(value: float, digits: int = 3) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}g}" if digits == 3 else f"{value:.2f}"
