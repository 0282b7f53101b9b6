"""Tables of docs/gpu.md: the roofline, and the waits of a step."""

from __future__ import annotations

from typing import Any

from tables import markdown


def roofline_table(found: dict[str, Any]) -> str:
    """The least time of each part of a step at published peaks, in milliseconds."""
    head = [
        "n",
        "d",
        "device",
        "four products",
        "matrices",
        "iterations",
        "label laws",
        "step",
        "memory",
    ]
    rows = []
    for row in found["rows"]:
        parts = [
            row["milliseconds"][key] for key in ("products", "matrices", "iterations", "labels")
        ]
        times = [f"{part:.3g}" for part in (*parts, row["step"])]
        rows.append([row["n"], row["d"], row["device"], *times, f"{row['memory'] / 1e9:.2g} GB"])
    return markdown(head, [[str(cell) for cell in row] for row in rows])


def waits_table(found: dict[str, Any]) -> str:
    """How often the program waits for the device in a steady step."""
    rows = {(row["dynamics"], row["label"]): row["waits"] for row in found["rows"]}
    return markdown(
        ["dynamics", "labels", "waits in a steady step"],
        [[dynamics, label, str(waits)] for (dynamics, label), waits in rows.items()],
    )
