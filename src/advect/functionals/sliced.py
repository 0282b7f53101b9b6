"""Sliced dataset distances: transport of random one-dimensional images, where sorting solves it.

A labeled sample becomes a point p(x, y; θ) along a direction θ of its features (``projections``), and
a second direction ψ makes it a number. The energy is  ½ · q d · E_(θ, ψ) W₂²(ψ·p # A, ψ·p # B)  with q
numbers in a point: the factor undoes what a projection takes away on average (d for features
alone), so that the value is in the units of the OTDD. Two points are offered, which give two
distances:

- ``projection="gaussian"``: p = (θ·x, √w θ·μ_y, √w (θ·S_y θ)^½), w = label_weight. The label is the
  law N(μ_y, S_y), as in the OTDD, and on a line W₂ of Gaussians is Euclidean in mean and deviation. So
  the value is at most the exact OTDD with Gaussian labels, and equal to it when B is A moved by a
  vector. It is not the s-OTDD of the literature.
- ``projection="moments"``: p = (θ·x, moments of random orders of the class along θ), the s-OTDD of
  Nguyen et al. 2025 ("Lightspeed Geometric Dataset Distance via Sliced Optimal Transport"), of order p = 2. It
  knows laws beyond two moments, and bounds nothing.

A moment of order λ has the unit of a feature to the power λ: the paper divides it by λ!, which no
power of ten outlives, and feeds images in units of their deviation. Here features are looked at from
a common centre in units of their root mean square, and the result goes back to theirs: it is finite,
does not change when both datasets are moved, and grows with their scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_known, check_non_negative
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.functionals.base import Functional, State
from advect.functionals.principal import principal_energy
from advect.functionals.projections import Frame, LabelLines, label_lines, uniform_lines
from advect.functionals.slicing import Pair, check_pair, controlled, middle, spread, wasserstein_1d

__all__ = ["SlicedDistance", "SlicedOTDD", "sliced_otdd", "wasserstein_1d"]


@dataclass(frozen=True)
class SlicedDistance:
    """A sliced distance with the noise of its directions.

    Attributes:
        energy: half the squared distance, in units of squared features.
        standard_error: of the energy, from the spread over directions.
        n_projections: how many lines it took.
        projection: what a label is along a line, "gaussian" or "moments".
        directions: "uniform" or "principal".

    Example:
        >>> import torch, advect as ad
        >>> data = ad.datasets.gaussians(100, generator=torch.Generator().manual_seed(0))
        >>> turned = data.replace(x=3 + data.x.flip(1))
        >>> distance = ad.sliced_otdd(data, turned, n_projections=2000, generator=torch.Generator().manual_seed(1))
        >>> distance.value <= ad.otdd(data, turned, solver=ad.ExactOT()).value
        True
        >>> distance.standard_error < 0.01 * distance.energy
        True
    """

    energy: float
    standard_error: float
    n_projections: int
    projection: str = "gaussian"
    directions: str = "uniform"

    @property
    def value(self) -> float:
        """√(2 energy), in the units of the features."""
        return math.sqrt(2 * max(self.energy, 0.0))

    def __float__(self) -> float:
        return self.value


def sliced_otdd(
    source: LabeledDataset,
    target: LabeledDataset,
    n_projections: int = 500,
    *,
    label_weight: float = 1.0,
    projection: str = "gaussian",
    directions: str = "uniform",
    control: bool = True,
    n_moments: int = 5,
    standardize: bool = True,
    generator: torch.Generator | None = None,
) -> SlicedDistance:
    """The sliced distance between two labeled datasets, of any sizes and weights: O(n log n) for
    each projection.

    With ``projection="gaussian"`` it is, in expectation, a lower bound of ``otdd(source, target,
    solver=ExactOT())`` with the same label weight; ``"moments"`` is the s-OTDD of Nguyen et al. 2025.

    Args:
        source, target: datasets in one feature space.
        n_projections: lines; the error falls with their square root.
        label_weight: 0 compares features alone.
        projection: what a label is along a line: ``"gaussian"``, mean and deviation of its class, or
            ``"moments"``, moments of random orders.
        directions: ``"uniform"``, or ``"principal"``: half of the lines along the principal axes of
            both datasets, the rest at random in what is orthogonal to them. That is a lower bound of
            the OTDD as well, mostly a larger one, with less noise, for values and rankings; but it
            is 0 also for some datasets that differ. For ``"gaussian"`` only.
        control: take off the noise that the means of both datasets make, whose expectation is
            known. It changes the standard error, not the expectation; False is the plain mean.
        n_moments: how many moments, of zero-truncated Poisson orders with rates 1, 2, ….
        standardize: of ``"moments"``: with features from the common centre, in units of their root mean
            square, and the result in those of the features again, times the dimensions that projections
            take away. False takes features as they are, and gives √E W₂², the number of the paper.
        generator: source of randomness of the directions.

    Example:
        >>> import torch, advect as ad
        >>> a, b = ad.LabeledDataset([[0.0], [1.0]], ["u", "u"]), ad.LabeledDataset([[2.0], [3.0]], ["v", "v"])
        >>> ad.sliced_otdd(a, b, label_weight=0).value     # one dimension: exact
        2.0
        >>> ad.sliced_otdd(a, b, projection="moments", generator=torch.Generator().manual_seed(0)).value > 2
        True
    """
    form = _Form(n_projections, label_weight, projection, control, n_moments, standardize)
    check_known("kind of directions", directions, ("uniform", "principal"))
    if directions == "principal" and projection != "gaussian":
        raise InputError(
            "principal directions are for projection='gaussian'",
            repr(projection),
            "The s-OTDD is a mean over uniform directions: use directions='uniform'.",
        )
    with torch.no_grad():
        pair = form.pair(source, target)
        if directions == "principal":
            energy, error, used = principal_energy(pair, n_projections, generator)
        else:
            values = form.energies(pair, generator)
            energy, used = float(values.mean()), len(values)
            error = float(values.std()) / math.sqrt(used) if used > 1 else math.nan
    if not math.isfinite(energy):
        sizes = [float(data.x.abs().max()) for data in (source, target)]
        remedy = "Moments of raw features overflow: use standardize=True."
        raise InputError(
            "a sliced distance must be finite",
            f"{energy}, of features up to {sizes[0]:.3g} and {sizes[1]:.3g}",
            remedy if form.raw else "Use float64, or scale the features.",
        )
    return SlicedDistance(max(energy, 0.0), error, used, projection, directions)


class SlicedOTDD(Functional):
    """A sliced energy to a target dataset, with gradients by sorting.

    Its velocity is a mean of one-dimensional transports: cheap for any n, noisy for few
    projections; other directions are drawn at each step of a flow.

    Args:
        target: the dataset to move toward.
        n_projections: directions of a call.
        label_weight: 0 compares features alone.
        projection: what a label is along a line: "gaussian", mean and deviation of its class, or
            "moments", moments of random orders (the s-OTDD of Nguyen et al. 2025).
        control: take off the noise that means make, with the same expected value and velocity.
        n_moments: how many moments, of zero-truncated Poisson orders with rates 1, 2, ….
        standardize: of "moments": features from a centre, in units of their root mean square, both
            of the target and of the dataset that a flow starts from; False takes them as they are.
        seed: of the directions; evaluation number t of a flow uses the same ones whenever it is
            run, and a single call those of the first.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(90, generator=generator)
        >>> target = ad.datasets.gaussians(90, shift=(5.0, 0.0), generator=generator)
        >>> result = ad.flow(source, ad.SlicedOTDD(target), integrator=ad.Euler(0.5), n_steps=10)
        >>> ad.otdd(result.dataset, target).value < 0.2 * ad.otdd(source, target).value
        True
    """

    target: LabeledDataset

    def __init__(
        self,
        target: LabeledDataset,
        n_projections: int = 200,
        *,
        label_weight: float = 1.0,
        projection: str = "gaussian",
        control: bool = False,
        n_moments: int = 5,
        standardize: bool = True,
        seed: int = 0,
    ) -> None:
        remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
        check_kind("target must be a LabeledDataset", target, LabeledDataset, remedy)
        self.form = _Form(n_projections, label_weight, projection, control, n_moments, standardize)
        self.target, self.n_projections, self.label_weight = target, n_projections, label_weight
        self.seed = check_count("seed", seed, least=0)

    @property
    def stochastic(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, Any]:
        return self.form.said

    def begin(self, rho: LabeledDataset) -> State:
        frame = self.form.frame(rho, self.target)
        fixed = {"centre": frame.centre, "unit": torch.tensor(frame.unit, dtype=torch.float64)}
        return {"calls": torch.tensor(0)} | (fixed if self.form.projection == "moments" else {})

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """The energy as a float64 number, differentiable in features and laws."""
        calls = int(state.get("calls", 0))
        generator = torch.Generator().manual_seed(self.seed + 7919 * calls)
        fixed = "centre" in state
        frame = Frame(state["centre"], float(state["unit"])) if fixed else None
        pair = self.form.pair(rho, self.target, frame)
        energy = self.form.energies(pair, generator).mean()
        return {self.name: energy}, {**state, "calls": torch.tensor(calls + 1)}


@dataclass(frozen=True)
class _Form:
    """Which sliced distance, checked."""

    n_projections: int
    label_weight: float
    projection: str
    control: bool
    n_moments: int
    standardize: bool

    def __post_init__(self) -> None:
        check_count("n_projections", self.n_projections)
        check_non_negative("label_weight", self.label_weight)
        label_lines(self.projection, self.n_moments)

    @property
    def said(self) -> dict[str, Any]:
        """What is not as it comes, and what has always been said."""
        said: dict[str, Any] = {
            "n_projections": self.n_projections,
            "label_weight": self.label_weight,
        }
        if self.projection == "moments":
            said |= {"projection": self.projection, "n_moments": self.n_moments}
            said |= {} if self.standardize else {"standardize": False}
        return said | ({"control": True} if self.control else {})

    @property
    def labels(self) -> LabelLines | None:
        return label_lines(self.projection, self.n_moments) if self.label_weight else None

    @property
    def raw(self) -> bool:
        """Whether features are taken as they are, and nothing is scaled."""
        return self.projection == "moments" and not self.standardize

    def frame(self, a: LabeledDataset, b: LabeledDataset) -> Frame:
        """Where both are looked at from, and in which unit; it matters for moments, and for digits
        otherwise.
        """
        check_pair(a, b, self.label_weight)
        centre = middle(a, b)
        if self.raw:
            return Frame(torch.zeros_like(centre))
        return Frame(centre, spread(centre, a, b) if self.projection == "moments" else 1.0)

    def pair(self, a: LabeledDataset, b: LabeledDataset, frame: Frame | None = None) -> Pair:
        """Both in a frame, by default their own."""
        check_pair(a, b, self.label_weight)
        frame = self.frame(a, b) if frame is None else frame
        return Pair(a, b, self.labels, float(self.label_weight), frame)

    def energies(self, pair: Pair, generator: torch.Generator | None) -> Tensor:
        """Half the scaled W₂² along each line, (p,) float64."""
        lines = uniform_lines(pair.a.dim, self.n_projections, pair.labels, generator)
        scale = 1.0 if self.raw else float(len(lines.psi) * pair.a.dim)
        squares = scale * pair.squares(lines)
        if not self.control:
            return squares / 2
        control, expected = pair.of_means(lines)
        return controlled(squares, scale * control, scale * expected) / 2
