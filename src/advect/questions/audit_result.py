"""The result of ``ad.audit``."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from advect._util import Result, Table, check_count, check_known
from advect.data.dataset import LabeledDataset
from advect.questions.shared import class_names, image_pairs
from advect.spaces.steps import listed

if TYPE_CHECKING:
    from pandas import DataFrame

MIN_DISAGREEMENT = 0.5  # of a wrong label
MIN_SUPPORT = 0.8  # of another label, relative to its usual support
MIN_MISFIT = 6.0  # of an outlier
MAX_TWIN_DISTANCE = 0.05  # of a copy, relative to the usual distance
_DESCENDING, _ASCENDING = ("disagreement", "misfit", "suspicion"), ("twin_distance",)


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """Scores of the samples of a dataset; returned by ``ad.audit``.

    The rule for ``suspects`` is the same for all data. A label is ``wrong`` if the disagreement is
    above 0.5 and another label has at least 0.8 times its usual support (a threshold for each class,
    as in confident learning, Northcutt, Jiang and Chuang 2021). A sample is ``odd`` if its misfit is
    above 6, and belongs to the ``copies`` if an earlier sample is nearer than 0.05 times the usual
    distance. ``worst(n)`` ignores the rule. Scores are NaN where there is nothing to compare with.

    Example:
        >>> import advect as ad
        >>> x = [[0.0], [0.1], [0.3], [0.4], [9.0], [9.1], [9.3], [0.2]]
        >>> result = ad.audit(ad.LabeledDataset(x, [*"aaaabbb", "b"]), embedding=None)
        >>> result.wrong.tolist(), result.proposed[7]
        ([7], 'a')
    """

    title = "Audit"
    data: LabeledDataset
    reference: LabeledDataset | None
    disagreement: np.ndarray  # share of the mass that goes to samples of other labels, (n,)
    proposed: list[Hashable]  # the label that gets most of that mass
    support: np.ndarray  # share of the proposed label, relative to its usual share, (n,)
    misfit: np.ndarray  # distance to the class, in robust deviations, (n,)
    twin: np.ndarray  # position of the nearest other sample
    twin_distance: np.ndarray  # its distance, relative to the median of such distances
    gap: np.ndarray | None  # misfit of the samples of the reference to the data, (m,)
    settings: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def wrong(self) -> np.ndarray:
        """Positions of samples with a doubtful label, the most doubtful first."""
        pairs = zip(self.data.labels, self.proposed, strict=True)
        doubtful = (self.disagreement > MIN_DISAGREEMENT) & (self.support >= MIN_SUPPORT)
        return _sorted_rows(self.disagreement, doubtful & [a != b for a, b in pairs])

    @property
    def odd(self) -> np.ndarray:
        """Positions of samples that are far from their class, the farthest first."""
        return _sorted_rows(self.misfit, self.misfit > MIN_MISFIT)

    @property
    def copies(self) -> np.ndarray:
        """Positions of near-duplicates: all samples of a group of duplicates but the first."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        near, n = np.flatnonzero(self.twin_distance < MAX_TWIN_DISTANCE), len(self.data)
        links = coo_array((np.ones(len(near)), (near, self.twin[near])), shape=(n, n))
        groups = connected_components(links, directed=False)[1]
        return np.setdiff1d(np.arange(n), np.unique(groups, return_index=True)[1])

    @property
    def suspicion(self) -> np.ndarray:
        """The larger of the disagreement and the misfit relative to its threshold, (n,), for samples
        from another source, which both scores see in part.
        """
        relative = np.clip(np.nan_to_num(self.misfit) / MIN_MISFIT, 0, 2)
        return np.maximum(np.nan_to_num(self.disagreement), relative)

    @property
    def suspects(self) -> np.ndarray:
        """Positions of all samples that are wrong, odd or copies, in the order of the data."""
        return np.unique(np.concatenate([self.wrong, self.odd, self.copies]))

    @property
    def missing(self) -> np.ndarray:
        """Positions of samples of the reference without similar data, the farthest first."""
        gap = np.empty(0) if self.gap is None else self.gap
        return _sorted_rows(gap, gap > MIN_MISFIT)

    def worst(self, n: int = 20, by: str = "disagreement") -> np.ndarray:
        """Positions of the n samples to look at first.

        Args:
            n: number of samples.
            by: ``"disagreement"``, ``"misfit"``, ``"suspicion"``, or ``"twin_distance"`` (smallest
                first).
        """
        check_known("column to sort by", by, (*_DESCENDING, *_ASCENDING))
        values = getattr(self, by) * (1 if by in _DESCENDING else -1)
        return _sorted_rows(values, ~np.isnan(values))[: check_count("n", n)]

    def to_pandas(self) -> DataFrame:
        """A row for each sample; ``suspect`` names the rules that apply.

        ``to_pandas().to_csv(path, index=False)`` writes a table.
        """
        import pandas as pd

        labels, proposed = (
            pd.Series(part, dtype=object) for part in (self.data.labels, self.proposed)
        )
        frame = pd.DataFrame({"row": range(len(self.data)), "label": labels, "suspect": ""})
        frame["disagreement"], frame["proposed"] = self.disagreement, proposed
        for name in ("support", "misfit", "twin", "twin_distance"):
            frame[name] = getattr(self, name)
        for name, rows in (("wrong", self.wrong), ("odd", self.odd), ("copy", self.copies)):
            frame.loc[rows, "suspect"] += f"+{name}"
        frame["suspect"] = frame["suspect"].str.removeprefix("+")
        return frame

    def figures(self) -> dict[str, Any]:
        figures = {}
        kinds = {"Suspected label errors": self.wrong, "Outliers": self.odd, "Copies": self.copies}
        for title, rows in kinds.items():
            names, twins = ("sample", "nearest sample"), self.twin[rows]
            figures |= image_pairs(title, self.data, rows, self.data, twins, names)
        return figures

    def _summary(self) -> dict[str, Any]:
        rows = {"suspected label errors": self.wrong, "outliers": self.odd, "copies": self.copies}
        rows |= {} if self.reference is None else {"missing": self.missing}
        counts = {name: len(which) for name, which in rows.items()}
        return {"samples": len(self.data), **counts, "scale": self.settings.get("scale")}

    def _tables(self) -> list[Table]:
        columns = ["row", "label", "suspect", "proposed", "disagreement", "misfit", "twin"]
        suspects = self.suspects[np.argsort(-self.suspicion[self.suspects], kind="stable")]
        rows = self.to_pandas().loc[suspects, columns].to_numpy(dtype=object).tolist()
        tables = [Table("Suspects", columns, rows)]
        if self.reference is not None and self.gap is not None:
            labels = self.reference.labels
            rows = [[row, labels[row], float(self.gap[row])] for row in self.missing.tolist()]
            tables.append(Table("Missing samples of the reference", ("row", "label", "gap"), rows))
        return [table for table in tables if table.rows]


def _sorted_rows(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    rows = np.flatnonzero(chosen)
    return rows[np.argsort(-values[rows], kind="stable")]


def audit_notes(
    data: LabeledDataset, reference: LabeledDataset | None, converged: bool
) -> tuple[str, ...]:
    notes, present = [], class_names(data)
    if reference is None:
        notes.append(
            "Samples were compared with one another, so frequent errors of one kind may not be found. "
            "Pass a trusted reference, even a small one, to find them."
        )
        single = [name for name in present if data.counts[name] == 1]
        names = {"Classes with one sample were not checked": single}
    else:
        trusted = class_names(reference)
        new, gone = set(present) - set(trusted), set(trusted) - set(present)
        names = {
            "Classes that are not in the reference were not checked": sorted(new, key=str),
            "Classes of the reference that are missing from the data": sorted(gone, key=str),
        }
    notes += [f"{text}: {listed(which)}." for text, which in names.items() if which]
    if unlabeled := int((~data.labeled).sum()):
        notes.append(f"{unlabeled} samples without a label have a proposed label and no misfit.")
    if not converged:
        notes.append("A transport problem did not converge; the scores are approximate.")
    return tuple(notes)
