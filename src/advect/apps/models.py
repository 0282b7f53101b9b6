"""Models as black boxes: evaluated in batches, never differentiated.

Torch modules, scikit-learn estimators and plain functions all answer through ``query``.

For data without labels, three can stand in: clusters of the samples, clusters of the model's features,
and the model's answers. Cohen's κ of the answers and the clusters tells whether the model knows the
data; it is 0 for chance. Above 0.6, "substantial" in the words of Landis and Koch (1977), its features
or answers are used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from advect._util import AdvectError, InputError, refuse_if
from advect._util.networks import BATCH, evaluate
from advect.classes.embedding import called
from advect.classes.matching import ClassMatching, codes_of
from advect.classes.pseudo import pseudo_labels, renumbered
from advect.data import LabeledDataset, estimated_laws

CLUSTERS, FEATURE_CLUSTERS, ANSWERS = "clusters", "clusters of features", "answers"
_MIN_AGREEMENT = 0.6  # κ above which a model is considered to recognize the data
_ADVICE = {
    CLUSTERS: "The model does not recognize the data, so clusters of the samples are used as classes. Without "
    "labels, their matching to the classes of the model cannot be checked",
    FEATURE_CLUSTERS: "The model recognizes the data, so clusters of its features are used as classes",
    ANSWERS: "Do not flow: the model recognizes the data. Use its predictions",
}


def query(model: Any, samples: Tensor) -> np.ndarray:
    """The answers of a model: (n, k) probabilities, or n labels. Other scores are taken as logits.

    Example:
        >>> query(lambda x: torch.zeros(len(x), 4), torch.zeros(1, 2)).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    call = _callable(model)
    try:
        parts = [_as_answer(call(part), len(part)) for part in samples.split(BATCH)]
        answers = np.concatenate(parts)
    except AdvectError:
        raise
    except Exception as error:
        raise InputError(
            "the model must take samples like these",
            f"{type(error).__name__}: {error} on shape {tuple(samples.shape)}",
            "Wrap it so that it takes a batch of samples of the reference's shape; for a network of "
            "(n, 1, H, W), prepend torch.nn.Unflatten(1, (1, H)).",
        ) from error
    if answers.ndim == 1:
        return answers
    scores = answers.astype(np.float64)
    if (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-3):
        return scores
    return torch.softmax(torch.from_numpy(scores), dim=1).numpy()


def answer_codes(answers: np.ndarray, classes: Sequence[Hashable]) -> np.ndarray:
    """The class position of each answer: the most likely class, or the class of that name."""
    if answers.ndim == 1:
        return codes_of(answers, classes)
    refuse_if(
        answers.shape[1] != len(classes),
        f"scores must be of the {len(classes)} reference classes",
        f"{answers.shape[1]}",
        "Give the reference all classes of the model, in its order.",
    )
    return answers.argmax(axis=1)


def _callable(model: Any) -> Callable[[Tensor], Any]:
    if isinstance(model, nn.Module):
        return partial(evaluate, model)
    for name in ("predict_proba", "predict"):
        with suppress(AttributeError):
            method = getattr(model, name)
            return lambda part: method(part.reshape(len(part), -1).cpu().numpy())
    refuse_if(
        not callable(model),
        "a model must be callable",
        type(model).__name__,
        "Pass a function, a torch module or an estimator.",
    )
    return model


def _as_answer(answer: Any, n: int) -> np.ndarray:
    array = np.asarray(answer.detach().cpu() if torch.is_tensor(answer) else answer)
    if array.ndim == 2 and array.shape[-1] == 1 and array.dtype.kind in "OUSib":
        array = array[:, 0]
    refuse_if(
        array.ndim not in (1, 2) or len(array) != n,
        f"the model must return a row of scores or a label for each of {n} samples",
        f"{type(answer).__name__} of shape {array.shape}",
        "Return (n, k) scores or n labels.",
    )
    refuse_if(
        array.dtype.kind == "f" and not np.isfinite(array).all(),
        "answers must be finite",
        "NaN or infinite scores",
        "Check the range of the samples that it was trained on.",
    )
    return array


def encoded(data: LabeledDataset, encoder: Any) -> LabeledDataset:
    """The dataset with the features that an encoder computes; unchanged without one."""
    if encoder is None:
        return data
    x = called(encoder, data.samples, "encoder")
    changes = {"law": None, "law_index": None, "columns": None}
    return data.replace(x=x, sample_shape=x.shape[1:], **changes)


@dataclass(frozen=True, eq=False)
class Labeling:
    """Substitute labels for data without labels, and the reason.

    Attributes:
        kind: ``"clusters"`` (of the samples), ``"clusters of features"`` or ``"answers"``.
        dataset: the data that flows, with these labels.
        agreement: Cohen's κ of the model's answers and the clusters named by the class matching.
    """

    kind: str
    dataset: LabeledDataset = field(repr=False)
    agreement: float

    @property
    def advice(self) -> str:
        """A recommendation for the flow."""
        return (
            f"{_ADVICE[self.kind]} (agreement of answers and clusters: κ = {self.agreement:.2f})."
        )


def choose_labeling(
    data: LabeledDataset,
    reference: LabeledDataset,
    encoded: LabeledDataset,
    encoded_reference: LabeledDataset,
    answers: np.ndarray,
) -> Labeling:
    """Choose the labels for a flow of data without labels.

    If the model recognizes the data: clusters of its features, or its answers if samples flow without an
    encoder. Otherwise clusters of the samples. ``encoded`` is the data in the model's features, or the same
    object without any.
    """
    from sklearn.metrics import cohen_kappa_score

    clusters = known = pseudo_labels(data, target=reference)
    kind, y, classes = ANSWERS, answers, reference.classes
    if encoded is not data:
        known = clusters_from_classes(encoded, encoded_reference)
        kind, y, classes = FEATURE_CLUSTERS, known.y, known.classes
    matching = ClassMatching.between(known, encoded_reference)
    positions = matching.coupling.values.argmax(axis=1)[known.y.cpu().numpy()]
    several = len({*positions, *answers}) > 1  # κ is undefined for one class
    kappa = float(cohen_kappa_score(positions, answers)) if several else 0.0
    if kappa < _MIN_AGREEMENT:
        kind, y, classes = CLUSTERS, clusters.y, clusters.classes
    y = torch.as_tensor(y, device=encoded.x.device)
    return Labeling(kind, encoded.replace(y=y, classes=classes, law=None, law_index=None), kappa)


def clusters_from_classes(data: LabeledDataset, reference: LabeledDataset) -> LabeledDataset:
    """Clusters of k-means that starts at the class means of a reference, moved to the data's mean."""
    from sklearn.cluster import KMeans

    x = data.x.double().cpu().numpy()
    means = estimated_laws(reference.balanced()).means.double().cpu().numpy()
    present = [code for code, count in enumerate(reference.counts.values()) if count]
    start = means[present] - means[present].mean(axis=0) + x.mean(axis=0)
    k = min(len(present), len(np.unique(x, axis=0)))
    codes = renumbered(np.asarray(KMeans(k, init=start[:k]).fit(x).labels_))
    y, classes = torch.as_tensor(codes, device=data.x.device), tuple(range(codes.max() + 1))
    return data.replace(y=y, classes=classes, law=None, law_index=None)
