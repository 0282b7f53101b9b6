"""Options that commands share. Names and defaults are those of the Python functions.

An object (a solver, an integrator, …) is a table of text: ``--solver exact`` is ``--solver.name exact``,
and further keys are parameters of its class, as in ``--solver.epsilon 0.5``. They are checked against
the signature of the class when the command runs, so this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

DATA = Group("Data", sort_key=2)
OBJECTS = Group("Methods", sort_key=3)
OUTPUT = Group("Output", sort_key=4)
HIDDEN = Parameter(show=False)  # listed by --help-all
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Switch = Annotated[Flag, Parameter(group=OUTPUT)]
Table = dict[str, str] | None  # an object as text

_OBJECT = Parameter(negative=(), group=OBJECTS, show_default=False, metavar="NAME")
Solver = Annotated[
    Table,
    _OBJECT,
    Parameter(
        help="Transport solver: sinkhorn, exact or mini-batch. Its regularisation is "
        "--solver.epsilon."
    ),
]
Cost = Annotated[
    Table,
    _OBJECT,
    Parameter(
        help="Label cost: bures, exact, means, names, none or values. Its weight is "
        "--cost.label-weight."
    ),
]
Space = Annotated[
    Table,
    _OBJECT,
    Parameter(
        metavar="",
        help="Common feature space, with keys size, fit, channels, columns, scale and project, as in "
        "--space.scale each.",
    ),
]
Dynamics = Annotated[
    Table, _OBJECT, Parameter(help="Dynamics: fd (features), jd-fl, jd-vl or jd-y.")
]
Integrator = Annotated[
    Table,
    _OBJECT,
    Parameter(
        help="Integrator: euler, heun, momentum, adam or euler-maruyama. Its step size is "
        "--integrator.step-size."
    ),
]
Control = Annotated[Table, _OBJECT, HIDDEN, Parameter(help="Step control: backtracking or fixed.")]
Stop = Annotated[
    Table,
    _OBJECT,
    Parameter(
        metavar="",
        help="Stop early, with keys tol, below, seconds and patience, as in --stop.tol 1e-3.",
    ),
]
TABLES = {  # the key that --option VALUE sets
    "--solver": "name",
    "--cost": "label",
    "--dynamics": "name",
    "--integrator": "name",
    "--control": "name",
    "--space": "",
    "--stop": "",
}

MemoryLimit = Annotated[
    str | None,
    HIDDEN,
    Parameter(help="Memory for costs, such as 2GiB. The default is half of what is free."),
]
Embedding = Annotated[
    str,
    Parameter(
        help="Features in which samples are compared: auto, features, gradients (of images), "
        "standardized (columns) or a number of principal components."
    ),
]
Out = Annotated[Path, Parameter(alias="-o", group=OUTPUT, help="Where to write the result.")]
Page = Annotated[
    Path | None, Parameter(group=OUTPUT, metavar="FILE.html", help="Also write an HTML page.")
]
Report = Annotated[bool, Parameter(group=OUTPUT, help="Also write report.html.")]


@dataclass(frozen=True)
class Reading:
    """Options for reading datasets.

    Args:
        max_samples: Draw at most this many samples of each dataset. The default allows about a minute of work.
        balanced: Draw the same number of samples from each class.
        equal_mass: Give every class the same total weight.
        seed: Seed for sampling and noise. Change it to see the variation between runs.
        device: Device to compute on, such as cpu, cuda or mps.
        dtype: Floating point type. The default is that of the data.
    """

    space = None  # a field of those that bring datasets into one space

    max_samples: Annotated[int | None, Parameter(group=DATA)] = None
    balanced: Annotated[Flag, Parameter(group=DATA)] = False
    seed: Annotated[int, Parameter(group=DATA)] = 0
    equal_mass: Annotated[bool | None, Parameter(negative=(), group=DATA)] = None
    device: Annotated[str, HIDDEN] = "cpu"
    dtype: Annotated[Literal["float32", "float64"] | None, HIDDEN] = None


@dataclass(frozen=True)
class FlowSettings(Reading):
    """The options of a flow in addition to its source and target.

    Args:
        functional: A term of the objective, such as 0.1*norm; otdd is the distance to the target. Repeatable.
        n_steps: Number of steps.
        equal_mass: Give every class the same total weight.
        record_every: Record a frame every this many steps. The default gives about 20 frames.
        checkpoint_every: Write a checkpoint every this many steps.
    """

    functional: Annotated[
        tuple[str, ...] | None,
        Parameter(alias="-f", negative=(), metavar="TERM", allow_leading_hyphen=True),
    ] = None
    n_steps: int | None = None
    equal_mass: Annotated[bool | None, Parameter(negative="--no-equal-mass", group=DATA)] = None
    solver: Solver = None
    cost: Cost = None
    space: Space = None
    dynamics: Dynamics = None
    integrator: Integrator = None
    control: Control = None
    stop: Stop = None
    memory_limit: MemoryLimit = None
    record_every: Annotated[int | None, Parameter(group=OUTPUT)] = None
    checkpoint_every: Annotated[int, HIDDEN] = 10


@dataclass(frozen=True)
class Output:
    """Options for the output of a command.

    Args:
        config: Read options from this TOML file. Options that are typed override it.
        json: Print the result as one JSON object.
        quiet: Print neither progress nor notes.
    """

    overwrite = strict = False  # fields of those that write
    space = report = None

    config: Annotated[Path | None, Parameter(alias="-c", metavar="FILE.toml", group=OUTPUT)] = None
    json: Switch = False
    quiet: Annotated[Switch, Parameter(alias="-q")] = False


@dataclass(frozen=True)
class Writing(Output):
    """Options of commands that write files.

    Args:
        overwrite: Replace earlier results.
        strict: Exit with code 3 if a computation did not converge.
    """

    overwrite: Switch = False
    strict: Switch = False


@dataclass(frozen=True)
class Running(Writing, Reading):
    """Options of commands that read data."""


@dataclass(frozen=True)
class Pairing(Running):
    """Options of commands that bring datasets into one feature space."""

    space: Space = None


@dataclass(frozen=True)
class Asking(Pairing):
    """The same, for commands with a page."""

    report: Page = None


Run = Annotated[Running, Parameter(name="*")]
Pair = Annotated[Pairing, Parameter(name="*")]
Ask = Annotated[Asking, Parameter(name="*")]
Write = Annotated[Writing, Parameter(name="*")]
Print = Annotated[Output, Parameter(name="*")]
RUN, PAIR, ASK, WRITE, PRINT = Running(), Pairing(), Asking(), Writing(), Output()
