"""A scikit-learn transformer over a flow and a map."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from advect import registry
from advect._util import defaults
from advect._util.checks import check_methods, refuse_if
from advect.cost import LabelCost
from advect.data.dataset import LabeledDataset
from advect.flows.choices import suggest
from advect.flows.dynamics import Dynamics
from advect.flows.integrators import Euler
from advect.flows.loop import flow
from advect.maps import Map
from advect.ot.sinkhorn import Relative, Sinkhorn


class DatasetTransport(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Flow a source dataset to a target, and map new samples of the source the same way.

    ``fit(X, y, Xt, yt)`` decreases ½ OTDD² from (X, y) to (Xt, yt) and fits a map on the first and
    last states; ``transform(X)`` applies the map. Labels are used where both sides have them. Without
    a target it is the identity. In a pipeline, pass the target as ``name__Xt`` and ``name__yt``.

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
        random_state: seed of a neural map.

    Attributes:
        flowed_: the fitted samples at the end of the flow, (n, d).
        map_: the fitted map; its ``transform`` also takes labels.
        settings_: what was chosen, with the reasons.

    Example:
        >>> import numpy as np, advect as ad
        >>> rng = np.random.default_rng(0)
        >>> source, target = rng.normal(size=(60, 2)), rng.normal(size=(50, 2)) + [7, 0]
        >>> transport = ad.DatasetTransport(n_steps=20).fit(source, Xt=target)
        >>> new = transport.transform(rng.normal(size=(200, 2)))
        >>> bool(np.allclose(new.mean(axis=0), target.mean(axis=0), atol=0.3))
        True
    """

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
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, Xt: Any = None, yt: Any = None) -> DatasetTransport:
        """Flow (X, y) to (Xt, yt) and fit the map.

        Args:
            X: source samples (n, d).  y: their labels, or None.
            Xt: target samples (m, d), or None for the identity.  yt: their labels, or None.
        """
        precise: dict[str, Any] = {"dtype": (np.float64, np.float32)}
        samples = validate_data(self, X, **precise)
        refuse_if(
            Xt is None and yt is not None,
            "target labels need target samples",
            "yt without Xt",
            "Pass fit(X, y, Xt, yt).",
        )
        identity = Xt is None
        target = samples if identity else validate_data(self, Xt, reset=False, **precise)
        labeled = y is not None and (identity or yt is not None)
        first = LabeledDataset(samples, _labels(y) if labeled else None)
        last = first if identity else LabeledDataset(target, _labels(yt) if labeled else None)
        dynamics: Dynamics = _chosen("dynamics", self.dynamics, ("velocity", "move"))
        share = Relative(defaults.LOOK.epsilon) if self.epsilon is None else self.epsilon
        chosen = suggest(
            first,
            last,
            n_steps=self.n_steps,
            integrator=Euler(self.step_size),
            dynamics=dynamics,
            label=self.label,
            label_weight=self.label_weight,
            equal_mass=self.equal_mass,
            solver=None if self.epsilon is None else Sinkhorn(share, tol=defaults.USE.tol),
        )
        first = flowed = chosen.source
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        weight = self.label_weight if labeled else 0.0
        fitted: Map = _chosen(
            "map", self.map, ("fit", "transform"), epsilon=share, seed=seed, label_weight=weight
        )
        if not identity:
            result = flow(
                first,
                chosen.objective,
                dynamics=dynamics,
                integrator=chosen.integrator,
                n_steps=self.n_steps,
            )
            flowed = result.checked().dataset
        self.settings_ = chosen._summary()
        self.flowed_ = flowed.x.numpy()
        self.map_ = fitted.fit(first, flowed)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Map samples (n, d) of the source."""
        check_is_fitted(self)
        return self.map_.transform(
            validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _labels(y: Any) -> Any:
    return np.asarray(y) if hasattr(y, "__array__") and not hasattr(y, "to_numpy") else y


def _chosen(kind: str, value: Any, methods: tuple[str, ...], **shared: Any) -> Any:
    """The object of a name, with those of the shared options that it takes; or a copy of an object."""
    if isinstance(value, str):
        return registry.make(kind, value, **shared)
    names = f"Known names: {', '.join(registry.names(kind))}."
    check_methods(f"{kind} must be a name or an object", value, methods, names)
    return copy.deepcopy(value)
