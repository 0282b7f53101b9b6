"""One result for each command, exit codes, and messages for bad input."""

import inspect
import json
import math
import os
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from deadlines import within

import advect as ad
from advect.cli.app import COMMANDS, build_app, main
from advect.data.size import SIZES

A, B = "toy:gaussians?n=30", "toy:gaussians?n=36&shift=4,0&seed=1"


def pair():
    return ad.datasets.load(A), ad.datasets.load(B)


FLOW = ["flow", A, B, "-o", "run"]
BAD = [
    ["advance"],
    ["data", "info", "digit"],
    ["data", "info", A, "--device", "meta"],
    ["data", "info", A, "--seed", "9" * 20],
    ["flow", A + "&seed=1", "-f", "norm", "-o", "run", "--seed", "9" * 20],
    ["flow", A, "-f", "norm", "-o", "ru\0n"],
    ["show", "x" * 300],
    ["data", "info", "toy:moons?nn=3"],
    ["data", "list", "now"],
    ["data", "convert", "toy:moons?n=9", "-o", "moons.xyz"],
    ["data", "convert", "toy:moons?n=9"],
    ["suggest", A, "missing.csv"],
    ["adapt", A, B, "-o", "set.txt"],
    ["distance", A],
    ["distance", A, B, "--solver.epsilon", "-1"],
    ["distance", A, B, "--solver", "exact", "--solver.epsilon", "1"],
    ["distance", A, B, "--solver.epsilom", "1"],
    ["distance", A, B, "--device", "cuda:77"],
    ["distance", A, B, "--dtype", "float16"],
    ["distance", A, B, "--memory-limit", "much"],
    ["distance", A, B, "--space", "unit"],
    ["matrix", A],
    ["matrix", A, B, "--space.scale", "pooled"],
    ["flow", A, B],
    ["flow", A, "-o", "run"],
    ["flow", "-o", "run"],
    [*FLOW, "--integrator", "adm"],
    [*FLOW, "--integrator.beta1", "0.5"],
    [*FLOW, "--dynamics.every", "2"],
    [*FLOW, "--integrator.step-size", "0"],
    [*FLOW, "--steps", "3"],
    [*FLOW, "-f", "bal"],
    [*FLOW, "-f", "ball?radius=1"],
    [*FLOW, "-f", "repulsion?length"],
    [*FLOW, "-f", "otdd?epsilon=1"],
    [*FLOW, "-f", "mine.py:Mine"],
    [*FLOW, "--space.encoder", "net.onnx"],
    ["label", A, B, "-o", "labels.csv", "--embedding", "mine.py:embed"],
    [*FLOW, "--cost.embedding", "mine.py:embed"],
    [*FLOW, "-f", "ball?centre=0,0,0&radius=1"],
    [*FLOW, A],
    ["flow", A, "-o", "run", "-f", "norm", "--space.scale", "each"],
    ["flow", "run:here@9", B, "-o", "run"],
    ["resume", "run"],
    ["transfer", A, "-o", "sets"],
    ["transfer", A, B, "-o", "sets", "--extra", A, "--no-flow"],
    ["label", A, B, "--relabel", "-o", "labels.txt"],
    ["drift", A, B, "--report", "page.txt"],
    ["audit", "missing.csv", "-o", "table.csv"],
    ["audit", A, "-o", "table.txt"],
    ["audit", A, "-o", "same.csv", "--cleaned", "same.csv"],
    ["compare", A, "missing.csv"],
    ["show", "run"],
    ["report", "run"],
]


@pytest.mark.parametrize("words", BAD, ids=lambda words: " ".join(words).replace(A, "A")[:60])
def test_bad_input_is_2_with_one_message(words, cli):
    code, out, err = cli(*words)
    assert code == 2, err
    assert out == "" and not [path for path in Path().rglob("*") if ".cache" not in path.parts]
    assert err.startswith("error: ") and "Traceback" not in err


def test_every_command_is_tried_with_bad_input():
    assert {words[0] for words in BAD} >= {command.name for command in COMMANDS}


@pytest.mark.parametrize(
    ("words", "hint"), [(["distnce", A, B], "distance"), (["distance", A, B, "--max-sample", "3"], "--max-samples"),
    (["distance", A, B, "--solver", "exct"], "exact"), ([*FLOW, "--integrator.step-sise", "1"], "step_size"),
    (["data", "info", "toy:moon?n=3"], "moons")],
)  # fmt: skip
def test_near_misses_are_suggested(words, hint, cli):
    assert hint in cli(*words)[2]


def test_distance(answer, cli):
    a, b = pair()
    found = answer("distance", A, B)
    assert found["value"] == pytest.approx(ad.otdd(a, b).value, rel=1e-9)
    options = ["--solver", "exact", "--cost", "means", "--cost.label-weight", 2]
    found = answer("distance", A, B, *options)
    cost = ad.GroundCost(label=ad.MeansOnly(), label_weight=2)
    wanted = ad.otdd(a, b, cost=cost, solver=ad.ExactOT())
    assert found["value"] == pytest.approx(wanted.value, rel=1e-9)
    code, out, _ = cli("distance", A, B, "--solver.epsilon", "5%", "--report", "page.html")
    value = ad.otdd(a, b, solver=ad.Sinkhorn(ad.Relative(0.05))).value
    assert code == 0 and f"{value:.4g}" in out and "</html>" in Path("page.html").read_text()


def test_strict_makes_non_convergence_an_error(cli):
    words = ["distance", A, B, "--solver.max-iter", 1, "--solver.epsilon", 0.01]
    assert cli(*words)[0] == 0
    code, out, err = cli(*words, "--strict")
    assert code == 3 and out and "not converged" in err


def test_references_take_precedence_over_options(answer):
    assert answer("data", "info", "toy:moons?n=20", "--max-samples", 5)["n"] == 20
    assert answer("data", "info", "toy:moons?n=20&seed=1", "--seed", 2)["n"] == 20


def test_data(answer, cli):
    assert {row["name"] for row in answer("data", "list")["datasets"]} >= {"digits", "mnist"}
    assert answer("data", "convert", A, "-o", "a.csv")["n"] == 30
    assert answer("data", "info", "csv:a.csv?label=label")["classes"] == 3
    code, _, err = cli("data", "convert", A, "-o", "a.csv")
    assert code == 2 and "overwrite" in err


def test_matrix_continues_where_it_stopped(answer, cli):
    words = ["matrix", A, B, "toy:moons?n=20", "-o", "distances"]
    found = answer(*words)
    a, b = pair()
    assert json.loads(Path("distances/distances.json").read_text())
    assert {"distances.csv", "distances.html"} <= {p.name for p in Path("distances").iterdir()}
    table = np.loadtxt("distances/distances.csv", delimiter=",", skiprows=1, usecols=(1, 2, 3))
    assert table[0, 1] == pytest.approx(ad.otdd(a, b).value, rel=1e-6) and found["references"]
    assert cli(*words)[0] == 2
    Path("distances/distances.json").unlink()
    stored = {path: path.stat().st_mtime_ns for path in Path("distances/pairs").iterdir()}
    assert cli(*words, "-q")[0] == 0
    assert stored == {path: path.stat().st_mtime_ns for path in Path("distances/pairs").iterdir()}


def test_questions(answer, cli):
    found = answer("drift", A, A + "&seed=5", "--n-permutations", 99, "--report", "d.html")
    assert not found.get("drifted", False) and Path("d.html").exists()
    code, out, _ = cli("drift", A, B, "--n-permutations", 99, "-q")
    assert code == 4 and out
    answer("compare", A, A + "&seed=5", "--repeats", 3, "-o", "c.csv", "--report", "c.html")
    assert Path("c.csv").read_text().count("\n") > 3 and Path("c.html").exists()
    answer("audit", A, "-o", "a.csv", "--cleaned", "clean.npz", "--report", "a.html")
    assert Path("a.csv").read_text().count("\n") == 31 and len(ad.datasets.load("clean.npz")) <= 30
    found = answer("adapt", A, A + "&seed=5", "-o", "set.npz", "--report", "e.html")
    chosen = ad.adapt(ad.datasets.load(A), ad.datasets.load(A + "&seed=5"))
    assert found["method"] == chosen.method and Path("e.html").exists()
    assert torch.allclose(ad.datasets.load("set.npz").weights, chosen.dataset.weights)


def test_suggest_is_a_configuration(answer, cli):
    assert answer("suggest", A, B, "-o", "flow.toml")["source"] == A
    words = ["--n-steps", 4, "--no-report", "-q"]
    assert cli("flow", "-c", "flow.toml", "-o", "run", *words)[0] == 0
    assert cli("flow", A, B, "-o", "same", *words)[0] == 0
    assert cli("flow", A, B, "-o", "two", "--n-steps", 2, "--record-every", 1, *words[2:])[0] == 0
    assert cli("resume", "two", *words)[0] == 0
    last = "frames/000004.safetensors"
    assert Path("run", last).read_bytes() == Path("same", last).read_bytes()
    assert Path("two", last).read_bytes() == Path("same", last).read_bytes()
    options = ["--cost.label-weight", 3, "--no-equal-mass", "--solver.epsilon", 0.5]
    code, _, err = cli("flow", A, B, *options, "--n-steps", 1, "-o", "given", "--no-report")
    assert code == 0 and "cost.label_weight: 3" in err and "ByName" in err
    assert "equal_mass = false" in Path("given/config.toml").read_text()


def test_transfer(answer, cli):
    few = B + "&balanced=true"
    answer("transfer", A, few, "--n-steps", 3, "-o", "sets")
    written = {path.name for path in Path("sets").iterdir()}
    assert written >= {"recommended.npz", "final.npz", "result.json", "report.html"}
    assert cli("transfer", A, few, "--n-steps", 3, "-o", "sets")[0] == 2
    assert cli("transfer", A, few, "--no-flow", "-o", "sets", "--overwrite", "-q")[0] == 0
    assert not Path("sets/final.npz").exists()


def test_label(answer):
    words = ["label", "toy:gaussians?n=60", "toy:gaussians?n=12&seed=1", "--relabel"]
    answer(*words, "-o", "labels.csv", "--report", "labels.html")
    assert Path("labels.csv").read_text().count("\n") == 61
    words += ["--labeled", "pool.npz", "--soft", "--confidence", 0.9]
    answer(*words, "-o", "sure.csv")
    pool = ad.datasets.load("pool.npz")
    assert pool.has_soft_labels and 0 < len(pool) == 60 - Path("sure.csv").read_text().count(",,")


def test_flow_is_that_of_the_library(answer, cli):
    options = ["--n-steps", 4, "--integrator", "adam", "--integrator.step-size", 0.3]
    found = answer("flow", A, B, *options, "-o", "run")
    a, b = pair()
    result = ad.flow(a, b, integrator=ad.Adam(0.3), n_steps=4)
    explicit = answer("flow", A, B, *options, "-f", "otdd", "-o", "explicit")
    paper = ad.flow(a, ad.OTDD(b), integrator=ad.Adam(0.3), n_steps=4)
    assert explicit["value"] == pytest.approx(paper.values[-1], rel=1e-6)
    assert found["value"] == pytest.approx(result.values[-1], rel=1e-6)
    assert found["status"] == "completed" and found["frames"] == 5
    assert ad.Trajectory.open("run").indices == [0, 1, 2, 3, 4]
    shown = answer("show", "run")
    assert shown["value"] == found["value"] and shown["step"] == 4
    answer("report", "run", "-o", "page.html")
    code, out, _ = cli("show", "run")
    assert code == 0 and "completed" in out


@pytest.mark.parametrize(
    "terms", [["norm"], ["ball?centre=0,5&radius=2", "0.1*repulsion?length=2"], ["otdd", "0.01*internal?power=2"],
    ["sliced?n_projections=9"], ["hinge?direction=1,0&positive=1", "collapse?dimension=1", "attraction"]],
)  # fmt: skip
def test_functionals_by_name(terms, answer):
    words = [word for term in terms for word in ("-f", term)]
    found = answer("flow", A, B, *words, "--n-steps", 1, "-o", "run", "--no-report")
    assert math.isfinite(found["value"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--dynamics", "jd-fl"], ["--dynamics", "jd-vl", "--dynamics.clustering", "kmeans"],
    ["--integrator", "momentum?nesterov=true"], ["--integrator.step-size", "decay?first=0.4&half_life=2"],
    ["--integrator", "euler-maruyama", "--integrator.temperature", "0.1"], ["--control", "fixed"],
    ["--stop.tol", "0.5"], ["--cost", "names", "--cost.label-weight", "2"],
    ["--solver", "mini-batch", "--solver.size", "10"]],
)  # fmt: skip
def test_objects_by_name(words, answer, cli):
    found = answer("flow", A, B, *words, "--n-steps", 2, "-o", "run", "--no-report")
    assert math.isfinite(found["value"])
    assert cli("flow", "-c", "run/config.toml", "-o", "again", "--no-report", "-q")[0] == 0
    assert Path("again/frames.jsonl").read_bytes() == Path("run/frames.jsonl").read_bytes()


def test_divergence_is_a_failure(answer):
    words = ["--integrator.step-size", 1e30, "--control", "fixed", "--n-steps", 9, "-o", "run"]
    assert answer("flow", A, B, *words, code=1)["status"] == "diverged"


DOORS = ("spec_from_file", "runpy", "exec(", "eval(", "__import__", "SourceFileLoader", "os.system")
DOORS += ("popen", "subprocess", "pickle.load", "torch.load(", "joblib.load(", "allow_pickle=True")
DOORS += ("trust_remote_code",)
IMPORT = re.compile(r"import_module\((?!\"[a-z.A-Z]+\"|module\))")  # not of a constant name


def test_no_file_is_run_by_name():
    root, found = Path(ad.__file__).parent, set()
    for path in root.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").replace(".eval()", "").splitlines()
        code = "\n".join(line for line in lines if not line.lstrip().startswith((">>>", "#")))
        found |= {(path.relative_to(root).as_posix(), door) for door in DOORS if door in code}
        found |= {(path.relative_to(root).as_posix(), "import") for _ in IMPORT.finditer(code)}
    assert found == {("io/formats/registry.py", "import")}  # readers of formats


def test_unexpected_errors_are_failures(cli, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("out of order")

    monkeypatch.setattr(ad.datasets, "load", broken)
    code, out, err = cli("data", "info", A)
    assert code == 1 and not out and "Traceback" in err
    assert err.endswith("failed: RuntimeError: out of order\n")


def test_a_run_has_a_page_while_it_goes_on(cli, monkeypatch):
    module, pages, refresh = import_module("advect.cli.flow"), [], 'http-equiv="refresh"'
    for name, value in (("_FIRST_PAGE", 0.0), ("_SHARE", math.inf)):
        monkeypatch.setattr(module, name, value)

    def look(self, step, call=module._LivePage.__call__):
        call(self, step)
        pages.append(Path("run/report.html").read_text())
        if len(pages) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(module._LivePage, "__call__", look)
    first = ("flow", A, B, "-o", "run", "--n-steps", 3, "--checkpoint-every", 1)
    for words, code, status in ((first, 130, "interrupted"), (("resume", "run"), 0, "completed")):
        assert cli(*words)[0] == code
        assert all("running" in page and refresh in page for page in pages)
        assert status in (last := Path("run/report.html").read_text()) and refresh not in last


def test_control_characters_are_escaped(cli):
    Path("x.csv").write_text("a,label\n1,\x1b[31mred\n2,\x1b[31mred\n3,blue\n")
    code, out, err = cli("data", "info", "csv:x.csv?label=label")
    assert code == 0 and "\x1b" not in out + err and "red" in out
    assert "\x1b" not in cli("data", "info", "\x1b[31mno")[2]
    names = ("\x1b]0;x\x07", "b\nerror: fake", "\u202e\x7f\x9b")
    ad.LabeledDataset([[1.0], [2.0], [4.0]], names).save("x.npz")
    for words in (("data", "info", "x.npz"), ("distance", "x.npz", "x.npz")):
        code, out, err = cli(*words)
        assert code == 0 and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out + err)
        assert not re.search("^error:", out + err, re.M) and "\\u202e" in out
        assert set(names) <= json.loads(cli("data", "info", "x.npz", "--json")[1])["counts"].keys()
    assert "\nerror" not in cli("data", "info", "no\nerror: fake.npz")[2]


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "nul.toml"])
def test_odd_configurations_are_bad_input(name, refused):
    os.mkfifo("pipe")
    Path("nul.toml").write_text('out = "\\u0000x"')
    with within(10):
        refused("", "data", "info", A, "-c", name)


@pytest.mark.parametrize("columns", ["0", "99999999", "wide"])
def test_help_in_a_terminal_of_odd_width(columns, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    with within(10):
        assert cli("show", "--help")[0] == 0


def test_options_have_the_defaults_of_the_functions():
    """What has the name of a parameter has its default, or leaves it to the function."""
    from advect.cli.options import FlowSettings

    names = ("drift", "compare", "audit", "suggest", "adapt", "flow")
    public = {name: getattr(ad, name) for name in names}
    public |= {"distance": ad.otdd, "matrix": ad.pairwise}
    public |= {"transfer": ad.apps.transfer, "label": ad.apps.label}
    commands = {one.name: one.functions[one.name] for one in COMMANDS if one.name in public}
    assert commands.keys() == public.keys()
    for name, command in commands.items():
        own = dict(inspect.signature(public[name]).parameters)
        options = dict(inspect.signature(command).parameters)
        if options.pop("settings", None) is not None:
            options |= inspect.signature(FlowSettings).parameters
        for name in own.keys() & options.keys() - {"t", "n_jobs", "functional", "resume"}:
            usual = options[name].default
            assert usual in (None, own[name].default, inspect.Parameter.empty), (command, name)


def test_help_names_every_option():
    for command in COMMANDS:
        parts = [build_app()[command.name]]
        if command.has_subcommands:
            parts = [parts[0][name] for name in command.functions]
        for part in parts:
            options = part.assemble_argument_collection(parse_docstring=True)
            options = [one for one in options if one.names not in ((), ("*",))]
            assert all((one.parameter.help or "").endswith(".") for one in options), command.name
            assert sum(bool(one.show) for one in options) <= 25, command.name
        assert command.line.endswith(".") and command.example.startswith("advect ")


def test_help_all_lists_parameters_of_objects(cli):
    code, out, _ = cli("flow", "--help-all")
    assert code == 0 and "--integrator.beta1" in out and "--checkpoint-every" in out
    assert main(["flow", "--help"]) == 0


def test_large_datasets_are_drawn_or_refused(cli, monkeypatch):
    for work in ("distance", "flow", "search", "audit"):
        monkeypatch.setitem(SIZES, work, 40)
    big = "toy:gaussians", "toy:moons"
    code, out, err = cli("distance", *big, "--json")
    assert code == 0 and json.loads(out)["n_samples"] == [40, 40] and "at most 40" in err
    _, out, err = cli("distance", *big, "--json", "--max-samples", 60)
    assert json.loads(out)["n_samples"] == [60, 60] and "at most" not in err
    assert "at most 40" in cli("matrix", *big)[2]
    assert "at most 40" in cli("compare", *big[:1], "toy:gaussians?seed=1", "--repeats", 2)[2]
    small = ("toy:gaussians?n=50", "toy:gaussians?n=50&seed=1")
    assert "at most" not in cli("compare", *small, "--repeats", 2)[2]
    code, _, err = cli("flow", *big, "-o", "run", "--n-steps", 2, "--no-report")
    assert code == 0 and "at most 40" in err and len(ad.datasets.load("run:run@-1")) == 40
    assert cli("resume", "run", "--n-steps", 3, "--no-report")[0] == 0
    other = "toy:gaussians?seed=1"
    for words in (["audit", big[0]], ["label", big[0], other, "--relabel", "-o", "a.csv"]):
        code, _, err = cli(*words)
        assert code == 2 and "pass max_samples=500" in err
        assert cli(*words, "--max-samples", 90)[0] == 0
