"""The datasets of an index that are nearest to another one, as a result to look at."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Neighbor:
    """One dataset near another.

    Attributes:
        name: in the index.
        sliced: distance of the embeddings.  low, high: what the sliced distance along these
            directions is between.
        otdd: distance of samples by ``ad.otdd``; None where it was not asked for, or where no
            samples are there.
        n, classes: of the whole dataset.
    """

    name: str
    sliced: float
    low: float
    high: float
    otdd: float | None
    n: int
    classes: int


@dataclass(frozen=True)
class Neighbors:
    """The nearest datasets, the nearest first; made by ``DatasetIndex.nearest``.

    Attributes:
        rows: one ``Neighbor`` for each.
        reranked: how many of the best by embeddings were put in order by ``ad.otdd``.

    Example:
        >>> found = Neighbors((Neighbor("usps", 1.5, 1.4, 1.7, None, 200, 10),), 0)
        >>> found, found.names, found[0].sliced
        (Neighbors(usps 1.5), ('usps',), 1.5)
        >>> print(found)
        name  sliced distance  otdd  samples  classes
        usps              1.5            200       10
    """

    rows: tuple[Neighbor, ...]
    reranked: int

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Neighbor]:
        return iter(self.rows)

    def __getitem__(self, position: int) -> Neighbor:
        return self.rows[position]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the datasets, the nearest first."""
        return tuple(row.name for row in self.rows)

    def __repr__(self) -> str:
        shown = ", ".join(f"{row.name} {row.sliced:.4g}" for row in self.rows[:5])
        more = ", …" if len(self.rows) > 5 else ""
        return f"Neighbors({shown}{more})"

    def __str__(self) -> str:
        head, *rows = self._cells()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(
                text.ljust(width) if at == 0 else text.rjust(width)
                for at, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in (head, *rows)
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        top = "".join(f"<th>{html.escape(text)}</th>" for text in head)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows
        )
        return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"

    def to_pandas(self) -> DataFrame:
        """A row for each, with the columns of ``Neighbor``."""
        from pandas import DataFrame

        return DataFrame([vars(row) for row in self.rows], columns=[*Neighbor.__annotations__])

    def _cells(self) -> list[tuple[str, ...]]:
        head = ("name", "sliced distance", "otdd", "samples", "classes")
        return [
            head,
            *(
                (
                    row.name,
                    f"{row.sliced:.4g}",
                    "" if row.otdd is None else f"{row.otdd:.4g}",
                    str(row.n),
                    str(row.classes),
                )
                for row in self.rows
            ),
        ]
