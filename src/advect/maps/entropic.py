"""The map of entropic potentials: optimal transport from the first to the last states, extended to
new points.

    T(x) = Σ_j π_j(x) x_T,j ,   π_j(x) ∝ b_j exp((g_j − c(x, j))/ε) ,   c(x, j) = ½(‖x − x_T,j‖² + label_weight W₂²(β_y, α_y_j))

with g the potential of the transport of x_0 to x_T (Seguy et al. 2018; Pooladian and Niles-Weed
2021). Nothing is trained. α are the laws of the classes at the end, and β_y is where class y went:
the law of the last states of what began in y. So a class is carried where the flow took it, also
where transport between the laws at the start and at the end would swap two. The mean displacement
changes no plan, since it adds to the cost a function of x and one of j: it is taken out first, so
that a relative ε follows the spread of the data and not the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.checks import check_known, check_non_negative, check_positive
from advect.cost import GroundCost, NoLabels
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.maps.base import Map
from advect.maps.entropic_plans import BLOCK, TOL, Side, solve_both
from advect.maps.pairs import pack_pairs, unpack_pairs
from advect.maps.posteriors import (
    KINDS,
    Answer,
    Fit,
    Posterior,
    check_posterior,
    choose,
    fit_of,
    out_of_fold,
)
from advect.ot import Relative, Sinkhorn

_BLOCK = BLOCK


class EntropicMap(Map, kind="entropic"):
    """x ↦ x + T_end(x) − T_start(x), with T the barycentric map of entropic transport to the last
    and to the first states.

    The second term is the transport of the first states to themselves: it takes out the blur that ε
    brings, as in the velocity of the debiased divergence. A sample without a label pays the
    expected label cost under ``posterior(x)`` where that is of the particles. Where a classifier
    says, it is carried as one of the class that is most likely: what pays the mean cost of two
    classes ends between them, where a model reads neither (on held-out Fashion-MNIST images that
    took a point off the classifier's accuracy).

    Args:
        epsilon: regularisation in units of the cost, or ``Relative(share)`` of its mean.
        label_weight: how much labels count against features, as in the flow; 0 looks at features
            only, and so does a fit without labels.
        debias: without, x ↦ T_end(x), which averages last states: blurred, and always among them.
        posterior: what class a sample without a label may have. By default the particles around it
            say. ``"nearest"`` (neighbour), ``"logistic"`` (regression) and ``"forest"`` are
            classifiers fitted on the labeled first states, ``"mean"`` averages the last two and
            the particles; ``"auto"`` takes the best of the five by cross-validation on them; or a
            classifier of scikit-learn, which is copied, and fitted on the first states as they
            are. Samples count by their number, not by their weights, for classifiers and in the
            choice; by their weights for particles that are asked about new samples.

    Attributes:
        epsilon_: the regularisation in units of the cost.
        posterior_: the name of the posterior that is used: what ``"auto"`` chose.
        posterior_scores_: the share of first states that each candidate of ``"auto"`` named right
            from other folds; empty unless it was asked.

    Example:
        >>> import torch, advect as ad
        >>> start = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> entropic = ad.maps.EntropicMap().fit(start, start + torch.tensor([3.0, 0.0]))
        >>> entropic.transform(torch.tensor([[0.5, 1.0]])).round(decimals=3).tolist()
        [[3.5, 1.0]]
        >>> data = ad.datasets.gaussians(60, generator=torch.Generator().manual_seed(0))
        >>> ad.maps.EntropicMap(posterior="auto").fit(data, data).posterior_
        'particles'
    """

    def __init__(
        self,
        epsilon: float | Relative = Relative(0.01),  # noqa: B008 (frozen)
        label_weight: float = 1.0,
        debias: bool = True,
        posterior: Posterior = None,
    ) -> None:
        relative = isinstance(epsilon, Relative)
        self.epsilon = epsilon if relative else check_positive("epsilon", epsilon)
        self.label_weight = check_non_negative("label_weight", label_weight)
        self.debias = debias
        check_posterior(posterior)
        self._asked = posterior
        self._answer: Answer | None = None
        self.posterior_scores_: dict[str, float] = {}

    def __repr__(self) -> str:
        asked = "" if self._asked is None else f", posterior={self._asked!r}"
        return (
            f"EntropicMap(epsilon={self.epsilon!r}, label_weight={self.label_weight!r}, "
            f"debias={self.debias!r}{asked})"
        )

    def posterior(self, x: Any) -> Any:
        """p(y | x): a row for each sample, a column for each of ``classes_``. By default
        p(y | x) ∝ Σ_(i: y_i = y) a_i exp(−‖x − x_0,i‖²/2ε); otherwise what the classifier says.

        Of the samples that the map was fitted on, a classifier says what it has learned by heart:
        ``own_posterior`` is for these.

        Example:
            >>> import advect as ad
            >>> start = ad.LabeledDataset([[0.0], [1.0], [9.0]], ["low", "low", "high"])
            >>> entropic = ad.maps.EntropicMap(epsilon=1.0).fit(start, start)
            >>> entropic.classes_, entropic.posterior([[8.0]]).round(3).tolist()
            (('high', 'low'), [[1.0, 0.0]])
        """
        samples = self._opened(x)
        self._require_classes()
        with torch.no_grad():
            points = self._standard(samples.values.flatten(1))
            rows = torch.cat([self._posterior(part) for part in self._blocks(points)])
        return samples.as_came(rows.to(samples.values))

    def own_posterior(self) -> Tensor:
        """p(y | x) of the first states themselves, each from a fit on the samples of other folds:
        what could be said of them had they come as new ones, (n, k) in the order of the fit. Here
        particles count by their number too, whatever their weights.

        Example:
            >>> import advect as ad
            >>> start = ad.LabeledDataset([[0.0], [0.1], [9.0], [9.1]], ["a", "a", "b", "b"])
            >>> fitted = ad.maps.EntropicMap(posterior="nearest").fit(start, start)
            >>> fitted.own_posterior().tolist()
            [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        """
        self._fitted()
        self._require_classes()
        x, y = self._learned_from()
        found = out_of_fold(self._fit_of(self._method), x, y, len(self.classes_))
        return torch.as_tensor(found).to(self._start.x)

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        labels = self.label_weight > 0 and start.complete and end.complete
        if self.label_weight > 0 and not labels and bool(start.labeled.any() | end.labeled.any()):
            raise InputError(
                "every particle needs a label, at the start and at the end, or none",
                f"{int((~start.labeled).sum())} and {int((~end.labeled).sum())} of {len(start)} "
                "without",
                "Set label_weight=0 to look at features only.",
            )
        if self._asked is not None and not start.complete:
            raise InputError(
                "a posterior needs classes",
                f"{int((~start.labeled).sum())} of {len(start)} first states without a label",
                "Fit on labeled datasets, or leave posterior out.",
            )
        self._start, self._end = start, end
        weights = start.weights[:, None]
        self._centres = torch.stack(
            [(weights * part.x.double()).sum(dim=0) for part in (start, end)]
        )  # (2, d)
        spread = max(
            float((part.x - centre).abs().max())
            for part, centre in zip((start, end), self._centres, strict=True)
        )
        self._scale = spread or 1.0  # costs of any scale are safe to compute in this unit
        first, last = self._standard_states()
        cost = (
            GroundCost(label_weight=self.label_weight) if labels else GroundCost(label=NoLabels())
        )
        epsilon = (
            self.epsilon if isinstance(self.epsilon, Relative) else self.epsilon / self._scale**2
        )
        went = (
            first.replace(law=last.replace(y=first.y, classes=first.classes).moments())
            if labels
            else first
        )
        pair, within = cost.between(went, last), cost.between(first, first)
        matrix = pair.matrix()
        solver = Sinkhorn(epsilon, tol=TOL).prepare(matrix, first.weights, last.weights)
        to_start, to_end = solve_both(matrix, within.matrix(), first.weights, solver)
        self._epsilon = solver.regularisation
        self._parts = {"end.potential": to_end, "end.labels": pair.label_distances}
        if self.debias:
            self._parts |= {"start.potential": to_start, "start.labels": within.label_distances}
        self._prepare()
        self._choose()

    @property
    def posterior_(self) -> str:
        """The name of the posterior that is used; the class of a classifier of the user's."""
        self._fitted()
        return self._method if isinstance(self._method, str) else type(self._method).__name__

    @property
    def epsilon_(self) -> float:
        """The regularisation in units of the cost."""
        self._fitted()
        return self._epsilon * self._scale**2

    def _standard_states(self) -> tuple[LabeledDataset, LabeledDataset]:
        first, last = (
            state.replace(x=((state.x.double() - centre) / self._scale).to(state.x))
            for state, centre in zip((self._start, self._end), self._centres, strict=True)
        )
        return first, last

    def _prepare(self) -> None:
        """What new points are compared with; from the fit or from a file."""
        first, last = self._standard_states()
        self._with_labels = self.label_weight > 0 and first.complete and last.complete
        self.classes_ = first.classes if first.complete else ()
        self._particles = Side(first, torch.zeros_like(first.weights), None, self._epsilon)
        sides = {"end": last, "start": first} if self.debias else {"end": last}
        self._sides = {
            name: Side(
                state,
                self._parts[f"{name}.potential"],
                self.label_weight / 2 * self._parts[f"{name}.labels"]
                if self._with_labels
                else None,
                self._epsilon,
            )
            for name, state in sides.items()
        }

    def _standard(self, x: Tensor) -> Tensor:
        """New points in the centre and unit of the first states."""
        dtype = torch.promote_types(x.dtype, self._start.x.dtype)
        return ((x.to(self._centres) - self._centres[0]) / self._scale).to(dtype)

    def _blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(max(1, _BLOCK // len(self._start)))

    def _require_classes(self) -> None:
        if not self.classes_:
            raise InputError(
                "a posterior needs classes",
                "a map fitted without labels",
                "Fit on labeled datasets.",
            )

    def _posterior(self, x: Tensor) -> Tensor:
        """Class weights of standard points."""
        if self._answer is not None:
            return torch.as_tensor(self._answer(self._seen(x))).to(x)
        plan = self._particles.plan(x, None)
        return plan @ one_hot(self._start.y, len(self.classes_)).to(plan)

    def _weights(self, x: Tensor) -> Tensor:
        """Class weights that a sample is carried by: the most likely class of a classifier."""
        rows = self._posterior(x)
        return rows if self._answer is None else one_hot(rows.argmax(1), rows.shape[1]).to(rows)

    def _choose(self) -> None:
        """The posterior that was asked for, fitted on the first states; the best for "auto"."""
        self.posterior_scores_ = {}
        self._method = "particles" if self._asked is None else self._asked
        if self._asked == "auto":
            self._method, self.posterior_scores_ = choose(
                self._epsilon, *self._learned_from(), len(self.classes_)
            )
        self._take_up()

    def _take_up(self) -> None:
        """Fit the chosen posterior on the first states; particles are there already."""
        self._answer = None
        if self._method != "particles":
            self._answer = self._fit_of(self._method)(*self._learned_from())

    def _fit_of(self, method: Posterior) -> Fit:
        return fit_of(method, self._epsilon, len(self.classes_))

    def _learned_from(self) -> tuple[np.ndarray, np.ndarray]:
        """First states as the chosen posterior sees them, and the positions of their classes."""
        first = self._standard_states()[0]
        return self._seen(first.x), self._start.y.cpu().numpy()

    def _seen(self, x: Tensor) -> np.ndarray:
        """Standard points as a classifier sees them: one of the user's, in the units of the data."""
        x = x.double()
        if self._asked is not None and not isinstance(self._asked, str):
            x = x * self._scale + self._centres[0].to(x)
        return x.cpu().numpy()

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        points, home = self._standard(x), x.to(self._centres)
        codes = codes.to(points.device)
        moved = torch.cat(
            [
                self._image(*parts)
                for parts in zip(self._blocks(points), self._blocks(codes), strict=True)
            ]
        ).to(home)
        if self.debias:
            return home + (self._centres[1] - self._centres[0]) + self._scale * moved
        return self._centres[1] + self._scale * moved

    def _image(self, x: Tensor, codes: Tensor) -> Tensor:
        """T_end(x) − T_start(x), or T_end(x), in standard units."""
        classes = None
        if self._with_labels:
            known = codes >= 0
            classes = one_hot(codes.clamp_min(0), len(self.classes_)).to(x)
            if not bool(known.all()):
                classes = torch.where(known[:, None], classes, self._weights(x))
        end = self._sides["end"].image(x, classes)
        return end - self._sides["start"].image(x, classes) if self.debias else end

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if self._asked is not None and not isinstance(self._asked, str):
            raise InputError(
                "a map with a classifier of your own cannot be saved: nothing is pickled",
                f"posterior={type(self._asked).__name__}",
                'Take "logistic", "nearest", "forest" or "auto", which are fitted again when read.',
            )
        tensors, facts = pack_pairs(self._start, self._end)
        share = self.epsilon.share if isinstance(self.epsilon, Relative) else None
        facts |= {
            "epsilon": self.epsilon if share is None else share,
            "relative": share is not None,
            "label_weight": self.label_weight,
            "debias": self.debias,
            "scale": self._scale,
            "standard_epsilon": self._epsilon,
        }
        if self._asked is not None:
            facts["posterior"] = {
                "asked": self._asked,
                "used": self._method,
                "scores": self.posterior_scores_,
            }
        return tensors | {f"solved.{name}": value for name, value in self._parts.items()} | {
            "centres": self._centres
        }, facts

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        posterior = facts.get("posterior", {"asked": None, "used": "particles", "scores": {}})
        asked, self._method = posterior["asked"], posterior["used"]
        check_known("posterior", self._method, KINDS)
        EntropicMap.__init__(
            self,
            Relative(facts["epsilon"]) if facts["relative"] else facts["epsilon"],
            facts["label_weight"],
            bool(facts["debias"]),
            asked if asked is None else str(asked),
        )
        self.posterior_scores_ = {
            str(kind): float(score) for kind, score in posterior["scores"].items()
        }
        self._scale, self._epsilon = (
            check_positive(name, facts[name]) for name in ("scale", "standard_epsilon")
        )
        self._start, self._end = unpack_pairs(tensors, facts, self.sample_shape_)
        self._centres = tensors["centres"]
        self._parts = {
            name.removeprefix("solved."): value
            for name, value in tensors.items()
            if name.startswith("solved.")
        }
        self._prepare()
        self._take_up()
