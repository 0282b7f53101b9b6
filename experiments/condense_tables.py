"""Tables of ``condense``: each learner, with paired gains over k-means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tables import Experiment, markdown


def condense_table(learner: str) -> str:
    """Accuracies of one learner by setting and set, in brackets the paired gain over k-means."""
    found = Experiment.read("condense")
    if not found.cells:
        return f"*{found.draws}*"
    sets, over = found.of("SETS"), f"{found.baseline}, {learner}"
    bold = [f"**{way}**" if way == found.recommended else way for way in sets]
    rows = [
        [setting, *(found._entry(setting, f"{way}, {learner}", over) for way in sets)]
        for setting in found.groups
        if found.groups[setting]
    ]
    return markdown([learner, *bold], rows)


def condense_said(way: str, over: str = "k-means") -> str:
    """In how many settings one set is above another beyond its interval, and below."""
    found = Experiment.read("condense")
    gains = [
        gain
        for learner in found.of("LEARNERS")
        for gain in found.gains(f"{way}, {learner}", f"{over}, {learner}")
    ]
    above, below = (sum(gain.sign == side for gain in gains) for side in (1, -1))
    return f"above in {above} and below in {below} of {len(gains)}"


WORDS: dict[str, Callable[..., Any]] = {
    "condense_table": condense_table,
    "condense_said": condense_said,
}
