"""Runs as pages on this machine alone: a list, live curves of a flow that is going on, and the
report of each.

A server of the standard library at the loopback address. It reads and never writes, answers GET
alone, refuses requests for another host (a page of somebody else's may not ask it), and takes no
path from a request: runs are known by numbers of its own. Pages fetch from it alone."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from advect._util.html import fill
from advect.cli.run_facts import RunFacts, find_runs
from advect.errors import InputError

HOST = "127.0.0.1"
_STEP = r"[0-9]{1,18}"  # of a run, as a page asks for it
_MOST = 2000  # points of a curve that are sent at a time
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src {script}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# a report may be somebody else's: it has no origin, so it cannot ask this server for anything
_SANDBOX = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'"
)


class RunServer(ThreadingHTTPServer):
    """Serves the runs below some directories.

    Args:
        roots: directories of runs, or runs.
        port: 0 for any that is free.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, RunServer([Path(folder)], 0) as server:
        ...     print(server.address.startswith("http://127.0.0.1:"), server.runs())
        True {}
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, roots: list[Path], port: int) -> None:
        self.roots = roots
        self._numbers: dict[Path, int] = {}
        self._guard = threading.Lock()
        try:
            super().__init__((HOST, port), _Pages)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(
                "cannot listen at this port",
                f"{port} ({why})",
                "Give another --port, or 0 for any.",
            ) from None

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def runs(self) -> dict[int, Path]:
        """The runs that are there now, by number; a run keeps its number."""
        found = [*find_runs(self.roots)]
        with self._guard:
            for place in found:
                self._numbers.setdefault(place, len(self._numbers))
            return {number: place for place, number in self._numbers.items() if place.is_dir()}

    def finish_request(self, request: Any, client_address: Any) -> None:
        """A browser that went away in the middle of an answer is nothing to tell."""
        with suppress(ConnectionError):
            super().finish_request(request, client_address)

    def answers_to(self, host: str) -> bool:
        """Whether a request is for this server and no other name of it."""
        port = self.server_address[1]
        return host in (f"{HOST}:{port}", f"localhost:{port}")


class _Pages(BaseHTTPRequestHandler):
    server_version, sys_version = "advect", ""
    protocol_version = "HTTP/1.1"

    @property
    def runs(self) -> RunServer:
        """The server that was asked."""
        return cast(RunServer, self.server)

    def do_GET(self) -> None:
        if not self.runs.answers_to(self.headers.get("Host", "")):
            return self._say(HTTPStatus.FORBIDDEN, "This server answers to this machine alone.")
        try:
            asked = urlsplit(self.path)
        except ValueError:
            return self._say(HTTPStatus.NOT_FOUND, "No such page. The list of runs is at /.")
        parts = [part for part in asked.path.split("/") if part]
        if not parts:
            return self._page("runs.html.jinja", rows=[*self._rows()], roots=self.runs.roots)
        runs = self.runs.runs()
        known = len(parts) in (2, 3) and parts[0] == "run" and parts[1].isdecimal()
        place = runs.get(int(parts[1])) if known and len(parts[1]) < 9 else None
        if place is None:
            return self._say(HTTPStatus.NOT_FOUND, "No such page. The list of runs is at /.")
        match parts[2:]:
            case []:
                facts = RunFacts.read(place)
                return self._page("run.html.jinja", number=parts[1], facts=facts)
            case ["curve"]:
                after = parse_qs(asked.query).get("after", ["-1"])[0]
                return self._curve(place, int(after) if re.fullmatch(_STEP, after) else -1)
            case ["report"]:
                return self._report(place)
        return self._say(HTTPStatus.NOT_FOUND, "No such page. The list of runs is at /.")

    do_HEAD = do_GET

    def _rows(self) -> Iterator[tuple[int, RunFacts]]:
        found = [(number, RunFacts.read(place)) for number, place in self.runs.runs().items()]
        yield from sorted(found, key=lambda row: -row[1].changed)

    def _page(self, template: str, **values: Any) -> None:
        script = _part("serve.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = _POLICY.format(script=f"'sha256-{digest}'")
        self._send(
            _filled(template, script, **values).encode(errors="replace"), "text/html", policy
        )

    def _curve(self, place: Path, after: int) -> None:
        facts = RunFacts.read(place)
        points = [point for point in facts.curve if point["index"] > after][:_MOST]
        content = {
            "status": facts.status,
            "message": facts.message,
            "running": facts.running,
            "steps": facts.done,
            "wanted": facts.wanted,
            "report": facts.has_report,
            "points": [
                {name: _number(point.get(name)) for name in ("index", "value", "speed", "seconds")}
                for point in points
            ],
            "more": bool(points) and points[-1]["index"] < facts.done,
        }
        self._send(json.dumps(content).encode(), "application/json", "default-src 'none'")

    def _report(self, place: Path) -> None:
        try:
            content = (place / "report.html").read_bytes()
        except OSError:
            return self._say(
                HTTPStatus.NOT_FOUND, "This run has no report yet: advect report writes one."
            )
        return self._send(content, "text/html", _SANDBOX)

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(text.encode(), "text/plain", "default-src 'none'", status)

    def _send(
        self, content: bytes, kind: str, policy: str, status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests of one's own browser are nothing to write down."""


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _filled(template: str, script: str, **values: Any) -> str:
    from markupsafe import Markup

    style = resources.files("advect").joinpath("report/style.css").read_text(encoding="utf-8")
    return fill(
        _part(template),
        style=Markup(style + _part("serve.css")),  # ours, and not to be escaped
        script=Markup(script),
        **values,
    )


@cache
def _part(name: str) -> str:
    return resources.files("advect.cli").joinpath(name).read_text(encoding="utf-8")
