"""The page of a map by flow matching: samples on their way, class by class, which classes are paired,
and how it was trained. One file, without scripts.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count, check_methods
from advect.data.dataset import LabeledDataset
from advect.maps.flow_matching import FlowMatchingMap
from advect.maps.pair_sampler import PairSampler
from advect.report.charts import loss_chart
from advect.report.encoding import Shades, picture_uri
from advect.report.page import filled, page_place, part, versions, write_page

_SIDE = 56  # pixels of a picture
_FRAMES = 5
_MOST_CLASSES = 20
_MOST_COLUMNS = 8
_PAIRS, _BATCH = 2048, 128  # that are counted


def write_matching_report(
    carrier: FlowMatchingMap,
    pairs: PairSampler,
    path: str | Path,
    *,
    new: LabeledDataset | None = None,
    title: str = "A map by flow matching",
    each: int = 6,
    seed: int = 0,
) -> Path:
    """Write a page about a map that was fitted on pairs, as one HTML file that needs no network and
    runs no script.

    Args:
        carrier: a fitted ``FlowMatchingMap``.
        pairs: the sampler it was fitted on.
        path: the file to write, ``….html``; folders on the way are made.
        new: samples to show on their way, with labels or without; those of the source by default.
        title: of the page.
        each: how many samples of each class to show.
        seed: of the draws.

    Returns:
        The path of the file.

    Raises:
        InputError: a map that is not fitted, or a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_matching_report
        >>> digits = ad.datasets.load("digits", n=100)
        >>> pairs = ad.PairSampler(digits, digits)
        >>> carry = ad.maps.FlowMatchingMap(updates=2, progress=False).fit(pairs)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_matching_report(carry, pairs, f"{folder}/page.html", title="Digits <8 x 8>")
        ...     print("Digits &lt;8 x 8&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    place, each = page_place(path), check_count("each", each)
    remedy = "Pass ad.maps.FlowMatchingMap(…).fit(pairs)."
    check_methods("carrier must be a FlowMatchingMap", carrier, ("path", "transform"), remedy)
    shown = pairs.whole.source if new is None else new
    return write_page(place, _page(carrier, pairs, shown, title, each, seed))


def _page(
    carrier: FlowMatchingMap,
    pairs: PairSampler,
    shown: LabeledDataset,
    title: str,
    each: int,
    seed: int,
) -> str:
    from markupsafe import Markup

    source, target = pairs.whole
    groups = [_group(carrier, shown, target, code, each) for code in _shown_classes(shown)]
    draw = torch.Generator().manual_seed(seed)
    drawn = list(pairs.batches(_BATCH, _PAIRS // _BATCH, draw))
    y0, y1 = (torch.cat([batch[side] for batch in drawn]).cpu() for side in (2, 3))
    labeled = source.complete and target.complete
    mixed = pairs.mixed(y0, y1) if labeled else None
    images = Shades.of(shown.sample_shape, shown.x[:1]) is not None
    columns = [] if images else [str(n) for n in shown.columns or _numbered(shown.dim)]
    times = ", ".join(f"{k / (_FRAMES - 1):g}" for k in range(_FRAMES))
    return filled(
        "matching.html.jinja",
        title=title,
        style=Markup(part("style.css") + part("labels.css") + part("matching.css")),
        notes=_notes(carrier, pairs, labeled, mixed),
        tiles=_tiles(carrier, pairs, mixed),
        about=f"Numbers are rows; states at t = {times}"
        + ("; last, the nearest sample of the target." if images else "."),
        groups=groups,
        columns=columns[:_MOST_COLUMNS],
        more_columns=max(0, len(columns) - _MOST_COLUMNS),
        drawn=f"{len(y0):,}",
        others=[str(name) for name in target.classes[:_MOST_CLASSES]] if labeled else [],
        shares=_shares(pairs, y0, y1) if labeled else [],
        left_out=_left_out(pairs) if labeled else "There are samples without labels.",
        chart=loss_chart(carrier.history_),
        setup={
            "map": repr(carrier),
            "label weight": "infinite" if math.isinf(pairs.label_weight) else pairs.label_weight,
            "solver of batches": repr(pairs.solver),
            "versions": versions(),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
    )


def _numbered(n: int) -> list[str]:
    return [f"x{k}" for k in range(n)]


def _shown_classes(shown: LabeledDataset) -> list[int]:
    """Positions of classes that have samples; −1 for samples without a label."""
    return shown.y.unique().tolist()[:_MOST_CLASSES]


def _notes(
    carrier: FlowMatchingMap, pairs: PairSampler, labeled: bool, mixed: float | None
) -> list[str]:
    found = []
    if mixed:
        found.append(
            f"{mixed:.0%} of the pairs are of classes that do not belong together: a greater "
            "label weight mixes less, an infinite one never."
        )
    if labeled and math.isinf(pairs.label_weight):
        source, _ = pairs.whole
        alone = [str(name) for name in source.classes if name not in carrier.classes_]
        if alone:
            found.append(f"Classes without a partner are never drawn: {', '.join(alone)}.")
        gap = float((_arriving(pairs) - pairs.whole.target.class_mass.cpu()).abs().sum()) / 2
        if gap > 0.05:
            found.append(
                f"Class shares of source and target differ by {gap:.0%}: what arrives has the "
                "shares of the source."
            )
    return found


def _arriving(pairs: PairSampler) -> Tensor:
    """Class shares of the target that pairs have at an infinite label weight."""
    mass = pairs.whole.source.class_mass.cpu() @ pairs.partners
    return mass / mass.sum()


def _tiles(
    carrier: FlowMatchingMap, pairs: PairSampler, mixed: float | None
) -> list[tuple[str, str]]:
    source, target = pairs.whole
    last = f"{carrier.history_[-1]:.3g}" if carrier.history_ else "not trained"
    return [
        ("samples of the source", f"{len(source):,}"),
        ("of the target", f"{len(target):,}"),
        ("classes known to the map", f"{len(carrier.classes_):,}"),
        ("pairs of other classes", "unknown" if mixed is None else f"{mixed:.1%}"),
        ("updates", f"{carrier.updates:,}"),
        ("last loss", last),
    ]


def _group(
    carrier: FlowMatchingMap, shown: LabeledDataset, target: LabeledDataset, code: int, each: int
) -> dict[str, Any]:
    """Some samples of a class on their way."""
    members = (shown.y == code).nonzero()[:, 0]
    rows = members[:each]
    label = None if code < 0 or shown.classes[code] not in carrier.classes_ else shown.classes[code]
    x = shown.samples[rows]
    states = carrier.path(x, None if label is None else [label] * len(rows), _FRAMES)
    group: dict[str, Any] = {
        "name": "without a label" if code < 0 else str(shown.classes[code]),
        "about": f"{len(members):,} samples" + ("" if label is not None else ", carried blind"),
    }
    shades = Shades.of(shown.sample_shape, shown.x, target.x)
    flat = states.reshape(*states.shape[:2], -1).cpu()
    if shades is None:
        return group | {"ways": [], "rows": _rows(rows, flat)}
    pictures = [[picture_uri(one) for one in shades.pixels(part, _SIDE)] for part in flat]
    near = torch.cdist(flat[-1].double(), target.x.double().cpu()).argmin(dim=1)
    nearest = [picture_uri(one) for one in shades.pixels(target.x.cpu()[near], _SIDE)]
    ways = [
        {"row": int(row), "states": [part[k] for part in pictures], "near": nearest[k]}
        for k, row in enumerate(rows.tolist())
    ]
    return group | {"ways": ways, "rows": []}


def _rows(rows: Tensor, states: Tensor) -> list[dict[str, Any]]:
    """The first and the last state of samples that are no pictures."""
    return [
        {
            "row": row,
            "time": time,
            "features": [f"{value:.4g}" for value in states[at, k, :_MOST_COLUMNS].tolist()],
        }
        for k, row in enumerate(rows.tolist())
        for at, time in ((0, "0"), (-1, "1"))
    ]


def _shares(pairs: PairSampler, y0: Tensor, y1: Tensor) -> list[tuple[str, list[tuple[str, bool]]]]:
    """For each class of the source, in per cent, with which classes it was paired."""
    source, target = pairs.whole
    counts = torch.zeros(len(source.classes), len(target.classes)).index_put_(
        (y0, y1), torch.ones(len(y0)), accumulate=True
    )
    shares = 100 * counts / counts.sum(dim=1, keepdim=True).clamp_min(1)
    together = pairs.partners > 0
    return [
        (
            str(source.classes[row]),
            [
                (f"{float(shares[row, column]):.0f}", bool(together[row, column]))
                for column in range(min(len(target.classes), _MOST_CLASSES))
            ],
        )
        for row in range(min(len(source.classes), _MOST_CLASSES))
    ]


def _left_out(pairs: PairSampler) -> str:
    more = max(len(data.classes) for data in pairs.whole) - _MOST_CLASSES
    return f"At most {_MOST_CLASSES} classes of each are shown." if more > 0 else ""
