"""The distances between several datasets as a result: looked up, written and read."""

from __future__ import annotations

import html
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advect._util.atomic import write_atomically
from advect.apps.pages import write_page
from advect.data.class_table import ClassTable
from advect.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = "advect.pairwise/1"


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Distances between k datasets.

    Attributes:
        names: of the datasets, in order.
        values: (k, k) distances, symmetric, 0 on the diagonal, NaN where a pair failed.
        converged: (k, k), whether the transport problems of the pair met their tolerance.
        seconds: (k, k), what each pair took when it was computed.
        errors: for each pair of names that failed, why.

    Example:
        >>> import advect as ad
        >>> sets = {name: ad.datasets.load(f"toy:{name}?n=60&classes=2") for name in ("gaussians", "rings")}
        >>> found = ad.pairwise(sets, progress=False)
        >>> found
        Pairwise(2 datasets, 1 pair)
        >>> found["rings", "gaussians"] == ad.otdd(sets["gaussians"], sets["rings"]).value
        True
    """

    names: tuple[str, ...]
    values: np.ndarray
    converged: np.ndarray
    seconds: np.ndarray
    errors: dict[tuple[str, str], str]

    def __getitem__(self, pair: tuple[str, str]) -> float:
        return self.table[pair]

    def __repr__(self) -> str:
        pairs = len(self.names) * (len(self.names) - 1) // 2
        loose = int(np.triu(~self.converged, 1).sum()) - len(self.errors)
        notes = [
            f"{count} {what}"
            for count, what in ((len(self.errors), "failed"), (loose, "not converged"))
            if count
        ]
        return f"Pairwise({', '.join([f'{len(self.names)} datasets', f'{pairs} pair' + 's' * (pairs != 1), *notes])})"

    def _repr_html_(self) -> str:
        failed = "".join(
            f"<p>{html.escape(' and '.join(pair))}: {html.escape(why)}</p>"
            for pair, why in list(self.errors.items())[:5]
        )
        return f"<p>{html.escape(repr(self))}</p>{self.table._repr_html_()}{failed}"

    @property
    def table(self) -> ClassTable:
        """The distances as a matrix with names on both sides, which prints well."""
        return ClassTable(self.values, self.names, self.names)

    def nearest(self, name: str) -> list[tuple[str, float]]:
        """The other datasets, the nearest first, with their distances; without those whose pair
        failed.

        Example:
            >>> import advect as ad
            >>> sets = {str(shift): ad.datasets.gaussians(60, shift=(shift, 0.0)) for shift in (0, 9, 2)}
            >>> [other for other, _ in ad.pairwise(sets, progress=False).nearest("0")]
            ['2', '9']
        """
        known = [(other, self[name, other]) for other in self.names if other != name]
        return sorted((pair for pair in known if not math.isnan(pair[1])), key=lambda pair: pair[1])

    def to_pandas(self) -> DataFrame:
        """The distances as a data frame with the names as index and columns."""
        from pandas import DataFrame

        return DataFrame(self.values, index=list(self.names), columns=list(self.names))

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page: the distances as a table and a map, and what is nearest to each; see
        ``advect.report.write_pairwise_report`` for the options.
        """
        return write_page("write_pairwise_report", self, path, options)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to a JSON file, whole or not at all."""
        place = Path(path).expanduser()
        record = {
            "format": FORMAT,
            "names": self.names,
            "values": [
                [None if math.isnan(value) else value for value in row]
                for row in self.values.tolist()
            ],
            "converged": self.converged.tolist(),
            "seconds": self.seconds.tolist(),
            "errors": [[*pair, message] for pair, message in self.errors.items()],
        }
        write_atomically(place, json.dumps(record, indent=1).encode())
        return place

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pairwise:
        """What ``save`` wrote.

        Example:
            >>> import tempfile, advect as ad
            >>> found = ad.pairwise(["toy:moons?n=40", "toy:rings?n=40"], progress=False)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = found.save(f"{folder}/distances.json")
            ...     bool((ad.Pairwise.load(path).values == found.values).all())
            True
        """
        try:
            record = json.loads(Path(path).expanduser().read_bytes())
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']}")
            names, k = tuple(map(str, record["names"])), len(record["names"])
            numbers = [
                [math.nan if value is None else float(value) for value in row]
                for row in record["values"]
            ]
            errors = {(str(a), str(b)): str(message) for a, b, message in record["errors"]}
            values, seconds = (
                np.array(numbers).reshape(k, k),
                np.array(record["seconds"], dtype=float).reshape(k, k),
            )
            return cls(
                names,
                values,
                np.array(record["converged"], dtype=bool).reshape(k, k),
                seconds,
                errors,
            )
        except FileNotFoundError:
            raise InputError("no such file", path, "Check the path.") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                "not a file of Pairwise.save, or damaged", f"{path} ({error})", "Compute it again."
            ) from None
