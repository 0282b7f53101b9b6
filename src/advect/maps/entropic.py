"""The map of entropic potentials: transport from the first to the last states, extended to new points.

    T(x) = Σ_j π_j(x) x_T,j ,   π_j(x) ∝ b_j exp((g_j − c(x, j))/ε) ,   c(x, j) = ½(‖x − x_T,j‖² + label_weight W₂²(β_y, α_y_j))

with g the potential of the transport of x_0 to x_T (Seguy et al. 2018; Pooladian and Niles-Weed 2021).
α are the laws of the classes at the end, and β_y the law of the last states of class y, so that a class is
mapped to where the flow moved it. The mean displacement does not change the plan and is removed first, so
that a relative ε depends on the spread of the data.

Class probabilities of samples without labels come from the particles, or also from classifiers. Seeds
are fixed, so a map that is read from a file gives the same answers."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util import check_known, check_non_negative, check_positive, refuse_if
from advect.cost import GroundCost, NoLabels
from advect.data import LabeledDataset, estimated_laws
from advect.maps.base import Map, pack_pairs, unpack_pairs
from advect.ot import Relative, Sinkhorn
from advect.spaces.feature_space import in_form_of

_TOL = 1e-4  # marginal error of the plans
_ANNEALING_RATIO, _ANNEALING_TOL = 0.2, 0.03
_BLOCK = 4_000_000  # entries of a block of plan rows
_RIDGE = 60.0  # C = 60/n, at most 1; chosen on training splits of USPS, KMNIST, Fashion-MNIST


class EntropicMap(Map, kind="entropic"):
    """x ↦ x + T_end(x) − T_start(x), with T the barycentric map of entropic transport to the last and
    to the first states.

    The second term removes the blur of ε, as in the debiased divergence. A sample without a label
    pays the expected label cost under ``posterior(x)`` of the particles; with a classifier it gets the most
    likely class, since the mean cost of two classes leads to a point between them.

    Args:
        epsilon: regularization in units of the cost, or ``Relative(share)`` of its mean.
        label_weight: weight of labels, as in the flow; 0 uses features only.
        debias: False gives x ↦ T_end(x), which averages last states.
        posterior: class probabilities of samples without labels. ``"particles"``: from the particles
            around them. ``"mean"`` averages these, a logistic regression and a random forest that
            are fitted on the labeled first states; it is better with a few hundred labels.

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
        posterior: str = "particles",
    ) -> None:
        self._relative = isinstance(epsilon, Relative)
        self.epsilon: Any = epsilon if self._relative else check_positive("epsilon", epsilon)
        self.label_weight = check_non_negative("label_weight", label_weight)
        self.debias = debias
        check_known("posterior", posterior, ("particles", "mean"))
        self._posterior = posterior

    def __repr__(self) -> str:
        return (
            f"EntropicMap(epsilon={self.epsilon!r}, label_weight={self.label_weight!r}, "
            f"debias={self.debias!r}, posterior={self._posterior!r})"
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
            self._posterior == "mean" and missing[0],
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
        self._classifiers = []
        if self._posterior == "mean" and len(first.classes) > 1:  # classifiers refuse one class
            self._classifiers = _classifiers(first.x.double().cpu().numpy(), first.y.cpu().numpy())

    def _standard(self, x: Tensor) -> Tensor:
        """New points in the centre and unit of the first states."""
        dtype = torch.promote_types(x.dtype, self._start.x.dtype)
        return ((x.to(self._centres) - self._centres[0]) / self._scale).to(dtype)

    def _blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(max(1, _BLOCK // len(self._start)))

    def _probabilities(self, x: Tensor) -> Tensor:
        """Class probabilities of standard points."""
        plan = self._particles.rows(x, None)
        rows, points = plan @ one_hot(self._start.y, len(self.classes_)).to(plan), x.double().cpu()
        answers = [torch.as_tensor(m.predict_proba(points.numpy())) for m in self._classifiers]
        return torch.stack([rows, *(answer.to(rows) for answer in answers)]).mean(dim=0)

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
                if self._classifiers:  # uses the most likely class
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
            "posterior": self._posterior,
        }
        tensors |= {f"solved.{name}": value for name, value in self._parts.items()}
        return tensors | {"centres": self._centres}, facts

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        EntropicMap.__init__(
            self,
            Relative(facts["epsilon"]) if facts["relative"] else facts["epsilon"],
            facts["label_weight"],
            bool(facts["debias"]),
            facts.get("posterior", "particles"),
        )
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


def _classifiers(x: np.ndarray, y: np.ndarray) -> list[Any]:
    """Classifiers fitted on points and codes."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(C=min(1.0, _RIDGE / len(x)), max_iter=1000)
    forest = RandomForestClassifier(random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lbfgs failed to converge")
        return [model.fit(x, y) for model in (make_pipeline(StandardScaler(), regression), forest)]
