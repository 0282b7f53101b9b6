"""The map of entropic potentials: transport from the first to the last states, extended to new points.

    T(x) = Σ_j π_j(x) x_T,j ,   π_j(x) ∝ b_j exp((g_j − c(x, j))/ε) ,   c(x, j) = ½(‖x − x_T,j‖² + label_weight W₂²(β_y, α_y_j))

with g the potential of the transport of x_0 to x_T (Seguy et al. 2018; Pooladian and Niles-Weed 2021).
α are the laws of the classes at the end, and β_y the law of the last states of class y, so that a
class is carried to where the flow took it. The mean displacement changes no plan and is removed
first, so that a relative ε depends on the spread of the data.

Class probabilities of samples without labels come from the particles or from classifiers. Seeds and
folds are fixed, so a map that is read from a file gives the same answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.checks import check_known, check_non_negative, check_positive, refuse_if
from advect.cost import GroundCost, NoLabels
from advect.data.dataset import LabeledDataset
from advect.data.labels import estimated_laws
from advect.maps.base import Map, pack_pairs, unpack_pairs
from advect.ot.sinkhorn import Relative, Sinkhorn
from advect.spaces.feature_space import in_form_of

_TOL = 1e-4  # marginal error of the plans
_ANNEALING_RATIO, _ANNEALING_TOL = 0.2, 0.03
_BLOCK = 4_000_000  # entries of a block of plan rows
KINDS = ("particles", "nearest", "logistic", "forest", "mean")  # of equal scores the first is taken
_AVERAGED = ("particles", "logistic", "forest")  # in "mean"
_FOLDS = 5
_RIDGE = 60.0  # C = 60/n, at most 1; chosen on training splits of USPS, KMNIST, Fashion-MNIST
Classifier = Callable[[np.ndarray], np.ndarray]  # points (n, d) to probabilities (n, k)


class EntropicMap(Map, kind="entropic"):
    """x ↦ x + T_end(x) − T_start(x), with T the barycentric map of entropic transport to the last and
    to the first states.

    The second term removes the blur of ε, as in the debiased divergence. A sample without a label
    pays the expected label cost under ``posterior(x)`` of the particles; with a classifier it is
    carried as one of the most likely class, since the mean cost of two classes ends between them.

    Args:
        epsilon: regularization in units of the cost, or ``Relative(share)`` of its mean.
        label_weight: weight of labels, as in the flow; 0 uses features only.
        debias: False gives x ↦ T_end(x), which averages last states.
        posterior: class probabilities of samples without labels. By default from the particles
            around them. ``"nearest"``, ``"logistic"`` and ``"forest"`` are classifiers fitted on the
            labeled first states, ``"mean"`` averages the last two and the particles, ``"auto"``
            takes the best of the five by cross-validation.

    Attributes:
        epsilon_: regularization in units of the cost.
        posterior_: name of the posterior in use.
        posterior_scores_: cross-validated accuracies of ``"auto"``.

    Example:
        >>> import torch, advect as ad
        >>> start = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> entropic = ad.maps.EntropicMap().fit(start, start + torch.tensor([3.0, 0.0]))
        >>> entropic.transform(torch.tensor([[0.5, 1.0]])).round(decimals=3).tolist()
        [[3.5, 1.0]]
    """

    def __init__(
        self,
        epsilon: float | Relative = Relative(0.01),
        label_weight: float = 1.0,
        debias: bool = True,
        posterior: str | None = None,
    ) -> None:
        self._relative = isinstance(epsilon, Relative)
        self.epsilon: Any = epsilon if self._relative else check_positive("epsilon", epsilon)
        self.label_weight = check_non_negative("label_weight", label_weight)
        self.debias = debias
        if posterior is not None:
            check_known("posterior", posterior, (*KINDS, "auto"))
        self._posterior_option = posterior

    def __repr__(self) -> str:
        option = self._posterior_option
        more = "" if option is None else f", posterior={option!r}"
        return (
            f"EntropicMap(epsilon={self.epsilon!r}, label_weight={self.label_weight!r}, "
            f"debias={self.debias!r}{more})"
        )

    def posterior(self, x: Any) -> Any:
        """p(y | x), a row for each sample and a column for each of ``classes_``. By default
        p(y | x) ∝ Σ_(i: y_i = y) a_i exp(−‖x − x_0,i‖²/2ε).

        Example:
            >>> import advect as ad
            >>> start = ad.LabeledDataset([[0.0], [1.0], [9.0]], ["low", "low", "high"])
            >>> entropic = ad.maps.EntropicMap(epsilon=1.0).fit(start, start)
            >>> entropic.classes_, entropic.posterior([[8.0]]).round(3).tolist()
            (('high', 'low'), [[1.0, 0.0]])
        """
        data = self._checked(x)
        refuse_if(
            not self.classes_,
            "a posterior needs classes",
            "a map fitted without labels",
            "Fit on labeled datasets.",
        )
        with torch.no_grad():
            blocks = self._blocks(self._standard(data.x.detach()))
            rows = torch.cat([self._probabilities(block) for block in blocks]).to(data.x)
        return rows if data is x else in_form_of(x, rows)

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        missing = [int((~side.labeled).sum()) for side in (start, end)]
        labels = self.label_weight > 0 and not any(missing)
        refuse_if(
            self.label_weight and not labels and missing != [len(start), len(end)],
            "all particles must have labels, at the start and at the end, or none",
            f"{missing[0]} and {missing[1]} of {len(start)} without",
            "Set label_weight=0 to use features only.",
        )
        refuse_if(
            self._posterior_option is not None and missing[0],
            "a posterior needs labels of all first states",
            f"{missing[0]} without",
            "Fit on labeled datasets.",
        )
        self._start, self._end = start, end
        x = torch.stack([start.x.double(), end.x.double()])
        self._centres = (start.weights[:, None] * x).sum(dim=1)  # (2, d)
        # a unit in which all costs can be computed
        self._scale = float((x - self._centres[:, None]).abs().max()) or 1.0
        first, last = self._standard_states()
        epsilon = self.epsilon if self._relative else self.epsilon / self._scale**2
        cost, moved = GroundCost(label=NoLabels()), first
        if labels:
            cost = GroundCost(label_weight=self.label_weight)
            moved = first.replace(
                law=estimated_laws(last.replace(y=first.y, classes=first.classes))
            )
        pair, within = cost.between(moved, last), cost.between(first, first)
        matrix = pair.matrix()
        prepared = Sinkhorn(epsilon, tol=_TOL).prepare(matrix, first.weights, last.weights)
        self._epsilon = float(cast(float, prepared.epsilon))
        to_start, to_end = _potentials(matrix, within.matrix(), first.weights, self._epsilon)
        self._parts = {"end.potential": to_end, "end.labels": pair.label_distances}
        if self.debias:
            self._parts |= {"start.potential": to_start, "start.labels": within.label_distances}
        self.posterior_, self.posterior_scores_ = self._posterior_option or "particles", {}
        if self.posterior_ == "auto":
            training_set = _training_set(first)
            self.posterior_, self.posterior_scores_ = choose_posterior(self._epsilon, *training_set)
        self._prepare()

    def _standard_states(self) -> tuple[LabeledDataset, LabeledDataset]:
        first, last = (
            state.replace(x=((state.x.double() - centre) / self._scale).to(state.x))
            for state, centre in zip((self._start, self._end), self._centres, strict=True)
        )
        return first, last

    def _prepare(self) -> None:
        """Plans to the fitted states and the classifier, after a fit or from a file."""
        first, last = self._standard_states()
        self.epsilon_ = self._epsilon * self._scale**2
        complete = [bool(side.labeled.all()) for side in (first, last)]
        self._with_labels = self.label_weight > 0 and all(complete)
        self.classes_ = first.classes if complete[0] else ()
        self._particles = _Plan(first, torch.zeros_like(first.weights), None, self._epsilon)
        self._plans = {}
        states = {"end": last, "start": first} if self.debias else {"end": last}
        for name, state in states.items():
            labels = None
            if self._with_labels:
                labels = self.label_weight / 2 * self._parts[f"{name}.labels"]
            potential = self._parts[f"{name}.potential"]
            self._plans[name] = _Plan(state, potential, labels, self._epsilon)
        self._classifier = None
        if self.posterior_ != "particles":
            self._classifier = fit_posterior(self.posterior_, self._epsilon, *_training_set(first))

    def _standard(self, x: Tensor) -> Tensor:
        """New points in the centre and unit of the first states."""
        dtype = torch.promote_types(x.dtype, self._start.x.dtype)
        return ((x.to(self._centres) - self._centres[0]) / self._scale).to(dtype)

    def _blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(max(1, _BLOCK // len(self._start)))

    def _probabilities(self, x: Tensor) -> Tensor:
        """Class probabilities of standard points."""
        if self._classifier is not None:
            return torch.as_tensor(self._classifier(x.double().cpu().numpy())).to(x)
        plan = self._particles.rows(x, None)
        return plan @ one_hot(self._start.y, len(self.classes_)).to(plan)

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        points, x = self._standard(x), x.to(self._centres)
        blocks = map(self._blocks, (points, codes.to(points.device)))
        moved = self._scale * torch.cat([*map(self._image, *blocks)]).to(x)
        if self.debias:
            return x + (self._centres[1] - self._centres[0]) + moved
        return self._centres[1] + moved

    def _image(self, x: Tensor, codes: Tensor) -> Tensor:
        """T_end(x) − T_start(x), or T_end(x), in standard units."""
        classes = None
        if self._with_labels:
            k = len(self.classes_)
            classes = one_hot(codes.clamp_min(0), k).to(x)
            if bool((codes < 0).any()):
                guess = self._probabilities(x)
                if self._classifier is not None:  # carried as one of the most likely class
                    guess = one_hot(guess.argmax(1), k).to(guess)
                classes = torch.where((codes >= 0)[:, None], classes, guess)
        end = self._plans["end"].image(x, classes)
        return end - self._plans["start"].image(x, classes) if self.debias else end

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, facts = pack_pairs(self._start, self._end)
        facts |= {
            "epsilon": self.epsilon.share if self._relative else self.epsilon,
            "relative": self._relative,
            "label_weight": self.label_weight,
            "debias": self.debias,
            "scale": self._scale,
            "standard_epsilon": self._epsilon,
        }
        if self._posterior_option is not None:
            facts["posterior"] = {
                "asked": self._posterior_option,
                "used": self.posterior_,
                "scores": self.posterior_scores_,
            }
        tensors |= {f"solved.{name}": value for name, value in self._parts.items()}
        return tensors | {"centres": self._centres}, facts

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        posterior = facts.get("posterior", {"asked": None, "used": "particles", "scores": {}})
        self.posterior_ = posterior["used"]
        check_known("posterior", self.posterior_, KINDS)
        EntropicMap.__init__(
            self,
            Relative(facts["epsilon"]) if facts["relative"] else facts["epsilon"],
            facts["label_weight"],
            bool(facts["debias"]),
            posterior["asked"],
        )
        self.posterior_scores_ = {str(k): float(score) for k, score in posterior["scores"].items()}
        self._scale = check_positive("scale", facts["scale"])
        self._epsilon = check_positive("standard_epsilon", facts["standard_epsilon"])
        self._start, self._end = unpack_pairs(tensors, facts, self.sample_shape_)
        self._centres = tensors["centres"]
        self._parts = {
            name.removeprefix("solved."): value
            for name, value in tensors.items()
            if name.startswith("solved.")
        }
        self._prepare()


class _Plan:
    """Plan rows π(x) of new points to one measure, and their barycentres.

    The score of particle j is x·x_j + (g_j − ½‖x_j‖² + ε log b_j) − label cost, the negative cost
    without ½‖x‖². The label cost is linear in the class probabilities: more columns of the product.
    """

    def __init__(
        self, state: LabeledDataset, potential: Tensor, labels: Tensor | None, epsilon: float
    ) -> None:
        x = state.x
        self.epsilon, self.points, self.columns = epsilon, x, x
        self.labels = None if labels is None else labels.to(x)  # (k, k')
        if labels is not None:
            self.columns = torch.cat([x, one_hot(state.y, labels.shape[1]).to(x)], dim=1)
        self.shift = potential - x.double().square().sum(dim=1) / 2 + epsilon * state.weights.log()

    def rows(self, x: Tensor, classes: Tensor | None) -> Tensor:
        """(n, m) for points and class probabilities (n, k)."""
        if self.labels is not None and classes is not None:
            x = torch.cat([x, -classes @ self.labels.to(x)], dim=1)
        scores = torch.addmm(self.shift.to(x), x, self.columns.to(x).T)
        scores -= scores.amax(dim=1, keepdim=True)
        return scores.div_(self.epsilon).softmax(dim=1)

    def image(self, x: Tensor, classes: Tensor | None) -> Tensor:
        return self.rows(x, classes) @ self.points.to(x)


def _potentials(
    cross: Tensor, within: Tensor, weights: Tensor, final: float
) -> tuple[Tensor, Tensor]:
    """Potentials of the transport of the first states to themselves, and to the last states.

    Distant groups of points leave their potentials nearly free against each other. The second problem
    starts from the first, and the difference is annealed: if only the mean moved, it is zero
    throughout and the map is exact.
    """
    epsilon = max(float(cross.max()), final)
    potential = torch.zeros_like(weights)  # of the first states to themselves
    difference = potential, potential
    while True:
        step = Sinkhorn(epsilon, tol=_TOL if epsilon == final else _ANNEALING_TOL)
        potential = step.solve_self(within, weights, init=potential).potentials[0]
        init = potential + difference[0], potential + difference[1]
        f, g = step.solve(cross, weights, weights, init=init).potentials
        if epsilon == final:
            return potential, g
        difference = f - potential, g - potential
        epsilon = max(_ANNEALING_RATIO * epsilon, final)


def _training_set(first: LabeledDataset) -> tuple[np.ndarray, np.ndarray, int]:
    """Points, codes and the number of classes of the first states."""
    return first.x.double().cpu().numpy(), first.y.cpu().numpy(), len(first.classes)


def fit_posterior(kind: str, epsilon: float, x: np.ndarray, y: np.ndarray, k: int) -> Classifier:
    """The posterior of a kind, fitted on points and codes of k classes."""
    if kind == "particles":  # exp(−‖new − x_i‖²/2ε), normalized over i
        shift, members = np.square(x).sum(axis=1) / 2, np.eye(k)[y]
        return lambda new: softmax((new @ x.T - shift) / epsilon, axis=1) @ members
    if kind == "mean":
        classifiers = [fit_posterior(each, epsilon, x, y, k) for each in _AVERAGED]
        return lambda new: np.mean([classifier(new) for classifier in classifiers], axis=0)
    present = np.unique(y)
    if len(present) == 1:  # many classifiers refuse one class
        return lambda new: np.tile(np.eye(k)[present[0]], (len(new), 1))
    model = _estimator(kind, len(x))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lbfgs failed to converge")
        model.fit(x, y)
    return lambda new: np.asarray(model.predict_proba(new), dtype=np.float64) @ np.eye(k)[present]


def choose_posterior(
    epsilon: float, x: np.ndarray, y: np.ndarray, k: int
) -> tuple[str, dict[str, float]]:
    """The posterior with the best cross-validated accuracy, and all accuracies."""
    kinds = [kind for kind in KINDS if kind != "mean"]
    rows = {kind: out_of_fold(kind, epsilon, x, y, k) for kind in kinds}
    rows["mean"] = np.mean([rows[kind] for kind in _AVERAGED], axis=0)
    scores = {kind: float((rows[kind].argmax(axis=1) == y).mean()) for kind in KINDS}
    return max(scores, key=lambda kind: scores[kind]), scores


def out_of_fold(kind: str, epsilon: float, x: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Probabilities (n, k) of the samples themselves, each from a fit without its fold."""
    if len(y) < 2:
        return np.full((len(y), k), 1 / k)
    folds, rows = folds_of(y), np.empty((len(y), k))
    for fold in np.unique(folds):
        held_out = folds == fold
        classifier = fit_posterior(kind, epsilon, x[~held_out], y[~held_out], k)
        rows[held_out] = classifier(x[held_out])
    return rows


def folds_of(y: np.ndarray, folds: int = _FOLDS) -> np.ndarray:
    """A fold for each sample, stratified by class."""
    order = np.random.default_rng(0).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % folds
    return fold


def _estimator(kind: str, n: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(C=min(1.0, _RIDGE / n), max_iter=1000)
    return {
        "nearest": KNeighborsClassifier(1),
        "logistic": make_pipeline(StandardScaler(), regression),
        "forest": RandomForestClassifier(random_state=0),
    }[kind]
