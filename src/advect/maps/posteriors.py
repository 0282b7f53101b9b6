"""Class probabilities of samples without labels, from particles or classifiers.

Classifiers by name have fixed seeds and folds a fixed order, so a map that is read from a file gives
the same answers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from advect._util.checks import check_known
from advect.errors import InputError

Posterior = Any  # None, one of KINDS, "auto", or a classifier with fit and predict_proba
KINDS = ("particles", "nearest", "logistic", "forest", "mean")  # of equal scores the first is taken
_AVERAGED = ("particles", "logistic", "forest")  # in "mean"
_FOLDS = 5
_RIDGE = 60.0  # C = 60/n, at most 1; chosen on training splits of USPS, KMNIST, Fashion-MNIST

Answer = Callable[[np.ndarray], np.ndarray]  # points (n, d) to probabilities (n, k)
Fit = Callable[[np.ndarray, np.ndarray], Answer]  # points and codes to an answer


def check_posterior(posterior: Posterior) -> None:
    """A known name, or a classifier."""
    if isinstance(posterior, str):
        check_known("posterior", posterior, (*KINDS, "auto"))
    elif posterior is not None:
        names = ("predict_proba", "predict")
        can_predict = any(callable(getattr(posterior, name, None)) for name in names)
        can_fit = callable(getattr(posterior, "fit", None))
        if isinstance(posterior, type) or not can_predict or not can_fit:
            what = "a posterior must be a name or a classifier with fit and predict_proba"
            remedy = f'Pass "auto", {", ".join(map(repr, KINDS))}, or LogisticRegression().'
            raise InputError(what, repr(posterior), remedy)


def fit_of(posterior: Posterior, epsilon: float, k: int) -> Fit:
    """The fit of a posterior of any kind, for k classes.

    Example:
        >>> fit = fit_of("nearest", 1.0, 3)
        >>> fit(np.array([[0.0], [5.0]]), np.array([0, 2]))(np.array([[4.0]])).tolist()
        [[0.0, 0.0, 1.0]]
    """
    match posterior:
        case "particles":
            return lambda x, y: lambda new: kernel_weights(new, x, epsilon) @ np.eye(k)[y]
        case "mean":
            fits = [fit_of(kind, epsilon, k) for kind in _AVERAGED]

            def mean_fit(x: np.ndarray, y: np.ndarray) -> Answer:
                answers = [fit(x, y) for fit in fits]
                return lambda new: np.mean([answer(new) for answer in answers], axis=0)

            return mean_fit

    def classifier_fit(x: np.ndarray, y: np.ndarray) -> Answer:
        present = np.unique(y)
        if len(present) == 1:  # many classifiers refuse one class
            return lambda new: np.tile(np.eye(k)[present[0]], (len(new), 1))
        is_name = isinstance(posterior, str)
        model = _classifier(posterior, len(x)) if is_name else _copied(posterior)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="lbfgs failed to converge")
            model.fit(x, y)
        return lambda new: _probabilities(model, new, k, len(present))

    return classifier_fit


def kernel_weights(new: np.ndarray, x: np.ndarray, epsilon: float) -> np.ndarray:
    """exp(−‖new − x_i‖²/2ε), normalized over i, (n, m)."""
    from scipy.special import softmax

    return softmax((new @ x.T - np.square(x).sum(axis=1) / 2) / epsilon, axis=1)


def out_of_fold(fit: Fit, x: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Probabilities (n, k) of the samples themselves, each from a fit without its fold."""
    if len(y) < 2:
        return np.full((len(y), k), 1 / k)
    folds, rows = folds_of(y), np.empty((len(y), k))
    for fold in np.unique(folds):
        held = folds == fold
        rows[held] = fit(x[~held], y[~held])(x[held])
    return rows


def folds_of(y: np.ndarray, folds: int = _FOLDS) -> np.ndarray:
    """A fold for each sample, stratified by class.

    Example:
        >>> np.bincount(folds_of(np.repeat([0, 1], [10, 5]))).tolist()
        [3, 3, 3, 3, 3]
    """
    order = np.random.default_rng(0).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % folds
    return fold


def choose(epsilon: float, x: np.ndarray, y: np.ndarray, k: int) -> tuple[str, dict[str, float]]:
    """The posterior with the best cross-validated accuracy, and all accuracies."""
    kinds = [kind for kind in KINDS if kind != "mean"]
    rows = {kind: out_of_fold(fit_of(kind, epsilon, k), x, y, k) for kind in kinds}
    rows["mean"] = np.mean([rows[kind] for kind in _AVERAGED], axis=0)
    scores = {kind: float((rows[kind].argmax(axis=1) == y).mean()) for kind in KINDS}
    return max(scores, key=lambda kind: scores[kind]), scores


def _classifier(kind: str, n: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "nearest":
        return KNeighborsClassifier(1)
    if kind == "logistic":
        regression = LogisticRegression(C=min(1.0, _RIDGE / n), max_iter=1000)
        return make_pipeline(StandardScaler(), regression)
    return RandomForestClassifier(random_state=0)


def _copied(estimator: Any) -> Any:
    from sklearn.base import clone

    try:
        return clone(estimator)
    except TypeError:  # not an estimator of scikit-learn
        return copy.deepcopy(estimator)


def _probabilities(estimator: Any, x: np.ndarray, k: int, n_present: int) -> np.ndarray:
    """Probabilities of k classes, 0 for classes that were not fitted; ``predict`` gives certainty."""
    weights = np.zeros((len(x), k))
    if callable(getattr(estimator, "predict_proba", None)):
        columns = np.asarray(estimator.predict_proba(x), dtype=np.float64)
        classes = np.asarray(getattr(estimator, "classes_", np.arange(k)))
        if columns.shape == (len(x), len(classes)) and len(classes) == n_present:
            weights[:, classes.astype(np.int64)] = columns
    else:
        codes = np.asarray(estimator.predict(x))
        if codes.shape == (len(x),) and np.isin(codes, np.arange(k)).all():
            weights[np.arange(len(x)), codes.astype(np.int64)] = 1.0
    totals = weights.sum(axis=1, keepdims=True)
    if not np.isfinite(weights).all() or (weights < 0).any() or (totals <= 0).any():
        raise InputError(
            f"a classifier must return probabilities of the {n_present} fitted classes",
            f"an invalid answer of {type(estimator).__name__}",
            "Check its predict_proba (n, classes), or predict.",
        )
    return weights / totals
