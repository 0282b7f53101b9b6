"""The linear optimal map between Gaussian class laws (Gelbrich 1990; for mixtures Delon and Desolneux
2020), extended to laws of any rank. Beyond the paper.

    T_y(x) = μ'_y + A_y (x − μ_y) ,   A = S^(−½) (S^½ S' S^½)^½ S^(−½)

Roots of d × d matrices are taken only of laws that come as such (``Full``). With S = V diag(σ²) Vᵀ on
its range, a factor M of S' = MᵀM, and R the polar factor of M V diag(σ), the barycentric map of the
optimal plan is

    x  ↦  μ' + Mᵀ R diag(1/σ) Vᵀ (x − μ)

which is A where that exists: where the range of S' is in that of S. Otherwise it reaches the part of
S' that x says something of, Mᵀ R Rᵀ M, which is all of it as long as S' has no direction orthogonal to
the range of S."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.checks import check_count, check_known, check_non_negative, check_weights
from advect._util.linalg import squared_distances
from advect._util.polar import polar_factor
from advect._util.threads import side_by_side
from advect.data.dataset import LabeledDataset
from advect.data.laws import Covariance, Gaussians
from advect.errors import InputError
from advect.maps.base import Map

_TENSORS = ("means", "ends", "rest", "masses", "axes", "images", "deviations")
_NOTHING = 1e-6  # of the largest deviation: directions below it are not in the range
_ROUNDING = 1e-13  # of ‖M‖ ‖σ‖: what a product in float64 cannot tell from zero


@dataclass(eq=False)
class GaussianMap(Map, kind="gaussian"):
    """x ↦ μ'_y + A_y (x − μ_y): each class by the linear optimal map between its Gaussian laws at the
    start and at the end.

    For few target samples: of a class only its mean and its covariance are carried over, which a few
    shots and a source dataset tell together (``between``), and every source sample becomes another
    sample of the target. Also the smoothest map of a flow that moves classes as wholes; one that bends
    or splits them needs ``EntropicMap``.

    A sample without a label goes where the classes take it that it may be of, Σ_y p(y | x) T_y(x),
    with ``posterior``. Off the range of S_y, where a class of fewer samples than dimensions says
    nothing, see ``beyond``. Unseen samples have parts there, and others that are larger than σ of few
    samples says: shrink the laws first (``share``, or ``between`` with ``data.shrunk_laws()``).

    Args:
        share: λ from 0 to 1, the part of the covariance of all classes together in each class's own;
            0 for classes by themselves. For ``fit``; ``between`` takes laws as they are.
        beyond: what becomes of the part of x − μ_y off the range of S_y: ``"scaled"`` multiplies it
            with √(tr S'_y/tr S_y) (1 for classes without spread), so that equal laws have the identity
            and similar ones their similarity; ``"dropped"`` leaves it out.

    Example:
        >>> import torch, advect as ad
        >>> start = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> linear = ad.maps.GaussianMap().fit(start, 3 * start + torch.tensor([5.0, 0.0]))
        >>> linear.transform(torch.tensor([[1.0, 1.0]])).round(decimals=3).tolist()
        [[8.0, 3.0]]
    """

    share: float = 0.0
    beyond: str = "scaled"

    def __post_init__(self) -> None:
        self.share = check_non_negative("share", self.share)
        if self.share > 1:
            raise InputError("share must be from 0 to 1", self.share, "0 keeps classes apart.")
        check_known("way beyond the range", self.beyond, ("scaled", "dropped"))

    @classmethod
    def between(
        cls,
        source: Gaussians,
        target: Gaussians,
        classes: Sequence[Hashable],
        *,
        masses: Tensor | None = None,
        sample_shape: tuple[int, ...] | None = None,
        beyond: str = "scaled",
    ) -> Self:
        """The map between two sets of laws, row i of ``source`` to row i of ``target``: nothing else is
        fitted.

        Args:
            source, target: k laws each. Of other classes, take those that are matched:
                ``laws.take(rows)``.
            classes: k names, by which samples that come with labels find their law.
            masses: of the classes, for samples without a label; by default all alike.
            sample_shape: of the samples; by default (d,).
            beyond: as above.

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> source = ad.datasets.gaussians(300, generator=generator)
            >>> few = ad.datasets.gaussians(90, shift=(9.0, 0.0), generator=generator).sample(6, balanced=True)
            >>> laws = few.shrunk_laws("pooled", 1.0).shrunk(source.moments(), 0.5, rescale=True)
            >>> linear = ad.maps.GaussianMap.between(source.moments(), laws, source.classes)
            >>> bool(ad.bures(linear.transform(source).moments(), laws).diagonal().max() < 1e-4)
            True
        """
        classes, shape = tuple(classes), (source.dim,) if sample_shape is None else sample_shape
        fits = len(source) == len(target) == len(classes) == len(set(classes))
        if not fits or source.dim != target.dim or math.prod(shape) != source.dim:
            raise InputError(
                "a map needs a law at the start, a law at the end and a name for each class",
                f"{len(source)} and {len(target)} laws of dimensions {source.dim} and "
                f"{target.dim} for {len(set(classes))} names and samples of shape {shape}",
                "Take matched laws with laws.take(rows).",
            )
        masses = torch.as_tensor([1.0] * len(classes) if masses is None else masses).double()
        found = cls(beyond=beyond)
        found._solve(source, target, check_weights("masses", masses, len(classes)))
        found.classes_, found.sample_shape_ = classes, tuple(shape)
        return found

    def posterior(self, x: Any) -> Any:
        """p(y | x) ∝ m_y N(x; μ_y, S_y + s² I), with m the masses of classes at the start and s² the
        mean variance of a feature within them: a row for each sample, a column for each of
        ``classes_``.

        Example:
            >>> import advect as ad
            >>> start = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
            >>> linear = ad.maps.GaussianMap().fit(start, start)
            >>> linear.classes_, linear.posterior([[7.0]]).round(3).tolist()
            (('high', 'low'), [[1.0, 0.0]])
        """
        samples = self._opened(x)
        if not self.classes_:
            raise InputError(
                "a posterior needs classes", "a map fitted without labels", "Fit on labeled data."
            )
        rows = self._posterior(samples.values.flatten(1).to(self._means))
        return samples.as_came(rows.to(samples.values))

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        # a class is what began in it
        end = end.replace(y=start.y, classes=start.classes)
        if not bool(start.labeled.any()):
            alike = {"y": torch.zeros_like(start.y), "classes": ("all",)}
            start, end = start.replace(**alike), end.replace(**alike)
        else:
            self.classes_ = start.classes
            start, end = start.subset(start.labeled), end.subset(start.labeled)
        first, last = (data.shrunk_laws("pooled", self.share) for data in (start, end))
        self._solve(first, last, start.class_mass)

    def _solve(self, source: Gaussians, target: Gaussians, masses: Tensor) -> None:
        """Axes V, deviations σ and images Rᵀ M of each class, stacked."""
        one, two = source.covariance, target.covariance
        pairs = list(zip(one.compressed.parts(), two.compressed.parts(), strict=True))
        least = _least_deviation(one)
        found = side_by_side(lambda pair: _linear(*pair, least), pairs, rows=source.dim)
        axes, deviations, images = zip(*found, strict=True)
        self._sizes = [len(part) for part in deviations]
        self._axes, self._images = torch.cat(axes), torch.cat(images)
        self._deviations = torch.cat(deviations)
        self._means, self._ends = source.means.double(), target.means.double()
        self._rest = _scales(one, two) if self.beyond == "scaled" else torch.zeros(len(source))
        self._rest = self._rest.to(self._means)
        self._masses = masses.to(self._means)
        self._noise = float(one.traces().double().mean()) / source.dim

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        points, codes = x.to(self._means), codes.to(self._means.device)
        if not self.classes_:
            return self._carried(points, 0)
        weights = one_hot(codes.clamp_min(0), len(self.classes_)).to(points)
        unknown = codes < 0
        if bool(unknown.any()):
            weights[unknown] = self._posterior(points[unknown])
        moved = torch.zeros_like(points)
        for code in range(len(self.classes_)):
            rows = weights[:, code].nonzero()[:, 0]
            moved[rows] += weights[rows, code, None] * self._carried(points[rows], code)
        return moved

    def _carried(self, x: Tensor, code: int) -> Tensor:
        centred = x - self._means[code]
        axes, deviations, images = self._parts(code)
        inside = centred @ axes.mT
        rest = self._rest[code] * (centred - inside @ axes)
        return self._ends[code] + (inside / deviations) @ images + rest

    def _parts(self, code: int) -> tuple[Tensor, Tensor, Tensor]:
        first = sum(self._sizes[:code])
        rows = slice(first, first + self._sizes[code])
        return self._axes[rows], self._deviations[rows], self._images[rows]

    def _posterior(self, x: Tensor) -> Tensor:
        """(n, k); S + s² I has the axes of S, and s² off its range."""
        noise = self._noise
        if noise == 0:  # points: the nearest, by any noise that is small beside their distances
            gaps = squared_distances(self._means, self._means)
            noise = 1e-9 * float(gaps.max()) or 1.0
        scores = []
        for code, mass in enumerate(self._masses):
            centred = x - self._means[code]
            axes, deviations, _ = self._parts(code)
            inside, variances = centred @ axes.mT, deviations.square() + noise
            far = (centred - inside @ axes).square().sum(dim=1) / noise
            near = (inside.square() / variances).sum(dim=1)
            volume = (variances / noise).log().sum()
            scores.append(mass.log() - (far + near + volume) / 2)
        return torch.stack(scores, dim=1).softmax(dim=1)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {name: getattr(self, f"_{name}") for name in _TENSORS}
        facts = {"share": self.share, "beyond": self.beyond}
        return tensors, facts | {"sizes": self._sizes, "noise": self._noise}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        if set(facts) != {"share", "beyond", "sizes", "noise"}:
            raise ValueError(f"facts {sorted(facts)}")
        self.share, self.beyond = facts["share"], facts["beyond"]
        self.__post_init__()
        self._sizes = [check_count("rows", size, least=0) for size in facts["sizes"]]
        self._noise = check_non_negative("noise", facts["noise"])
        k, d = len(self.classes_) or 1, math.prod(self.sample_shape_ or ())
        rows = sum(self._sizes)
        shapes = ((k, d), (k, d), (k,), (k,), (rows, d), (rows, d), (rows,))
        for name, shape in zip(_TENSORS, shapes, strict=True):
            value = tensors[name]
            if value.shape != shape or value.dtype != torch.float64:
                raise ValueError(f"{name} of shape {tuple(value.shape)} for {shape}")
            setattr(self, f"_{name}", value)
        if len(self._sizes) != k or not bool((self._deviations > 0).all()):
            raise ValueError("laws and axes do not fit together")


def _least_deviation(covariance: Covariance) -> float:
    """What counts as none, of the largest deviation: roots of matrices know them to the root of
    rounding only.
    """
    dtypes = [value.dtype for value in covariance.tensors().values() if value.is_floating_point()]
    rounding = 0.0 if covariance.has_factors else max(torch.finfo(dtype).eps for dtype in dtypes)
    return max(_NOTHING, 4 * math.sqrt(rounding))


def _linear(own: Tensor, other: Tensor, nothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Vᵀ (r, d), σ (r,) and Rᵀ M (r, d) for factors of S and of S'."""
    _, deviations, axes = torch.linalg.svd(own.detach(), full_matrices=False)
    top = deviations.max() if len(deviations) else 0.0
    kept = deviations > nothing * top
    deviations, axes, other = deviations[kept], axes[kept], other.detach()
    product = other @ (axes.mT * deviations)
    least = _ROUNDING * float(
        torch.linalg.vector_norm(other) * torch.linalg.vector_norm(deviations)
    )
    return axes, deviations, polar_factor(product, least).mT @ other


def _scales(source: Covariance, target: Covariance) -> Tensor:
    """√(tr S'/tr S), 1 without spread at the start."""
    before, after = source.traces().double(), target.traces().double()
    return torch.where(before > 0, (after / torch.where(before > 0, before, 1)).sqrt(), 1.0)
