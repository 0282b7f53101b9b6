"""Options that commands share. Names and defaults are those of the Python functions.

An object (a solver, an integrator, …) is a table of text: ``--solver exact`` is ``--solver.name exact``,
and further keys are parameters of its class, as in ``--solver.epsilon 0.5``. They are checked against
the signature of the class when the command runs, so this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from advect._util import defaults

OBJECTS = Group("Methods", sort_key=2)
OUTPUT = Group("Output", sort_key=3)
HIDDEN = Parameter(show=False)  # listed by --help-all
Flag = Annotated[bool, Parameter(negative=())]
Switch = Annotated[bool, Parameter(negative=(), group=OUTPUT)]
Table = dict[str, str] | None  # an object as text

_OBJECT = Parameter(negative=(), group=OBJECTS, show_default=False)
Solver = Annotated[
    Table, _OBJECT, Parameter(help="Transport solver: sinkhorn, exact or mini-batch.")
]
Cost = Annotated[
    Table,
    _OBJECT,
    Parameter(help="Label cost (bures, exact, means, names, none, values) and its label_weight."),
]
Space = Annotated[
    Table,
    _OBJECT,
    Parameter(
        help="Common feature space: size, fit, channels, columns, scale (auto, each, pooled), project."
    ),
]
Dynamics = Annotated[Table, _OBJECT, Parameter(help="What moves: fd, jd-fl, jd-vl or jd-y.")]
Integrator = Annotated[
    Table, _OBJECT, Parameter(help="euler, heun, momentum, adam, adagrad or euler-maruyama.")
]
Control = Annotated[Table, _OBJECT, HIDDEN, Parameter(help="backtracking or fixed steps.")]
Stop = Annotated[
    Table, _OBJECT, Parameter(help="Stop early: tol, below, speed, seconds, patience.")
]
Map = Annotated[
    Table,
    _OBJECT,
    Parameter(help="Map for new samples: entropic, nearest or neural."),
]
TABLES = {  # the key that --option VALUE sets
    "--solver": "name",
    "--cost": "label",
    "--dynamics": "name",
    "--integrator": "name",
    "--control": "name",
    "--map": "name",
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
        help="Where distances are measured: auto, features, gradients (of images), standardized "
        "(columns) or a number of principal components."
    ),
]
Out = Annotated[Path, Parameter(alias="-o", group=OUTPUT, help="Where to write the result.")]
Page = Annotated[
    Path | None, Parameter(group=OUTPUT, metavar="FILE.html", help="Also write an HTML page.")
]
Report = Annotated[bool, Parameter(group=OUTPUT, help="Also write report.html.")]
Units = Annotated[
    Literal["source", "target", "common"],
    Parameter(help="Units of the samples that are written; common is the space of the flow."),
]


@dataclass(frozen=True)
class Reading:
    """How datasets are read.

    Args:
        max_samples: Draw at most this many samples of each dataset. Time grows with its square.
        balanced: Draw equally many samples of each class.
        seed: Seed for sampling and noise. Change it to see the variation between runs.
        equal_mass: Give every class the same total weight.
        device: Device to compute on, such as cpu, cuda or mps.
        dtype: Floating point type. The default is that of the data.
    """

    space = None  # a field of those that bring datasets into one space

    max_samples: int | None = None
    balanced: Flag = False
    seed: int = 0
    equal_mass: Flag = False
    device: Annotated[str, HIDDEN] = "cpu"
    dtype: Annotated[Literal["float32", "float64"] | None, HIDDEN] = None


@dataclass(frozen=True)
class FlowSettings(Reading):
    """All that a flow depends on besides its source and target.

    Args:
        functional: A term of the objective, as in otdd, 0.1*norm or 'ball?centre=0,3&radius=2'.
            Repeat the option for a sum.
        n_steps: Number of steps.
        record_every: Record a frame every this many steps. The default gives about 20 frames.
        checkpoint_every: Write a checkpoint every this many steps.
    """

    functional: Annotated[
        tuple[str, ...],
        Parameter(alias="-f", negative=(), metavar="TERM", allow_leading_hyphen=True),
    ] = ("otdd",)
    n_steps: int = defaults.LOOK.n_steps
    solver: Solver = None
    cost: Cost = None
    space: Space = None
    dynamics: Dynamics = None
    integrator: Integrator = None
    control: Control = None
    stop: Stop = None
    memory_limit: MemoryLimit = None
    record_every: int | None = None
    checkpoint_every: Annotated[int, HIDDEN] = 10


@dataclass(frozen=True)
class Output:
    """How a command reports.

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
    """How a command writes.

    Args:
        overwrite: Replace earlier results.
        strict: Exit with 3 if something did not converge.
    """

    overwrite: Switch = False
    strict: Switch = False


@dataclass(frozen=True)
class Running(Writing, Reading):
    """What commands that read data share."""


@dataclass(frozen=True)
class Pairing(Running):
    """What commands share that bring datasets into one feature space."""

    space: Space = None


@dataclass(frozen=True)
class Asking(Pairing):
    """The same, for commands with a page."""

    report: Page = None


Run = Annotated[Running, Parameter(name="*")]
Pair = Annotated[Pairing, Parameter(name="*")]
Ask = Annotated[Asking, Parameter(name="*")]
Write = Annotated[Writing, Parameter(name="*")]
Talk = Annotated[Output, Parameter(name="*")]
RUN, PAIR, ASK, WRITE, TALK = Running(), Pairing(), Asking(), Writing(), Output()
