"""Labels for the unlabeled samples of partly labeled data, from those that have one."""

from __future__ import annotations

import torch

from advect._util.checks import check_kind, check_known
from advect.classes.clustering import join_nearest, of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.classes.spread import check_some, spread_labels
from advect.data.dataset import LabeledDataset
from advect.errors import InputError


def fill_labels(
    data: LabeledDataset,
    method: str = "propagate",
    *,
    neighbors: int = 10,
    alpha: float = 0.99,
    embedding: Embedded = None,
    seed: int = 0,
    doubt: bool = False,
) -> LabeledDataset:
    """The same samples, all labeled: those that had a label keep it, the others get one of those
    that occur.

    ``ad.apps.label`` does this too, chooses the settings itself, and says how sure each label is.

    Args:
        data: samples, some of them with labels.
        method: ``"propagate"`` spreads labels over the graph of nearest neighbours, so they follow
            the form of the data; ``"nearest"`` takes the label of the nearest labeled sample.
        neighbors: how many neighbours each sample is joined to in the graph.
        alpha: below 1; the nearer to it, the farther labels spread.
        embedding: where to measure distances instead of the features; see ``pseudo_labels``. For
            small images ``"gradients"`` is far better than pixels.
        seed: of an embedding that is random.
        doubt: keep how much of each class reaches a sample as its ``probabilities``
            (``spread_labels``), instead of the largest part alone.

    Raises:
        InputError: no sample has a label; unknown method; doubt of the nearest label.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [1.0], [2.0], [7.0], [8.0]], ["a", None, None, None, "b"])
        >>> ad.fill_labels(data, neighbors=1).labels
        ['a', 'a', 'a', 'b', 'b']
    """
    check_known("method to fill labels", method, ("nearest", "propagate"))
    remedy = "Wrap features as ad.LabeledDataset(x, labels)."
    check_kind("data must be a LabeledDataset", data, LabeledDataset, remedy)
    if data.complete:
        return data
    check_some(data)
    if doubt and method == "nearest":
        raise InputError(
            "the nearest label is taken without doubt", "doubt=True", 'Use method="propagate".'
        )
    if method == "nearest":
        points = of_order_one(points_of(data, embedding, seed))
        codes = join_nearest(points, data.y.cpu().numpy(), 1)
    else:
        shares = spread_labels(
            data, neighbors=neighbors, alpha=alpha, embedding=embedding, seed=seed
        )
        if doubt:
            return data.with_probabilities(shares)
        codes = shares.argmax(axis=1)
    return data.replace(y=torch.as_tensor(codes, device=data.y.device))
