"""``advect doctor``: what is installed, what the machine has, which data is there, and whether it
all works.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
import time
from collections.abc import Callable
from typing import Any

from advect.cli.output import FAILED, TALK, TalkOptions, leave


def doctor(*, talk: TalkOptions = TALK) -> None:
    """Versions, threads, devices, data, and a self-test of a few seconds."""
    import torch

    import advect as ad

    with talk.listening():
        tests = [_tested(name, test) for name, test in _TESTS.items()]
    facts: dict[str, Any] = {
        "advect": ad.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": _packages(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": _devices(),
        "data": {row.name: row.where for row in ad.datasets.names() if row.ready},
        "missing_data": [row.name for row in ad.datasets.names() if not row.ready],
        "tests": tests,
        "healthy": all(test["passed"] for test in tests),
    }
    packages = ", ".join(
        f"{name} {version or 'not installed'}" for name, version in facts["packages"].items()
    )
    lines = [
        f"advect {facts['advect']}, Python {facts['python']}, {facts['platform']}",
        f"packages: {packages}",
        f"{facts['cores']} cores, {facts['threads']} threads; devices: "
        f"{', '.join(facts['devices'])}",
        f"data ready: {', '.join(facts['data'])}",
        f"data to fetch or provide: {', '.join(facts['missing_data']) or 'none'}",
        *(
            f"{'ok    ' if test['passed'] else 'FAILED'} {test['name']}: {test['found']}"
            for test in tests
        ),
        "all is well"
        if facts["healthy"]
        else "something is wrong: install advect again, with -c constraints.txt",
    ]
    talk.result(facts, "\n".join(lines))
    if not facts["healthy"]:
        leave(FAILED)


def _packages() -> dict[str, str | None]:
    """The packages that advect asks for, with the versions that are there."""
    try:
        wanted = importlib.metadata.requires("advect") or []
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        wanted = ["torch", "numpy", "scipy"]
    names = [
        re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0] for line in wanted if "extra ==" not in line
    ]
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import torch

    found = [
        "cpu",
        *(f"cuda:{k} ({torch.cuda.get_device_name(k)})" for k in range(torch.cuda.device_count())),
    ]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def _tested(name: str, test: Callable[[], tuple[bool, str]]) -> dict[str, Any]:
    begun = time.perf_counter()
    try:
        passed, found = test()
    except Exception as error:  # whatever it is, that is what a doctor is asked for
        passed, found = False, f"{type(error).__name__}: {error}"
    return {
        "name": name,
        "passed": passed,
        "found": found,
        "seconds": round(time.perf_counter() - begun, 2),
    }


def _shifted() -> Any:
    """Two classes of the line, and the same three to the right."""
    import advect as ad

    data = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
    return data, data.replace(x=data.x + 3)


def _exact_distance() -> tuple[bool, str]:
    """Each sample moves by 3, and so does each class: √(3² + 3²)."""
    import advect as ad

    value = ad.otdd(*_shifted(), solver=ad.ExactOT()).value
    return math.isclose(
        value, 3 * math.sqrt(2), rel_tol=1e-6
    ), f"{value:.6f}, {3 * math.sqrt(2):.6f} by hand"


def _entropic_distance() -> tuple[bool, str]:
    """A shift is a shift whatever the regularisation, once the divergence is debiased."""
    import advect as ad

    source, target = _shifted()
    value = ad.otdd(
        source, target, cost=ad.GroundCost(label=ad.NoLabels()), solver=ad.Sinkhorn(0.5)
    ).value
    return math.isclose(value, 3, rel_tol=1e-4), f"{value:.6f}, 3 by hand"


def _flow() -> tuple[bool, str]:
    """Under exact transport an Euler step of size τ shrinks ½ W₂² by (1 − τ)²."""
    import advect as ad

    source, target = _shifted()
    energy = ad.OTDD(target, cost=ad.GroundCost(label=ad.NoLabels()), solver=ad.ExactOT())
    result = ad.flow(source, energy, integrator=ad.Euler(0.5), n_steps=3)
    wanted = 4.5 * 0.5**6
    return math.isclose(
        result.values[-1], wanted, rel_tol=1e-4
    ), f"{result.values[-1]:.6f}, {wanted:.6f} by hand"


_TESTS = {
    "an exact distance": _exact_distance,
    "an entropic distance": _entropic_distance,
    "a flow of three steps": _flow,
}
