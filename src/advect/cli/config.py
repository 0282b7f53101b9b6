"""What a command can be asked for, as frozen models: the same names as options, in the environment
and in TOML files.

None leaves the choice to the library. Which option belongs to which object is checked where objects
are made, in ``build``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from advect._util.registry import known

Flag = Parameter(negative=(), show_default=False)  # a switch without a --no-… beside it
_TERMS = Parameter(alias="-f", negative=(), metavar="TERM", allow_leading_hyphen=True)


def switch(help: str) -> Parameter:
    """A switch without a --no-… beside it, and what it does."""
    return Parameter(negative=(), show_default=False, help=help)


def among(kind: str) -> Parameter:
    """One of the registered names of a kind."""
    return Parameter(choices=known(kind))


class Options(BaseModel):
    """A group of options: frozen, and unknown names are an error.

    Example:
        >>> SolverOptions(name="exact").given
        {}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def given(self) -> dict[str, object]:
        """The options that have a value, without the name of the object they are for."""
        return {name: value for name, value in self if value is not None and name != "name"}


class IntegratorOptions(Options):
    """How far to go in each step."""

    name: Annotated[str, among("integrator")] = Field(default="euler", description="The scheme.")
    step_size: float | None = Field(
        default=None, description="Flow time of a step (a length for adam)."
    )
    half_life: float | None = Field(
        default=None, description="Halve the step size every so many steps."
    )
    last_step_size: float | None = Field(
        default=None, description="Not below this when it is halved."
    )
    momentum: float | None = Field(default=None, description="Of momentum.")
    nesterov: Annotated[bool | None, Flag] = Field(
        default=None, description="Momentum that looks ahead."
    )
    beta1: float | None = Field(default=None, description="Of adam.")
    beta2: float | None = Field(default=None, description="Of adam.")
    floor: float | None = Field(default=None, description="Of adam and adagrad.")
    temperature: float | None = Field(default=None, description="Of the noise of euler-maruyama.")


class ControlOptions(Options):
    """Whether a step is made."""

    name: Annotated[str | None, among("control")] = Field(
        default=None,
        description="Make steps smaller until the value falls, or make them as they are; by default the first with euler if "
        "velocities are exact gradients and nothing is random.",
    )
    shrink: float | None = Field(
        default=None, description="backtracking: share of a step that is tried again."
    )
    grow: float | None = Field(
        default=None, description="backtracking: how fast steps grow back to the step size."
    )
    least_share: float | None = Field(
        default=None, description="backtracking: of the fall that velocities promise."
    )
    smallest: float | None = Field(
        default=None, description="backtracking: share of a step below which a flow is stalled."
    )


class DynamicsOptions(Options):
    """What may move."""

    name: Annotated[str, among("dynamics")] = Field(
        default="fd",
        description="Features alone, features and the laws of classes, or features and a law for each sample.",
    )
    bounds: tuple[float, float] | None = Field(
        default=None,
        description="Keep features in this range; images stay in theirs, 0 1 say, unless told -inf inf.",
    )
    through_laws: Annotated[bool | None, Parameter(show_default=False)] = Field(
        default=None,
        description="fd: the exact gradient of the energy, which is the default, or T(x) - x.",
    )
    laws: Annotated[str | None, among("laws")] = Field(
        default=None, description="jd-fl, jd-vl: how covariances move."
    )
    clustering: Annotated[str | None, among("clustering")] = Field(
        default=None, description="jd-vl: labels from laws."
    )
    n_clusters: int | None = Field(default=None, description="Of kmeans.")
    radius: float | None = Field(default=None, description="Of dbscan.")
    min_points: int | None = Field(default=None, description="Of dbscan.")
    every: int | None = Field(default=None, description="jd-vl: cluster at every so many steps.")


class CostOptions(Options):
    """The ground cost between labeled samples."""

    label: Annotated[str | None, among("label")] = Field(
        default=None, description="What it costs to change the label."
    )
    label_weight: float | None = Field(default=None, description="Of labels against features.")
    diagonal: Annotated[bool | None, Flag] = Field(
        default=None, description="bures: variances only."
    )
    embedding: str | None = Field(
        default=None, description="Compare features through a function, path.py:name."
    )

    @model_validator(mode="before")
    @classmethod
    def _without_tolerance(cls, given: Any) -> Any:
        """Runs of old may hold a ``tolerance`` of label distances; they are exact now, which is
        within any.
        """
        return (
            {name: value for name, value in given.items() if name != "tolerance"}
            if isinstance(given, dict)
            else given
        )


class SolverOptions(Options):
    """How transport problems are solved."""

    name: Annotated[str, among("solver")] = Field(
        default="sinkhorn", description="Entropic, exact, or for many samples."
    )
    epsilon: float | None = Field(
        default=None, description="sinkhorn, nystrom: regularisation in units of the cost."
    )
    relative_epsilon: float | None = Field(
        default=None, description="sinkhorn, nystrom: the same as a share of the mean cost."
    )
    tol: float | None = Field(default=None, description="sinkhorn: error of the marginals.")
    max_iter: int | None = Field(default=None, description="Iterations before it gives up.")
    size: int | None = Field(
        default=None, description="mini-batch: samples of either side in a part."
    )
    batches: int | None = Field(default=None, description="mini-batch: how many parts.")
    rank: int | None = Field(default=None, description="nystrom: landmarks.")


class SpaceOptions(Options):
    """How two datasets come into one feature space."""

    size: int | None = Field(default=None, description="Side of images.")
    channels: Literal["gray", "rgb"] | None = Field(default=None, description="Of images.")
    columns: Literal["common", "union"] | None = Field(
        default=None, description="Of tables whose columns differ."
    )
    scale: Literal["unit", "standardize", "standardize-target"] | None = Field(
        default=None, description="Of features."
    )
    project: int | None = Field(default=None, description="Keep so many principal components.")


class StopOptions(Options):
    """When a flow has done enough; any of them will do."""

    tol: float | None = Field(
        default=None, description="The value changes by less than this share of its first change."
    )
    below: float | None = Field(default=None, description="The value is below this.")
    speed: float | None = Field(
        default=None, description="The root mean square velocity is below this."
    )
    seconds: float | None = Field(default=None, description="So much time has passed.")
    patience: int | None = Field(default=None, description="Steps over which tol looks back.")


class MapOptions(Options):
    """What carries samples that the flow never saw."""

    name: Annotated[str, among("map")] = Field(default="entropic", description="Which map.")
    k: int | None = Field(default=None, description="nearest: neighbours.")
    bandwidth: float | None = Field(
        default=None, description="nearest: weigh neighbours by distance."
    )
    epsilon: float | None = Field(
        default=None, description="entropic: regularisation in units of the cost."
    )
    relative_epsilon: float | None = Field(
        default=None, description="entropic: the same as a share of the mean cost."
    )
    label_weight: float | None = Field(
        default=None, description="entropic: of labels against features."
    )
    debias: bool | None = Field(default=None, description="entropic: take out the blur of epsilon.")
    epochs: int | None = Field(default=None, description="neural.")
    learning_rate: float | None = Field(default=None, description="neural.")
    batch_size: int | None = Field(default=None, description="neural.")
    restarts: int | None = Field(default=None, description="neural: random starts.")
    held_out: float | None = Field(
        default=None, description="neural: share of the pairs to compare starts on."
    )
    patience: int | None = Field(default=None, description="neural: epochs without a better one.")
    seed: int | None = Field(default=None, description="neural.")


class DataOptions(Options):
    """How datasets are read."""

    max_samples: int | None = Field(
        default=None, ge=1, description="Draw at most so many of each dataset."
    )
    balanced: Annotated[bool, Flag] = Field(
        default=False, description="Draw equally many of each class."
    )
    seed: int = Field(default=0, ge=0, description="Of draws and of noise.")
    device: str = Field(default="cpu", description="Where to compute: cpu, cuda, cuda:1, mps.")
    dtype: Literal["float32", "float64"] | None = Field(
        default=None, description="By default that of the data."
    )


class MeasureOptions(DataOptions):
    """All that a distance depends on besides its datasets."""

    memory_limit: str | None = Field(
        default=None, description="What a step may take beside the data, as in 2GiB."
    )
    cost: Annotated[CostOptions, Parameter(group="Ground cost")] = CostOptions()
    solver: Annotated[SolverOptions, Parameter(group="Solver")] = SolverOptions()
    space: Annotated[SpaceOptions, Parameter(group="Feature space")] = SpaceOptions()


class FlowOptions(MeasureOptions):
    """All that a flow depends on besides its source and target."""

    functional: Annotated[tuple[str, ...], _TERMS] = Field(
        default=("otdd",),
        description="A term of what is decreased: otdd, internal, norm, ball, hinge, collapse, affine_norm, attraction, "
        "repulsion, spreading or path.py:Name, as in 0.5*ball?centre=0,3&radius=2. Give it several "
        "times for a sum.",
    )
    steps: int = Field(default=100, ge=0, description="How many steps in all.")
    dynamics: Annotated[DynamicsOptions, Parameter(group="Dynamics")] = DynamicsOptions()
    integrator: Annotated[IntegratorOptions, Parameter(group="Integrator")] = IntegratorOptions()
    control: Annotated[ControlOptions, Parameter(group="Step control")] = ControlOptions()
    stop: Annotated[StopOptions, Parameter(group="Stop early")] = StopOptions()
    record_every: int | None = Field(
        default=None,
        ge=1,
        description="Keep a frame at every so many steps; by default about 20 in all.",
    )
    checkpoint_every: int = Field(
        default=10, ge=1, description="Write a checkpoint at every so many steps."
    )
    metric: Annotated[tuple[str, ...], Parameter(negative=(), metavar="PATH.PY:NAME")] = Field(
        default=(), description="Measure a function of the dataset along the flow."
    )
    metric_every: int = Field(default=10, ge=1, description="At every so many steps.")

    @field_validator("functional", mode="before")
    @classmethod
    def _tables_as_text(cls, terms: Any) -> Any:
        """A term may be a table of a TOML file."""
        if not isinstance(terms, (list, tuple)):
            return terms
        return [json.dumps(term) if isinstance(term, dict) else term for term in terms]

    @property
    def code(self) -> list[str | None]:
        """The objects of Python files that it takes."""
        from advect.cli.terms import Term  # for which torch is loaded

        terms = [Term.parse(text) for text in self.functional]
        return [
            *(term.name for term in terms if term.kind == "code"),
            *self.metric,
            self.cost.embedding,
        ]


class CarryOptions(DataOptions):
    """How an application carries a dataset to another."""

    steps: int = Field(default=30, ge=1, description="How many steps.")
    step_size: float = Field(default=0.2, description="Flow time of a step.")
    cost: Annotated[CostOptions, Parameter(group="Ground cost")] = CostOptions()
    solver: Annotated[SolverOptions, Parameter(group="Solver")] = SolverOptions()
    bounds: tuple[float, float] | None = Field(
        default=None,
        description="Keep features in this range; images stay in theirs, 0 1 say, unless told -inf inf.",
    )
    every: int = Field(default=10, ge=1, description="Look at states whose index divides by this.")
    space: Annotated[SpaceOptions, Parameter(group="Feature space")] = SpaceOptions()
    map: Annotated[MapOptions, Parameter(group="Map")] = MapOptions()


Out = Annotated[Path, Parameter(alias="-o", help="Where to write.")]
Units = Annotated[
    Literal["source", "target", "common"],
    Parameter(
        help="Of what is written: as the source is, as the target is, or scaled as in the flow (common)."
    ),
]
Overwrite = Annotated[bool, switch("Write over what is there.")]
Strict = Annotated[bool, switch("Exit with 3 when something did not converge.")]
RunCode = Annotated[bool, switch("Run Python files that a configuration file or a run names.")]
