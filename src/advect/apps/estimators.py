"""Estimators of scikit-learn over a flow and a map."""

from __future__ import annotations

import copy
import inspect
import warnings
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from advect import registry
from advect._util import defaults
from advect._util.checks import check_methods, refuse_if
from advect.classes.pseudo import fill_labels
from advect.classes.shares import class_shares
from advect.cost import GroundCost, LabelCost
from advect.data.dataset import LabeledDataset
from advect.data.labels import memberships
from advect.flows.dynamics import Dynamics
from advect.flows.integrators import Euler
from advect.flows.loop import flow
from advect.functionals import OTDD
from advect.maps import Map
from advect.ot.sinkhorn import Relative, Sinkhorn
from advect.ot.solver import Solver

_NEAREST = 5  # known target values from which an unknown one is taken
REQUESTED = {"X_target": True, "y_target": True}  # that metadata routing passes by default


class DatasetTransport(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Flow a source dataset to a target, and map new samples of the source the same way.

    ``fit(X, y, X_target, y_target)`` decreases ½ OTDD² from (X, y) to (X_target, y_target) and fits a map
    on the first and last states; ``transform(X)`` applies the map to samples of the *source*. A pipeline
    also transforms what it predicts, so use ``TransportClassifier`` or ``TransportRegressor`` to predict
    target samples. Without a target it is the identity.

    Labels of the target that are −1, NaN or None are missing (−1 is a class if y has it). They are filled
    by the transport plan of ``class_shares``, from the source and from known labels with equal weight, so
    labels of the source count also if the target has none. The source takes part as it is or with the mean of
    the target, whichever has the smaller ``misfit``. A float y with fractions is a continuous target;
    unknown targets are means of the five nearest known ones. Class labels that are floats must be whole numbers.

    Options that are None are chosen from the data, as in ``ad.flow(source, target)``: among others,
    every class gets the same mass if class proportions differ, and classes are matched by name if
    both sides have the same names.

    Args:
        n_steps, step_size: explicit Euler steps of the flow.
        label_weight: weight of the label cost.
        epsilon: of the transport, in units of the cost, or ``ad.Relative(share)`` of its mean.
        label: the label cost; ``ad.Bures()`` compares class distributions instead of names.
        equal_mass: whether every class gets the same mass.
        map: "entropic", "nearest?k=3", "neural", a name of ``ad.register``, or a map of ``ad.maps``.
        dynamics: "fd", "jd-fl", "jd-vl", or a dynamics object. Joint dynamics need labels.
        cost: an ``ad.GroundCost`` instead of label, label_weight and equal_mass.
        solver: of the transport, instead of epsilon.
        target: (X_target, y_target), instead of arguments of ``fit``. Use it in a search: scikit-learn cuts
            arguments of ``fit`` that are as long as X to the fold, which is refused.
        random_state: seed of a neural map.

    Attributes:
        flowed_: the fitted samples at the end of the flow, (n, d).
        weights_: their weights (n,), with the class proportions of the target.
        map_: the fitted map; its ``transform`` also takes labels.
        settings_: what was chosen, with the reasons.

    Example:
        >>> import numpy as np, advect as ad
        >>> rng = np.random.default_rng(0)
        >>> source, target = rng.normal(size=(60, 2)), rng.normal(size=(50, 2)) + [7, 0]
        >>> transport = ad.DatasetTransport(n_steps=20).fit(source, X_target=target)
        >>> new = transport.transform(rng.normal(size=(200, 2)))
        >>> bool(np.allclose(new.mean(axis=0), target.mean(axis=0), atol=0.3))
        True
    """

    __metadata_request__fit = REQUESTED

    def __init__(
        self,
        *,
        n_steps: int = defaults.USE.n_steps,
        step_size: float = defaults.USE.step_size,
        label_weight: float = defaults.USE.label_weight,
        epsilon: float | Relative | None = None,
        label: LabelCost | None = None,
        equal_mass: bool | None = None,
        map: str | Map = "entropic",
        dynamics: str | Dynamics = "fd",
        cost: GroundCost | None = None,
        solver: Solver | None = None,
        target: tuple[Any, Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_steps = n_steps
        self.step_size = step_size
        self.label_weight = label_weight
        self.epsilon = epsilon
        self.label = label
        self.equal_mass = equal_mass
        self.map = map
        self.dynamics = dynamics
        self.cost = cost
        self.solver = solver
        self.target = target
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        X_target: Any = None,
        y_target: Any = None,
        sample_weight: Any = None,
        *,
        Xt: Any = None,
        yt: Any = None,
    ) -> DatasetTransport:
        """Flow (X, y) to (X_target, y_target) and fit the map.

        Args:
            X: source samples (n, d).  y: their labels, or None.
            X_target: target samples (m, d), or None for the identity.
            y_target: their labels, −1 or NaN where they are missing, or None.
            sample_weight: weights of the source samples.
            Xt, yt: former names of ``X_target`` and ``y_target``.
        """
        if Xt is not None or yt is not None:
            warnings.warn("Xt and yt are now X_target and y_target", FutureWarning, stacklevel=2)
            X_target, y_target = Xt, yt
        return self._fit(X, y, X_target, y_target, sample_weight)

    def _fit(
        self,
        X: Any,
        y: Any,
        X_target: Any,
        y_target: Any,
        sample_weight: Any = None,
        continuous: bool | None = None,
    ) -> DatasetTransport:
        """Fit, with y as classes or numbers; None decides by its values."""
        precise: dict[str, Any] = {"dtype": (np.float64, np.float32)}
        samples: Any = validate_data(self, X, **precise)
        X_target, y_target = target_of(self, len(samples), X_target, y_target)
        identity = X_target is None
        target: Any = samples if identity else validate_data(self, X_target, reset=False, **precise)
        known = y if identity else y_target
        first, last = _datasets(samples, y, target, known, continuous)
        if sample_weight is not None:
            weights: Any = _check_sample_weight(sample_weight, samples, ensure_non_negative=True)
            first = first.replace(weights=torch.as_tensor(weights))
        dynamics: Dynamics = _chosen("dynamics", self.dynamics, ("velocity", "move"))
        share = Relative(defaults.LOOK.epsilon) if self.epsilon is None else self.epsilon
        flowed, self.settings_ = first, {}
        if not identity:
            solver = None if self.epsilon is None else Sinkhorn(share, tol=defaults.USE.tol)
            names = ("label", "label_weight", "equal_mass")
            choices = {name: getattr(self, name) for name in names}
            goal, choices["solver"] = last, self.solver or solver
            if self.cost is not None:
                goal, choices = OTDD(last, cost=self.cost, solver=choices["solver"]), {}
            result = flow(
                first,
                goal,
                n_steps=self.n_steps,
                integrator=Euler(self.step_size),
                dynamics=dynamics,
                **choices,
            ).checked()
            first, flowed, self.settings_ = result.source, result.dataset, result.settings
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        labeled = first.has_classes and bool(first.labeled.all() and last.labeled.all())
        weight = self.label_weight if labeled else 0.0
        fitted: Map = _chosen(
            "map", self.map, ("fit", "transform"), epsilon=share, seed=seed, label_weight=weight
        )
        self.__dict__.pop("inverse_map_", None)
        self._backward = copy.deepcopy(fitted), flowed, first
        self.flowed_, self.map_ = flowed.x.numpy(), fitted.fit(first, flowed)
        self.weights_ = _weights(first, last) if labeled else first.weights.numpy()
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Map samples (n, d) of the source."""
        check_is_fitted(self)
        return self.map_.transform(
            validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        )

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Map samples (n, d) of the target to the source. The map the other way is fitted on first use."""
        check_is_fitted(self)
        return self.inverse_map_.transform(
            validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        )

    @cached_property
    def inverse_map_(self) -> Map:
        model, flowed, first = self._backward
        return copy.deepcopy(model).fit(flowed, first)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LabelSpreader(ClassifierMixin, BaseEstimator):
    """Classify samples by a few labels that spread over the graph of nearest neighbours (``ad.fill_labels``).

    In ``fit(X, y)``, −1 marks samples without a label, as in ``sklearn.semi_supervised``; it is a class if
    there is only one other. A new sample has the mean probabilities of its nearest neighbours, weighted by
    the inverse distance.

    Args:
        neighbors: number of neighbours of each sample in the graph.
        alpha: between 0 and 1; labels spread farther if it is near 1.

    Attributes:
        classes_: the class names, sorted.
        transduction_: the class of each sample of ``fit``; known labels stay.
        label_distributions_: their probabilities, (n, k).

    Example:
        >>> import numpy as np, advect as ad
        >>> X = np.r_[0:4, 9:13][:, None]
        >>> y = np.array([0, -1, -1, -1, -1, -1, -1, 1])
        >>> ad.LabelSpreader(neighbors=2).fit(X, y).predict([[1.5], [10.0]]).tolist()
        [0, 1]
    """

    def __init__(self, neighbors: int = 10, alpha: float = 0.99) -> None:
        self.neighbors = neighbors
        self.alpha = alpha

    def fit(self, X: Any, y: Any) -> LabelSpreader:
        """Spread the labels y, −1 where they are missing, over the samples X (n, d)."""
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        missing = np.array([name == -1 for name in y.tolist()])
        check_classification_targets(y[~missing])
        missing &= len(np.unique(y[~missing])) > 1
        self.classes_ = np.unique(y[~missing])
        labels = [None if gap else name for gap, name in zip(missing, y.tolist(), strict=True)]
        filled = fill_labels(
            LabeledDataset(X, labels, classes=self.classes_.tolist()),
            neighbors=self.neighbors,
            alpha=self.alpha,
            soft=True,
        )
        self.label_distributions_ = memberships(filled).numpy()
        self.transduction_ = self.classes_[filled.y.numpy()]
        self._nearest = KNeighborsRegressor(min(self.neighbors, len(X)), weights="distance")
        self._nearest.fit(X, self.label_distributions_)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of samples (n, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return self._nearest.predict(X).reshape(len(X), -1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of samples (n, d)."""
        found = self.predict_proba(X).argmax(axis=1)
        return self.classes_[found]


def target_of(model: Any, n: int, X_target: Any, y_target: Any) -> tuple[Any, Any]:
    """The target of ``fit``, or of the estimator; a target that a search may have cut to a fold is refused."""
    if X_target is None:
        remedy = "Pass fit(X, y, X_target, y_target)."
        missing = y_target is not None
        refuse_if(missing, "target labels need target samples", "y_target without X_target", remedy)
        return model.target or (None, None)
    refuse_if(
        len(X_target) == n and any(part.function == "_fit_and_score" for part in inspect.stack(0)),
        "scikit-learn cuts a target that is as long as X to the fold",
        f"{n} target samples",
        "Pass target=(X_target, y_target) to the estimator instead.",
    )
    return X_target, y_target


def _datasets(
    samples: np.ndarray, y: Any, target: np.ndarray, known: Any, continuous: bool | None
) -> tuple[LabeledDataset, LabeledDataset]:
    """Source and target, with labels or targets on both sides or on none."""
    if y is None:
        return LabeledDataset(samples), LabeledDataset(target)
    if continuous or (continuous is None and _fractional(y)):
        values = np.full(len(target), np.nan) if known is None else np.asarray(known, dtype=float)
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if not finite.any():
            return LabeledDataset(samples), LabeledDataset(target)
        near = KNeighborsRegressor(min(_NEAREST, int(finite.sum())))
        filled = near.fit(target[finite], values[finite]).predict(target)
        filled[finite] = values[finite]
        return LabeledDataset(samples, targets=y), LabeledDataset(target, targets=filled)
    first, last = labeled_pair(samples, y, target, known)
    if bool(first.labeled.all()) and not bool(last.labeled.all()):
        return first, _filled(first, last)
    return first, last


def labeled_pair(
    samples: Any, y: Any, target: Any, known: Any
) -> tuple[LabeledDataset, LabeledDataset]:
    """Source and target with classes; those of the target may be missing."""
    remedy = "Pass whole numbers or names for classes; numbers with fractions on both sides for regression."
    mixed = known is not None and _fractional(known)
    refuse_if(mixed, "labels must be of one kind on both sides", "classes and fractions", remedy)
    first = LabeledDataset(samples, np.asarray(y, dtype=object).tolist())
    labels = [None] * len(target) if known is None else np.asarray(known, dtype=object).tolist()
    if -1 not in first.classes:
        labels = [None if isinstance(name, Real) and name == -1 else name for name in labels]
    return first, LabeledDataset(target, labels)


def _fractional(y: Any) -> bool:
    """Whether labels are floats that are not all whole."""
    values = np.asarray(y)
    return values.dtype.kind == "f" and bool((values[np.isfinite(values)] % 1 != 0).any())


def _filled(source: LabeledDataset, target: LabeledDataset) -> LabeledDataset:
    """The target with predictions for missing labels, half by the source and half by known labels."""
    n, known = len(source), [name for name in target.labels if name is not None]
    names = tuple(dict.fromkeys([*source.classes, *target.classes]))
    weights = [1 / n] * n + [1 / len(known)] * len(known) if known else None
    tried = []
    for shift in (0.0, target.x.mean(dim=0) - source.x.mean(dim=0)):
        x = torch.cat([source.x + shift, target.x[target.labeled]])
        joined = LabeledDataset(x, [*source.labels, *known], weights, classes=names)
        tried.append(class_shares(joined, LabeledDataset(target.x)))
    best = min(tried, key=lambda found: found.misfit)
    likely = (best.answers[1] * best.source.class_mass.numpy()).argmax(axis=1)
    pairs = zip(target.labels, likely, strict=True)
    return LabeledDataset(target.x, [names[i] if name is None else name for name, i in pairs])


def _weights(source: LabeledDataset, target: LabeledDataset) -> np.ndarray:
    """Weights of the source with the class proportions of the target, plus one sample of each class."""
    counts = {name: target.counts.get(name, 0) + 1 for name in source.classes}
    return source.reweighted(counts).weights.numpy()


def _chosen(kind: str, value: Any, methods: tuple[str, ...], **shared: Any) -> Any:
    """The object of a name, with those of the shared options that it takes; or a copy of an object."""
    if isinstance(value, str):
        return registry.make(kind, value, **shared)
    names = f"Known names: {', '.join(registry.names(kind))}."
    check_methods(f"{kind} must be a name or an object", value, methods, names)
    return copy.deepcopy(value)
