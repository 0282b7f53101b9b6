"""The flow that the applications share: a dataset carried to another, classes of equal mass, within
given bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from advect._util import defaults
from advect._util.checks import check_count, check_non_negative, check_positive
from advect._util.progress import Progress, track
from advect.cost import Bures, GroundCost
from advect.cost.labels import LabelCost
from advect.data.dataset import LabeledDataset
from advect.data.digest import LATER
from advect.errors import InputError
from advect.flows.dynamics import FeatureDriven, check_bounds
from advect.flows.integrators import Euler
from advect.flows.loop import Callback, FlowResult, flow
from advect.functionals import OTDD
from advect.maps import EntropicMap
from advect.maps.base import Map
from advect.maps.posteriors import Posterior
from advect.ot import Sinkhorn, Solver

_LABEL = Bures()


@dataclass(frozen=True)
class CarryOptions:
    """How a dataset is carried to another.

    Args:
        n_steps, step_size: Euler steps of the flow.
        label_weight: how much classes hold together against nearness of features.
        label: the label cost; coarser ones (``Bures(diagonal=True)``, ``MeansOnly()``) are quicker
            with large classes.
        solver: of the transport problems; by default entropic, with an epsilon of 1 % of the mean
            cost. A smaller one (``Sinkhorn(Relative(0.001), tol=1e-3)``) lands on samples of the
            target rather than on averages of them.
        bounds: keep features in this range, so that images stay images.
        every: look at states whose index divides by this: where labels are known, their accuracy;
            on the way, what is kept.
        map: carries samples that are not in the flow; fitted on it. By default an entropic map with
            the solver's epsilon, not debiased: on held-out USPS images carried to MNIST it was the
            best of all (docs/paper.md, appendix C).
        progress: of the flow: None shows it on stderr when it takes long, False is silent, a function
            is called with (done, total).
        callbacks: what else watches the flow, as in ``ad.flow``.

    Example:
        >>> import advect as ad
        >>> ad.apps.RepurposeOptions(n_steps=20, every=5).label_weight
        5.0
    """

    n_steps: int = defaults.USE.n_steps
    step_size: float = defaults.USE.step_size
    label_weight: float = defaults.USE.label_weight
    label: LabelCost = _LABEL
    solver: Solver | None = None
    bounds: tuple[float, float] | None = None
    every: int = 10
    map: Map | None = None
    progress: Progress = field(default=None, kw_only=True, repr=False, metadata={LATER: True})
    callbacks: tuple[Callback, ...] = field(
        default=(), kw_only=True, repr=False, metadata={LATER: True}
    )

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps)
        check_count("every", self.every)
        check_positive("step_size", self.step_size)
        check_non_negative("label_weight", self.label_weight)
        check_bounds(self.bounds)


def carrier(options: CarryOptions, posterior: Posterior = None) -> Map:
    """The map for samples that are not in the flow, to be fitted on it."""
    if options.map is not None:
        if posterior is not None:
            raise InputError(
                "a posterior is for the map that is made here",
                "a posterior and a map",
                "Pass the map as ad.maps.EntropicMap(posterior=…), or leave one of them out.",
            )
        return options.map
    same = {"epsilon": options.solver.epsilon} if isinstance(options.solver, Sinkhorn) else {}
    return EntropicMap(label_weight=options.label_weight, debias=False, posterior=posterior, **same)


def carry(
    data: LabeledDataset,
    target: LabeledDataset,
    options: CarryOptions,
    callbacks: Sequence[Callback] = (),
) -> FlowResult:
    """Flow balanced data down ½ OTDD² to a balanced target, all the way: what came of half a flow
    is not for training.

    Along T(x) − x: each sample goes straight to its image under the transport map, so that with
    exact transport it ends on samples of the target. The gradient through the laws also draws
    classes into shape, away from that image."""
    cost = GroundCost(label=options.label, label_weight=options.label_weight)
    with track(options.n_steps, "flow", options.progress) as advance:
        return flow(
            data.balanced(),
            OTDD(target.balanced(), cost=cost, solver=options.solver),
            dynamics=FeatureDriven(through_laws=False, bounds=options.bounds),
            integrator=Euler(options.step_size),
            n_steps=options.n_steps,
            callbacks=[*callbacks, *options.callbacks, lambda step: advance(int(step.index > 0))],
        ).checked()
