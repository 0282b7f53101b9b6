"""Shares that came out right as rows of a page: a bar, its 95 % interval, which one was taken."""

from __future__ import annotations

from typing import Any

from advect.apps.calibration import wilson


def share_row(
    name: str, share: float, n: int, *, taken: str = "", about: str = ""
) -> dict[str, Any]:
    """A share of n samples.

    Example:
        >>> row = share_row("flow", 0.5, 10, taken="recommended")
        >>> row["text"], row["about"]
        ('50.0 %', '24 to 76 %')
    """
    low, high = wilson(round(share * n), n)
    told = f"{100 * low:.0f} to {100 * high:.0f} %"
    return mean_row(name, share, (low, high), taken=taken, about=about or told)


def mean_row(
    name: str,
    share: float,
    interval: tuple[float, float] | None,
    *,
    taken: str = "",
    about: str = "",
) -> dict[str, Any]:
    """A mean of shares with its interval, if that is known; what leaves 0 … 100 % is cut."""
    low, high = (None, None) if interval is None else (max(0, interval[0]), min(1, interval[1]))
    return {
        "name": name,
        "text": f"{100 * share:.1f} %",
        "share": round(100 * share, 2),
        "low": None if low is None else round(100 * low, 2),
        "wide": None if low is None or high is None else round(100 * (high - low), 2),
        "taken": taken,
        "about": about,
    }
