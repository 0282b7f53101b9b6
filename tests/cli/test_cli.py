"""The command line in one process: exit codes, messages, settings from three places, and what is
left alone.
"""

import json
import math
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from covering import first_of_each

import advect as ad
from advect._util import registry
from advect.cli.app import main
from advect.cli.commands import COMMANDS
from advect.cli.terms import Term
from advect.data.store import read_tensors

A, B = "toy:gaussians?n=30", "toy:gaussians?n=36&shift=4,0&seed=1"


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """Every test in an empty directory, without settings of the machine's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_DATA", "")
    monkeypatch.setenv("ADVECT_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)
    return tmp_path


@pytest.fixture
def cli(capsys):
    """Runs a command line and gives (exit code, stdout, stderr)."""

    def run(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def answer(cli):
    """Runs a command line with --json, which must succeed, and gives what it says."""

    def run(*words, code=0):
        got, out, err = cli(*words, "--json")
        assert got == code, err
        assert out.endswith("}\n") and out.count("\n") == 1
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return run


def same_frame(one, other, index):
    """Files of the same tensors may differ in the order of their headers."""
    a, b = (read_tensors(Path(run, "frames", f"{index:06d}.safetensors")) for run in (one, other))
    assert (
        a[1] == b[1]
        and a[0].keys() == b[0].keys()
        and all(torch.equal(a[0][name], b[0][name]) for name in a[0])
    )


def files():
    return sorted(str(path) for path in Path().rglob("*") if ".cache" not in path.parts)


BAD = {
    "no command": ["advance"],
    "data info, unknown name": ["data", "info", "digit"],
    "data info, no file": ["data", "info", "csv:missing.csv"],
    "data info, bad option": ["data", "info", "toy:moons?nn=3"],
    "data info, too many": ["data", "info", "toy:moons?n=-3"],
    "data list, a word too many": ["data", "list", "now"],
    "data convert, unknown format": ["data", "convert", "toy:moons?n=9", "-o", "moons.xyz"],
    "data convert, nowhere": ["data", "convert", "toy:moons?n=9"],
    "suggest, no file": ["suggest", A, "missing.csv"],
    "distance, one dataset": ["distance", A],
    "distance, two spaces": ["distance", A, "digits"],
    "distance, negative epsilon": ["distance", A, B, "--solver.epsilon", "-1"],
    "distance, epsilon of exact": [
        "distance",
        A,
        B,
        "--solver.name",
        "exact",
        "--solver.epsilon",
        "1",
    ],
    "distance, two epsilons": [
        "distance",
        A,
        B,
        "--solver.epsilon",
        "1",
        "--solver.relative-epsilon",
        "1",
    ],
    "distance, unknown option": ["distance", A, B, "--solver.epsilom", "1"],
    "distance, no device": ["distance", A, B, "--device", "cuda:77"],
    "distance, no such device": ["distance", A, B, "--device", "gpu"],
    "distance, dtype": ["distance", A, B, "--dtype", "float16"],
    "distance, a word for a number": ["distance", A, B, "--max-samples", "many"],
    "distance, memory": ["distance", A, B, "--memory-limit", "much"],
    "flow, memory": ["flow", A, B, "-o", "run", "--memory-limit", "-1"],
    "matrix, one dataset": ["matrix", A],
    "matrix, two spaces": ["matrix", A, "digits"],
    "matrix, standardized": ["matrix", A, B, "--space.scale", "standardize"],
    "flow, nowhere": ["flow", A, B],
    "flow, no target": ["flow", A, "-o", "run"],
    "flow, no source": ["flow", "-o", "run"],
    "flow, unknown integrator": ["flow", A, B, "-o", "run", "--integrator.name", "adm"],
    "flow, option of another integrator": ["flow", A, B, "-o", "run", "--integrator.beta1", "0.5"],
    "flow, option of another dynamics": ["flow", A, B, "-o", "run", "--dynamics.every", "2"],
    "flow, no such laws there": [
        "flow",
        A,
        B,
        "-o",
        "run",
        "--dynamics.name",
        "jd-vl",
        "--dynamics.laws",
        "factored",
    ],
    "flow, bounds": ["flow", A, B, "-o", "run", "--dynamics.bounds", "1", "0"],
    "flow, step size": ["flow", A, B, "-o", "run", "--integrator.step-size", "0"],
    "flow, end of no decay": ["flow", A, B, "-o", "run", "--integrator.last-step-size", "0.1"],
    "flow, steps": ["flow", A, B, "-o", "run", "--steps", "-1"],
    "flow, unknown functional": ["flow", A, B, "-o", "run", "-f", "bal"],
    "flow, functional without its option": ["flow", A, B, "-o", "run", "-f", "ball?radius=1"],
    "flow, unknown option of a functional": ["flow", A, B, "-o", "run", "-f", "repulsion?lenght=1"],
    "flow, option without a value": ["flow", A, B, "-o", "run", "-f", "repulsion?length"],
    "flow, otdd with options": ["flow", A, B, "-o", "run", "-f", "otdd?epsilon=1"],
    "flow, no Python file": ["flow", A, B, "-o", "run", "-f", "missing.py:Mine"],
    "flow, space of one": ["flow", A, "-o", "run", "-f", "norm", "--space.scale", "unit"],
    "flow, patience alone": ["flow", A, B, "-o", "run", "--stop.patience", "3"],
    "flow, record": ["flow", A, B, "-o", "run", "--record-every", "-2"],
    "flow, record never": ["flow", A, B, "-o", "run", "--record-every", "0"],
    "flow, another dimension": ["flow", A, B, "-o", "run", "-f", "ball?centre=0,0,0&radius=1"],
    "flow, no such dimension": ["flow", A, B, "-o", "run", "-f", "collapse?dimension=7"],
    "flow, too many words": ["flow", A, B, A, "-o", "run"],
    "flow, a frame that is not there": ["flow", "run:here@9", B, "-o", "run"],
    "resume, nowhere": ["resume", "run"],
    "map fit, nowhere": ["map", "fit", "run", "-o", "map"],
    "map apply, nowhere": ["map", "apply", "map", A, "-o", "carried.npz"],
    "map export, nowhere": ["map", "export", "map", "-o", "map.onnx"],
    "transfer, no target": ["transfer", A, "-o", "sets"],
    "transfer, no labels": ["transfer", A, "toy:swiss_roll?n=20", "-o", "sets"],
    "transfer, map": ["transfer", A, B, "-o", "sets", "--map.name", "nearest", "--map.epochs", "3"],
    "condense, a kind of file": ["condense", A, "-o", "few.txt"],
    "repurpose, nothing": ["repurpose", "model.py:ask", A, "-o", "answers"],
    "repurpose, no model": ["repurpose", "model.py:ask", A, B, "-o", "answers"],
    "repurpose, pickle": ["repurpose", "model.pkl", A, B, "-o", "answers"],
    "repurpose, torch": ["repurpose", "model.pt2", A, B, "-o", "answers"],
    "repurpose, no ONNX": ["repurpose", "model.onnx", A, B, "-o", "answers"],
    "repurpose, other": ["repurpose", "model", A, B, "-o", "answers"],
    "index add, nothing": ["index", "add", "catalogue"],
    "index add, unknown name": ["index", "add", "catalogue", "digit"],
    "index near, no index": ["index", "near", "catalogue", A],
    "label, nothing to label": ["label", A, B, "-o", "labels.csv"],
    "label, no labels": ["label", "toy:swiss_roll?n=20", "-o", "labels.csv"],
    "label, another file": ["label", A, B, "--relabel", "-o", "labels.txt"],
    "drift, other columns": ["drift", A, "digits?n=20", "--state", "state.json"],
    "drift, another page": ["drift", A, B, "--report", "page.txt"],
    "shares, another kind": ["shares", A, B, "-o", "weighted.csv"],
    "shares, other columns": ["shares", A, "digits?n=20"],
    "shares, no epsilon": ["shares", A, B, "--solver.name", "exact"],
    "distance, no reach": ["distance", A, B, "--solver.name", "exact", "--solver.reach", "2"],
    "audit, no file": ["audit", "missing.csv", "-o", "table.csv"],
    "audit, another kind": ["audit", A, "-o", "table.txt"],
    "audit, a reference of another kind": ["audit", A, "digits?n=20", "-o", "table.csv"],
    "compare, no file": ["compare", A, "missing.csv"],
    "compare, other columns": ["compare", A, "digits?n=20"],
    "compare, another page": ["compare", A, B, "--report", "page.txt"],
    "interpolate, beyond the end": ["interpolate", A, B, "--t", "1.5", "-o", "way.npz"],
    "interpolate, no format": ["interpolate", A, B, "-o", "way.txt"],
    "interpolate, another page": ["interpolate", A, B, "-o", "way.npz", "--report", "page.txt"],
    "barycenter, nothing": ["barycenter", "-o", "middle.npz"],
    "barycenter, weights": ["barycenter", A, B, "--weights", "1", "-o", "middle.npz"],
    "barycenter, a negative weight": [
        "barycenter",
        A,
        B,
        "--weights=-1",
        "--weights",
        "1",
        "-o",
        "x.npz",
    ],
    "show, nowhere": ["show", "run"],
    "report, nowhere": ["report", "run"],
    "serve, nowhere": ["serve", "runs"],
    "animate, nowhere": ["animate", "run", "-o", "run.gif"],
    "reproduce, unknown": ["reproduce", "gausians"],
    "doctor, unknown": ["doctor", "--quik"],
}


@pytest.mark.parametrize("words", first_of_each(BAD, lambda name: name.partition(",")[0]))
def test_bad_input_is_2_with_one_message(words, cli):
    code, out, err = cli(*words)
    assert code == 2
    assert out == "" and files() == []
    assert err.startswith("error: ") and "Traceback" not in err
    assert err.removeprefix("error: ").strip().endswith((".", "?", "--help")), (
        "a remedy ends the message"
    )


def test_every_command_is_tried_with_bad_input():
    tried = {words[0] for words in BAD.values()}
    assert tried >= {command.name for command in COMMANDS}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["data", "info", "digit"], "Did you mean 'digits'?"),
        (["flow", A, B, "-o", "run", "--integrater.name", "adam"], "--integrator.name"),
        (["distance", A, B, "--solver.epsilom", "1"], "--solver.epsilon"),
        (["distance", A, B, "--solver.name", "sinkhron"], "sinkhorn"),
        (["flow", A, B, "-o", "run", "-f", "bal"], "Did you mean 'ball'?"),
        (["flow", A, B, "-o", "run", "--integrator.beta1", "0.5"], "beta1 belongs to adam"),
        (["reproduce", "gausians"], "Did you mean 'gaussians'?"),
        (["flw", A, B], "flow"),
        (["flow", A, B], "--out or -o is missing: Where to write"),
        (
            ["flow", A, B, "-o", "run", "--steps", "three"],
            "--steps must be a whole number",
        ),
        (["flow", A, B, "-o", "run", "--dynamics", "jdfl"], "jd-fl"),
        (["distance", A, B, A], "too many arguments: toy:gaussians"),
        (["distance", A, B, "--max-samples", "0"], "greater than or equal to 1; got '0'"),
        (["repurpose", "model.pkl", A, B, "-o", "answers"], "export the model to ONNX"),
    ],
)
def test_near_misses_are_suggested(words, hint, cli):
    code, _, err = cli(*words)
    assert code == 2 and hint in err


# Measuring


def test_distance_is_that_of_the_library(answer):
    found = answer("distance", A, B)
    a, b = ad.datasets.load(A, seed=0), ad.datasets.load(B)
    library = ad.otdd(a, b)
    assert found["value"] == library.value and found["energy"] == library.energy
    assert found["error"] == library.error and 0 < found["error"] < found["energy"]
    assert found["class_distances"]["values"] == library.class_distances.values.tolist()
    assert found["class_matching"]["values"] == library.class_matching.values.tolist()


def test_distance_options_reach_the_library(answer):
    words = [
        "--solver.name",
        "exact",
        "--cost.label",
        "means",
        "--cost.label-weight",
        "3",
        "--dtype",
        "float64",
    ]
    found = answer("distance", A, B, *words)
    a, b = (ad.datasets.load(ref).to(dtype=torch.float64) for ref in (A, B))
    library = ad.otdd(
        a, b, cost=ad.GroundCost(label=ad.MeansOnly(), label_weight=3.0), solver=ad.ExactOT()
    )
    assert found["value"] == library.value and found["epsilon"] == 0


def test_distance_without_labels_has_no_classes(answer, cli):
    found = answer("distance", A, B, "--cost.label", "none")
    assert "class_distances" not in found and found["value"] > 0
    code, out, _ = cli("distance", A, A)
    assert code == 0 and out.startswith("distance 0 (energy 0 ± 0, converged)")


def test_strict_makes_non_convergence_an_error(cli):
    words = ["distance", A, B, "--solver.max-iter", "1", "--solver.epsilon", "0.001"]
    code, out, err = cli(*words)
    assert code == 0 and "not converged" in out and err.startswith("warning: ")
    code, out, err = cli(*words, "--strict")
    assert code == 3 and "not converged" in out and "max_iter" in err


def test_references_say_more_than_options(answer):
    assert answer("data", "info", "toy:moons?n=20", "--max-samples", "10")["n"] == 20
    assert answer("data", "info", "toy:moons", "--max-samples", "10")["n"] == 10


def test_matrix_is_restartable(answer, cli, empty):
    refs = ["toy:gaussians?n=20", "toy:moons?n=20", "toy:rings?n=20"]
    found = answer("matrix", *refs, "-o", "out")
    pair = answer("distance", refs[0], refs[2])
    assert found["names"] == ["gaussians", "moons", "rings"]
    assert (
        found["values"][0][2] == found["values"][2][0] == pair["value"]
        and found["values"][1][1] == 0
    )
    written = {path.name for path in Path("out").iterdir()}
    assert written >= {
        "distances.csv",
        "distances.html",
        "distances.json",
        "distances.png",
        "pairs",
    }
    lines = Path("out/distances.csv").read_text().splitlines()
    assert lines[0] == ",gaussians,moons,rings" and float(lines[1].split(",")[3]) == pair["value"]
    code, _, err = cli("matrix", *refs, "-o", "out")
    assert code == 2 and "--overwrite" in err
    stored = sorted(Path("out/pairs").iterdir())
    Path("out/distances.json").unlink()  # as if it had been interrupted: what is there is taken
    before = [path.stat().st_mtime_ns for path in stored]
    assert answer("matrix", *refs, "-o", "out")["values"] == found["values"]
    assert [path.stat().st_mtime_ns for path in stored] == before


# Flows


def flow(answer, *words, out="run", **options):
    return answer("flow", A, B, "--steps", "6", "--no-report", "-o", out, *words, **options)


def test_flow_is_that_of_the_library(answer):
    said = flow(
        answer,
        "--integrator.name",
        "momentum",
        "--integrator.step-size",
        "0.05",
        "--record-every",
        "3",
    )
    source, target = ad.datasets.load(A), ad.datasets.load(B)
    result = ad.flow(source, ad.OTDD(target), integrator=ad.Momentum(0.05), n_steps=6)
    assert (
        said["status"] == result.status
        and said["value"] == result.values[-1]
        and said["first_value"] == result.values[0]
    )
    assert torch.equal(ad.datasets.load("run:run@-1").x, result.dataset.x)
    assert ad.Trajectory.open("run").indices == [0, 3, 6]
    assert files_of("run") == {
        "config.toml", "env.json", "space.json", "result.json", "frames.jsonl", "frames", "metrics.jsonl",
        "checkpoint-a.safetensors", "checkpoint-b.safetensors",
    }  # fmt: skip
    assert json.loads(Path("run/result.json").read_text()) == said
    environment = json.loads(Path("run/env.json").read_text())
    assert environment["seed"] == 0 and set(environment["digests"]) == {"source", "target"}
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [record["value"] for record in records] == result.values and [
        record["index"] for record in records
    ] == [*range(7)]


def files_of(directory):
    return {path.name for path in Path(directory).iterdir()}


def potential(v):
    return lambda target: ad.Potential(v)


FUNCTIONALS = {
    "0.5*ball?centre=1,2&radius=3": lambda target: 0.5 * ad.Potential(ad.ball([1, 2], 3)),
    "hinge?direction=1,0&margin=1&positive=[0,1]": potential(
        ad.hinge([1, 0], margin=1, positive=[0, 1])
    ),
    "affine_norm?matrix=1,0;0,2&offset=1,1": potential(ad.affine_norm([[1, 0], [0, 2]], [1, 1])),
    "collapse?dimension=1 -0.1*norm": lambda target: (
        ad.Potential(ad.collapse(1)) + -0.1 * ad.Potential(ad.norm())
    ),
    "repulsion?length=2": lambda target: ad.Interaction(ad.repulsion(2)),
    "attraction 1e-2*spreading": lambda target: (
        ad.Interaction(ad.attraction()) + 0.01 * ad.Interaction(ad.spreading())
    ),
    "internal?power=2&bandwidth=0.5&by_class=true": lambda target: ad.Internal(
        2, bandwidth=0.5, by_class=True
    ),
    "2*otdd norm": lambda target: 2 * ad.OTDD(target) + ad.Potential(ad.norm()),
    '{"name":"otdd","weight":0.5,"target":"toy:moons?n=20"}': lambda target: (
        0.5 * ad.OTDD(ad.datasets.load("toy:moons?n=20"))
    ),
}


@pytest.mark.parametrize("terms", FUNCTIONALS)
def test_functionals_by_name(terms, answer):
    words = [word for term in terms.split() for word in ("-f", term)]
    said = answer("flow", A, B, *words, "--steps", "1", "--no-report", "-o", "run")
    result = ad.flow(ad.datasets.load(A), FUNCTIONALS[terms](ad.datasets.load(B)), n_steps=1)
    assert said["value"] == result.values[-1] and said["terms"] == {
        name: v[-1] for name, v in result.terms.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "options"),
    [
        (
            ["--dynamics.name", "jd-fl", "--dynamics.laws", "bures"],
            {"dynamics": ad.JointFixedLabels(ad.BuresMotion())},
        ),
        (
            [
                "--dynamics.name",
                "jd-vl",
                "--dynamics.clustering",
                "dbscan",
                "--dynamics.radius",
                "3",
                "--dynamics.every",
                "2",
            ],
            {"dynamics": ad.JointVariableLabels(ad.DBSCAN(3.0), every=2)},
        ),
        (
            ["--dynamics.through-laws", "--dynamics.bounds", "-1", "2"],
            {"dynamics": ad.FeatureDriven(True, (-1.0, 2.0))},
        ),
        (
            ["--integrator.name", "adam", "--integrator.beta1", "0.5"],
            {"integrator": ad.Adam(beta1=0.5)},
        ),
        (
            ["--integrator.name", "adagrad", "--integrator.step-size", "0.4"],
            {"integrator": ad.Adagrad(0.4)},
        ),
        (
            ["--integrator.name", "momentum", "--integrator.nesterov"],
            {"integrator": ad.Momentum(nesterov=True)},
        ),
        (
            [
                "--integrator.step-size",
                "0.4",
                "--integrator.half-life",
                "2",
                "--integrator.last-step-size",
                "0.1",
            ],
            {"integrator": ad.Euler(ad.Decay(0.4, 2, 0.1))},
        ),
        (
            [
                "--integrator.name",
                "euler-maruyama",
                "--integrator.temperature",
                "0.1",
                "--seed",
                "7",
            ],
            {
                "integrator": ad.EulerMaruyama(temperature=0.1),
                "generator": torch.Generator().manual_seed(7),
            },
        ),
    ],
)
def test_dynamics_and_integrators_by_name(words, options, answer):
    answer("flow", f"{A}&seed=0", B, *words, "--steps", "3", "--no-report", "-o", "run")
    result = ad.flow(ad.datasets.load(A), ad.OTDD(ad.datasets.load(B)), n_steps=3, **options)
    assert torch.equal(ad.datasets.load("run:run@-1").x, result.dataset.x)


@pytest.mark.slow
def test_step_control_by_name(answer):
    fixed = flow(answer, "--integrator.step-size", "2.5", "--control", "fixed", code=0)
    library = ad.flow(
        ad.datasets.load(A),
        ad.OTDD(ad.datasets.load(B)),
        integrator=ad.Euler(2.5),
        n_steps=6,
        control=ad.FixedSteps(),
    )
    assert fixed["value"] == library.values[-1] and fixed["status"] == library.status == "rose"
    held = flow(answer, "--integrator.step-size", "2.5", "--control.shrink", "0.25", out="held")
    assert held["value"] < held["first_value"] and held["status"] == "completed"
    assert tomllib.loads(Path("held/config.toml").read_text())["control"] == {
        "name": "backtracking", "shrink": 0.25, "grow": 1.1, "least_share": 0.01, "smallest": 1e-10,
    }  # fmt: skip
    detached = flow(answer, "--dynamics.no-through-laws", out="detached")
    assert detached["value"] != flow(answer, out="exact")["value"]


@pytest.mark.slow
def test_diagnosis_is_said_everywhere(answer, cli):
    """On the terminal, in JSON, in result.json, by show, and on the page: remedies are options of
    the command line.
    """
    options = ("--steps", "6", "--integrator.step-size", "2.5", "--control", "fixed")
    code, out, _ = cli("flow", A, B, "-o", "said", *options)
    assert (
        code == 0
        and "note: The value rose in" in out
        and "--integrator.step-size" in out
        and "ad." not in out
    )
    facts = flow(answer, "--integrator.step-size", "2.5", "--control", "fixed")
    assert (
        facts["diagnosis"][0]["what"].startswith("The value rose in") and facts["best"]["step"] == 0
    )
    assert json.loads(Path("run/result.json").read_text())["diagnosis"] == facts["diagnosis"]
    shown = answer("show", "run")
    assert (
        shown["diagnosis"] == facts["diagnosis"]
        and shown["best"] == facts["best"]
        and shown["status"] == "rose"
    )
    assert "note: The value rose in" in cli("show", "run")[1]
    answer("report", "run")
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert 'class="diagnosis"' in page and "The value rose in" in page and "status-rose" in page
    assert cli("flow", A, B, "-o", "strict", *options, "--strict")[0] == 3


@pytest.mark.slow
def test_a_result_with_other_notes_is_shown(run, answer):
    path = Path("run/result.json")
    for notes in ("text", [1, {"what": 2}], None):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"diagnosis": notes}))
        assert len(answer("show", "run")["diagnosis"]) == (1 if isinstance(notes, list) else 0)


@pytest.mark.slow
def test_distance_says_its_notes_and_standard_error(answer, cli):
    few = "toy:gaussians?n=7"
    library = ad.otdd(ad.datasets.load(few), ad.datasets.load(B))
    found = answer("distance", few, B, "--standard-error", "4")
    assert [note["what"] for note in found["notes"]] == [
        note.what for note in library.notes
    ] and found["notes"]
    assert found["standard_error"] == library.standard_error(
        4, generator=torch.Generator().manual_seed(0)
    )
    _, out, _ = cli("distance", few, B, "--standard-error", "4")
    assert (
        "standard error" in out
        and "note: " in out
        and "standard_error" not in answer("distance", few, B)
    )
    assert cli("distance", few, B, "--standard-error", "1")[0] == 2


def test_stop_early(answer):
    said = flow(answer, "--stop.below", "1e9")
    assert said["status"] == "stopped" and said["steps"] == 0 and "below" in said["message"]


def test_divergence_is_a_failure_with_its_last_good_state(answer):
    words = [
        "-f",
        "spreading",
        "--integrator.step-size",
        "1e15",
        "--steps",
        "50",
        "--no-report",
        "-o",
        "run",
    ]
    said = answer("flow", A, *words, code=1)
    assert said["status"] == "diverged" and math.isfinite(said["value"])
    assert ad.Trajectory.open("run").indices[0] == 0


OWN = """
import torch
import advect as ad

class StayNear(ad.Functional):
    def __init__(self, source, strength=1.0):
        self.anchor, self.strength = source.x, strength
    def __call__(self, rho):
        return self.strength * (rho.weights * (rho.x - self.anchor).square().sum(1)).sum()

made = ad.Potential(ad.norm())
number = 3
bare = lambda: 3

def any_of(source, **options):
    return StayNear(source, **options)

class Nowhere(ad.Functional):
    def __call__(self, rho):
        return rho.x.sum() * float("nan")

def spread(rho):
    return rho.x.std()
"""


@pytest.fixture
def own(empty):
    (empty / "mine.py").write_text(OWN)


@pytest.mark.slow
def test_own_functionals_and_metrics(own, answer):
    said = flow(
        answer,
        "-f",
        "otdd",
        "-f",
        "0.5*mine.py:StayNear?strength=2",
        "-f",
        "mine.py:made",
        "-f",
        "2*mine.py:any_of?strength=2",
        "--metric",
        "mine.py:spread",
    )
    assert set(said["terms"]) == {"OTDD", "0.5 StayNear", "Potential", "2 StayNear"}
    assert "mine.py:StayNear?strength=2" in Path("run/config.toml").read_text()
    assert answer("show", "run")["metrics"] == ["spread"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "Missing",
        "number",
        "bare",
        "StayNear?strange=1",
        "made?strength=1",
        "0",
        "StayNear?source=1",
    ],
)
def test_own_functionals_that_are_none(name, own, cli):
    code, out, err = cli("flow", A, B, "-f", f"mine.py:{name}", "-o", "run")
    assert code == 2 and err.startswith("error: ") and not Path("run").exists() and out == ""


def test_python_is_run_only_if_the_user_named_it(own, cli, answer):
    Path("flow.toml").write_text('functional = ["mine.py:made"]\n')
    code, _, err = cli("flow", A, "-c", "flow.toml", "-o", "run", "--no-report")
    assert code == 2 and "--run-code" in err and not Path("run").exists()
    answer("flow", A, "-c", "flow.toml", "-o", "run", "--run-code", "--steps", "2", "--no-report")
    code, _, err = cli("resume", "run", "--no-report")
    assert code == 2 and "--run-code" in err
    assert answer("resume", "run", "--no-report", "--run-code", "--steps", "3")["steps"] == 3


@pytest.mark.slow
def test_nothing_is_written_over(answer, cli, own):
    flow(answer)
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    code, _, err = cli("flow", A, B, "-o", "run")
    assert code == 2 and "advect resume run" in err and "--overwrite" in err
    # A new run that cannot begin leaves the old one.
    code, _, err = cli("flow", A, B, "-f", "mine.py:Nowhere", "-o", "run", "--overwrite")
    assert code == 2 and "not finite" in err
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == before
    assert files_of(".") == {"run", "mine.py"}
    flow(answer, "--overwrite", "--seed", "0", "--integrator.step-size", "0.3")
    assert (
        Path("run/frames/000006.safetensors").read_bytes()
        != before[Path("run/frames/000006.safetensors")]
    )
    # What advect did not make stays, whatever is asked.
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("…")
    for words in (["flow", A, B], ["transfer", A, B], ["map", "fit", "run"], ["matrix", A, B]):
        code, _, err = cli(*words, "-o", "thesis", "--overwrite")
        assert code == 2 and "advect did not make it" in err, words
    assert files_of("thesis") == {"chapter.tex"}


# Settings


@pytest.mark.slow
def test_options_go_before_the_environment_and_that_before_the_file(answer, monkeypatch):
    Path("flow.toml").write_text(
        f'source = "{A}"\ntarget = "{B}"\nsteps = 3\nseed = 1\nrecord-every = 1\n'
        '[integrator]\nname = "momentum"\nstep_size = 0.01\nmomentum = 0.5\n'
        "[cost]\nlabel_weight = 2\n"
    )
    monkeypatch.setenv("ADVECT_SEED", "2")
    monkeypatch.setenv("ADVECT_STEPS", "4")
    monkeypatch.setenv("ADVECT_INTEGRATOR_STEP_SIZE", "0.02")
    answer(
        "flow",
        "-c",
        "flow.toml",
        "-o",
        "run",
        "--integrator.momentum",
        "0.6",
        "--seed",
        "3",
        "--no-report",
    )
    config = tomllib.loads(Path("run/config.toml").read_text())
    assert (
        config["source"] == A
        and config["steps"] == 4
        and config["seed"] == 3
        and config["record_every"] == 1
    )
    wanted = {"name": "momentum", "step_size": 0.02, "momentum": 0.6, "nesterov": False}
    assert config["integrator"] == wanted
    assert config["cost"] == {"label": "bures", "label_weight": 2, "diagonal": False}


@pytest.mark.slow
def test_a_run_can_be_made_again_from_its_own_settings(answer):
    flow(
        answer,
        "-f",
        "otdd",
        "-f",
        "0.1*ball?centre=0,0&radius=1",
        "--dynamics.name",
        "jd-fl",
        "--dynamics.bounds",
        "-9",
        "9",
    )
    answer("flow", "-c", "run/config.toml", "-o", "again", "--no-report")
    assert Path("again/config.toml").read_text() == Path("run/config.toml").read_text()
    same_frame("again", "run", 6)


@pytest.mark.slow
def test_every_value_is_resolved(answer):
    """What was not asked for is written as the flow had it: none of it is left to defaults."""
    flow(answer)
    config = tomllib.loads(Path("run/config.toml").read_text())
    assert config["dtype"] == "float32" and config["seed"] == 0 and config["record_every"] == 1
    assert config["integrator"] == {"name": "euler", "step_size": 0.1}
    assert config["dynamics"] == {"name": "fd", "through_laws": True}
    assert config["control"]["name"] == "backtracking" and config["control"]["shrink"] == 0.5
    solver = {"name": "sinkhorn", "relative_epsilon": 0.01, "tol": 1e-3, "max_iter": 10_000}
    assert config["solver"] == solver
    flow(answer, "--dynamics", "jd-vl", "--integrator", "adam", out="joint")
    config = tomllib.loads(Path("joint/config.toml").read_text())
    wanted = {"name": "jd-vl", "laws": "bures", "clustering": "kmeans", "every": 1}
    assert config["dynamics"].items() >= wanted.items() and config["control"] == {"name": "fixed"}


OLD = f"""
source = "{A}"
target = "{B}"
functional = ["otdd"]
steps = 6
seed = 0
balanced = false
device = "cpu"
record_every = 1
checkpoint_every = 10
metric = []
metric_every = 10

[dynamics]
name = "fd"

[integrator]
name = "euler"

[solver]
name = "sinkhorn"
"""  # as version 0.1.0 wrote it


@pytest.mark.slow
def test_a_run_of_an_earlier_version_goes_on(answer, cli):
    flow(answer)
    Path("run/config.toml").write_text(OLD)
    words = ["flow", A, B, "--steps", "8", "--resume", "--no-report", "-o", "run"]
    code, _, err = cli(*words, "--integrator.step-size", "0.2")
    assert code == 2 and "another integrator" in err
    assert answer(*words)["steps"] == 8
    assert answer("resume", "run", "--steps", "9", "--no-report")["steps"] == 9
    answer("report", "run")
    answer("flow", "-c", "run/config.toml", "-o", "again", "--no-report")
    same_frame("again", "run", 6)


@pytest.mark.slow
def test_another_object_leaves_the_options_of_a_file(answer):
    """A file with every value must not stand in the way of another choice."""
    flow(answer)
    words = ["--solver", "exact", "--cost", "means", "--integrator", "adam", "--steps", "1"]
    answer("flow", "-c", "run/config.toml", *words, "--no-report", "-o", "other")
    config = tomllib.loads(Path("other/config.toml").read_text())
    assert config["solver"] == {"name": "exact", "max_iter": 10_000_000}
    assert config["cost"] == {"label": "means", "label_weight": 1.0}
    assert config["control"] == {"name": "fixed"}
    words = ["--solver.epsilon", "0.5", "--steps", "1", "--no-report", "-o", "third"]
    answer("flow", "-c", "run/config.toml", *words)
    assert tomllib.loads(Path("third/config.toml").read_text())["solver"]["epsilon"] == 0.5


def test_terms_as_tables(answer):
    Path("flow.toml").write_text(
        'functional = ["0.5*norm", {name = "ball", weight = 2, centre = [0, 5], radius = 1.5}]\n'
    )
    said = answer("flow", A, "-c", "flow.toml", "-o", "run", "--steps", "1", "--no-report")
    assert list(said["terms"]) == ["0.5 Potential", "2 Potential"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("stepss = 3\n", "--steps"),
        ("[integrator]\nstep_sise = 0.1\n", "step-size"),
        ("[integrater]\nname = 'adam'\n", "integrater"),
        ("steps = \n", "TOML"),
        ("steps = 'three'\n", "three"),
        ("steps = [1, 2]\n", "steps"),
        ("[integrator]\nname = 'adm'\n", "adam"),
        ("functional = [{weight = 2}]\n", "name"),
        ("functional = 3\n", "3"),
        ("\xff", "TOML"),
    ],
)
def test_bad_settings(text, hint, cli):
    Path("flow.toml").write_bytes(text.encode("latin-1"))
    code, out, err = cli("flow", A, B, "-c", "flow.toml", "-o", "run")
    assert (
        code == 2
        and out == ""
        and hint in err
        and "Traceback" not in err
        and not Path("run").exists()
    )


def test_settings_that_are_not_there(cli):
    code, _, err = cli("flow", A, B, "-c", "missing.toml", "-o", "run")
    assert code == 2 and "missing.toml" in err
    code, _, err = cli("flow", A, B, "-c", ".", "-o", "run")
    assert code == 2 and err.startswith("error: ")


@pytest.mark.slow
def test_the_place_of_data_is_no_option(answer, monkeypatch):
    monkeypatch.setenv("ADVECT_DATA", "/nowhere")
    flow(answer)
    answer("map", "fit", "run", "-o", "map")
    assert answer("map", "apply", "map", A, "-o", "carried.npz")["n"] == 30


# Going on


@pytest.mark.slow
def test_resume_with_more_steps_is_the_longer_flow(answer):
    flow(answer, "--integrator.name", "adam")
    answer(
        "flow",
        A,
        B,
        "--integrator.name",
        "adam",
        "--steps",
        "9",
        "--record-every",
        "1",
        "--no-report",
        "-o",
        "longer",
    )
    assert answer("resume", "run", "--steps", "9", "--no-report")["steps"] == 9
    same_frame("run", "longer", 9)
    lines = [
        [json.loads(line)["value"] for line in Path(run, "metrics.jsonl").read_text().splitlines()]
        for run in ("run", "longer")
    ]
    assert lines[0] == lines[1] and len(lines[0]) == 10


@pytest.mark.slow
def test_a_tolerance_of_label_distances_is_gone(answer, cli):
    """They are exact now, which is within any: runs of old go on, the option is refused."""
    flow(answer)
    config = Path("run", "config.toml")
    config.write_text(config.read_text().replace("[cost]\n", "[cost]\ntolerance = 0.001\n"))
    assert answer("resume", "run", "--steps", "8", "--no-report")["steps"] == 8
    code, _, err = cli("flow", A, B, "--cost.tolerance", "1e-3", "-o", "other")
    assert code == 2 and "--cost.tolerance" in err and not Path("other").exists()


@pytest.mark.slow
def test_flow_with_resume_starts_or_goes_on(answer, cli):
    flow(answer, "--resume")
    words = ["--steps", "8", "--resume", "--no-report", "-o", "run"]
    assert answer("flow", A, B, *words)["steps"] == 8
    code, _, err = cli("flow", A, B, "--seed", "4", *words)
    assert code == 2 and "another seed" in err
    code, _, err = cli("resume", "run", "--steps", "3")
    assert code == 2 and "checkpoint" in err


def test_changed_data_is_not_gone_on_with(answer, cli):
    ad.datasets.load(B).save("target.npz")
    answer("flow", A, "target.npz", "--steps", "2", "--no-report", "-o", "run")
    ad.datasets.load("toy:gaussians?n=36&seed=9").save("target.npz", overwrite=True)
    code, _, err = cli("resume", "run", "--steps", "4")
    assert code == 2 and "the target has changed" in err


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["config.toml", "checkpoints", "frames", "env.json"])
def test_a_damaged_run(damage, answer, cli):
    flow(answer)
    if damage == "checkpoints":
        for path in Path("run").glob("checkpoint-*"):
            path.write_bytes(b"nothing")
    elif damage == "frames":
        Path("run/frames.jsonl").unlink()
    else:
        Path("run", damage).write_text("[[[")
    code, out, err = cli("resume", "run")
    assert code == 2 and out == "" and err.startswith("error: ") and "Traceback" not in err


# After a flow


@pytest.fixture
def run(answer):
    return flow(answer, "--record-every", "2")


def test_show(run, answer, cli):
    said = answer("show", "run")
    assert said["status"] == "completed" and said["steps"] == said["wanted_steps"] == 6
    assert (
        said["frames"] == [0, 2, 4, 6]
        and said["value"] == run["value"]
        and said["checkpoints"][-1] == 6
    )
    Path("run/result.json").unlink()
    assert answer("show", "run")["status"] == "running or killed"
    code, out, _ = cli("show", "run")
    assert code == 0 and "step 6 of 6" in out


def test_maps(run, answer, cli):
    answer("map", "fit", "run", "-o", "map", "--name", "nearest", "--k", "2")
    fresh = "toy:gaussians?n=20&seed=5"
    answer("map", "apply", "map", fresh, "-o", "carried.npz")
    frames = ad.Trajectory.open("run")
    library = (
        ad.maps.NearestMap(2)
        .fit(frames[0].dataset, frames[-1].dataset)
        .transform(ad.datasets.load(fresh))
    )
    carried = ad.datasets.load("carried.npz")
    assert torch.equal(carried.x, library.x) and carried.labels == library.labels
    code, _, err = cli("map", "apply", "map", fresh, "-o", "carried.npz")
    assert code == 2 and "--overwrite" in err
    code, _, err = cli("map", "export", "map", "-o", "map.onnx")
    assert code == 2 and "--name neural" in err and not Path("map.onnx").exists()
    code, _, err = cli("map", "apply", "map", "digits", "-o", "digits.npz")
    assert code == 2 and not Path("digits.npz").exists()
    code, _, err = cli(
        "map", "fit", "run", "-o", "map", "--name", "nearest", "--k", "500", "--overwrite"
    )
    assert code == 2 and files_of("map") == {"map.safetensors", "space.json"}


@pytest.mark.slow
def test_a_neural_map_is_exported(run, answer):
    answer("map", "fit", "run", "-o", "map", "--name", "neural", "--epochs", "1", "--restarts", "1")
    said = answer("map", "export", "map", "-o", "map.pt2")
    assert Path("map.pt2").stat().st_size == said["bytes"] > 0


@pytest.mark.slow
def test_map_goes_through_the_feature_space_and_back(answer):
    source, target = (
        ad.datasets.load("toy:gaussians?n=30"),
        ad.datasets.load("toy:gaussians?n=30&seed=2"),
    )
    target.replace(x=100 * target.x + 7).save("far.npz")
    answer(
        "flow", A, "far.npz", "--space.scale", "unit", "--steps", "2", "--no-report", "-o", "run"
    )
    answer("map", "fit", "run", "-o", "map", "--name", "nearest")
    answer("map", "apply", "map", A, "--units", "common", "-o", "common.npz")
    answer("map", "apply", "map", A, "-o", "back.npz")
    frames = ad.Trajectory.open("run")
    assert torch.allclose(ad.datasets.load("common.npz").x, frames[-1].dataset.x)
    spread = source.x.max() - source.x.min()
    assert torch.allclose(
        ad.datasets.load("back.npz").x, frames[-1].dataset.x * spread + source.x.min(), atol=1e-4
    )


def test_report_and_animation(run, answer, cli):
    assert Path(answer("report", "run")["report"]) == Path("run/report.html")
    page = Path("run/report.html").read_text()
    assert "<html" in page and "config.toml" in page
    answer("report", "run", "-o", "page.html")
    code, _, err = cli("report", "run", "-o", "page.html")
    assert code == 2 and "--overwrite" in err
    said = answer("animate", "run", "-o", "run.gif")
    assert Path("run.gif").read_bytes().startswith(b"GIF") and said["frames"] == 4
    code, _, err = cli("animate", "run", "-o", "run.txt")
    assert code == 2 and ".gif" in err


def test_runs_side_by_side(run, answer, cli, monkeypatch):
    answer("flow", A, B, "--steps", "2", "--integrator", "adam", "-o", "deep/run")
    said = answer("report", "run", "deep/run")
    assert said["report"] == "runs.html" and said["runs"] == ["run", "deep/run"]
    page = Path("runs.html").read_text()
    assert "integrator.name" in page and "the same" in page and "deep/run" in page
    code, _, err = cli("report", "run", "deep/run")
    assert code == 2 and "--overwrite" in err
    code, _, err = cli("report", "run", "nowhere", "-o", "page.html")
    assert code == 2 and "nowhere" in err and not Path("page.html").exists()
    code, _, err = cli("report")
    assert code == 2 and "advect flow" in err
    code, _, err = cli("report", *["run"] * 7, "-o", "page.html")
    assert code == 2 and "two to 6 runs" in err and not Path("page.html").exists()


def test_a_page_that_fails_does_not_undo_the_flow(monkeypatch, cli):
    def fail(*_):
        raise RuntimeError("no ink")

    monkeypatch.setattr("advect.cli.look.write_page", fail)
    code, out, err = cli("flow", A, B, "--steps", "1", "-o", "run")
    assert code == 0 and out.startswith("completed") and "no ink" in err
    assert json.loads(Path("run/result.json").read_text())["report"] is None


@pytest.mark.slow
def test_report_without_its_target(run, answer, cli):
    text = Path("run/config.toml").read_text()
    Path("run/config.toml").write_text(text.replace(B, "gone.npz"))
    code, out, err = cli("report", "run", "-o", "page.html")
    assert code == 0 and out.strip() == "page.html" and "gone.npz" in err


# Applications


def test_transfer(answer):
    answer("transfer", "toy:gaussians?n=60", "toy:gaussians?n=9&shift=5,0&seed=3", "--steps", "4", "--every", "2",
           "--extra", "toy:gaussians?n=15&seed=8", "--map.name", "nearest", "--solver.relative-epsilon", "0.05",
           "-o", "sets")  # fmt: skip
    made = {"recommended.npz", "final.npz", "way.npz", "mapped.npz"}
    assert files_of("sets") == made | {"report.html", "result.json"}
    assert "The flow to the few" in Path("sets/report.html").read_text()
    final = ad.datasets.load("sets/final.npz")
    few = ad.datasets.load("toy:gaussians?n=9&shift=5,0&seed=3")
    solver = ad.Sinkhorn(ad.Relative(0.05), tol=1e-3)
    options = ad.apps.TransferOptions(n_steps=4, every=2, map=ad.maps.NearestMap(), solver=solver)
    library = ad.apps.transfer(ad.datasets.load("toy:gaussians?n=60"), few, options=options)
    assert torch.equal(final.x, library.final.x) and final.labels == library.final.labels
    assert len(ad.datasets.load("sets/way.npz")) == len(library.way)
    recommended = ad.datasets.load("sets/recommended.npz")
    assert torch.equal(recommended.x, library.recommended.x)
    torch.testing.assert_close(recommended.weights, library.recommended.weights)
    assert json.loads(Path("sets/result.json").read_text())["chosen"] == library.choice.way


@pytest.mark.slow
def test_transfer_without_a_flow(cli):
    words = ["transfer", "toy:gaussians?n=60", "toy:gaussians?n=9&shift=5,0&seed=3", "-o", "sets"]
    code, out, _ = cli(*words, "--no-flow", "--among", "gaussian", "--added", "30")
    assert code == 0 and "gaussian: nothing else was asked for" in out
    assert files_of("sets") == {"recommended.npz", "report.html", "result.json"}
    assert "The flow to the few" not in Path("sets/report.html").read_text()
    again = ("--no-flow", "--among", "gaussian", "--added", "30", "--no-report", "--overwrite")
    assert cli(*words, *again)[0] == 0
    assert files_of("sets") == {"recommended.npz", "result.json"}
    assert len(ad.datasets.load("sets/recommended.npz")) == 39
    code, _, err = cli(*words, "--among", "magic", "--overwrite")
    assert code == 2 and "magic" in err and "borrowed" in err
    code, _, err = cli(*words, "--overwrite", "--no-flow", "--extra", "toy:gaussians?n=9")
    assert code == 2 and "--extra with --no-flow" in err


MODEL = """
import torch
MEANS = torch.tensor({means})
def nearest(samples):
    return (samples[:, None] - MEANS).square().sum(2).argmin(1)

class Net(torch.nn.Module):
    def forward(self, x):
        return -(x[:, None] - MEANS).square().sum(2)
"""


@pytest.mark.parametrize(
    "kind",
    ["function", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("module", "onnx"))],
)
def test_repurpose(kind, answer):
    reference = ad.datasets.load("toy:gaussians?n=60&seed=1")
    Path("model.py").write_text(MODEL.format(means=reference.moments().means.tolist()))
    data = reference.replace(x=reference.x * 0.5 + 20, classes=("x", "y", "z"))
    data.save("data.npz")
    model = {"function": "model.py:nearest", "module": "model.py:Net", "onnx": "model.onnx"}[kind]
    if kind == "onnx":
        write_onnx("model.onnx", reference.moments().means.float())
    said = answer(
        "repurpose",
        model,
        "toy:gaussians?n=60&seed=1",
        "data.npz",
        "--steps",
        "20",
        "-o",
        "answers",
    )
    assert said["datasets"]["data"]["accuracy"] == 1
    assert files_of("answers") == {"data.csv", "data.html", "data-flowed.npz", "result.json"}
    assert said["datasets"]["data"]["report"] == "data.html"
    lines = Path("answers/data.csv").read_text().splitlines()
    assert lines[0] == "row,label,prediction" and len(lines) == 61
    assert all(label == guess for _, label, guess in (line.split(",") for line in lines[1:]))


CHAIN = (
    MODEL
    + """
chain = torch.nn.Sequential(torch.nn.Identity(), Net())
def first(samples):
    return samples
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [["0"], ["model.py:first", "--head", "model.py:nearest"]])
def test_repurpose_by_features_compares_and_recommends(cut, answer):
    reference = ad.datasets.load("toy:gaussians?n=60&seed=1")
    Path("model.py").write_text(CHAIN.format(means=reference.moments().means.tolist()))
    reference.replace(x=reference.x * 0.5 + 20, classes=("x", "y", "z")).save("data.npz")
    said = answer(
        *["repurpose", "model.py:chain", "toy:gaussians?n=60&seed=1", "data.npz", "--steps", "12"],
        *["--step-size", "0.4", "--posterior", "nearest", "--features", *cut, "-o", "answers"],
    )["datasets"]["data"]
    assert said["accuracy"] == 1 and said["posterior"] == "nearest"
    assert said["comparison"]["accuracies"]["flow"] == 1 and said["comparison"]["n"] == 12
    assert said["comparison"]["recommended"] == "posterior" and said["pseudo_labels"] is None
    kept = json.loads(Path("answers/result.json").read_text())["datasets"]["data"]
    assert kept["comparison"] == said["comparison"]


@pytest.mark.slow
def test_repurpose_says_what_to_use(cli):
    reference = ad.datasets.load("toy:gaussians?n=60&seed=1")
    Path("model.py").write_text(CHAIN.format(means=reference.moments().means.tolist()))
    ad.LabeledDataset(reference.samples).save("data.npz")
    words = ["repurpose", "model.py:chain", "toy:gaussians?n=60&seed=1", "data.npz", "--steps", "2"]
    code, out, _ = cli(*words, "-o", "answers")
    assert code == 0 and "by answers for labels" in out and "data: Do not flow" in out
    code, out, _ = cli(*words, "--no-compare", "-o", "others")
    assert code == 0 and "Do not flow" not in out
    code, _, err = cli(*words, "--features", "7", "-o", "more")
    assert code == 2 and "unknown layer" in err and not Path("more").exists()
    code, _, err = cli(*words, "--map.name", "nearest", "--posterior", "auto", "-o", "more")
    assert code == 2 and "posterior belongs to entropic" in err and not Path("more").exists()


def write_onnx(path, means):
    """Scores x·μ − ½‖μ‖², the greatest at the nearest mean."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    weights = [numpy_helper.from_array(means.T.contiguous().numpy(), "w")]
    weights.append(numpy_helper.from_array((-means.square().sum(1) / 2).numpy(), "b"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 2), ("y", len(means)))
    ]
    graph = helper.make_graph(nodes, "nearest", [ends[0]], [ends[1]], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def test_a_model_is_not_run_from_settings(cli):
    Path("model.py").write_text("raise SystemExit('never')")
    Path("ask.toml").write_text('model = "model.py:ask"\n')
    code, _, err = cli(
        "repurpose", "-c", "ask.toml", "--reference", A, "-o", "answers", "--datasets", B
    )
    assert code == 2 and "never" not in err


# The rest


def test_doctor(answer):
    said = answer("doctor")
    assert (
        said["healthy"]
        and len(said["tests"]) == 3
        and "torch" in said["packages"]
        and "cpu" in said["devices"][0]
    )


def test_doctor_sees_what_is_wrong(cli, monkeypatch):
    monkeypatch.setattr(ad, "ExactOT", lambda: 1 / 0)
    code, out, _ = cli("doctor")
    assert code == 1 and "FAILED an exact distance: ZeroDivisionError" in out


def test_reproduce_lists_what_there_is(answer, cli, monkeypatch):
    said = answer("reproduce")
    assert "gaussians" in said["experiments"] and said["experiments"]["gaussians"]
    monkeypatch.setattr(
        "advect.cli.reproduce.__file__", "/somewhere/site-packages/advect/cli/reproduce.py"
    )
    code, _, err = cli("reproduce", "gaussians")
    assert code == 2 and "Clone the repository" in err


def test_reproduce_runs_an_experiment(empty, monkeypatch, capfd):
    here = empty / "checkout"
    (here / "experiments").mkdir(parents=True)
    (here / "pyproject.toml").touch()
    (here / "experiments" / "tiny.py").write_text(
        '"""A tiny one."""\nimport sys\nif __name__ == "__main__":\n    sys.exit(len(sys.argv[1:]))\n'
    )
    monkeypatch.setattr(
        "advect.cli.reproduce.__file__", str(here / "src" / "advect" / "cli" / "reproduce.py")
    )
    assert main(["reproduce", "tiny"]) == 0
    assert main(["reproduce", "tiny", "--", "--quick"]) == 1
    assert "ended with 1" in capfd.readouterr().err
    # one of cells is given to the runner
    (here / "experiments" / "cells.py").write_text('NAME = "cells"\n')
    (here / "experiments" / "run.py").write_text(
        'import sys\nif __name__ == "__main__":\n    print(sys.argv[1:])\n'
    )
    assert main(["reproduce", "cells", "--", "--list"]) == 0
    assert "['cells', '--list']" in capfd.readouterr().out


def test_convert(answer):
    answer("data", "convert", "toy:moons?n=20", "-o", "moons.csv")
    assert answer("data", "info", "csv:moons.csv?label=label")["counts"] == {"0": 10, "1": 10}


def test_unexpected_errors_are_failures(cli, monkeypatch):
    monkeypatch.setattr(ad, "otdd", lambda *_, **__: [][1])
    code, out, err = cli("distance", A, B)
    assert (
        code == 1 and out == "" and err.startswith("failed: IndexError") and "Traceback" not in err
    )
    assert "Traceback" in cli("distance", A, B, "-v")[2]


def test_errors_of_the_library_that_are_no_input_are_failures(cli, monkeypatch):
    def fail(*_, **__):
        raise ad.AdvectError("it did not work out")

    monkeypatch.setattr(ad, "otdd", fail)
    assert cli("distance", A, B)[::2] == (1, "error: it did not work out\n")


def test_quiet_and_verbose(cli):
    words = ["distance", A, B, "--solver.max-iter", "1"]
    assert cli(*words, "-q")[2] == ""
    assert "common (2,), float32" in cli(*words, "-v")[2]


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("norm", Term("norm")),
        (" 0.5 * norm", Term("norm", 0.5)),
        (
            "-1e-3*ball?centre=1,2.5&radius=3",
            Term("ball", -1e-3, {"centre": [1, 2.5], "radius": 3}),
        ),
        ("internal?by_class=true&power=2", Term("internal", 1.0, {"by_class": True, "power": 2})),
        ("affine_norm?matrix=1,0;0,2", Term("affine_norm", 1.0, {"matrix": [[1, 0], [0, 2]]})),
        ("2*a-b/mine.py:F?x=a%26b", Term("a-b/mine.py:F", 2.0, {"x": "a&b"})),
    ],
)
def test_terms(text, term):
    assert Term.parse(text) == term


@pytest.mark.parametrize(
    "words",
    [[], ["--help"], ["--version"], ["flow", "--help"], ["map", "--help"], ["map", "fit", "-h"]],
)
def test_help_is_an_answer(words, cli):
    code, out, err = cli(*words)
    assert code == 0 and out.strip() and err == ""


@pytest.mark.slow
def test_help_shows_every_default(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for kind, group in (("solver", "solver"), ("integrator", "integrator"), ("control", "control")):
        out = " ".join(cli("flow", "--help")[1].split())
        for name in registry.known(kind):
            for option in registry.options(kind, name).values():
                if type(option.default) in (int, float, bool):
                    _, _, said = out.partition(f"--{group}.{option.name.replace('_', '-')} ")
                    assert str(option.default) in said[:900], (name, option)
    assert "[default: 50.0]" in cli("transfer", "--help")[1]  # not that of a distance
    assert "[default: 5.0]" in cli("repurpose", "--help")[1]
    assert "[default: full]" in cli("flow", "--help")[1]  # as it is typed


def test_a_command_of_ones_own(cli, empty):
    (empty / "mine.py").write_text(
        "def twice(x: float, *, plus: int = 1) -> int:\n    print(2 * x + plus)\n    return 3\n"
    )
    assert cli("mine.py:twice", "4", "--plus", "2") == (3, "10.0\n", "")
    assert "[default: 1]" in cli("mine.py:twice", "--help")[1]
    for words in (["mine.py:thrice"], ["none.py:twice"], ["mine.py:twice", "4", "--minus", "1"]):
        code, _, err = cli(*words)
        assert code == 2 and err.startswith("error: ")


@pytest.mark.slow
def test_a_name_of_ones_own_is_known_to_all_commands(empty):
    (empty / "mine.py").write_text(
        "import advect as ad\nfrom advect.cli.app import main\n"
        "class Slow(ad.Euler):\n    pass\n"
        "ad.register('integrator', 'slow', Slow)\nraise SystemExit(main())\n"
    )
    words = ["mine.py", "flow", A, B, "--integrator", "slow", "--integrator.step-size", "0.3"]
    words += ["--steps", "2", "--no-report", "-o", "run"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    config = tomllib.loads(Path("run/config.toml").read_text())
    assert config["integrator"] == {"name": "slow", "step_size": 0.3}


@pytest.mark.slow
def test_every_command_has_an_example(cli):
    words = [[command.name] for command in COMMANDS]
    words += [["data", name] for name in ("info", "list", "convert")] + [
        ["map", name] for name in ("fit", "apply", "export")
    ]
    for command in words:
        _, out, _ = cli(*command, "--help")
        example = out.partition("Example:")[2]
        assert f"advect {' '.join(command)}" in example, command
        assert shlex.split(example.strip().splitlines()[0])[0] == "advect"


@pytest.mark.parametrize("solver", ["mini-batch", "nystrom"])
def test_solvers_for_many_samples(solver, capsys):
    more = (
        ["--solver.size", "30"] if solver == "mini-batch" else ["--solver.relative-epsilon", "0.3"]
    )
    assert (
        main(
            [
                "distance",
                "toy:gaussians?n=60",
                "toy:gaussians?n=60&seed=1",
                "--solver",
                solver,
                *more,
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["value"] >= 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gaussian", {}),
        ("principal", {"directions": "principal"}),
        ("moments", {"projection": "moments"}),
    ],
)
def test_a_sliced_distance(name, options, answer, cli):
    found = answer(
        "distance", A, B, "--sliced", name, "--projections", "60", "--cost.label-weight", "2"
    )
    a, b = (ad.datasets.load(each) for each in (A, B))
    generator = torch.Generator().manual_seed(0)
    expected = ad.sliced_otdd(a, b, 60, label_weight=2, generator=generator, **options)
    assert found["value"] == pytest.approx(expected.value)
    assert found["standard_error"] == pytest.approx(expected.standard_error)
    code, out, _ = cli("distance", A, B, "--sliced", name)
    assert code == 0 and out.startswith("sliced distance ") and name in out


@pytest.mark.parametrize(
    "more",
    [
        ("--sliced", "normal"),
        ("--sliced", "gaussian", "--cost.label", "means"),
        ("--sliced", "gaussian", "--solver", "exact"),
        ("--sliced", "gaussian", "--standard-error", "4"),
        ("--sliced", "principal", "--projections", "5"),
    ],
)
def test_a_sliced_distance_that_is_refused(more, cli):
    code, out, err = cli("distance", A, B, *more)
    assert code == 2 and not out and err.startswith("error: ")


@pytest.mark.slow
def test_a_sliced_flow(tmp_path, capsys):
    run = tmp_path / "run"
    words = [
        "flow",
        "toy:gaussians?n=60",
        "toy:gaussians?n=60&shift=5,0&seed=1",
        "-f",
        "sliced?n_projections=20",
    ]
    assert (
        main(
            [
                *words,
                "--steps",
                "10",
                "--integrator.step-size",
                "0.3",
                "-o",
                str(run),
                "--no-report",
                "--json",
            ]
        )
        == 0
    )
    assert json.loads((run / "result.json").read_text())
