"""Class weights of samples without labels, from classifiers: which there are by name, how they are
fitted on what has labels, which answers best.

Everything is repeatable: classifiers by name have fixed seeds, folds a fixed order, so that a map
read from a file fits them again to the same answers. Where a classifier is asked about what it
learned from, ``out_of_fold`` answers from the samples of other folds alone."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import one_hot

from advect._util.checks import check_known
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.maps.entropic_plans import BLOCK, Side

Posterior = Any  # None, one of KINDS, "auto", or a classifier with fit and predict_proba
# of equal ones, auto takes the first
KINDS = ("particles", "nearest", "logistic", "forest", "mean")
_AVERAGED = ("particles", "logistic", "forest")  # in "mean"
_FOLDS = 5
_RIDGE = 60.0  # chosen on parts of the training splits of USPS, KMNIST, Fashion-MNIST
_REMEDY = (
    'Pass "auto", one of "particles", "nearest", "logistic", "forest", "mean", or a scikit-learn '
    "classifier such as LogisticRegression()."
)

Answer = Callable[[np.ndarray], np.ndarray]  # points (n, d) to class weights (n, k)
Fit = Callable[[np.ndarray, np.ndarray], Answer]  # points and codes to an answer


def check_posterior(posterior: Posterior) -> None:
    """A name that is known, or something that can be fitted and asked."""
    if posterior is None:
        return
    if isinstance(posterior, str):
        check_known("posterior", posterior, (*KINDS, "auto"))
        return
    asked = any(callable(getattr(posterior, name, None)) for name in ("predict_proba", "predict"))
    if isinstance(posterior, type) or not asked or not callable(getattr(posterior, "fit", None)):
        what = "a posterior must be a name or a classifier with fit and predict_proba"
        raise InputError(what, repr(posterior), _REMEDY)


def classifier(kind: str, n: int) -> Any:
    """A new scikit-learn classifier for a name and a number of samples.

    Logistic regression has standardised features and a ridge that keeps its size beside the mean
    loss, 1/60, whatever the number: C = 60/n, at most 1.

    Example:
        >>> classifier("nearest", 100)
        KNeighborsClassifier(n_neighbors=1)
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    match kind:
        case "nearest":
            return KNeighborsClassifier(1)
        case "logistic":
            regression = LogisticRegression(C=min(1.0, _RIDGE / n), max_iter=1000)
            return make_pipeline(StandardScaler(), regression)
        case _:
            return RandomForestClassifier(random_state=0)


def fitting(posterior: Posterior, k: int) -> Fit:
    """How a classifier, or the one of a name, is fitted and then asked for weights of k classes.

    One of the user's is copied. Without ``predict_proba`` it answers with certainty, by
    ``predict``. Classes that it did not see have weight 0.

    Example:
        >>> fit = fitting("nearest", 3)
        >>> fit(np.array([[0.0], [5.0]]), np.array([0, 2]))(np.array([[4.0]])).tolist()
        [[0.0, 0.0, 1.0]]
    """

    def fit(x: np.ndarray, y: np.ndarray) -> Answer:
        seen = np.unique(y)
        if len(seen) == 1:  # which many classifiers refuse
            return lambda new: np.tile(np.eye(k)[seen[0]], (len(new), 1))
        own = classifier(posterior, len(x)) if isinstance(posterior, str) else _copied(posterior)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="lbfgs failed to converge")
            own.fit(x, y)
        return lambda new: _asked(own, new, k, len(seen))

    return fit


def fit_of(posterior: Posterior, epsilon: float, k: int) -> Fit:
    """How a posterior of any kind is fitted; ``"mean"`` is that of three.

    Example:
        >>> fit = fit_of("mean", 1.0, 2)
        >>> fit(np.array([[0.0], [0.1], [5.0]]), np.array([0, 0, 1]))(np.array([[5.0]])).argmax()
        np.int64(1)
    """
    match posterior:
        case "particles":
            return particles(epsilon, k)
        case "mean":
            fits = [fit_of(kind, epsilon, k) for kind in _AVERAGED]
            return lambda x, y: _mean([fit(x, y) for fit in fits])
        case _:
            return fitting(posterior, k)


def _mean(answers: list[Answer]) -> Answer:
    return lambda new: np.mean([answer(new) for answer in answers], axis=0)


def particles(epsilon: float, k: int) -> Fit:
    """The posterior of an entropic map, p(y | x) ∝ Σ_(i: y_i = y) exp(−‖x − x_i‖²/2ε), as a fit.

    Example:
        >>> fit = particles(1.0, 2)
        >>> fit(np.array([[0.0], [5.0]]), np.array([0, 1]))(np.array([[4.0]])).round(3).tolist()
        [[0.001, 0.999]]
    """

    def fit(x: np.ndarray, y: np.ndarray) -> Answer:
        rows = LabeledDataset(torch.as_tensor(x), torch.as_tensor(y), classes=range(k))
        side = Side(rows, torch.zeros(len(rows)), None, epsilon)
        codes = one_hot(rows.y, k).to(rows.x)

        def answer(new: np.ndarray) -> np.ndarray:
            blocks = torch.as_tensor(new).split(max(1, BLOCK // len(rows)))
            return torch.cat([side.plan(part, None) @ codes for part in blocks]).numpy()

        return answer

    return fit


def out_of_fold(fit: Fit, x: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Class weights (n, k) of the very samples, each from a fit without its fold.

    Example:
        >>> x, y = np.array([[0.0], [0.1], [5.0], [5.1]]), np.array([0, 0, 1, 1])
        >>> out_of_fold(fitting("nearest", 2), x, y, 2).argmax(axis=1).tolist()
        [0, 0, 1, 1]
    """
    if len(y) < 2:
        return np.full((len(y), k), 1 / k)
    folds, found = folds_of(y), np.empty((len(y), k))
    for fold in np.unique(folds):
        held = folds == fold
        found[held] = fit(x[~held], y[~held])(x[held])
    return found


def folds_of(y: np.ndarray, folds: int = _FOLDS) -> np.ndarray:
    """A fold for each sample, every class spread over them as evenly as its number allows; classes
    with fewer samples than folds are in some of them.

    Example:
        >>> np.bincount(folds_of(np.repeat([0, 1], [10, 5]))).tolist()
        [3, 3, 3, 3, 3]
    """
    order = np.random.default_rng(0).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    found = np.empty(len(y), dtype=np.int64)
    found[order] = np.arange(len(y)) % folds
    return found


class Choice(NamedTuple):
    """What cross-validation says of several posteriors.

    Attributes:
        kind: the best; of equal ones, the first.
        scores: the share of samples that each named right from other folds.
    """

    kind: str
    scores: dict[str, float]


def choose(epsilon: float, x: np.ndarray, y: np.ndarray, k: int) -> Choice:
    """The posterior that names most samples right when it has not learned from them.

    Example:
        >>> x, y = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])
        >>> choose(1.0, x, y, 2).scores["nearest"]
        1.0
    """
    rows = {
        kind: out_of_fold(fit_of(kind, epsilon, k), x, y, k) for kind in KINDS if kind != "mean"
    }
    rows["mean"] = np.mean([rows[kind] for kind in _AVERAGED], axis=0)
    scores = {kind: float((rows[kind].argmax(axis=1) == y).mean()) for kind in KINDS}
    return Choice(max(scores, key=lambda kind: scores[kind]), scores)


def _copied(estimator: Any) -> Any:
    from sklearn.base import clone

    try:
        return clone(estimator)
    except TypeError:  # not one of scikit-learn
        return copy.deepcopy(estimator)


def _asked(estimator: Any, x: np.ndarray, k: int, seen: int) -> np.ndarray:
    """The answers as weights of k classes that sum to one."""
    weights = np.zeros((len(x), k))
    if callable(getattr(estimator, "predict_proba", None)):
        columns = np.asarray(estimator.predict_proba(x), dtype=np.float64)
        classes = np.asarray(getattr(estimator, "classes_", np.arange(k)))
        if columns.shape == (len(x), len(classes)) and len(classes) == seen:
            weights[:, classes.astype(np.int64)] = columns
    else:
        codes = np.asarray(estimator.predict(x))
        if codes.shape == (len(x),) and np.isin(codes, np.arange(k)).all():
            weights[np.arange(len(x)), codes.astype(np.int64)] = 1.0
    totals = weights.sum(axis=1, keepdims=True)
    if not np.isfinite(weights).all() or (weights < 0).any() or (totals <= 0).any():
        raise InputError(
            f"a classifier must give probabilities of the {seen} classes it was fitted on",
            f"an answer of {type(estimator).__name__} that is none",
            "Check its predict_proba (n, classes), or predict.",
        )
    return weights / totals
