"""What a command can be asked for, as frozen models: the same names as options, in the environment
and in TOML files.

Options of objects (solvers, integrators, maps, …) come from the signatures and docstrings of their
classes; only what belongs to commands is written here. None leaves the choice to the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field, field_validator, model_validator

from advect._util import defaults
from advect.cli.code import is_code, settled_code
from advect.cli.options import Chosen, Flag, Options, group, switch
from advect.cli.sections import SECTIONS

_TERMS = Parameter(alias="-f", negative=(), metavar="TERM", allow_leading_hyphen=True)
FLOW_TOL = {"tol": defaults.LOOK.tol}  # of transport problems along a flow, as in ``ad.OTDD``
SOLVERS = "Entropic, exact, or for many samples."


class IntegratorOptions(group("integrator", "euler", "The scheme.")):
    """How far to go in each step."""


class ControlOptions(
    group(
        "control",
        "backtracking",
        "Make steps smaller until the value falls, or make them as they are; by default the first "
        "with euler if velocities are exact gradients and nothing is random.",
        chosen=False,
    )
):
    """Whether a step is made."""


class DynamicsOptions(
    group(
        "dynamics",
        "fd",
        "Features alone, features and the laws of classes, features and a law for each sample, or features "
        "and continuous targets.",
    )
):
    """What may move."""


class FlowSolverOptions(group("solver", "sinkhorn", SOLVERS, {"sinkhorn": FLOW_TOL})):
    """How transport problems are solved along a flow."""


class AnyCost(Chosen):
    """What the ground costs of all commands share."""

    embedding: str | None = Field(
        default=None, description="Compare features through a function, path.py:name."
    )

    @model_validator(mode="before")
    @classmethod
    def _without_tolerance(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Runs of old may hold a ``tolerance`` of label distances; they are exact now, which is
        within any.
        """
        return {name: given[name] for name in given if name != "tolerance"}


class CostOptions(group("cost", "ground", base=AnyCost)):
    """The ground cost between labeled samples."""


class StopOptions(group("stop", "when")):
    """When a flow has done enough; any of them will do."""


class SpaceOptions(Options):
    """How two datasets come into one feature space."""

    size: int | None = Field(
        default=None,
        description="Side of images in pixels; by default the larger of the two. Smaller is quicker and coarser.",
    )
    channels: Literal["gray", "rgb"] | None = Field(
        default=None, description="Gray or colour for both; by default colour if either is."
    )
    columns: Literal["common", "union"] | None = Field(
        default=None, description="Of tables whose columns differ: keep the common ones, or all."
    )
    scale: Literal["unit", "standardize", "standardize-target"] | None = Field(
        default=None,
        description="Of features: standardize where columns have different units (by both, or by the "
        "target alone), unit for 0 to 1; by default as they are.",
    )
    project: int | None = Field(
        default=None,
        description="Keep so many principal components: quicker, and steadier laws of classes from few samples.",
    )
    align: Literal["auto", "names", "geometry"] | None = Field(
        default=None,
        description="Of datasets whose dimensions or columns have nothing to do with each other: by classes of the same "
        "name, by distances within each, or by names where two are shared; project is its dimension.",
    )
    encoder: str | None = Field(
        default=None,
        description="Features to work in, before scale and project: model.onnx, or path.py:name (a torch module, a function "
        "of samples, a transformer).",
    )
    decoder: str | None = Field(
        default=None, description="The way back from these features: model.onnx or path.py:name."
    )

    @property
    def code(self) -> list[str | None]:
        """The objects of Python files that it takes."""
        return [text for text in (self.encoder, self.decoder) if text and is_code(text)]

    @property
    def settled(self) -> SpaceOptions:
        """The same by whole paths."""
        whole = {
            name: settled_code(text) if is_code(text) else str(Path(text).expanduser().absolute())
            for name in ("encoder", "decoder")
            if (text := getattr(self, name)) is not None
        }
        return self.model_copy(update=whole)


class DataOptions(Options):
    """How datasets are read."""

    max_samples: int | None = Field(
        default=None,
        ge=1,
        description="Draw at most so many of each dataset: time grows with its square; a few hundred "
        "show what there is to see.",
    )
    balanced: Annotated[bool, Flag] = Field(
        default=False,
        description="Draw equally many of each class, where their shares are not part of the question.",
    )
    seed: int = Field(
        default=0, ge=0, description="Of draws and of noise: another one tells what is luck."
    )
    equal_mass: Annotated[bool, Flag] = Field(
        default=False,
        description="Give every class the same mass, whatever its number of samples: where two datasets have classes in "
        "other shares, and whole classes are to meet.",
    )
    device: str = Field(default="cpu", description="Where to compute: cpu, cuda, cuda:1, mps.")
    dtype: Literal["float32", "float64"] | None = Field(
        default=None,
        description="By default that of the data; float64 where a note says that digits are lacking.",
    )


READ_ALL = DataOptions.model_construct()  # without any option


class Comparison(DataOptions):
    """How datasets are compared, but for the solver."""

    memory_limit: str | None = Field(
        default=None,
        description="What a step may take beside the data, as in 2GiB; by default half of what is free. Less is slower.",
    )
    cost: Annotated[CostOptions, Parameter(group=SECTIONS["Ground cost"])] = (
        CostOptions.model_construct()
    )
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )


class FlowOptions(Comparison):
    """All that a flow depends on besides its source and target."""

    solver: Annotated[FlowSolverOptions, Parameter(group=SECTIONS["Solver"])] = (
        FlowSolverOptions.model_construct()
    )

    functional: Annotated[tuple[str, ...], _TERMS] = Field(
        default=("otdd",),
        description="A term of what is decreased: otdd, internal, norm, ball, hinge, collapse, affine_norm, attraction, "
        "repulsion, spreading or path.py:Name, as in 0.5*ball?centre=0,3&radius=2. Give it several "
        "times for a sum.",
    )
    steps: int = Field(default=defaults.LOOK.n_steps, ge=0, description="How many steps in all.")
    dynamics: Annotated[DynamicsOptions, Parameter(group=SECTIONS["Dynamics"])] = (
        DynamicsOptions.model_construct()
    )
    integrator: Annotated[IntegratorOptions, Parameter(group=SECTIONS["Integrator"])] = (
        IntegratorOptions.model_construct()
    )
    control: Annotated[ControlOptions, Parameter(group=SECTIONS["Step control"])] = (
        ControlOptions.model_construct()
    )
    stop: Annotated[StopOptions, Parameter(group=SECTIONS["Stop early"])] = (
        StopOptions.model_construct()
    )
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
    metric_every: int = Field(
        default=10, ge=1, description="At every so many steps; a costly one less often."
    )

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
            *self.space.code,
        ]


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
