"""``advect serve``: runs as pages in a browser, on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from advect.cli.options import switch
from advect.cli.output import TALK, TalkOptions
from advect.errors import InputError


def serve(
    *directories: Path,
    port: Annotated[int, Parameter(help="Of the page; 0 for any that is free.")] = 8733,
    open: Annotated[bool, switch("Open the page in the browser.")] = False,
    talk: TalkOptions = TALK,
) -> None:
    """Look at runs in a browser, also while they go on.

    Args:
        directories: Runs, or folders of runs; here by default.
    """
    from advect.cli.serving import RunServer

    roots = [place.expanduser() for place in directories or (Path(),)]
    for root in roots:
        if not root.is_dir():
            raise InputError("no such directory", root, "Pass a run, or a folder of runs.")
    with talk.listening(), RunServer(roots, port) as server:
        found = server.runs()
        facts = {"address": server.address, "runs": [str(place) for place in found.values()]}
        runs = "1 run" if len(found) == 1 else f"{len(found)} runs"
        talk.result(facts, f"{server.address}  {runs}; Ctrl-C ends it")
        if open:
            import webbrowser

            webbrowser.open(server.address)
        server.serve_forever(poll_interval=0.2)
