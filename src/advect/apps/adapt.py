"""Choose how to adapt a labeled dataset to a target, from the data and from labels of the target if any.

Four explanations of the target are compared. *None*: it is like the source. *Class proportions*: classes
look alike (``class_shares``). *Conditional*: classes look alike after the affine map A(x − m) + m' that
takes the mean and covariance of the source to those of the target. *Covariate*: the same labels belong to
the same features, and the target is another part of the source. The ``p_value`` of the proportions tests
the first three. Between proportions and the map, the density of the target decides, with Akaike's penalty
of one for each of the d(d + 3)/2 parameters of the map. The fourth is left if these fail and the source
covers the target. With labels, an explanation k has the probability ∝ prior_k Π_i p_k(y_i | x_i); clusters
of the target with its own labels are a fifth candidate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from advect._util.checks import check_methods, refuse_if
from advect._util.result import Result, Table
from advect.apps.label_methods import (
    KnownLabels,
    LabelMethod,
    Points,
    all_scores,
    held_out_scores,
    wilson,
)
from advect.apps.training import joined, renamed
from advect.classes.clustering import of_order_one
from advect.classes.embedding import points_of
from advect.classes.matching import codes_of
from advect.classes.shares import ClassShares, class_shares
from advect.cost.ground import check_features
from advect.data.dataset import LabeledDataset
from advect.data.laws.covariance import symmetric_root
from advect.data.laws.gaussians import estimate_gaussians
from advect.data.laws.linalg import principal_axes
from advect.data.size import refuse_large
from advect.transport.transport import check_dataset

_LEVEL = 0.05  # of the tests
_AXES = 5  # principal axes in which densities are estimated
_TAIL, _COVERED = 0.01, 0.95  # of the source's density; share of the target above this quantile
_GAIN = 0.75  # of the misfit, for which samples are moved although no explanation fits
_SURE, _UNSURE = 0.98, 0.3  # prior probability of the choice without labels
_WRONG = 0.1  # share of labels that no explanation predicts
_EVEN = 100  # labels of the target that count as much as all other training samples
_SHIFTS = {"leave": "none", "reweight": "class proportions", "select": "covariate"}
_WHY = {
    "leave": "class proportions agree, and classes look alike",
    "reweight": "classes look alike, in other proportions",
    "move": "classes look alike after an affine map",
    "select": "neither proportions nor an affine map explain the target, and the source covers it",
    "labels": "labels of the target disagree with the source",
}
_UNEXPLAINED = "nothing explains the target; label some of its samples"
_HEADLINE = ("shift", "method", "reason", "accuracy", "interval")
_EVIDENCE = ("method", "probability", "p_value", "misfit", "log_density", "accuracy")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A training set, the class probabilities of the target's samples under it, and the evidence."""

    method: str
    dataset: LabeledDataset = field(repr=False)
    answers: np.ndarray = field(repr=False)  # (m, k)
    p_value: float | None = None  # of ``ClassShares``, as the misfit
    misfit: float | None = None
    log_density: float | None = None  # mean over the target
    probability: float = 0.0
    accuracy: float | None = None  # on known labels of the target


@dataclass(frozen=True, eq=False)
class Adapted(Result):
    """A training set for a target, the result of ``ad.adapt``.

    Attributes:
        source, target: the datasets.
        shift: "none", "class proportions", "covariate" or "conditional".
        method: "leave", "reweight" (class proportions), "select" (weights by the ratio of densities),
            "move" (affine map, and class proportions) or "labels" (spread the labels of the target).
        reason: why, in one sentence.
        dataset: the training set with weights, and with the labeled samples of the target.
        candidates: the training sets that were compared, with their evidence.
        accuracy: the expected share of correct labels in the target: that of the known labels, or
            without any the one if the shift is as stated.
        interval: a 95 % interval (Wilson) with known labels; without any, the range of the accuracy over all
            candidates, one of which is assumed to be right.
        model: the trained model, or None.
    """

    title = "Adaptation"
    source: LabeledDataset = field(repr=False)
    target: LabeledDataset = field(repr=False)
    shift: str
    method: str
    reason: str
    accuracy: float
    interval: tuple[float, float]
    dataset: LabeledDataset = field(repr=False)
    candidates: tuple[Candidate, ...]
    model: Any = None

    def _summary(self) -> dict[str, Any]:
        known = {"known labels": int(self.target.labeled.sum())}
        return {name: getattr(self, name) for name in _HEADLINE} | known

    def _tables(self) -> list[Table]:
        rows = [[getattr(each, name) for name in _EVIDENCE] for each in self.candidates]
        return [Table("Evidence", [name.replace("_", " ") for name in _EVIDENCE], rows)]


def adapt(
    source: LabeledDataset,
    target: LabeledDataset,
    model: Any = None,
    *,
    max_samples: int | None = None,
) -> Adapted:
    """Tell how a target differs from a labeled source, and make a training set for it.

    Use it for a classifier of the target if the target has few labels, or none. Ten labels are enough to
    choose well among the methods. Without labels the choice assumes that one of the shifts below is
    right: features alone cannot exclude that labels mean something else in the target.

    | shift | method | training set |
    | --- | --- | --- |
    | none | leave | the source |
    | class proportions | reweight | the source with the class proportions of the target |
    | covariate | select | the source, weighted by the ratio of densities |
    | conditional | move | the source after an affine map, with the class proportions of the target |
    | conditional | labels | the target, with its labels spread to neighbours |

    Args:
        source: labeled samples.
        target: samples in the same feature space (``ad.harmonize``), labeled with classes of the source or not.
        model: a classifier of scikit-learn; a clone is trained on the result.
        max_samples: largest size of a dataset, above which an error is raised at once; by default what
            takes about a minute.

    Example:
        >>> import torch, advect as ad
        >>> from sklearn.svm import SVC
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(100, classes=2, generator=generator)
        >>> target = source.replace(x=0.5 * source.x + 3)
        >>> found = ad.adapt(source, ad.LabeledDataset(target.x), SVC())
        >>> found.shift, found.method
        ('conditional', 'move')
        >>> found.model.score(target.x, target.labels) > 0.95
        True
    """
    check_features(check_dataset("source", source), check_dataset("target", target))
    refuse_large("an adaptation", [len(source), len(target)], "audit", max_samples)
    foreign = [name for name, n in target.counts.items() if n and name not in source.classes]
    refuse_if(
        foreign,
        "labels of the target must be classes of the source",
        foreign,
        "Rename or remove them; None is a missing label.",
    )
    target = renamed(target, {name: name for name in source.classes}, source.classes)
    codes, k = target.y.cpu().numpy(), len(source.classes)
    known = codes >= 0
    candidates, method, sure, reason = _unsupervised(source, target)
    if known.any():
        candidates.append(_spread(target, codes))
    prior = [sure if c.method == method else (1 - sure) / 4 for c in candidates]
    answers = np.stack([each.answers for each in candidates])
    right = (1 - _WRONG) * answers[:, known, codes[known]] + _WRONG / k
    odds = np.log(prior) + np.log(right).sum(axis=1)
    odds = np.exp(odds - odds.max())
    best = candidates[int(odds.argmax())]
    if known.any() and (best.method != method or reason == _UNEXPLAINED):
        reason = f"{_WHY[best.method]}; decided by {known.sum()} labels of the target"
    guess = best.answers.argmax(axis=1)
    if model is not None and best.method != "labels":
        guess = codes_of(
            trained(model, best.dataset).predict(target.x.cpu().numpy()), source.classes
        )
    expected = answers[:, np.arange(len(guess)), guess].mean(axis=1)
    accuracy, interval = expected[odds.argmax()], (expected.min(), expected.max())
    hits, dataset = (answers.argmax(axis=2) == codes)[:, known], best.dataset
    if known.any():
        right = (guess == codes)[known]
        accuracy, interval = right.mean(), wilson(int(right.sum()), len(right))
        dataset = _with_labels(dataset, target)
    rows = zip(candidates, odds / odds.sum(), hits, strict=True)
    return Adapted(
        source,
        target,
        "conditional" if reason == _UNEXPLAINED else _SHIFTS.get(best.method, "conditional"),
        best.method,
        reason,
        float(accuracy),
        (float(interval[0]), float(interval[1])),
        dataset,
        tuple(
            replace(each, probability=float(p), accuracy=float(hit.mean()) if len(hit) else None)
            for each, p, hit in rows
        ),
        None if model is None else trained(model, dataset),
    )


def trained(model: Any, data: LabeledDataset) -> Any:
    """A clone of a classifier, fitted to data with its weights if it takes any."""
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    check_methods("model must be a classifier", model, ("fit", "predict"), "Pass SVC().")
    weights = {"sample_weight": len(data) * data.weights.cpu().numpy()}
    options = weights if has_fit_parameter(model, "sample_weight") else {}
    copy: Any = clone(model)
    return copy.fit(data.x.cpu().numpy(), np.array(data.labels), **options)


def _unsupervised(
    source: LabeledDataset, target: LabeledDataset
) -> tuple[list[Candidate], str, float, str]:
    """The candidates without labels, the best, its prior probability, and the reason."""
    both = torch.cat([part.x.double() - part.x.double().mean(dim=0) for part in (source, target)])
    singular, axes = principal_axes([both])
    axes = axes[:_AXES][singular[:_AXES] > 1e-6 * singular[0]].T

    def density(of: LabeledDataset, at: LabeledDataset = target) -> np.ndarray:
        points, rows = ((part.x.double() @ axes).cpu().numpy() for part in (of, at))
        return _log_density(points, of.weights.cpu().numpy(), rows)

    inside = density(source, source)
    ratio = density(target, source) - inside
    selected = source.replace(weights=source.weights.cpu().numpy() * np.exp(ratio - ratio.max()))
    plain = class_shares(source, target)
    after = class_shares(_moved(source, target), target)
    candidates = [
        Candidate("leave", source, _answers(plain, source), log_density=density(source).mean()),
        Candidate("select", selected, _answers(class_shares(selected, target), selected)),
    ]
    for name, found in (("reweight", plain), ("move", after)):
        data = found.reweighted(extra=1)
        numbers = found.p_value, found.misfit, float(density(data).mean())
        candidates.append(Candidate(name, data, _answers(found, data), *numbers))
    densities = [each.log_density or 0.0 for each in candidates[2:]]
    gain = len(target) * (densities[1] - densities[0]) - axes.shape[1] * (axes.shape[1] + 3) / 2
    name, best = ("move", after) if gain > 0 else ("reweight", plain)
    mass = source.class_mass.cpu().numpy()
    errors = plain.standard_error(generator=torch.Generator().manual_seed(0))
    variances = errors**2 + mass * (1 - mass) / len(source) + 1e-12
    if plain.p_value >= _LEVEL and (np.square(plain.shares - mass) <= 4 * variances).all():
        name, best = "leave", plain
    if best.p_value >= _LEVEL:
        return candidates, name, _SURE, f"{_WHY[name]} (p = {best.p_value:.2f})"
    if (density(source) > np.quantile(inside, _TAIL)).mean() >= _COVERED:
        return candidates, "select", _SURE, _WHY["select"]
    gains = after.misfit < _GAIN * plain.misfit
    return candidates, "move" if gains else "leave", _UNSURE, _UNEXPLAINED


def _answers(found: ClassShares, data: LabeledDataset) -> np.ndarray:
    """Class probabilities of the target's samples, with the class proportions of these data."""
    joint = found.answers[1] * data.class_mass.cpu().numpy() + 1e-12
    return joint / joint.sum(axis=1, keepdims=True)


def _log_density(points: np.ndarray, weights: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Log of a Gaussian kernel density estimate (Scott's rule); −1e6 where points span no volume."""
    from scipy.stats import gaussian_kde

    try:
        return gaussian_kde(points.T, weights=weights).logpdf(at.T).clip(min=-1e6)
    except (np.linalg.LinAlgError, ValueError):
        return np.full(len(at), -1e6)


def _moved(source: LabeledDataset, target: LabeledDataset) -> LabeledDataset:
    """The source after the optimal map between Gaussians, x → A (x − m) + m' with A S A = S'."""
    laws = [
        estimate_gaussians(data.x.double(), torch.zeros_like(data.y), data.weights.double(), 1)
        for data in (source, target)
    ]
    # covariances are shrunk towards a multiple of the identity, which makes them invertible
    d, covariances = source.dim, torch.cat([law.covariances() for law in laws])
    share = covariances.new_tensor([[[d / (d + len(data))]] for data in (source, target)])
    scales = covariances.diagonal(dim1=1, dim2=2).mean(dim=1).clamp_min(1e-300)[:, None, None]
    identity = torch.eye(d).to(covariances)
    first, last = torch.lerp(covariances, scales * identity, share).split(1)
    root = symmetric_root(first)
    inverse = torch.linalg.inv(root)
    matrix = (inverse @ symmetric_root(root @ last @ root) @ inverse)[0]
    x = (source.x.double() - laws[0].means) @ matrix + laws[1].means
    return source.replace(x=x.to(source.x.dtype), law=None, law_index=None)


def _spread(target: LabeledDataset, codes: np.ndarray) -> Candidate:
    """Labels of the target spread over its graph; the answers for labels are held out."""
    k = len(target.classes)
    known, points = KnownLabels(codes, k), Points(of_order_one(points_of(target, "auto", 0)))
    method = LabelMethod("propagate", "auto")
    answers = all_scores(method, points, codes, k)
    filled = target.replace(y=torch.as_tensor(answers.argmax(axis=1), device=target.y.device))
    answers[codes >= 0] = 1 / k
    answers[known.held_out] = held_out_scores(method, points, known)
    return Candidate("labels", filled, answers)


def _with_labels(data: LabeledDataset, target: LabeledDataset) -> LabeledDataset:
    """Training samples and the labeled ones of the target, which count more the more they are."""
    few = target.subset(target.labeled)
    share = len(few) / (len(few) + _EVEN)
    weights = [(1 - share) * data.weights, share * few.weights.to(data.weights)]
    return joined([data, few]).replace(weights=torch.cat(weights))
