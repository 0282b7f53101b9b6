"""Every default of a flow, in one place: signatures, command line and guides take them from here.

There are three situations, and each number that differs between them has its reason below. What fits
two given datasets best is another question: ``ad.suggest`` answers it from the data."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class FlowDefaults:
    """How a flow is made where nothing else is said.

    Attributes:
        n_steps, step_size: so many explicit Euler steps of so much flow time each.
        label_weight: how much a change of label costs against a change of features.
        epsilon: of the transport, as a share of the mean cost.
        tol: marginal error of the transport problems along the way.
        used_by: who takes them.
        reasons: why, for each number that is not as in ``LOOK``; there, why at all.

    Example:
        >>> USE.n_steps * USE.step_size < LOOK.n_steps * LOOK.step_size
        True
    """

    n_steps: int
    step_size: float
    label_weight: float
    epsilon: float
    tol: float
    used_by: str
    reasons: dict[str, str]

    def differences(self, other: FlowDefaults) -> dict[str, str]:
        """The numbers that are not those of another situation, and why.

        Example:
            >>> sorted(FEW.differences(USE))
            ['epsilon', 'label_weight']
        """
        numbers = [one.name for one in fields(self) if one.name not in ("used_by", "reasons")]
        return {
            name: self.reasons[name]
            for name in numbers
            if getattr(self, name) != getattr(other, name)
        }


LOOK = FlowDefaults(
    n_steps=100,
    step_size=0.1,
    label_weight=1.0,
    epsilon=0.01,
    tol=1e-3,
    used_by="ad.flow, ad.iterate, ad.OTDD, ad.otdd; advect flow, advect distance",
    reasons={
        "n_steps": "flow time 10: an exact distance falls by the factor exp(-10)",
        "step_size": "short enough for a path that can be looked at and compared with theory",
        "label_weight": "the paper's cost, so that distances can be compared with published ones",
        "epsilon": "1 % of the mean cost: below the noise of samples, and quick to solve",
        "tol": "a step of 0.1 does not see less; near the target it is made smaller by itself",
    },
)

USE = FlowDefaults(
    n_steps=30,
    step_size=0.2,
    label_weight=5.0,
    epsilon=0.01,
    tol=1e-3,
    used_by="ad.apps.repurpose, ad.DatasetTransport; advect repurpose",
    reasons={
        "n_steps": "flow time 6: what is left, exp(-6), is less than what a model or a map sees",
        "step_size": "only the end is used, and steps twice as long end in the same place",
        "label_weight": "what comes out is read by its classes: they must hold together on the way",
    },
)

FEW = FlowDefaults(
    n_steps=30,
    step_size=0.2,
    label_weight=50.0,
    epsilon=0.001,
    tol=1e-3,
    used_by="ad.apps.transfer; advect transfer",
    reasons={
        "n_steps": USE.reasons["n_steps"],
        "step_size": USE.reasons["step_size"],
        "label_weight": "a few samples say little about their class: labels must keep classes apart",
        "epsilon": "in proportion to the label weight, so that samples do not end in averages",
    },
)
