"""The commands: what each is called, where it is, what it does, how it is typed. Nothing is
imported to say so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One command; ``where`` is its function or its app of further commands.

    Example:
        >>> Command("show", "advect.cli.look:show", "Look", "What became of a run.", "RUN", "advect show run").epilogue
        'Example:\\n  advect show run'
    """

    name: str
    where: str
    group: str
    line: str
    usage: str
    example: str

    @property
    def epilogue(self) -> str:
        """What stands at the end of its help."""
        return f"Example:\n  {self.example}"


GROUPS = ("Measure", "Ask", "Move", "Use", "Look", "More")

COMMANDS = (
    Command(
        "data",
        "advect.cli.data:app",
        "Measure",
        "Look at datasets, list those with names, convert files.",
        "info|list|convert",
        "advect data info digits",
    ),
    Command(
        "distance",
        "advect.cli.measure:distance",
        "Measure",
        "The distance between two labeled datasets, class by class.",
        "SOURCE TARGET [OPTIONS]",
        "advect distance digits mnist --max-samples 300",
    ),
    Command(
        "matrix",
        "advect.cli.measure:matrix",
        "Measure",
        "Distances between all pairs of several datasets.",
        "REFERENCE... [-o DIRECTORY] [OPTIONS]",
        "advect matrix toy:gaussians toy:moons toy:rings --max-samples 100 -o distances",
    ),
    Command(
        "drift",
        "advect.cli.drift:drift",
        "Ask",
        "Whether a window of data still has the law of a reference, and which class changed.",
        "REFERENCE WINDOW [--state FILE.json] [OPTIONS]",
        "advect drift 'digits?n=300' 'digits?n=300&seed=1' --report drift.html",
    ),
    Command(
        "compare",
        "advect.cli.compare:compare",
        "Ask",
        "Is generated data any good, class by class?",
        "SYNTHETIC REAL [--held-out REFERENCE] [--report FILE.html] [OPTIONS]",
        "advect compare 'digits?n=600' 'digits?n=600&seed=1' --repeats 10 --report compare.html",
    ),
    Command(
        "shares",
        "advect.cli.shares:shares",
        "Ask",
        "Which shares the classes of a dataset have in another one without labels.",
        "SOURCE TARGET [-o FILE.npz] [OPTIONS]",
        "advect shares 'digits?n=300&balanced=true' 'digits?n=300&seed=1'",
    ),
    Command(
        "index",
        "advect.cli.index:app",
        "Ask",
        "Which dataset is nearest to mine, out of those that were added to an index.",
        "add|near|list|remove|map|export",
        "advect index add catalogue digits mnist usps --space.size 14 --max-samples 1000",
    ),
    Command(
        "audit",
        "advect.cli.audit:audit",
        "Ask",
        "Which samples of a dataset are wrong, odd, copies, or missing.",
        "DATA [REFERENCE] [-o FILE.csv] [--report FILE.html] [OPTIONS]",
        "advect audit 'digits?n=500' -o audit.csv --report audit.html",
    ),
    Command(
        "suggest",
        "advect.cli.suggest:suggest",
        "Move",
        "Which options a flow of these datasets should have, and why; a configuration to start from.",
        "SOURCE TARGET [-o FILE.toml] [OPTIONS]",
        "advect suggest digits mnist --max-samples 500 -o flow.toml",
    ),
    Command(
        "flow",
        "advect.cli.flow:flow",
        "Move",
        "Move a dataset toward another one, or down any sum of functionals.",
        "SOURCE [TARGET] -o RUN [OPTIONS]",
        "advect flow digits mnist --max-samples 500 --steps 25 -o run\n"
        "  advect flow toy:moons -f 'ball?centre=0,0&radius=1' -f 0.1*repulsion -o shaped",
    ),
    Command(
        "resume",
        "advect.cli.flow:resume",
        "Move",
        "Go on with a flow, bit for bit as if it had not been interrupted, or with more steps.",
        "RUN [--steps STEPS] [OPTIONS]",
        "advect resume run --steps 200",
    ),
    Command(
        "interpolate",
        "advect.cli.between:interpolate",
        "Move",
        "The dataset that is some of the way from one to another.",
        "A B [--t T] -o FILE [OPTIONS]",
        "advect interpolate 'mnist?n=200' 'usps?n=200' --t 0.5 -o between.npz --report between.html",
    ),
    Command(
        "barycenter",
        "advect.cli.between:barycenter",
        "Move",
        "The dataset in the middle of several.",
        "REFERENCE... [--weights W] -o FILE [OPTIONS]",
        "advect barycenter 'toy:gaussians?n=90' 'toy:moons?n=90' 'toy:rings?n=90' -o middle.npz",
    ),
    Command(
        "map",
        "advect.cli.maps:app",
        "Use",
        "Fit a map on a flow or on two datasets, carry new samples with it, export it.",
        "fit|match|apply|export",
        "advect map fit run -o to-mnist",
    ),
    Command(
        "transfer",
        "advect.cli.apps:transfer",
        "Use",
        "Make training sets for a few labeled samples out of a large dataset.",
        "SOURCE TARGET -o DIRECTORY [OPTIONS]",
        "advect transfer digits 'mnist?n=50&balanced=true' --max-samples 500 -o sets",
    ),
    Command(
        "repurpose",
        "advect.cli.apps:repurpose",
        "Use",
        "Classify datasets with a model that was made for another one.",
        "MODEL REFERENCE DATASET... -o DIRECTORY [OPTIONS]",
        "advect repurpose model.onnx mnist usps kmnist --max-samples 1000 -o answers",
    ),
    Command(
        "label",
        "advect.cli.label:label",
        "Use",
        "Label a pool of samples from a few labeled ones, and say how sure each label is.",
        "POOL [FEW] -o FILE.csv|DIRECTORY [OPTIONS]",
        "advect label 'digits?n=1000' 'digits?n=50&balanced=true&seed=1' --relabel -o labels.csv "
        "--report labels.html",
    ),
    Command(
        "condense",
        "advect.cli.condense:condense",
        "Use",
        "Distil a dataset into a few synthetic samples of each class.",
        "DATA -o FILE.npz [--per-class 10] [OPTIONS]",
        "advect condense 'digits?n=500' --per-class 3 -o few.npz --test 'digits?n=500&seed=1'",
    ),
    Command(
        "show",
        "advect.cli.look:show",
        "Look",
        "What became of a run.",
        "RUN [OPTIONS]",
        "advect show run",
    ),
    Command(
        "report",
        "advect.cli.look:report",
        "Look",
        "A page about a run that opens in any browser; about several, side by side.",
        "RUN... [-o FILE.html] [OPTIONS]",
        "advect report run\n  advect report euler adam -o both.html",
    ),
    Command(
        "serve",
        "advect.cli.serve:serve",
        "Look",
        "Look at runs in a browser, also while they go on; on this machine alone.",
        "[DIRECTORY...] [--port PORT] [OPTIONS]",
        "advect serve runs",
    ),
    Command(
        "animate",
        "advect.cli.look:animate",
        "Look",
        "A run as a GIF or MP4.",
        "RUN -o FILE [OPTIONS]",
        "advect animate run -o run.gif",
    ),
    Command(
        "reproduce",
        "advect.cli.reproduce:reproduce",
        "More",
        "Run an experiment of the paper, from a source checkout.",
        "[NAME] [-- ARGUMENTS...]",
        "advect reproduce gaussians -- --quick",
    ),
    Command(
        "doctor",
        "advect.cli.doctor:doctor",
        "More",
        "Versions, devices, data, and a self-test.",
        "[OPTIONS]",
        "advect doctor",
    ),
)
