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

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.checks import check_non_negative, check_positive
from advect.cost import GroundCost, NoLabels
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.maps.base import Map
from advect.maps.pairs import pack_pairs, unpack_pairs
from advect.ot import Relative, Sinkhorn

_BLOCK = 4_000_000  # entries of a block of plan rows, 16 or 32 MB
_TOL = 1e-4  # marginal error of the plans
_ANNEALING_RATIO, _ANNEALING_TOL = 0.2, 0.03


@dataclass(eq=False)
class EntropicMap(Map, kind="entropic"):
    """x ↦ x + T_end(x) − T_start(x), with T the barycentric map of entropic transport to the last
    and to the first states.

    The second term is the transport of the first states to themselves: it takes out the blur that ε
    brings, as in the velocity of the debiased divergence. A sample without a label pays the
    expected label cost under ``posterior``.

    Args:
        epsilon: regularisation in units of the cost, or ``Relative(share)`` of its mean.
        label_weight: how much labels count against features, as in the flow; 0 looks at features
            only, and so does a fit without labels.
        debias: without, x ↦ T_end(x), which averages last states: blurred, and always among them.

    Attributes:
        epsilon_: the regularisation in units of the cost.

    Example:
        >>> import torch, advect as ad
        >>> start = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> entropic = ad.maps.EntropicMap().fit(start, start + torch.tensor([3.0, 0.0]))
        >>> entropic.transform(torch.tensor([[0.5, 1.0]])).round(decimals=3).tolist()
        [[3.5, 1.0]]
    """

    epsilon: float | Relative = Relative(0.01)  # noqa: RUF009 (frozen)
    label_weight: float = 1.0
    debias: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Relative):
            self.epsilon = check_positive("epsilon", self.epsilon)
        self.label_weight = check_non_negative("label_weight", self.label_weight)

    def posterior(self, x: Any) -> Any:
        """p(y | x) ∝ Σ_(i: y_i = y) a_i exp(−‖x − x_0,i‖²/2ε): a row for each sample, a column for
        each of ``classes_``.

        Example:
            >>> import advect as ad
            >>> start = ad.LabeledDataset([[0.0], [1.0], [9.0]], ["low", "low", "high"])
            >>> entropic = ad.maps.EntropicMap(epsilon=1.0).fit(start, start)
            >>> entropic.classes_, entropic.posterior([[8.0]]).round(3).tolist()
            (('high', 'low'), [[1.0, 0.0]])
        """
        samples = self._opened(x)
        if not self.classes_:
            raise InputError(
                "a posterior needs classes",
                "a map fitted without labels",
                "Fit on labeled datasets.",
            )
        with torch.no_grad():
            points = self._standard(samples.values.flatten(1))
            rows = torch.cat([self._posterior(part) for part in self._blocks(points)])
        return samples.as_came(rows.to(samples.values))

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        labels = self.label_weight > 0 and start.complete and end.complete
        if self.label_weight > 0 and not labels and bool(start.labeled.any() | end.labeled.any()):
            raise InputError(
                "every particle needs a label, at the start and at the end, or none",
                f"{int((~start.labeled).sum())} and {int((~end.labeled).sum())} of {len(start)} "
                "without",
                "Set label_weight=0 to look at features only.",
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
        solver = Sinkhorn(epsilon, tol=_TOL).prepare(matrix, first.weights, last.weights)
        to_start, to_end = _solve_both(matrix, within.matrix(), first.weights, solver)
        self._epsilon = solver.regularisation
        self._parts = {"end.potential": to_end, "end.labels": pair.label_distances}
        if self.debias:
            self._parts |= {"start.potential": to_start, "start.labels": within.label_distances}
        self._prepare()

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
        self._particles = _Side(first, torch.zeros_like(first.weights), None, self._epsilon)
        sides = {"end": last, "start": first} if self.debias else {"end": last}
        self._sides = {
            name: _Side(
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

    def _posterior(self, x: Tensor) -> Tensor:
        plan = self._particles.plan(x, None)
        return plan @ one_hot(self._start.y, len(self.classes_)).to(plan)

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
                classes = torch.where(known[:, None], classes, self._posterior(x))
        end = self._sides["end"].image(x, classes)
        return end - self._sides["start"].image(x, classes) if self.debias else end

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
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
        return tensors | {f"solved.{name}": value for name, value in self._parts.items()} | {
            "centres": self._centres
        }, facts

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.epsilon = Relative(facts["epsilon"]) if facts["relative"] else facts["epsilon"]
        self.label_weight, self.debias = facts["label_weight"], bool(facts["debias"])
        self.__post_init__()
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


def _solve_both(
    cross: Tensor, within: Tensor, weights: Tensor, solver: Sinkhorn
) -> tuple[Tensor, Tensor]:
    """Potentials on the first states of their transport to themselves, and on the last states of
    that from the first.

    Groups of points that are far apart for ε leave their potentials nearly free against each other,
    and two solutions may settle differently. So one problem starts from the other, and what is
    annealed is the difference of the two: where nothing but the mean has moved it is zero
    throughout, and the map is exact."""
    final = solver.regularisation
    epsilon = max(float(cross.max()), final)
    own = torch.zeros_like(weights)
    difference = own, own
    while True:
        tol = _TOL if epsilon == final else _ANNEALING_TOL
        step = Sinkhorn(epsilon, tol=tol)
        own = step.solve_self(within, weights, init=own).potentials[0]
        f, g = step.solve(
            cross, weights, weights, init=(own + difference[0], own + difference[1])
        ).potentials
        if epsilon == final:
            return own, g
        difference = f - own, g - own
        epsilon = max(_ANNEALING_RATIO * epsilon, final)


class _Side:
    """One measure that new points are transported to: rows of the plan, and their barycentres.

    The score of particle j for x is x·x_j + (g_j − ½‖x_j‖² + ε log b_j) − label cost: the cost
    without ½‖x‖², which all particles share. The label cost is linear in the weights of the
    classes, so it is more columns of the same product."""

    def __init__(
        self, state: LabeledDataset, potential: Tensor, labels: Tensor | None, epsilon: float
    ) -> None:
        x = state.x
        self.epsilon, self.labels = epsilon, None if labels is None else labels.to(x)  # (k, k')
        self.points = x
        self.columns = (
            x if labels is None else torch.cat([x, one_hot(state.y, labels.shape[1]).to(x)], dim=1)
        )
        self.shift = potential - x.double().square().sum(dim=1) / 2 + epsilon * state.weights.log()

    def plan(self, x: Tensor, classes: Tensor | None) -> Tensor:
        """Rows π(x), (n, m), for points and weights of their classes (n, k)."""
        if self.labels is not None and classes is not None:
            x = torch.cat([x, -classes @ self.labels.to(x)], dim=1)
        scores = torch.addmm(self.shift.to(x), x, self.columns.to(x).T)
        scores -= scores.amax(dim=1, keepdim=True)
        return scores.div_(self.epsilon).softmax(dim=1)

    def image(self, x: Tensor, classes: Tensor | None) -> Tensor:
        """Σ_j π_j(x) x_j."""
        return self.plan(x, classes) @ self.points.to(x)
