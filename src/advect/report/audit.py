"""The page of an audit: suspects class by class, each beside the sample that it is confused with,
what is missing, and how it was found. One file, without scripts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_count
from advect.data.dataset import LabeledDataset
from advect.questions.audit_result import COPY, ODD, SUPPORT, WRONG, Audit
from advect.report.encoding import Shades, picture_uri
from advect.report.labels import class_colours
from advect.report.page import filled, page_place, part, versions, write_page

_SIDE = 72  # pixels of a picture
_MOST_CLASSES = 60  # of each part
_MOST_COLUMNS = 8
_NO_LABEL = "no label"


def write_audit_report(
    found: Audit, path: str | Path, *, title: str = "Audit", each: int = 12
) -> Path:
    """Write a page about what ``ad.audit`` found, as one HTML file that needs no network and runs no
    script.

    Args:
        found: what ``ad.audit`` returned.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        each: how many samples of each class and kind to show, the worst ones.

    Returns:
        The path of the file.

    Raises:
        InputError: a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_audit_report
        >>> found = ad.audit(ad.datasets.load("digits", n=200), progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_audit_report(found, f"{folder}/digits.html", title="Digits <8 x 8>")
        ...     print("Digits &lt;8 x 8&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    place, each = page_place(path), check_count("each", each)
    return write_page(place, _Page(found, title, each).text())


@dataclass(frozen=True)
class _Page:
    found: Audit
    title: str
    each: int

    def text(self) -> str:
        from markupsafe import Markup

        found, data = self.found, self.found.data
        columns = [str(name) for name in data.columns or [f"x{i}" for i in range(data.dim)]]
        numbers = [("labels in doubt", found.wrong), ("odd", found.odd), ("copies", found.copies)]
        parts = [self._wrong(), self._odd(), self._copies()]
        if found.reference is not None:
            numbers.append(("missing", found.missing))
            parts.append(self._missing())
        style = part("style.css") + part("labels.css") + part("audit.css")
        return filled(
            "audit.html.jinja",
            title=self.title,
            style=Markup(style + class_colours(len(self.names))),
            notes=found.notes,
            tiles=[("samples", f"{len(found):,}"), ("classes", f"{len(data.classes):,}")]
            + [(name, f"{len(rows):,}") for name, rows in numbers],
            parts=parts,
            pictures=self.shades[id(data)] is not None,
            columns=columns[:_MOST_COLUMNS],
            more_columns=max(0, len(columns) - _MOST_COLUMNS),
            class_columns=["class", "samples", *(["reference"] if found.reference else [])]
            + [name for name, _ in numbers],
            classes=self._classes([rows for _, rows in numbers]),
            setup={
                "rule": f"a label is in doubt where the disagreement is above {WRONG:.0%} and "
                f"another label has {SUPPORT:.0%} of the support that its samples usually have; a sample "
                f"is odd where its misfit is above {ODD:g}; a copy "
                f"is nearer to a sample before it than {COPY:.0%} of what is usual",
                **found.settings,
                "versions": versions(),
                "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            },
        )

    @property
    def names(self) -> list[Hashable]:
        """All classes, those of the reference too."""
        more = () if self.found.reference is None else self.found.reference.classes
        return list(dict.fromkeys([*self.found.data.classes, *more]))

    @cached_property
    def shades(self) -> dict[int, Shades | None]:
        """How samples become pictures, of the data and of the reference."""
        sets = [data for data in (self.found.data, self.found.reference) if data is not None]
        return {id(data): Shades.of(data.sample_shape, data.x) for data in sets}

    def _wrong(self) -> dict[str, Any]:
        found = self.found
        other = found.data if found.reference is None else found.reference

        def card(row: int) -> dict[str, Any]:
            said = f"{found.disagreement[row]:.0%} disagree, {found.proposed[row]} is proposed"
            partner = int(found.confused_with[row])
            return self._card(row, [(other, partner)] if partner >= 0 else [], said)

        return {
            "id": "wrong",
            "title": "Labels in doubt",
            "about": "Of each class, the labels that samples of like features disagree with most. Each is shown "
            "beside the sample that it is confused with. Numbers are positions in the data.",
            "groups": self._groups(found.data, found.wrong, card),
        }

    def _odd(self) -> dict[str, Any]:
        found, codes = self.found, self.found.data.y.cpu().numpy()
        typical = {}  # what fits best
        for code in np.unique(codes):
            mine = np.flatnonzero((codes == code) & ~np.isnan(found.misfit))
            if len(mine):
                typical[int(code)] = int(mine[np.argmin(found.misfit[mine])])

        def card(row: int) -> dict[str, Any]:
            two = [(found.data, typical[int(codes[row])])]
            return self._card(row, two, f"misfit {found.misfit[row]:.1f}")

        return {
            "id": "odd",
            "title": "Odd samples",
            "about": "Far from what is usual in their class, the farthest first, beside the sample of the class "
            "that fits best.",
            "groups": self._groups(found.data, found.odd, card),
        }

    def _copies(self) -> dict[str, Any]:
        found = self.found

        def card(row: int) -> dict[str, Any]:
            said = f"{found.twin_distance[row]:.1%} of a usual distance"
            return self._card(row, [(found.data, int(found.twin[row]))], said)

        return {
            "id": "copies",
            "title": "Copies",
            "about": "Samples that repeat another one, or nearly so; the first of each group is kept.",
            "groups": self._groups(found.data, found.copies, card),
        }

    def _missing(self) -> dict[str, Any]:
        found = self.found
        assert found.reference is not None and found.gap is not None
        reference, gap = found.reference, found.gap

        def card(row: int) -> dict[str, Any]:
            far = f"misfit {gap[row]:.1f}" if np.isfinite(gap[row]) else "no such class in the data"
            return self._card(row, [], far, reference)

        return {
            "id": "missing",
            "title": "What is missing",
            "about": "Samples of the reference that nothing in the data of their class is like. Numbers are "
            "positions in the reference.",
            "groups": self._groups(reference, found.missing, card),
        }

    def _groups(self, data: LabeledDataset, rows: np.ndarray, card: Any) -> list[dict[str, Any]]:
        """Samples by their label, the classes with most of them first where there are too many."""
        codes = data.y.cpu().numpy()
        by_code = {int(code): rows[codes[rows] == code] for code in np.unique(codes[rows])}
        most = sorted(by_code, key=lambda code: -len(by_code[code]))[:_MOST_CLASSES]
        groups = []
        for code in sorted(most):
            mine = by_code[code]
            name = data.classes[code] if code >= 0 else _NO_LABEL
            shown = f", {self.each} are shown" if len(mine) > self.each else ""
            groups.append(
                {
                    "name": str(name),
                    "colour": self._colour(name),
                    "about": f"{len(mine):,} of {int((codes == code).sum()):,}{shown}",
                    "cards": [card(int(row)) for row in mine[: self.each]],
                }
            )
        return groups

    def _card(
        self,
        row: int,
        beside: Iterable[tuple[LabeledDataset, int]],
        said: str,
        data: LabeledDataset | None = None,
    ) -> dict[str, Any]:
        """A sample and others next to it."""
        own = self.found.data if data is None else data
        return {
            "two": [self._one(own, row), *(self._one(*other) for other in beside)],
            "said": said,
        }

    def _one(self, data: LabeledDataset, row: int) -> dict[str, Any]:
        code = int(data.y[row])
        where = "reference " if data is self.found.reference else ""
        one: dict[str, Any] = {
            "row": f"{where}{row}",
            "label": _NO_LABEL if code < 0 else str(data.classes[code]),
            "alt": f"{where}sample {row}".capitalize(),
        }
        shades = self.shades[id(data)]
        if shades is not None:
            return one | {"uri": picture_uri(shades.pixels(data.x[[row]], _SIDE)[0])}
        values = data.x[row, :_MOST_COLUMNS].tolist()
        return one | {"features": [f"{value:.4g}" for value in values]}

    def _colour(self, name: Hashable) -> str:
        return f"var(--c{self.names.index(name)})" if name in self.names else "var(--soft)"

    def _classes(self, numbers: list[np.ndarray]) -> list[dict[str, Any]]:
        found, sets = self.found, [self.found.data]
        if found.reference is not None:
            sets.append(found.reference)
        labels = [data.y.cpu().numpy() for data in sets]
        rows = []
        for name in self.names:
            code = [data.classes.index(name) if name in data.classes else -2 for data in sets]
            counts = [int((own == at).sum()) for own, at in zip(labels, code, strict=True)]
            # the last column is of the reference, where there is one
            sides = [0, 0, 0, 1]
            each = [
                int((labels[sides[k]][which] == code[sides[k]]).sum())
                for k, which in enumerate(numbers)
            ]
            shown = [f"{count:,}" for count in (*counts, *each)]
            rows.append({"name": str(name), "colour": self._colour(name), "numbers": shown})
        return rows
