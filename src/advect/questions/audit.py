"""Which samples are wrong, odd or missing? Three columns, not one number: whether samples of like
features have another label, how badly a sample fits its own class, and how many others it stands for.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch

from advect._util.checks import check_count, check_kind
from advect._util.memory import MemoryLimit
from advect._util.progress import Progress, track
from advect.classes.clustering import of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.cost.ground import check_features
from advect.data.dataset import LabeledDataset
from advect.data.spaces.images import layout
from advect.errors import InputError
from advect.questions.audit_columns import Fits, Side, Votes, reduced, roundness, stands_for
from advect.questions.audit_plans import EPSILON
from advect.questions.audit_result import Audit

_TRIMMED = 0.02  # of a column on both sides, before its deviation is taken


def audit(
    data: LabeledDataset,
    reference: LabeledDataset | None = None,
    *,
    embedding: Embedded = "auto",
    seed: int = 0,
    memory_limit: MemoryLimit = None,
    progress: Progress = None,
) -> Audit:
    """Which samples are wrong, odd, copies of others, or missing?

    For a labeled dataset that somebody collected and nobody checked. Without a reference each sample is
    compared with the others of the dataset. A reference that is known to be right is better where it is
    there, even a small one: many bad samples that are alike hide one another, and what is missing can
    only be told beside it.

    *Wrong*: the dataset is carried to itself by features alone, no sample to itself; where the mass of a
    sample goes to others with another label, these disagree. *Odd*: the price of a sample in the
    transport of its class to itself is high. *Copies*: another sample is nearer than samples are.
    *Missing*: samples of the reference whose price in the data is high.

    Args:
        data: what to look at. Samples without a label have no say, and get a proposal.
        reference: samples that are right, in the same feature space (``ad.harmonize``); class shares
            and classes may differ.
        embedding: where distances are measured. ``"auto"``: images as they are, columns of tables in
            units of their deviation. None: features as they are; else a number of components, a torch
            module, an ONNX file, a transformer or a function, as in ``ad.pseudo_labels``: the body of a
            trained network is best for photographs.
        seed: of a random embedding.
        memory_limit: bytes, or a text like "2GiB", that matrices of costs may take; half of what is
            free by default. The work grows with the square of the number of samples.
        progress: None shows it on stderr when it takes long, False is silent, a function is called
            with (done, total).

    Returns:
        An ``Audit``: a table, ``suspects`` by a stated rule, a page.

    Raises:
        InputError: fewer than two samples, no labels, other features than the reference's.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits", n=300)
        >>> flipped = [(row + 1) % 10 if i < 6 else row for i, row in enumerate(digits.labels)]
        >>> found = ad.audit(ad.LabeledDataset(digits.samples, flipped))
        >>> set(range(6)) <= set(found.worst(15).tolist())
        True
        >>> [found.proposed[row] for row in range(6)] == digits.labels[:6]
        True
        >>> clean = found.data.without(found.suspects)
    """
    _check(data, reference)
    seed = check_count("seed", seed, least=0)
    names, sides = _sides(data, reference, embedding, seed)
    ours, right, k = sides[0], sides[-1], len(names)  # what is looked at, and by whom
    with track(3 * len(sides), "auditing", progress) as advance:
        crowds, votes, fits = [], [], []
        turn = roundness(sides, k)
        for side in sides:
            crowds.append(side.crowd(memory_limit))
            advance(1)
            votes.append(Votes.within(side, crowds[-1], k))
            advance(1)
            turned = Side(side.points @ turn, side.codes, side.mass)
            fits.append(Fits.of(turned, k, memory_limit))
            advance(1)
    said, misfit, gap = votes[0], fits[0].within(ours.codes), None
    chosen = crowds[0].among_itself()
    if reference is not None:
        said = votes[1].about(ours.points, right, crowds[1], k)
        misfit = fits[1].about(ours.points @ turn, ours.codes, own=True)
        gap = fits[0].about(right.points @ turn, right.codes, own=False)
        gap[(ours.counts(k)[right.codes.clamp_min(0)] == 0) & (right.codes >= 0)] = np.inf
        chosen = crowds[0].toward(right.points)
    disagreement = (1 - said.of(ours.codes)).clamp(0, 1).numpy()
    # nothing to disagree with: the class has no other sample, or is not in the reference
    least = 1 if reference is None else 0
    disagreement[(right.counts(k) <= least)[ours.codes.clamp_min(0)].numpy()] = np.nan
    best = said.shares.nan_to_num(-1).argmax(dim=1)
    spoken = ~said.shares.isnan().all(dim=1)
    usual = votes[-1].usual(right, k)
    support = said.shares.gather(1, best[:, None])[:, 0] / usual[best].clamp_min(1e-6)
    disputed = spoken & (best != ours.codes)
    twin, distance = crowds[0].nearest()
    unit = _typical_distance(distance.numpy())
    solved = all(
        one.converged for one in (*crowds, *(c for fit in fits for c in fit.crowds.values()))
    )
    return Audit(
        data=data,
        reference=reference,
        disagreement=disagreement,
        proposed=[
            names[code] if known else None
            for code, known in zip(best.tolist(), spoken.tolist(), strict=True)
        ],
        support=support.numpy(),
        confused_with=torch.where(disputed, said.loudest, -1).numpy(),
        misfit=misfit,
        stands_for=stands_for(right.mass, chosen, len(data)),
        twin=twin.numpy(),
        twin_distance=distance.numpy() / unit,
        gap=gap,
        settings={
            "distances": _where(data, embedding),
            "compared with": "the other samples" if reference is None else "the reference",
            "epsilon": f"{EPSILON:.0%} of the median cost",
        },
        notes=_notes(data, reference, solved),
    )


def _check(data: LabeledDataset, reference: LabeledDataset | None) -> None:
    remedy = "Wrap features and labels as ad.LabeledDataset(x, y)."
    for name, each in (("data", data), ("reference", data if reference is None else reference)):
        check_kind(f"{name} must be a LabeledDataset", each, LabeledDataset, remedy)
        each.require_classes("an audit")
        if not bool(each.labeled.any()):
            raise InputError(
                f"an audit needs labels, and {name} has none",
                f"{len(each)} samples without",
                "Pass labels; ad.pseudo_labels makes some of clusters.",
            )
    if reference is not None:
        check_features(data, reference)
    elif len(data) < 2:
        raise InputError(
            "each sample is compared with others",
            f"{len(data)} sample",
            "Pass more, or a reference.",
        )


def _sides(
    data: LabeledDataset, reference: LabeledDataset | None, embedding: Embedded, seed: int
) -> tuple[list[Hashable], list[Side]]:
    """Names of all classes, and the datasets as points in one space."""
    sets = [data] if reference is None else [data, reference]
    names = list(dict.fromkeys(name for each in sets for name in each.classes))
    x = torch.cat([each.x.detach().cpu().to(sets[0].x.dtype) for each in sets])
    even = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    joined = data.replace(x=x, y=torch.full((len(x),), -1), weights=even, law=None, law_index=None)
    auto = type(embedding) is str and embedding == "auto"
    table = auto and layout(data.sample_shape) is None
    rows = points_of(joined, None if auto else embedding, seed)
    rows = of_order_one(_even_columns(rows) if table else rows)
    points = reduced(torch.from_numpy(np.ascontiguousarray(rows)))
    sides = []
    for each, part in zip(sets, points.split([len(each) for each in sets]), strict=True):
        places = torch.tensor([*(names.index(name) for name in each.classes), -1])
        codes = places[each.y.cpu()]  # −1, without a label, is the last
        sides.append(Side(part, codes, each.weights.detach().cpu().double()))
    return names, sides


def _even_columns(points: np.ndarray) -> np.ndarray:
    """Columns in units of their deviation, without the ends, which may be errors; what does not vary
    becomes 0.
    """
    points = points / (np.abs(points).max() or 1.0)
    points = points - np.median(points, axis=0)
    inner = np.clip(points, *np.quantile(points, [_TRIMMED, 1 - _TRIMMED], axis=0))
    least = np.finfo(np.float64).eps * len(points) ** 0.5 * np.abs(points).max(initial=0)
    spread = np.where(inner.std(axis=0) > least, inner.std(axis=0), points.std(axis=0))
    return points / np.where(spread > least, spread, np.inf)


def _typical_distance(nearest: np.ndarray) -> float:
    """The median distance to the nearest other sample; where half of them are copies, the mean of the
    others.
    """
    some = nearest[np.isfinite(nearest) & (nearest > 0)]
    median = float(np.median(nearest))
    return median if 0 < median < np.inf else float(some.mean()) if len(some) else 1.0


def _where(data: LabeledDataset, embedding: Embedded) -> str:
    match embedding:
        case "auto":
            images = layout(data.sample_shape) is not None
            return "pixels as they are" if images else "columns in units of their deviation"
        case None:
            return "features as they are"
        case int() | float() | str():
            return f"embedding {embedding}"
    return f"embedding {type(embedding).__name__}"


def _notes(data: LabeledDataset, reference: LabeledDataset | None, solved: bool) -> tuple[str, ...]:
    """What a careful user would want to know."""
    notes, counts = [], data.counts
    if reference is None:
        notes.append(
            "Samples were compared with one another: many bad ones that are alike confirm each other. A "
            "reference that is known to be right, even a small one, does not have this weakness."
        )
        alone = [name for name, count in counts.items() if count == 1]
        if alone:
            notes.append(f"Nothing can be said about labels of one sample: {_some(alone)}.")
    else:
        known = {name for name, count in reference.counts.items() if count}
        other = [name for name, count in counts.items() if count and name not in known]
        if other:
            notes.append(f"Not in the reference, and so not judged: {_some(other)}.")
        there = {name for name, count in counts.items() if count}
        gone = [name for name in reference.classes if name in known and name not in there]
        if gone:
            notes.append(f"In the reference, and not in the data: {_some(gone)}.")
    unlabeled = int((~data.labeled).sum())
    if unlabeled:
        notes.append(f"{unlabeled} samples without a label have a proposal, and no misfit.")
    if not solved:
        notes.append("A transport problem did not converge: take the numbers as approximate.")
    return tuple(notes)


def _some(names: list[Any]) -> str:
    return ", ".join(map(str, names[:5])) + (" and others" if len(names) > 5 else "")
