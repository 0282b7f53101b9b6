"""Calibrated class probabilities: one temperature, fitted on held-out labels (Guo et al. 2017).

The logarithm of the temperature has a normal prior, which decides alone where no label can be held
out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_MIN_SCORE, _MIN_PROBABILITY = 1e-9, 1e-3  # shares of the uniform law: no class is impossible
_PRIOR_DEVIATION, _RANGE = 0.7, (-3.0, 3.0)  # of the logarithm of the temperature


@dataclass(frozen=True, eq=False)
class Calibration:
    """The temperature (scores p become p^(1/temperature)), and on held-out labels, if any, the accuracy
    with its 95 % interval (Wilson).
    """

    temperature: float
    n_held_out: int = 0
    accuracy: float | None = None
    interval: tuple[float, float] | None = None

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities (n, k) of scores whose rows sum to one."""
        return _scaled(scores, self.temperature)


def calibrated(scores: np.ndarray, codes: np.ndarray, prior: float = 1.0) -> Calibration:
    """Fit the temperature of scores (m, k) to true class positions (m,); ``prior`` is the expected
    temperature.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> found = calibrated(scores, np.array([0, 0, 1, 1]))
        >>> found.accuracy, [round(end, 2) for end in found.interval]
        (0.75, [0.3, 0.95])
    """
    n = len(codes)
    if not n:
        return Calibration(prior)
    right = int((scores.argmax(axis=1) == codes).sum())  # a temperature does not change the order
    return Calibration(_fitted(scores, codes, prior), n, right / n, wilson(right, n))


def log_likelihoods(scores: np.ndarray, codes: np.ndarray, prior: float = 1.0) -> np.ndarray:
    """Log probabilities of the true classes at the fitted temperature, (m,)."""
    probabilities = _scaled(scores, _fitted(scores, codes, prior))
    return np.log(probabilities[np.arange(len(codes)), codes])


def wilson(right: int, n: int) -> tuple[float, float]:
    """95 % interval of a share of ``right`` among n (Wilson)."""
    from scipy.stats import binomtest

    interval = binomtest(right, n).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def _fitted(scores: np.ndarray, codes: np.ndarray, prior: float) -> float:
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        probabilities = _scaled(scores, math.exp(log_temperature))
        penalty = ((log_temperature - math.log(prior)) / _PRIOR_DEVIATION) ** 2 / 2
        return penalty - float(np.log(probabilities[np.arange(len(codes)), codes]).sum())

    return math.exp(minimize_scalar(loss, bounds=_RANGE, method="bounded").x)


def _scaled(scores: np.ndarray, temperature: float) -> np.ndarray:
    logs = np.log(scores + _MIN_SCORE) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    sums = powers.sum(axis=1, keepdims=True)
    return (1 - _MIN_PROBABILITY) * powers / sums + _MIN_PROBABILITY / scores.shape[1]
