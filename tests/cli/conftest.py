"""Every test of the command line runs in an empty directory, without settings of the machine."""

import json

import pytest

from advect.cli.app import main


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_DATA", "")
    monkeypatch.setattr("os.fsync", lambda _: None)
    return tmp_path


@pytest.fixture
def cli(capsys, empty):
    """Runs a command line and returns (exit code, stdout, stderr)."""

    def run(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(cli):
    """A command that ends with 2 and one message, which names something, and prints no result."""

    def run(named, *words):
        code, out, err = cli(*words)
        assert code == 2 and out == "" and err.startswith("error: ") and str(named) in err, err
        assert "Traceback" not in err and err.count("\n") <= 2, err  # and where the help is
        return err

    return run


@pytest.fixture
def answer(cli):
    """Runs a command line with --json and returns the parsed result."""

    def run(*words, code=0):
        got, out, err = cli(*words, "--json", "-q")
        assert got == code, err
        assert out.endswith("}\n") and out.count("\n") == 1
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return run
