"""From options to objects, through the registry of names; options that do not belong to an object
are an error.

Everything here raises ``InputError`` with what to change; nothing is written and nothing is
computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from advect._util import query
from advect._util.registry import call, check_name, make
from advect._util.signatures import of_object
from advect.cli.code import Permission, load_object
from advect.cli.config import (
    ControlOptions,
    CostOptions,
    DynamicsOptions,
    FlowOptions,
    IntegratorOptions,
    MapOptions,
    SolverOptions,
    SpaceOptions,
    StopOptions,
)
from advect.cli.terms import Term
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.flows.control import StepControl
    from advect.flows.dynamics import Dynamics
    from advect.flows.integrators import Integrator


def integrator(options: IntegratorOptions) -> Integrator:
    """The integrator, its step size a number or halved as it goes."""
    import advect as ad

    given = options.given
    half_life, last = given.pop("half_life", None), given.pop("last_step_size", None)
    if last is not None and half_life is None:
        raise InputError(
            "last_step_size is where a step size that is halved ends", last, "Give half_life too."
        )
    if half_life is not None:
        given["step_size"] = ad.Decay(
            options.step_size or 0.1, options.half_life or 0.0, options.last_step_size or 0.0
        )
    return make("integrator", options.name, given)


def control(options: ControlOptions) -> StepControl | None:
    """The step control; None, the library's choice, when nothing is asked for."""
    if options.name is None and not options.given:
        return None
    return make("control", options.name or "backtracking", options.given)


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


def dynamics(options: DynamicsOptions, *held: ad.LabeledDataset | None) -> Dynamics:
    """The dynamics with its motion of laws and its clustering, for these datasets."""
    given = options.given
    bounds = image_bounds(options.bounds, *held)
    if bounds is not None:
        given["bounds"] = bounds
    clustering = {
        name: given.pop(name) for name in ("n_clusters", "radius", "min_points") if name in given
    }
    if "clustering" in given or clustering:
        given["clustering"] = make("clustering", str(given.get("clustering", "kmeans")), clustering)
    if "laws" in given:
        given["laws"] = make("laws", str(given["laws"]), {})
    return make("dynamics", options.name, given)


def solver(options: SolverOptions, **defaults: Any) -> ad.ot.Solver | None:
    """The solver; None, the library's choice, when nothing is asked for."""
    given = _with_epsilon(options.given)
    if not given and options.name == "sinkhorn":
        return None
    return make(
        "solver", options.name, {**defaults, **given} if options.name == "sinkhorn" else given
    )


def cost(options: CostOptions, code: Permission) -> ad.GroundCost | None:
    """The ground cost; None, the library's choice, when nothing is asked for."""
    import advect as ad

    given = options.given
    if not given:
        return None
    label = options.label or "bures"
    own = {"diagonal": given["diagonal"]} if "diagonal" in given else {}
    parts: dict[str, Any] = {"label": make("label", label, own)}
    if options.label_weight is not None:
        parts["label_weight"] = options.label_weight
    if options.embedding is not None:
        parts["feature"] = ad.Embedding(load_object(options.embedding, "an embedding", code))
    return ad.GroundCost(**parts)


def carried_map(options: MapOptions, progress: Any = None) -> ad.maps.Map:
    """An unfitted map."""
    made = make("map", options.name, _with_epsilon(options.given))
    if options.name == "neural":
        made.progress = progress
    return made


def _with_epsilon(given: dict[str, Any]) -> dict[str, Any]:
    import advect as ad

    if "relative_epsilon" in given:
        if "epsilon" in given:
            raise InputError(
                "epsilon is given twice", "epsilon and relative_epsilon", "Leave one of them out."
            )
        given["epsilon"] = ad.Relative(given.pop("relative_epsilon"))
    return given


def stop(options: StopOptions) -> ad.StopWhen | None:
    """When to stop early, if anything is said about it."""
    import advect as ad

    given: dict[str, Any] = options.given
    return ad.StopWhen(**given) if given else None


def space(
    source: ad.LabeledDataset, target: ad.LabeledDataset, options: SpaceOptions
) -> ad.FeatureSpace:
    """The feature space of two datasets."""
    import advect as ad

    given: dict[str, Any] = options.given
    return ad.FeatureSpace.fit(source, target, **given)


def functional(
    options: FlowOptions,
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
) -> ad.Functional:
    """The sum of all terms; ``targets`` has the datasets that terms go to, the main one under an
    empty name.
    """
    import advect as ad

    parts = [_term(Term.parse(text), options, source, targets, code) for text in options.functional]
    return parts[0] if len(parts) == 1 else ad.Sum(*parts)


def _term(
    term: Term,
    options: FlowOptions,
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
) -> ad.Functional:
    import advect as ad

    given = dict(term.options)
    if term.kind == "code":
        made = _own(term, given, source, targets, code)
    elif term.name == "otdd":
        to = str(given.pop("target", ""))
        for option in given:
            check_name("option of otdd", option, ["target"], "; --cost and --solver are for all")
        made = ad.OTDD(
            targets[to],
            cost=cost(options.cost, code),
            solver=solver(options.solver, tol=1e-3),
            memory_limit=options.memory_limit,
        )
    elif term.name == "sliced":
        to = str(given.pop("target", ""))
        made = make("functional", "sliced", {"target": targets[to], **given})
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
