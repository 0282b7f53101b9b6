"""Classifiers and regressors of a target that are trained on an adapted source."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)

from advect._util.checks import check_methods, refuse_if
from advect.apps.adapt import adapt
from advect.apps.estimators import (
    REQUESTED,
    DatasetTransport,
    labeled_pair,
    target_of,
)
from advect.classes.shares import class_shares
from advect.data.dataset import LabeledDataset

_Rows = tuple[Any, Any, np.ndarray | None]  # samples, labels and weights to train on


class Adapting(MetaEstimatorMixin, BaseEstimator):
    """An estimator that is trained on other samples, labels or weights than those of ``fit``."""

    __metadata_request__fit = REQUESTED
    _continuous = False

    def __init__(
        self, estimator: Any, *, transformer: Any = None, target: tuple[Any, Any] | None = None
    ) -> None:
        self.estimator = estimator
        self.transformer = transformer
        self.target = target

    def _train(self, X: Any, y: Any, X_target: Any, y_target: Any, sample_weight: Any) -> Self:
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), y_numeric=self._continuous)
        X_target, y_target = target_of(self, len(X), X_target, y_target)
        if not self._continuous:
            check_classification_targets(y)
        prepare: Any = clone(
            FunctionTransformer() if self.transformer is None else self.transformer
        )
        self.transformer_ = prepare.fit(X, y)
        rows = self._prepared(X), y, sample_weight
        if X_target is not None or not self._needs_target:
            prepared = None if X_target is None else self._prepared(X_target)
            rows = self._training_set(*rows, prepared, y_target)
        X, y, weights = rows
        weighted = weights is not None and has_fit_parameter(self.estimator, "sample_weight")
        refuse_if(
            sample_weight is not None and not weighted,
            "the estimator takes no sample_weight",
            type(self.estimator).__name__,
            "Pass another estimator, or no weights.",
        )
        model: Any = clone(self.estimator)
        self.estimator_ = model.fit(X, y, **({"sample_weight": weights} if weighted else {}))
        return self

    _needs_target = True

    def _training_set(self, X: Any, y: Any, weights: Any, X_target: Any, y_target: Any) -> _Rows:
        """The samples, labels and weights of the adapted source."""
        raise NotImplementedError

    def predict(self, X: Any) -> np.ndarray:
        """Predictions for samples (n, d) of the target, which are not moved."""
        return self._ask("predict", X)

    def _ask(self, method: str, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return getattr(self.estimator_, method)(self._prepared(X))

    def _prepared(self, X: Any) -> Any:
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return self.transformer_.transform(X)


def _has(method: str) -> Any:
    return available_if(lambda self: hasattr(self.estimator, method))


class AdaptingClassifier(ClassifierMixin, Adapting):
    """With the methods of a classifier."""

    @property
    def classes_(self) -> np.ndarray:
        return self.estimator_.classes_

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of samples (n, d) of the target."""
        return self._ask("predict_proba", X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """The decision function of samples (n, d) of the target."""
        return self._ask("decision_function", X)


class _Weighted(Adapting):
    """Trained with weights of the source samples."""

    def fit(
        self,
        X: Any,
        y: Any,
        X_target: Any = None,
        y_target: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Adapt (X, y) to (X_target, y_target) and train the estimator there.

        Args:
            X: source samples (n, d).  y: their labels.
            X_target: target samples (m, d); None trains on the source as it is.
            y_target: their labels, −1 or NaN where they are missing, or None.
            sample_weight: weights of the source samples.
        """
        return self._train(X, y, X_target, y_target, sample_weight)


class _Transported(_Weighted):
    """Trained on a moved source."""

    def __init__(
        self,
        estimator: Any,
        *,
        transport: Any = None,
        transformer: Any = None,
        target: tuple[Any, Any] | None = None,
    ) -> None:
        super().__init__(estimator, transformer=transformer, target=target)
        self.transport = transport

    def _training_set(self, X: Any, y: Any, weights: Any, X_target: Any, y_target: Any) -> _Rows:
        given: Any = DatasetTransport() if self.transport is None else self.transport
        check_methods(
            "transport must be a DatasetTransport",
            given,
            ("inverse_transform",),
            'Pass None, or "auto" to TransportClassifier.',
        )
        transport: Any = clone(given)
        fitted = transport._fit(X, y, X_target, y_target, weights, self._continuous)
        self.transport_ = fitted
        return fitted.flowed_, y, len(X) * fitted.weights_


class TransportClassifier(AdaptingClassifier, _Transported):
    """A classifier of a target, trained on a labeled source that is moved there.

    ``fit(X, y, X_target, y_target)`` moves the source by ``DatasetTransport`` and trains a clone of the
    estimator on it, with the class proportions of the target if it takes ``sample_weight``. ``predict``
    takes samples of the target as they are. Labels of the target are optional, all or some.

    Args:
        estimator: a classifier of scikit-learn.
        transport: a ``DatasetTransport`` with other options; None for its defaults; "auto" for ``ad.adapt``,
            which also chooses between moving, weights and no change.
        transformer: such as ``StandardScaler()``, fitted on the source and applied to both sides before
            the transport. A step of a pipeline before this estimator is not applied to ``X_target``,
            unless metadata routing is enabled: ``Pipeline(…, transform_input=["X_target"])``.
        target: (X_target, y_target), instead of arguments of ``fit``. Use it in a search: scikit-learn cuts
            arguments of ``fit`` that are as long as X to the fold, which is refused. Folds of X are samples
            of the source: pass ``scoring`` that evaluates labeled samples of the target.

    Attributes:
        estimator_: the trained classifier.
        transport_: the fitted transport.
        adapted_: with "auto", the result of ``ad.adapt``.

    Example:
        >>> import numpy as np, advect as ad
        >>> from sklearn.svm import SVC
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat([0, 1], 60)
        >>> X, X_target = (rng.normal(size=(120, 2)) + 4 * y[:, None] for _ in range(2))
        >>> model = ad.TransportClassifier(SVC()).fit(X, y, X_target + [4, -4])
        >>> bool(model.score(X_target + [4, -4], y) > 0.95)
        True
    """

    def _training_set(self, X: Any, y: Any, weights: Any, X_target: Any, y_target: Any) -> _Rows:
        if self.transport != "auto":
            return super()._training_set(X, y, weights, X_target, y_target)
        self.adapted_ = adapt(*_pair(X, y, weights, X_target, y_target))
        data = self.adapted_.dataset
        return data.x.numpy(), np.array(data.labels), len(X) * data.weights.numpy()


class ClassReweighting(AdaptingClassifier, _Weighted):
    """A classifier of a target, trained with the class proportions of the target.

    The proportions are estimated from features alone by ``ad.class_shares``, and one sample of each class is
    added. Classes must look alike on both sides; labels of the target are not used.

    Args:
        estimator: a classifier of scikit-learn that takes ``sample_weight``.
        transformer, target: as for ``TransportClassifier``.

    Attributes:
        estimator_: the trained classifier.
        class_shares_: the result of ``ad.class_shares``.

    Example:
        >>> import numpy as np, advect as ad
        >>> from sklearn.linear_model import LogisticRegression
        >>> X = np.random.default_rng(0).normal(size=(300, 1)) + np.repeat([0, 3], 150)[:, None]
        >>> y = np.repeat([0, 1], 150)
        >>> model = ad.ClassReweighting(LogisticRegression()).fit(X, y, X_target=X[:180])
        >>> model.class_shares_.shares.round(1).tolist()
        [0.8, 0.2]
    """

    def _training_set(self, X: Any, y: Any, weights: Any, X_target: Any, y_target: Any) -> _Rows:
        self.class_shares_ = class_shares(*_pair(X, y, weights, X_target, None))
        return X, y, len(X) * self.class_shares_.reweighted(extra=1).weights.numpy()


def _pair(
    X: Any, y: Any, weights: Any, X_target: Any, y_target: Any
) -> tuple[LabeledDataset, LabeledDataset]:
    source, target = labeled_pair(X, y, X_target, y_target)
    return (source if weights is None else source.replace(weights=weights)), target


class TransportRegressor(RegressorMixin, _Transported):
    """A regressor of a target, trained on a source that is moved there; y are numbers.

    As ``TransportClassifier``. If no target value is known, features alone are compared.

    Example:
        >>> import numpy as np, advect as ad
        >>> from sklearn.linear_model import LinearRegression
        >>> X = np.random.default_rng(0).normal(size=(80, 2))
        >>> model = ad.TransportRegressor(LinearRegression()).fit(X, X[:, 0], X + 5, X[:, 0])
        >>> bool(model.score(X + 5, X[:, 0]) > 0.95)
        True
    """

    _continuous = True
