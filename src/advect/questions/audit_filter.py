"""A classifier that is trained without suspicious samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from advect.apps.adapting import AdaptingClassifier
from advect.data.dataset import LabeledDataset
from advect.questions.audit import audit


class AuditFilter(AdaptingClassifier):
    """A classifier that is trained without the samples that ``ad.audit`` suspects.

    Suspected label errors, outliers and duplicates are dropped. A class of which every sample is suspected
    stays.

    Args:
        estimator: a classifier of scikit-learn.
        transformer: such as ``StandardScaler()``, fitted on X and applied before the audit.
        target: (X, y) of trusted samples, the reference of the audit, instead of ``X_target`` and
            ``y_target`` in ``fit``; they are not trained on.

    Attributes:
        estimator_: the trained classifier.
        audit_: the result of ``ad.audit``.

    Example:
        >>> import numpy as np, advect as ad
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> y = np.repeat([0, 1], 50)
        >>> X = np.random.default_rng(0).normal(size=(100, 2)) + 8 * y[:, None]
        >>> wrong = np.where(np.arange(100) == 3, 1, y)
        >>> model = ad.AuditFilter(KNeighborsClassifier(1)).fit(X, wrong)
        >>> 3 in model.audit_.wrong, int(model.predict(X[3:4])[0])
        (True, 0)
    """

    _needs_target = False

    def fit(self, X: Any, y: Any, X_target: Any = None, y_target: Any = None) -> AuditFilter:
        """Audit (X, y), and train the estimator on the other samples.

        Args:
            X: samples (n, d).  y: their labels.
            X_target, y_target: trusted samples and labels, the reference of the audit, or None.
        """
        return self._train(X, y, X_target, y_target, None)

    def _training_set(self, X: Any, y: Any, weights: Any, X_target: Any, y_target: Any) -> Any:
        trusted = None if X_target is None else LabeledDataset(X_target, list(y_target))
        self.audit_ = audit(LabeledDataset(X, y.tolist()), trusted, progress=False)
        suspect = np.isin(np.arange(len(X)), self.audit_.suspects)
        kept = ~suspect | ~np.isin(y, y[~suspect])
        return X[kept], y[kept], None
