"""``advect serve``: it reads, answers this machine alone, and escapes what it shows."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from advect._util.lock import Hold, is_held
from advect.cli.app import main
from advect.cli.output import BAD_INPUT
from advect.cli.run_facts import RunFacts, find_runs
from advect.cli.serving import RunServer, _Pages
from advect.datasets.logs import append_line

EVIL = "<script>alert(1)<"  # no slash: it is the name of a directory


def log(place: Path, step: int, value: float) -> None:
    record = {"value": value, "speed": 1.0, "seconds": 0.5 * step, "terms": {"otdd": value}}
    append_line(place / "metrics.jsonl", {"name": "flow", "index": step, **record})


def make_run(place: Path, steps: int = 4) -> Path:
    place.mkdir(parents=True)
    (place / "config.toml").write_text('source = "toy:moons"\ntarget = "toy:rings"\nsteps = 9\n')
    for step in range(steps):
        log(place, step, 8.0 / 2**step)
    return place


@pytest.fixture
def server(tmp_path) -> Iterator[RunServer]:
    make_run(tmp_path / "runs" / EVIL)
    with RunServer([tmp_path / "runs"], 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: RunServer, path: str, method: str = "GET", host: str | None = None):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    headers = {} if host is None else {"Host": host}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer


def test_it_lists_runs_and_escapes_names(server):
    status, text, answer = ask(server, "/")
    assert status == 200
    assert EVIL not in text and "&lt;script&gt;alert(1)&lt;" in text
    assert "3 of 9" in text and "toy:moons → toy:rings" in text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_curve_grows_while_the_flow_goes_on(server, tmp_path):
    first = json.loads(ask(server, "/run/0/curve")[1])
    assert [point["value"] for point in first["points"]] == [8.0, 4.0, 2.0, 1.0]
    assert (first["status"], first["running"]) == ("interrupted or killed", False)
    place = tmp_path / "runs" / EVIL
    with Hold(place):
        log(place, 4, 0.5)
        later = json.loads(ask(server, "/run/0/curve?after=3")[1])
    assert [point["index"] for point in later["points"]] == [4]
    assert (later["status"], later["running"]) == ("running", True)


def test_runs_keep_their_numbers(server, tmp_path):
    assert "0-new" not in ask(server, "/")[1]
    make_run(tmp_path / "runs" / "0-new")
    assert "0-new" in ask(server, "/")[1]
    assert "0-new" in ask(server, "/run/1")[1]
    assert "alert" in ask(server, "/run/0")[1]


NOWHERE = (
    *("/etc/passwd", "/run/../../etc/passwd", "/run/7", "/run/0/config.toml", "/run/x"),
    *("/run/0/a/b", f"/run/{'9' * 4000}", "/run/0/report"),
)


@pytest.mark.parametrize("path", NOWHERE)
def test_nothing_else_is_there(server, path):
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", ""])
def test_other_hosts_are_refused(server, host):
    """A page of somebody else's whose name leads to this address has that name as its host."""
    assert ask(server, "/", host=host)[0] == 403


def test_it_only_reads(server):
    assert ask(server, "/", "POST")[0] == 501
    assert ask(server, "/", "DELETE")[0] == 501
    status, text, answer = ask(server, "/", "HEAD")
    assert status == 200 and text == "" and int(answer.headers["Content-Length"]) > 1000


def test_a_report_has_no_origin(server, tmp_path):
    (tmp_path / "runs" / EVIL / "report.html").write_text("<script>fetch('/')</script>")
    status, text, answer = ask(server, "/run/0/report")
    assert status == 200 and "fetch" in text
    assert answer.headers["Content-Security-Policy"].startswith("sandbox allow-scripts;")


def test_damaged_files_are_no_reason_to_fail(server, tmp_path):
    place = tmp_path / "runs" / EVIL
    (place / "config.toml").write_bytes(b"\xff\x00")
    (place / "metrics.jsonl").write_bytes(b"\x00" * 100)
    (place / "result.json").write_text("[")
    assert ask(server, "/")[0] == ask(server, "/run/0")[0] == 200
    assert json.loads(ask(server, "/run/0/curve?after=zero")[1])["points"] == []


def test_runs_are_found_below_and_links_are_not_followed(tmp_path):
    inside = make_run(tmp_path / "a" / "b" / "run")
    make_run(tmp_path / "elsewhere" / "run")
    make_run(tmp_path / "a" / "1" / "2" / "3" / "too-deep")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "elsewhere")
    assert [*find_runs([tmp_path / "a"])] == [inside]
    assert [*find_runs([inside])] == [inside]
    assert RunFacts.read(inside).done == 3


def test_who_writes_is_told_without_taking_the_lock(tmp_path):
    place = tmp_path / "run"
    assert not is_held(place)
    with Hold(place):
        assert is_held(place)
    (tmp_path / ".run.lock").write_text("999999999 on nowhere-that-we-know\n")
    assert is_held(place)  # of another machine, which cannot be asked
    (tmp_path / ".run.lock").write_text("")
    assert not is_held(place)


@pytest.mark.parametrize(
    "line",
    [["serve", "not-there"], ["serve", ".", "--port", "-1"], ["serve", ".", "--port", "1e9"]],
)
def test_bad_input(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line) == BAD_INPUT
    assert "error:" in capsys.readouterr().err


def test_a_port_in_use_is_said(server, capsys):
    assert main(["serve", ".", "--port", str(server.server_address[1])]) == BAD_INPUT
    assert "Give another --port" in capsys.readouterr().err


@pytest.mark.parametrize("after", ["--5", "9" * 5000, "x", "-"])
def test_steps_that_are_none_are_the_first(server, after):
    status, text, _ = ask(server, f"/run/0/curve?after={after}")
    assert status == 200 and len(json.loads(text)["points"]) == 4


def test_addresses_that_are_none_are_not_found(server):
    host = "{}:{}".format(*server.server_address[:2])
    assert ask(server, "http://[x/run/0", host=host)[0] == 404


def test_a_browser_that_went_away_is_nothing_to_tell(server, capsys, monkeypatch):
    monkeypatch.setattr(_Pages, "_send", Mock(side_effect=BrokenPipeError))
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/")
    server.server_close()  # waits for nobody
    assert "Traceback" not in capsys.readouterr().err
