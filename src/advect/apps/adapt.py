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

from collections.abc import Hashable
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
from advect.data.laws.linalg import principal_axes
from advect.data.size import refuse_large
from advect.transport.transport import check_dataset

_LEVEL = 0.05  # of the tests
_AXES = 5  # principal axes in which densities are estimated
_TAIL, _COVERED = 0.01, 0.95  # of the source's density; share of the target above this quantile
_GAIN = 0.5  # of the misfit, for which samples are moved although no explanation fits
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


@dataclass(frozen=True, eq=False)
class Candidate:
    """A training set, the class probabilities of the target's samples under it, and the evidence."""

    method: str
    dataset: LabeledDataset = field(repr=False)
    answers: np.ndarray = field(repr=False)  # (m, k)
    p_value: float | None = None
    misfit: float | None = None
    log_density: float | None = None  # mean over the target

    @property
    def shift(self) -> str:
        return _SHIFTS.get(self.method, "conditional")


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
        probabilities: of each candidate by its method.
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
    dataset: LabeledDataset = field(repr=False)
    candidates: tuple[Candidate, ...]
    probabilities: dict[str, float]
    accuracy: float
    interval: tuple[float, float]
    model: Any = None
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> list[Hashable]:
        """The predicted class of each sample of the target."""
        return [self.source.classes[code] for code in self._chosen.answers.argmax(axis=1)]

    @property
    def _chosen(self) -> Candidate:
        return next(each for each in self.candidates if each.method == self.method)

    def _summary(self) -> dict[str, Any]:
        facts = {"shift": self.shift, "method": self.method, "reason": self.reason}
        facts |= {"accuracy": self.accuracy, "interval": list(self.interval)}
        return {**facts, "known labels": int(self.target.labeled.sum())}

    def _tables(self) -> list[Table]:
        columns = ("method", "shift", "probability", "p-value", "misfit", "log density", "accuracy")
        codes = _codes(self.source, self.target)
        known = codes >= 0
        rows = []
        for each in self.candidates:
            right = (each.answers.argmax(axis=1) == codes)[known]
            accuracy = float(right.mean()) if known.any() else None
            evidence = each.p_value, each.misfit, each.log_density, accuracy
            rows.append((each.method, each.shift, self.probabilities[each.method], *evidence))
        return [Table("Evidence", columns, rows)]


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
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(100, classes=2, generator=generator)
        >>> target = source.replace(x=0.5 * source.x + 3)
        >>> found = ad.adapt(source, ad.LabeledDataset(target.x))
        >>> found.shift, found.method
        ('conditional', 'move')
        >>> sum(a == b for a, b in zip(found.labels, target.labels)) > 95
        True
    """
    check_features(check_dataset("source", source), check_dataset("target", target))
    refuse_large("an adaptation", [len(source), len(target)], "audit", max_samples)
    codes, known = _codes(source, target), target.labeled.cpu().numpy()
    candidates, method, prior, reason = _unsupervised(source, target)
    if known.any():
        candidates += (_spread(source, target, codes),)
    others = (1 - prior) / (len(candidates) - 1)
    logs = [
        np.log(prior if each.method == method else others) + _log_likelihood(each, codes)
        for each in candidates
    ]
    odds = np.exp(np.array(logs) - max(logs))
    probabilities = {
        each.method: float(p) for each, p in zip(candidates, odds / odds.sum(), strict=True)
    }
    best = max(candidates, key=lambda each: probabilities[each.method])
    if best.method != method:
        reason = f"{_WHY[best.method]} (by {known.sum()} labels of the target)"
    guess = best.answers.argmax(axis=1)
    if model is not None:
        check_methods("model must be a classifier", model, ("fit", "predict"), "Pass SVC().")
        if best.method != "labels":
            rows = target.x.cpu().numpy()
            guess = codes_of(trained(model, best.dataset).predict(rows), source.classes)
    if known.any():
        right, n = int((guess == codes)[known].sum()), int(known.sum())
        accuracy, interval = right / n, wilson(right, n)
    else:
        rows = np.arange(len(guess))
        expected = {each.method: float(each.answers[rows, guess].mean()) for each in candidates}
        accuracy = expected[best.method]
        interval = min(expected.values()), max(expected.values())
    dataset = _with_labels(best.dataset, target) if known.any() else best.dataset
    return Adapted(
        source,
        target,
        _shift(best, reason),
        best.method,
        reason,
        dataset,
        candidates,
        probabilities,
        accuracy,
        interval,
        None if model is None else trained(model, dataset),
    )


def trained(model: Any, data: LabeledDataset) -> Any:
    """A clone of a classifier, fitted to data with its weights if it takes any."""
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    weights = len(data) * data.weights.cpu().numpy()
    options = {"sample_weight": weights} if has_fit_parameter(model, "sample_weight") else {}
    copy: Any = clone(model)
    return copy.fit(data.x.cpu().numpy(), np.array(data.labels), **options)


def _shift(best: Candidate, reason: str) -> str:
    return "conditional" if reason == _UNEXPLAINED else best.shift


def _codes(source: LabeledDataset, target: LabeledDataset) -> np.ndarray:
    """Classes of the target's samples as positions in those of the source, −1 without a label."""
    codes = np.full(len(target), -1)
    known = target.labeled.cpu().numpy()
    names = np.array([name for name in target.labels if name is not None], dtype=object)
    codes[known] = codes_of(names, source.classes)
    return codes


def _unsupervised(
    source: LabeledDataset, target: LabeledDataset
) -> tuple[tuple[Candidate, ...], str, float, str]:
    """The candidates without labels, the best, its prior probability, and the reason."""
    moved = _moved(source, target)
    plain, after = class_shares(source, target), class_shares(moved, target)
    axes = principal_axes([torch.cat([part.x - part.x.mean(dim=0) for part in (source, target)])])
    singular, directions = axes
    directions = directions[:_AXES][singular[:_AXES] > 1e-6 * singular[0]]

    def density(of: LabeledDataset, at: LabeledDataset) -> np.ndarray:
        points = [(data.x.double() @ directions.T).cpu().numpy() for data in (of, at)]
        return _log_density(points[0], of.weights.cpu().numpy(), points[1])

    inside = density(source, source)
    ratio = density(target, source) - inside
    selected = source.replace(weights=source.weights.numpy() * np.exp(ratio - ratio.max()))
    mass = source.class_mass.cpu().numpy()
    sets = {"leave": source, "reweight": plain.reweighted(), "move": after.reweighted()}
    means = {name: float(density(data, target).mean()) for name, data in sets.items()}
    candidates = (
        Candidate("leave", source, _answers(plain, mass), log_density=means["leave"]),
        _explained("reweight", plain, means["reweight"]),
        _explained("move", after, means["move"]),
        Candidate(
            "select",
            selected,
            _answers(class_shares(selected, target), selected.class_mass.cpu().numpy()),
        ),
    )
    d = len(directions)
    gain = len(target) * (means["move"] - means["reweight"]) - d * (d + 3) / 2
    name, best = ("move", after) if gain > 0 else ("reweight", plain)
    errors = plain.standard_error(generator=torch.Generator().manual_seed(0))
    errors = np.sqrt(errors**2 + mass * (1 - mass) / len(source))
    if plain.p_value >= _LEVEL and (np.abs(plain.shares - mass) <= 2 * errors + 1e-9).all():
        name, best = "leave", plain
    if best.p_value >= _LEVEL:
        return candidates, name, _SURE, f"{_WHY[name]} (p = {best.p_value:.2f})"
    if (density(source, target) > np.quantile(inside, _TAIL)).mean() >= _COVERED:
        return candidates, "select", _SURE, _WHY["select"]
    name = "move" if after.misfit < _GAIN * plain.misfit else "leave"
    return candidates, name, _UNSURE, _UNEXPLAINED


def _explained(method: str, found: ClassShares, log_density: float) -> Candidate:
    answers = _answers(found, found.shares)
    return Candidate(method, found.reweighted(), answers, found.p_value, found.misfit, log_density)


def _answers(found: ClassShares, mass: np.ndarray) -> np.ndarray:
    """Class probabilities of the target's samples, with these proportions."""
    joint = found.answers[1] * mass + 1e-12
    return joint / joint.sum(axis=1, keepdims=True)


def _log_density(points: np.ndarray, weights: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Log of a Gaussian kernel density estimate (Scott's rule); −∞ where points span no volume."""
    from scipy.stats import gaussian_kde

    try:
        return gaussian_kde(points.T, weights=weights).logpdf(at.T)
    except (np.linalg.LinAlgError, ValueError):
        return np.full(len(at), -np.inf)


def _moved(source: LabeledDataset, target: LabeledDataset) -> LabeledDataset:
    """The source after the optimal map between Gaussians, x → A (x − m) + m' with A S A = S'."""
    moments = []
    for data in (source, target):
        x, weights = data.x.double(), data.weights.double()[:, None]
        mean = (weights * x).sum(dim=0)
        covariance = (weights * (x - mean)).T @ (x - mean)
        # shrunk towards a multiple of the identity, which makes it invertible
        share = x.shape[1] / (x.shape[1] + len(x))
        eye = torch.eye(len(mean), dtype=x.dtype, device=x.device)
        scale = covariance.trace().clamp_min(1e-300) / len(mean)
        moments.append((mean, (1 - share) * covariance + share * scale * eye))
    (mean, first), (end, last) = moments
    root = symmetric_root(first[None])[0]
    inverse = torch.linalg.inv(root)
    matrix = inverse @ symmetric_root((root @ last @ root)[None])[0] @ inverse
    x = (source.x.double() - mean) @ matrix + end
    return source.replace(x=x.to(source.x.dtype), law=None, law_index=None)


def _spread(source: LabeledDataset, target: LabeledDataset, codes: np.ndarray) -> Candidate:
    """Labels of the target spread over its graph; the answers for labels are held out."""
    known, k = KnownLabels(codes, len(source.classes)), len(source.classes)
    points = Points(of_order_one(points_of(target, "auto", 0)))
    method = LabelMethod("propagate", "auto")
    answers = all_scores(method, points, codes, k)
    y = torch.as_tensor(answers.argmax(axis=1), device=target.y.device)
    labeled = target.replace(y=y, classes=source.classes, law=None, law_index=None)
    answers[codes >= 0] = 1 / k
    answers[known.held_out] = held_out_scores(method, points, known)
    return Candidate("labels", labeled, answers)


def _log_likelihood(candidate: Candidate, codes: np.ndarray) -> float:
    """Of the known labels, some of which are wrong."""
    known, k = codes >= 0, candidate.answers.shape[1]
    answers = candidate.answers[known, codes[known]]
    return float(np.log((1 - _WRONG) * answers + _WRONG / k).sum())


def _with_labels(data: LabeledDataset, target: LabeledDataset) -> LabeledDataset:
    """Training samples and the labeled ones of the target, which count more the more they are."""
    few = target.subset(target.labeled)
    few = renamed(few, {name: name for name in few.classes}, data.classes)
    both = joined([data, few])
    share = len(few) / (len(few) + _EVEN)
    weights = [(1 - share) * data.weights, share * few.weights.to(data.weights)]
    return both.replace(weights=torch.cat(weights))
