"""Scores of classes as probabilities that can be believed: one temperature, fitted on labels that
the scores did not see (Guo et al., On calibration of modern neural networks, 2017).

Few labels say little, so the logarithm of the temperature has a normal prior; without any label the
prior alone speaks, and nothing is said about accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# shares of the uniform law, in scores and in probabilities: no class is impossible
_LEAST_SCORE, _LEAST = 1e-9, 1e-3
_SPREAD = 0.7  # deviation of the logarithm of the temperature
_RANGE = (-3.0, 3.0)  # of the logarithm of the temperature
_Z = 1.959963984540054  # 95 %


@dataclass(frozen=True)
class Bin:
    """Held-out labels of one range of confidence.

    Example:
        >>> Bin(0.5, 0.9, 10, 0.72, 0.8).n
        10
    """

    low: float
    high: float
    n: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """How far scores can be believed; made by ``calibrated``.

    Attributes:
        temperature: scores p become p^(1/temperature), divided by their sum; a thousandth is
            shared by all classes.
        n_held_out: how many known labels were held out in turn; 0 where none could be.
        accuracy: the share of these that came out right; None without any.
        interval: its 95 % interval (Wilson's); None without any.
        error: the expected calibration error on them, the mean distance of confidence from
            accuracy over ``bins``, at the temperature that was fitted to them; None without any.
        bins: for a reliability plot.

    Example:
        >>> import numpy as np
        >>> scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> found = calibrated(scores, np.array([0, 0, 1, 1]))
        >>> found.accuracy, [round(end, 2) for end in found.interval]
        (0.75, [0.3, 0.95])
    """

    temperature: float
    n_held_out: int
    accuracy: float | None
    interval: tuple[float, float] | None
    error: float | None
    bins: tuple[Bin, ...] = ()

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities (n, k) of scores whose rows sum to one."""
        return _cooled(scores, self.temperature)


def calibrated(scores: np.ndarray, codes: np.ndarray, usual: float = 1.0) -> Calibration:
    """The temperature for scores (m, k), given what is true, (m,) positions of classes; ``usual`` is
    the one to expect before any label is seen.
    """
    if not len(codes):
        return Calibration(usual, 0, None, None, None)
    temperature = _fitted(scores, codes, usual)
    found = _cooled(scores, temperature)
    right = found.argmax(axis=1) == codes
    bins = reliability(found.max(axis=1), right)
    return Calibration(
        temperature,
        len(codes),
        float(right.mean()),
        wilson(int(right.sum()), len(right)),
        calibration_error(bins),
        bins,
    )


def log_likelihoods(scores: np.ndarray, codes: np.ndarray, usual: float = 1.0) -> np.ndarray:
    """log p of what is true at the temperature that suits the scores best, (m,)."""
    found = _cooled(scores, _fitted(scores, codes, usual))
    return np.log(found[np.arange(len(codes)), codes])


def wilson(right: int, n: int) -> tuple[float, float]:
    """95 % interval of a share of ``right`` among n.

    Example:
        >>> [round(end, 3) for end in wilson(10, 10)]
        [0.722, 1.0]
    """
    share, square = right / n, _Z**2 / n
    centre = (share + square / 2) / (1 + square)
    half = math.sqrt(share * (1 - share) * square + square**2 / 4) / (1 + square)
    return max(0.0, centre - half), min(1.0, centre + half)


def reliability(confidence: np.ndarray, right: np.ndarray, most: int = 10) -> tuple[Bin, ...]:
    """Bins of equally many samples, at least ten in each where there are as many, from the least to
    the most sure.

    Example:
        >>> [one.n for one in reliability(np.linspace(0, 1, 23), np.ones(23, dtype=bool))]
        [12, 11]
    """
    order = np.argsort(confidence, kind="stable")
    bins = []
    for rows in np.array_split(order, max(1, min(most, len(order) // 10))):
        sure = confidence[rows]
        ends = float(sure.min()), float(sure.max())
        bins.append(Bin(*ends, len(rows), float(sure.mean()), float(right[rows].mean())))
    return tuple(bins)


def calibration_error(bins: tuple[Bin, ...]) -> float:
    """Σ n |accuracy − confidence| / Σ n over bins."""
    away = sum(one.n * abs(one.accuracy - one.confidence) for one in bins)
    return float(away / sum(one.n for one in bins))


def _fitted(scores: np.ndarray, codes: np.ndarray, usual: float) -> float:
    """The most probable temperature."""
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        found = _cooled(scores, math.exp(log_temperature))
        prior = ((log_temperature - math.log(usual)) / _SPREAD) ** 2 / 2
        return prior - float(np.log(found[np.arange(len(codes)), codes]).sum())

    return math.exp(minimize_scalar(loss, bounds=_RANGE, method="bounded").x)


def _cooled(scores: np.ndarray, temperature: float) -> np.ndarray:
    logs = np.log(scores + _LEAST_SCORE) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    sums = powers.sum(axis=1, keepdims=True)
    return (1 - _LEAST) * powers / sums + _LEAST / scores.shape[1]
