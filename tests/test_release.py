"""What a release promises: public names, pinned versions, licences, a version that is said the same
everywhere, and a wheel that works where nothing else is."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import advect as ad

ROOT = Path(__file__).parents[1]
NAMES = Path(__file__).with_name("public_names.txt")
ROOMS = ("apps", "datasets", "distributed", "maps", "ot", "report", "testing", "viz")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(name: str) -> dict[str, str]:
    lines = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {canonical(package): version.split("+")[0] for package, version in lines}


def public_names() -> list[str]:
    names = [f"advect.{name}" for name in ad.__all__]
    for room in ROOMS:
        listed = importlib.import_module(f"advect.{room}").__all__
        names += [f"advect.{room}.{name}" for name in listed]
    return sorted(names)


def test_public_names_change_on_purpose():
    """After a change that is meant, `python tests/test_release.py` writes the list anew; a name that
    went is in the changelog with what to write instead (docs/installation.md)."""
    listed, found = set(NAMES.read_text().split()), set(public_names())
    assert not (listed - found), "public names that are gone"
    assert not (found - listed), "public names that are not in tests/public_names.txt"


def test_the_version_is_one():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    version, date = re.search(r"^## ([\d.]+) \((\d{4}-\d\d-\d\d)\)", changelog, re.M).groups()
    assert version == ad.__version__
    assert f"\nversion: {version}\ndate-released: {date}\n" in (ROOT / "CITATION.cff").read_text()
    assert f'version: "{version}"' in (ROOT / "release/conda/meta.yaml").read_text()


def test_the_recipe_and_the_workflow_fit_the_project():
    recipe = (ROOT / "release/conda/meta.yaml").read_text().partition("  run:\n")[2]
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base", "lazy_loader": "lazy-loader"}
    pairs = [line.lower().split(">=") for line in PROJECT["dependencies"]]
    lines = [f"    - {names.get(name, name)} >={version}" for name, version in pairs]
    assert recipe.partition("test:")[0].splitlines() == ["    - python >=3.11", *lines]
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert ", ".join(f'"{v}"' for v in pythons) in (ROOT / ".github/workflows/ci.yml").read_text()


def test_versions_are_pinned_once_with_their_hash():
    constraints, lock = pinned("constraints.txt"), pinned("requirements-dev.lock")
    assert lock.items() <= constraints.items()
    extras = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    assert needed(PROJECT["dependencies"] + extras) - {"advect"} <= lock.keys()
    text = (ROOT / "requirements-dev.lock").read_text()
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}$", text, re.M)) == text.count("==")
    assert "://" not in text


def needed(lines: list[str]) -> set[str]:
    return {canonical(re.match(r"[\w.-]+", line)[0]) for line in lines}


def test_licences_are_listed():
    page = (ROOT / "release" / "licences.md").read_text()
    listed = {canonical(name) for name in re.findall(r"^\| ([\w.-]+) \|", page, re.M)}
    assert needed(PROJECT["dependencies"]) <= listed


@pytest.mark.slow
def test_a_release_can_be_built_and_installed():
    done = subprocess.run(["make", "dist"], cwd=ROOT, capture_output=True, text=True)
    said = done.stdout + done.stderr
    offline = "No matching distribution|ConnectionError|NewConnection"
    if done.returncode and re.search(offline, said):
        pytest.skip("pip reaches no packages from here")
    assert done.returncode == 0, said
    for word in ("PASSED", f"\n{ad.__version__}\n", "steps      5"):
        assert word in said


if __name__ == "__main__":
    NAMES.write_text("\n".join(public_names()) + "\n")
    sys.exit(0)
