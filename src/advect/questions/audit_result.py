"""What an audit found: a table of all samples, which of them to look at by a stated rule, and a
page of these.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advect._util.atomic import write_atomically
from advect._util.checks import check_count, check_known, needed
from advect._util.html import facts_table
from advect.apps.pages import write_page
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

WRONG = 0.5  # disagreement from which a label is suspect
SUPPORT = 0.8  # of another label, from which on it is, where that label usually has 1
ODD = 6.0  # misfit from which a sample is
COPY = 0.05  # distance to the nearest other sample, as a share of what is usual, below which it is
COLUMNS = (
    *("row", "label", "suspect", "disagreement", "proposed", "support", "confused_with"),
    *("misfit", "stands_for", "twin", "twin_distance"),
)
_ORDERS = ("disagreement", "misfit", "suspicion", "twin_distance", "stands_for")
_MOST = 2.0  # times the rule, that a misfit counts for at most beside a disagreement


@dataclass(frozen=True, eq=False)
class Audit:
    """Samples of a dataset, each with what speaks against it; made by ``audit``.

    Samples are ``suspects`` by a rule that is the same for all data. The label is ``wrong`` where the
    disagreement is above a half and another label has at least 0.8 times the support that samples
    of that label usually have (a threshold for each class, after the confident learning of
    Northcutt, Jiang and Chuang, 2021). The sample is ``odd`` where its misfit is above 6. It is one of the ``copies``
    where another sample that comes before it is nearer than a twentieth of what is usual. It is a rule
    for what to look at, and ``worst`` takes as many as you want instead.

    Attributes:
        data: what was audited.
        reference: what it was compared with; None where each sample was compared with the others.
        disagreement: the share of the plan's mass from a sample, by features alone, that goes to samples
            of other labels, (n,); NaN where there is nothing to disagree with: no label, or no other
            sample of its class.
        proposed: the label that gets most of that mass, for each sample.
        support: the share of the proposed label, as a multiple of what samples that have it get from
            their own, on average, (n,).
        confused_with: the position of the sample that stands for the proposed label, in the reference
            where there is one, else in ``data``; −1 where the label is not disputed.
        misfit: how far a sample is from its own class: the dual potential of transport within the
            class, as a length, in deviations from what is usual there, (n,); NaN without a class to compare with.
        stands_for: how many of the others (or of the reference, for each sample of ``data``) would be
            replaced by this sample, were each replaced by what is nearest; 1 on average.
        twin: the position of the nearest other sample in ``data``.
        twin_distance: how far that is, as a share of the median of such distances.
        gap: for samples of the reference, the misfit to the data of their class, (m,), infinite where
            that class is not there; None without a reference.
        settings: how it was done, in words.
        notes: what is worth knowing, in sentences.

    Example:
        >>> import advect as ad
        >>> x = [[0.0], [0.1], [0.3], [0.4], [9.0], [9.1], [9.3], [0.2]]
        >>> found = ad.audit(ad.LabeledDataset(x, [*"aaaabbb", "b"]), embedding=None)
        >>> found.wrong.tolist(), found.proposed[7]
        ([7], 'a')
        >>> found.data.without(found.suspects).counts
        {'a': 4, 'b': 3}
    """

    data: LabeledDataset
    reference: LabeledDataset | None
    disagreement: np.ndarray
    proposed: list[Hashable]
    support: np.ndarray
    confused_with: np.ndarray
    misfit: np.ndarray
    stands_for: np.ndarray
    twin: np.ndarray
    twin_distance: np.ndarray
    gap: np.ndarray | None
    settings: dict[str, str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        missing = "" if self.reference is None else f", missing={len(self.missing)}"
        return (
            f"Audit(n={len(self)}, wrong={len(self.wrong)}, odd={len(self.odd)}, "
            f"copies={len(self.copies)}{missing})"
        )

    def _repr_html_(self) -> str:
        counts = {"samples": self, "labels in doubt": self.wrong, "odd": self.odd}
        counts["copies"] = self.copies
        facts = {name: f"{len(rows):,}" for name, rows in counts.items()}
        if self.reference is not None:
            facts["missing, of the reference"] = f"{len(self.missing):,}"
        some = self.wrong[:10].tolist()
        facts["labels most in doubt"] = ", ".join(
            f"{row} ({self.data.labels[row]} → {self.proposed[row]})" for row in some
        )
        return facts_table("Audit", {**facts, "worth knowing": " ".join(self.notes)})

    @property
    def wrong(self) -> np.ndarray:
        """Positions of samples whose label is in doubt, the most doubtful first."""
        differs = np.array(
            [a != b for a, b in zip(self.data.labels, self.proposed, strict=True)], dtype=bool
        )
        sure = (self.disagreement > WRONG) & (self.support >= SUPPORT)
        return self._first(self.disagreement, sure & differs)

    @property
    def odd(self) -> np.ndarray:
        """Positions of samples that are far from their class, the farthest first."""
        return self._first(self.misfit, self.misfit > ODD)

    @property
    def copies(self) -> np.ndarray:
        """Positions of samples that repeat another one that comes before them: of a group of copies,
        all but the first.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        near, n = np.flatnonzero(self.twin_distance < COPY), len(self)
        links = coo_array((np.ones(len(near)), (near, self.twin[near])), shape=(n, n))
        groups = connected_components(links, directed=False)[1]
        first = np.unique(groups, return_index=True)[1]
        return np.setdiff1d(np.arange(n), first)

    @property
    def suspicion(self) -> np.ndarray:
        """One number for samples that may be bad in any way, (n,): the larger of the disagreement and of
        the misfit as a share of what the rule asks for. For what is neither mislabeled nor noisy but
        of another kind altogether, which both see in part; the columns themselves say more.
        """
        of_rule = np.clip(np.nan_to_num(self.misfit) / ODD, 0, _MOST)
        return np.maximum(np.nan_to_num(self.disagreement), of_rule)

    @property
    def suspects(self) -> np.ndarray:
        """Positions of all samples that are wrong, odd or copies, in the order of the data."""
        return np.unique(np.concatenate([self.wrong, self.odd, self.copies]))

    @property
    def missing(self) -> np.ndarray:
        """Positions of samples of the reference that nothing in the data is like, those farthest from
        it first; none without a reference.
        """
        gap = np.empty(0) if self.gap is None else self.gap
        return self._first(gap, gap > ODD)

    def worst(self, n: int = 20, by: str = "disagreement") -> np.ndarray:
        """Positions of the n samples to look at first, whether or not the rule counts them.

        Args:
            n: how many; fewer where fewer have a number there.
            by: ``"disagreement"``, ``"misfit"``, ``"suspicion"``, ``"twin_distance"`` (the nearest first) or
                ``"stands_for"`` (what stands for least first).

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [0.1], [5.0], [5.2], [9.0]], [*"aabbb"])
            >>> ad.audit(data, embedding=None).worst(1, by="misfit").tolist()
            [4]
        """
        check_known("column to sort by", by, _ORDERS)
        values = getattr(self, by) * (1 if by in ("disagreement", "misfit", "suspicion") else -1)
        return self._first(values, ~np.isnan(values))[: check_count("n", n)]

    @staticmethod
    def _first(values: np.ndarray, which: np.ndarray) -> np.ndarray:
        rows = np.flatnonzero(which)
        return rows[np.argsort(-values[rows], kind="stable")]

    def rows(self) -> list[dict[str, Any]]:
        """The table, a dictionary for each sample; ``suspect`` says which rule counts it."""
        said: list[list[str]] = [[] for _ in range(len(self))]
        for name in ("wrong", "odd", "copies"):
            for row in getattr(self, name).tolist():
                said[row].append("copy" if name == "copies" else name)
        columns: tuple[Any, ...] = (
            range(len(self)),
            self.data.labels,
            ["+".join(words) for words in said],
            self.disagreement.tolist(),
            self.proposed,
            self.support.tolist(),
            [None if row < 0 else row for row in self.confused_with.tolist()],
            self.misfit.tolist(),
            self.stands_for.tolist(),
            self.twin.tolist(),
            self.twin_distance.tolist(),
        )
        return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_pandas(self) -> DataFrame:
        """The table as a data frame; needs pandas."""
        return needed("pandas", "data frames").DataFrame(self.rows(), columns=list(COLUMNS))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the table as a CSV file, whole or not at all; folders on the way are made.

        Raises:
            InputError: a name that does not end in .csv, or a file that is there.

        Example:
            >>> import tempfile, advect as ad
            >>> data = ad.LabeledDataset([[0.0], [0.1], [5.0], [5.2]], [*"aabb"])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     print(ad.audit(data).save(f"{folder}/audit.csv").read_text().splitlines()[0])
            row,label,suspect,disagreement,proposed,support,confused_with,misfit,stands_for,twin,twin_distance
        """
        place = Path(path).expanduser()
        if place.suffix.lower() != ".csv":
            raise InputError("an audit is written as CSV", place, "Let its name end in .csv.")
        if place.exists() and not overwrite:
            raise InputError("there is a file already", place, "Pass overwrite=True to replace it.")
        write_atomically(place, self.csv().encode())
        return place

    def csv(self) -> str:
        """The table as text; numbers that are not there are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in self.rows():
            writer.writerow([_cell(value) for value in row.values()])
        return text.getvalue()

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page of the suspects, class by class, as pictures where samples are images, each
        beside the sample that it is confused with; see ``advect.report.write_audit_report``.

        Example:
            >>> import tempfile, advect as ad
            >>> data = ad.LabeledDataset([[0.0], [0.1], [5.0], [5.2]], [*"aabb"])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ad.audit(data).report(f"{folder}/audit.html").name
            'audit.html'
        """
        return write_page("write_audit_report", self, path, options)


def _cell(value: Any) -> Any:
    if value is None or value != value:  # NaN
        return ""
    return f"{value:.5g}" if type(value) is float else value
