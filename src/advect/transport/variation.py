"""How a distance would vary with other samples: its standard error and an interval."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from advect._util.checks import check_count, check_kind, check_known, check_number
from advect.cost import PairCost
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot.solver import Divergence
from advect.transport.influence import energy_error, why_unknown
from advect.transport.redraw import check_varies, redrawn, varies

ClassShares = Literal["fixed", "drawn"]
_STEEP = 1 + math.sqrt(2)  # of the value, beyond which the root bounds the error of it


def check_level(level: float) -> float:
    """How many standard deviations on either side have this confidence."""
    if not 0 < check_number("level", level) < 1:
        raise InputError("level must be between 0 and 1", repr(level), "Take 0.95.")
    return -NormalDist().inv_cdf((1 - float(level)) / 2)


def value_error(value: float, error: float) -> float:
    """The standard error of √(2 E) from that of E: first order, at most √(2 (E + error))."""
    bound = math.sqrt(value**2 + 2 * error)
    return min(error / value, bound) if value != 0 else bound


def energy_error_of(value: float, error: float) -> float:
    """The standard error of E that ``value_error`` was given."""
    return value * error if error <= _STEEP * value else (error**2 - value**2) / 2


def between_values(squared: float, away: float) -> tuple[float, float]:
    """√(squared ∓ 2 away), from 0; NaN where one of them is."""
    if math.isnan(squared + away):
        return math.nan, math.nan
    return math.sqrt(max(0.0, squared - 2 * away)), math.sqrt(squared + 2 * away)


class Varying:
    """Sampling error of a distance between two datasets."""

    source: LabeledDataset
    target: LabeledDataset
    divergence: Divergence
    pairs: tuple[PairCost, PairCost, PairCost]

    if TYPE_CHECKING:
        value: Any
        energy: Any
        error: Any

        def _between(self, source: LabeledDataset, target: LabeledDataset) -> Any: ...

    def standard_error(
        self,
        n: int | None = None,
        *,
        class_shares: ClassShares = "fixed",
        generator: torch.Generator | None = None,
    ) -> float:
        """The standard deviation of the value over other draws of as many samples.

        By default a first-order estimate, from the dual potentials and the gradient through label
        laws, which costs about as much as the distance. With n, a bootstrap. It is not an error of
        the solver (``error``), nor the upward bias of few samples.

        Args:
            n: number of bootstrap draws.
            class_shares: "fixed" if equally many samples of each class would be drawn again,
                "drawn" if class proportions vary too.
            generator: source of randomness of the draws.

        Raises:
            InputError: no draw can differ from another (one sample in each class), or there is no
                first-order estimate (a ``reach``, ``MiniBatch``, soft labels).

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> a = ad.datasets.gaussians(60, generator=generator)
            >>> b = ad.datasets.gaussians(60, shift=(5.0, 0.0), generator=generator)
            >>> distance = ad.otdd(a, b)
            >>> 0.05 < distance.standard_error() < 0.5
            True
            >>> 0.5 < distance.standard_error(20, generator=generator) / distance.standard_error() < 2
            True
        """
        check_known("class_shares", class_shares, ("fixed", "drawn"))
        if n is not None:
            check_count("n", n, least=2)
            if generator is not None:
                remedy = "Pass torch.Generator().manual_seed(0)."
                check_kind(
                    "generator must be a torch.Generator", generator, torch.Generator, remedy
                )
            within = class_shares == "fixed"
            check_varies(self.source, self.target, within)
            draws = (self._redrawn(within, generator) for _ in range(n))
            return float(np.std([draw.value for draw in draws], ddof=1))
        error = self._energy_error(class_shares)
        return 0.0 if self.energy == self.error == 0 else value_error(self.value, error)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval for the mean distance over other draws of as many samples.

        It comes from the first-order standard error and the solver's error. Use it to see whether
        two distances differ by more than chance. It does not include the bias of few samples, and
        it is too wide between two draws of one law, which ``ad.drift`` tests.

        Args:
            level: confidence level.

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> a, b = (ad.datasets.gaussians(90, shift=(s, 0.0), generator=generator) for s in (0.0, 5.0))
            >>> distance = ad.otdd(a, b)
            >>> low, high = distance.interval()
            >>> low < distance.value < high, ad.otdd(a, a).interval()
            (True, (0.0, 0.0))
        """
        deviations = check_level(level)
        if self.energy == self.error == 0:
            return 0.0, 0.0
        error = self._energy_error("fixed")
        return between_values(2 * self.energy, deviations * error + self.error)

    def _energy_error(self, class_shares: ClassShares) -> float:
        within = class_shares == "fixed"
        why = why_unknown((self.source, self.target), self.divergence, within)
        if why:
            raise InputError(
                "the first order does not tell how this distance varies",
                why,
                "Redraw the samples: standard_error(20)."
                if any(varies(data, within) for data in (self.source, self.target))
                else "Take more samples of each class.",
            )
        return energy_error(self.divergence, self.pairs, within)

    def _redrawn(self, within_classes: bool, generator: torch.Generator | None) -> Any:
        sides = [redrawn(data, within_classes, generator) for data in (self.source, self.target)]
        return self._between(*sides)
