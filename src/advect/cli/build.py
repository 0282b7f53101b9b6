"""From options to objects, through the registry of names; options that do not belong to an object
are an error.

Everything here raises ``InputError`` with what to change; nothing is written and nothing is
computed."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advect._util import query
from advect._util.registry import call, check_name, make
from advect._util.signatures import Option, of_object
from advect.cli.code import Permission, load_object
from advect.cli.config import DynamicsOptions, FlowOptions, SpaceOptions
from advect.cli.options import Chosen
from advect.cli.terms import Term
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.flows.control import StepControl
    from advect.flows.dynamics import Dynamics
    from advect.flows.integrators import Integrator


def image_bounds(
    given: tuple[float, float] | None, *held: ad.LabeledDataset | None
) -> tuple[float, float] | None:
    """The bounds that were asked for; otherwise images stay in the range of images, and nothing
    else is bound.
    """
    from advect.data.spaces.images import brightness_range

    return given or brightness_range(
        *((data.sample_shape, data.x) for data in held if data is not None)
    )


def dynamics(
    options: DynamicsOptions, source: ad.LabeledDataset, *held: ad.LabeledDataset | None
) -> Dynamics:
    """The dynamics for these datasets, with its bounds and its motion of laws settled."""
    from advect.flows.dynamics import FeatureDriven

    bounds = image_bounds(options.given.get("bounds"), source, *held)
    made: Any = options.built(**({} if bounds is None else {"bounds": bounds}))
    if type(made) is FeatureDriven or "laws" not in vars(made):
        return made
    return dataclasses.replace(made, laws=made.motion(source.dim))


def cost(options: Chosen, code: Permission, *held: ad.LabeledDataset) -> ad.GroundCost:
    """The ground cost; that of the values where these datasets have continuous targets and no
    label cost is asked for.
    """
    import advect as ad

    if "label" not in options.given and not all(data.has_classes for data in held):
        options = options.model_copy(update={"label": "values"})
    embedding = options.given.get("embedding")
    if embedding is None:
        return options.built()
    function = load_object(embedding, "an embedding", code)
    plain = options.model_copy(update={"embedding": None})
    return plain.built(feature=ad.Embedding(function))


def carried_map(options: Chosen, progress: Any = None) -> ad.maps.Map:
    """An unfitted map; one that is trained shows its progress."""
    made = options.built()
    if "progress" in vars(made):
        made.progress = progress
    return made


@dataclass(frozen=True, eq=False)
class Objects:
    """What a flow is made of."""

    functional: ad.Functional
    dynamics: Dynamics
    integrator: Integrator
    control: StepControl
    cost: ad.GroundCost
    solver: ad.ot.Solver

    @classmethod
    def of(
        cls,
        options: FlowOptions,
        source: ad.LabeledDataset,
        targets: Mapping[str, ad.LabeledDataset],
        code: Permission,
    ) -> Objects:
        """All objects that the options ask for; ``targets`` has the datasets that terms go to, the
        main one under an empty name.
        """
        from advect.flows.control import default_control
        from advect.flows.field import Field

        ground = cost(options.cost, code, source, *targets.values())
        solver = options.solver.built()
        shared = {"cost": ground, "solver": solver, "memory_limit": options.memory_limit}
        made = functional(options.functional, source, targets, code, shared)
        moves = dynamics(options.dynamics, source, targets.get(""))
        integrator = options.integrator.built()
        asked = any(value is not None for _, value in options.control)
        control = options.control.built() if asked else None
        control = control or default_control(Field(made, moves), integrator)
        return cls(made, moves, integrator, control, ground, solver)

    def resolved(self, options: FlowOptions) -> FlowOptions:
        """The options with the values that these objects have."""
        parts = ("dynamics", "integrator", "control", "cost", "solver")
        values = {part: getattr(options, part).resolved(getattr(self, part)) for part in parts}
        return options.model_copy(update=values)


def space(
    source: ad.LabeledDataset,
    target: ad.LabeledDataset,
    options: SpaceOptions,
    coders: Mapping[str, Any],
) -> ad.FeatureSpace:
    """The feature space of two datasets, with what ``coders`` has loaded."""
    import advect as ad

    if options.align is not None:
        if others := sorted({*options.given, *coders} - {"align", "project"}):
            raise InputError(
                "an alignment takes samples as they are",
                ", ".join(f"--space.{name}" for name in others),
                "Leave them out, or leave --space.align out.",
            )
        return ad.align(source, target, by=options.align, dim=options.project)
    return ad.FeatureSpace.fit(source, target, **{**options.given, **coders})


def coders(options: SpaceOptions, code: Permission, progress: Any) -> dict[str, Any]:
    """The encoder and the decoder that are asked for, loaded once for all datasets, and how their
    progress is shown; empty if there are none.
    """
    from advect.cli.models import load_coder

    named = {"encoder": options.encoder, "decoder": options.decoder}
    found = {what: load_coder(text, what, code) for what, text in named.items() if text is not None}
    return {**found, "progress": progress} if found else {}


def functional(
    terms: Iterable[str],
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
    shared: Mapping[str, Any],
) -> ad.Functional:
    """The sum of all terms; ``shared`` is what all terms of transport take."""
    import advect as ad

    parts = [_term(Term.parse(text), source, targets, code, shared) for text in terms]
    return parts[0] if len(parts) == 1 else ad.Sum(*parts)


def _term(
    term: Term,
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
    shared: Mapping[str, Any],
) -> ad.Functional:
    import advect as ad

    given = dict(term.options)
    if term.to_target:
        given["target"] = targets[str(given.get("target", ""))]
    if term.kind == "code":
        made = _own(term, given, source, targets, code)
    elif term.name == "otdd":
        for option in given:
            check_name("option of otdd", option, ["target"], "; --cost and --solver are for all")
        made = ad.OTDD(**given, **shared)
    elif term.kind == "functional":
        made = make("functional", term.name, given)
    else:
        made = (ad.Potential if term.kind == "potential" else ad.Interaction)(
            make(term.kind, term.name, given)
        )
        _try(made, term.name, source)
    return made if term.weight == 1 else term.weight * made


def _try(made: ad.Functional, name: str, source: ad.LabeledDataset) -> None:
    """A first value, so that options of another dimension than the data show before anything is
    written.
    """
    try:
        made(source.subset(range(min(2, len(source)))))
    except (RuntimeError, IndexError) as error:
        why = str(error).splitlines()[0]
        raise InputError(
            f"{name} does not fit samples of {source.dim} features", why, "Check its options."
        ) from None


def _own(
    term: Term,
    given: dict[str, Any],
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
) -> ad.Functional:
    """A functional of the user's, or what makes one; source and target are passed to it if it takes
    them.
    """
    import advect as ad

    made = load_object(term.name, "a functional", code)
    if callable(made) and not isinstance(made, ad.Functional):
        takes = of_object(made)
        held = {"source": source, "target": targets.get("")}
        own = {name: data for name, data in held.items() if name in takes}
        free = {name: option for name, option in takes.items() if name not in own}
        if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(made).parameters.values()):
            free = {name: Option(name) for name in given} | free  # it takes any
        for name in given:
            check_name(f"option of {term.name}", name, free)
        if term.written:
            given = query.values(term.written, free, term.name)
        try:
            made = call(term.name, made, takes, {**own, **given})
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{term.name} cannot be made", error, f"It takes {', '.join(takes) or 'nothing'}."
            ) from error
    elif given:
        raise InputError(
            f"{term.name} is made already", f"options {', '.join(given)}", "Name its class instead."
        )
    if not isinstance(made, ad.Functional):
        raise InputError(
            f"{term.name} must be a Functional, or make one",
            type(made).__name__,
            "Subclass ad.Functional.",
        )
    return made
