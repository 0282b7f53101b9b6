"""The distances between several datasets as a result: looked up, written and read."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from advect._util.atomic import write_atomically
from advect.apps.pages import write_page
from advect.data.class_table import ClassTable, aligned, html_table
from advect.errors import InputError
from advect.transport.notes import Note
from advect.transport.variation import between_values, check_level, energy_error_of

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = "advect.pairwise/2"
_BEFORE = "advect.pairwise/1"  # without standard errors
_SURE = NormalDist().inv_cdf(0.975)  # half a 95 % interval in standard errors
_SHOWN = 5  # failures in HTML
_NAMED = 3  # notes that name datasets, before there are only counts


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Distances between k datasets.

    Attributes:
        names: of the datasets, in order.
        values: (k, k) distances, symmetric, 0 on the diagonal, NaN where a pair failed.
        converged: (k, k), whether the transport problems of the pair met their tolerance.
        seconds: (k, k), what each pair took when it was computed.
        errors: for each pair of names that failed, why.
        standard_errors: (k, k), how much each distance would vary with other draws of as many
            samples (``Distance.standard_error``); NaN where that is not known.

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
    standard_errors: np.ndarray = field(default_factory=lambda: np.array(math.nan))

    def __post_init__(self) -> None:
        errors = np.broadcast_to(self.standard_errors, np.shape(self.values)).copy()
        np.fill_diagonal(errors, 0.0)
        object.__setattr__(self, "standard_errors", errors)

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

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"note: {note}" for note in self.notes)])

    @property
    def text(self) -> str:
        """The distances as a table, each with half its 95 % interval where that is known."""
        known = bool((np.nan_to_num(self.standard_errors) > 0).any())
        told = [
            "distances ± half a 95 % interval over other draws of as many samples of each class:"
        ]
        return "\n".join([*(told if known else []), aligned(self._cells)])

    def _repr_html_(self) -> str:
        failed = [
            f"{' and '.join(pair)}: {why}" for pair, why in list(self.errors.items())[:_SHOWN]
        ]
        told = "".join(f"<p>{html.escape(text)}</p>" for text in (*failed, *map(str, self.notes)))
        return f"<p>{html.escape(repr(self))}</p>{html_table(self._cells)}{told}"

    @property
    def _cells(self) -> list[list[str]]:
        lines = zip(self.names, self.values, self.standard_errors, strict=True)
        return [["", *self.names]] + [
            [name, *(_told(value, error) for value, error in zip(values, errors, strict=True))]
            for name, values, errors in lines
        ]

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

    def interval(self, one: str, other: str, level: float = 0.95) -> tuple[float, float]:
        """Between which values the mean of this distance over other draws lies, with this confidence;
        NaN where that is not known. See ``Distance.interval`` for what it covers, and for the
        solver's error, which is not in here: below 1 % of the energy, where the pair converged.

        Example:
            >>> import advect as ad
            >>> found = ad.pairwise({"a": "toy:moons?n=60", "b": "toy:rings?n=60&classes=2"}, progress=False)
            >>> low, high = found.interval("a", "b")
            >>> low < found["a", "b"] < high
            True
        """
        deviations = check_level(level)
        value, errors = self[one, other], ClassTable(self.standard_errors, self.names, self.names)
        return between_values(
            value**2, deviations * energy_error_of(value, float(errors[one, other]))
        )

    def ties(self, name: str, level: float = 0.95) -> list[str]:
        """The datasets that these samples cannot tell from the nearest one: intervals of their
        distances overlap that of the nearest, which is the first. One where it is clear, none where
        nothing is known.

        Example:
            >>> import torch, advect as ad
            >>> draw = torch.Generator().manual_seed(0)
            >>> sets = {f"{s}": ad.datasets.gaussians(60, shift=(s, 0.0), generator=draw) for s in (0, 6, 6.1, 20)}
            >>> found = ad.pairwise(sets, progress=False)
            >>> sorted(found.ties("0")), found.ties("20")[0] in ("6", "6.1")
            (['6', '6.1'], True)
        """
        others = [other for other, _ in self.nearest(name)]
        highest = self.interval(name, others[0], level)[1] if others else math.nan
        if math.isnan(highest):
            return []
        return [
            other
            for other in others  # a distance that is not known to be larger may be as small
            if other == others[0] or not self.interval(name, other, level)[0] > highest
        ]

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Where the nearest dataset is not clear from these samples, with a remedy."""
        unclear = {name: ties for name in self.names if len(ties := self.ties(name)) > 1}
        if not unclear:
            return ()
        told = [
            f"nearest to {name} is {ties[0]} at {_told(*self._known(name, ties[0]))}, or "
            f"{ties[1]} at {_told(*self._known(name, ties[1]))}"
            + (f", or {len(ties) - 2} more" if len(ties) > 2 else "")
            for name, ties in list(unclear.items())[:_NAMED]
        ]
        more = f"; and so for {len(unclear) - _NAMED} more" if len(unclear) > _NAMED else ""
        return (
            Note(
                f"Within the noise of these samples: {'; '.join(told)}{more}.",
                "More samples would tell.",
                "More samples would tell: raise --max-samples.",
            ),
        )

    def _known(self, one: str, other: str) -> tuple[float, float]:
        i, j = self.names.index(one), self.names.index(other)
        return float(self.values[i, j]), float(self.standard_errors[i, j])

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
            "values": _rows(self.values),
            "converged": self.converged.tolist(),
            "seconds": self.seconds.tolist(),
            "errors": [[*pair, message] for pair, message in self.errors.items()],
            "standard_errors": _rows(self.standard_errors),
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
            if record["format"] not in (FORMAT, _BEFORE):
                raise ValueError(f"format {record['format']}")
            names, k = tuple(map(str, record["names"])), len(record["names"])
            errors = {(str(a), str(b)): str(message) for a, b, message in record["errors"]}
            stated = record["standard_errors"] if record["format"] == FORMAT else [[None] * k] * k
            if len(set(names)) < k or bool((_numbers(stated, k) < 0).any()):
                raise ValueError("names that occur twice, or negative standard errors")
            return cls(
                names,
                _numbers(record["values"], k),
                np.array(record["converged"], dtype=bool).reshape(k, k),
                _numbers(record["seconds"], k),
                errors,
                _numbers(stated, k),
            )
        except FileNotFoundError:
            raise InputError("no such file", path, "Check the path.") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                "not a file of Pairwise.save, or damaged", f"{path} ({error})", "Compute it again."
            ) from None


def _rows(values: np.ndarray) -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row] for row in values.tolist()]


def _numbers(rows: Sequence[Sequence[float | None]], k: int) -> np.ndarray:
    numbers = [[math.nan if value is None else float(value) for value in row] for row in rows]
    return np.array(numbers).reshape(k, k)


def _told(value: float, error: float) -> str:
    """A distance, with half its 95 % interval where that is known.

    Example:
        >>> _told(14.9456, 0.0742), _told(0.0, 0.0), _told(3.2, math.nan)
        ('14.95 ± 0.15', '0', '3.2')
    """
    return f"{value:.4g} ± {_SURE * error:.2g}" if error > 0 else f"{value:.4g}"
