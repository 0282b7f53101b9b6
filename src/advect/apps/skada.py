"""Estimators of advect for skada, where source and target are one array (``pip install advect[skada]``).

``sample_domain`` is not negative for samples of the source and negative for those of the target, whose labels
are masked (−1, NaN for regression) or known in part. Importing skada enables metadata routing of scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, clone

from advect.apps.estimators import DatasetTransport

_base: Any = import_module("skada.base")
_utils: Any = import_module("skada.utils")


class DomainClassifier(MetaEstimatorMixin, ClassifierMixin, _base.DAEstimator):
    """``ad.TransportClassifier`` or ``ad.ClassReweighting`` with the arguments of skada.

    Example:
        >>> import advect as ad
        >>> from advect.apps.skada import DomainClassifier
        >>> from sklearn.svm import SVC
        >>> model = DomainClassifier(ad.TransportClassifier(SVC(), transport="auto"))
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any = None, sample_domain: Any = None) -> DomainClassifier:
        """Adapt the samples of the source to those of the target, and train on them."""
        X, y, sample_domain = _utils.check_X_y_domain(X, y, sample_domain)
        X, X_target, y, y_target = _utils.source_target_split(X, y, sample_domain=sample_domain)
        model: Any = clone(self.estimator)
        self.estimator_ = model.fit(X, y, X_target=X_target, y_target=y_target)
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: Any, sample_domain: Any = None, allow_source: bool = True) -> np.ndarray:
        """Classes of samples of the target."""
        return self.estimator_.predict(X)

    def predict_proba(
        self, X: Any, sample_domain: Any = None, allow_source: bool = True
    ) -> np.ndarray:
        """Class probabilities of samples of the target."""
        return self.estimator_.predict_proba(X)


class TransportAdapter(_base.BaseAdapter):
    """``ad.DatasetTransport`` as a step of ``skada.make_da_pipeline``: it moves samples of the source.

    Args:
        transport: a ``DatasetTransport`` with other options.
    """

    def __init__(self, transport: DatasetTransport | None = None) -> None:
        super().__init__()
        self.transport = transport

    def fit(self, X: Any, y: Any = None, *, sample_domain: Any = None, **params: Any) -> Any:
        """Flow the samples of the source to those of the target."""
        X, sample_domain = _utils.check_X_domain(X, sample_domain)
        X, X_target, y, y_target = _utils.source_target_split(X, y, sample_domain=sample_domain)
        transport: Any = DatasetTransport() if self.transport is None else clone(self.transport)
        self.transport_ = transport.fit(X, y, X_target, y_target)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, *, sample_domain: Any = None, **params: Any
    ) -> Any:
        """``fit``, then ``transform`` of the same samples."""
        self.fit(X, y, sample_domain=sample_domain)
        return self.transform(X, sample_domain=sample_domain, allow_source=True)

    def transform(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_domain: Any = None,
        allow_source: bool = False,
        **params: Any,
    ) -> Any:
        """Samples of the source after the map, and those of the target as they are."""
        X, sample_domain = _utils.check_X_domain(X, sample_domain, allow_source=allow_source)
        source, target = _utils.source_target_split(X, sample_domain=sample_domain)
        moved = self.transport_.transform(source) if len(source) else source
        return _utils.source_target_merge(moved, target, sample_domain=sample_domain)[0]
