"""Labels that are probabilities of classes: what a dataset knows of its doubt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.checks import check_finite
from advect.data.coerce import as_codes, as_tensor
from advect.data.laws.doubtful import class_rows
from advect.errors import InputError

_OFF = 1e-3  # that a sum of probabilities may be from 1: a few of half precision
_STEPS = 200  # of weights toward classes of one mass


class Doubt:
    """What ``LabeledDataset`` has for labels with doubt; it has the fields."""

    x: Tensor
    y: Tensor
    weights: Tensor
    classes: tuple[Hashable, ...]
    probabilities: Tensor | None
    if TYPE_CHECKING:
        law_features: Any

        def __len__(self) -> int: ...
        def require_labels(self, who: str) -> None: ...
        def replace(self, **changes: Any) -> Any: ...

    @property
    def has_doubt(self) -> bool:
        """Whether labels are probabilities."""
        return self.probabilities is not None

    @property
    def confidence(self) -> Tensor:
        """The probability of each sample's label, (n,); 1 where labels are certain, 0 where there is
        none.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], probabilities=[[0.5, 0.5], [0.25, 0.75]])
            >>> data.y.tolist(), data.confidence.tolist()
            ([0, 1], [0.5, 0.75])
        """
        if self.probabilities is None:
            return (self.y >= 0).to(self.weights)
        return self.probabilities.gather(1, self.y[:, None])[:, 0]

    @property
    def memberships(self) -> Tensor:
        """How far each sample is of each class, (n, k): its probabilities, or a 1 for its label."""
        if self.probabilities is not None:
            return self.probabilities
        self.require_labels("membership in classes")
        return one_hot(self.y, len(self.classes)).to(self.weights)

    def with_probabilities(self, probabilities: Any) -> Self:
        """The same samples with these probabilities of their classes as labels.

        Label laws that the dataset carries are those of its classes, and stay; laws of single samples
        are joined by class first (``with_class_laws``).

        Args:
            probabilities: (n, k), a column for each of ``classes``, rows that sum to one. Where there
                are no classes yet, they become 0 … k − 1. The likeliest class is the label ``y``.

        Raises:
            InputError: rows that do not sum to one, or another shape.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])
            >>> data.with_probabilities([[0.9, 0.1], [0.8, 0.2]]).labels
            ['a', 'a']
        """
        own: Any = self
        given = as_probabilities(probabilities, self.x, len(self.classes) or None)
        names = self.classes or tuple(range(given.shape[1]))
        own = own.with_class_laws()
        return own.replace(y=given.argmax(dim=1), probabilities=given, classes=names)

    def hard(self) -> Self:
        """The same samples with certain labels: ``y``, the likeliest class of each unless others
        were given.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], probabilities=[[0.9, 0.1], [0.8, 0.2]])
            >>> data.hard().has_doubt, data.hard().class_mass.tolist()
            (False, [1.0, 0.0])
        """
        return self if self.probabilities is None else self.replace(probabilities=None)

    def require_hard(self, who: str) -> None:
        """An error that says who needs certain labels, if these are probabilities."""
        if self.probabilities is not None:
            raise InputError(
                f"{who} needs one label for each sample",
                "labels that are probabilities",
                "Take the likeliest with data.hard().",
            )

    def label_samples(self) -> tuple[Tensor, Tensor, Tensor]:
        """What label laws are of: features, classes and masses, with samples in doubt once for each
        class that they may be of.
        """
        if self.probabilities is None:
            self.require_labels("the estimate of label laws")
            return self.law_features, self.y, self.weights
        rows, codes, mass = class_rows(self.probabilities, self.weights)
        return self.law_features[rows], codes, mass

    @property
    def occurring(self) -> list[bool]:
        """Which classes some sample may be of."""
        if self.probabilities is not None:
            return (self.probabilities.amax(dim=0) > 0).tolist()
        known = self.y[self.y >= 0]
        return (torch.bincount(known, minlength=len(self.classes)) > 0).tolist()


def as_probabilities(probabilities: Any, like: Tensor, k: int | None = None) -> Tensor:
    """(n, k) in float64, rows that sum to one to the last digits; an error for anything else."""
    n, remedy = len(like), "Pass for each sample one number from 0 to 1 for each class."
    try:
        given = as_tensor(probabilities)
    except (TypeError, ValueError, RuntimeError):
        kind = type(probabilities).__name__
        raise InputError("probabilities must be numbers", kind, remedy) from None
    if given.is_complex() or given.dtype == torch.bool:
        raise InputError("probabilities must be numbers", given.dtype, remedy)
    if (
        given.ndim != 2
        or len(given) != n
        or 0 in given.shape
        or (k or given.shape[1]) != given.shape[1]
    ):
        wanted = f"({n}, {'k' if k is None else k})"
        shape = f"shape {tuple(given.shape)}"
        raise InputError(f"probabilities must have the shape {wanted}", shape, remedy)
    values = given.detach().to(device=like.device, dtype=torch.float64)
    check_finite("probabilities", values, remedy)
    if float(values.min()) < 0:
        row, column = divmod(int(values.argmin()), values.shape[1])
        where = f"{float(values.min()):.3g} in row {row}, column {column}"
        raise InputError("probabilities must not be negative", where, remedy)
    sums = values.sum(dim=1, keepdim=True)
    worst = int((sums - 1).abs().argmax())
    if abs(float(sums[worst]) - 1) > _OFF:
        raise InputError(
            "probabilities of a sample must sum to one",
            f"{float(sums[worst]):.6g} in row {worst}",
            "Divide rows by their sums; of scores take torch.softmax(scores, dim=1).",
        )
    exact = (sums - 1).abs() <= 4 * torch.finfo(torch.float64).eps
    return torch.where(exact, values, values / sums)


def with_labels(
    probabilities: Any, y: Any, classes: Sequence[Hashable] | None, like: Tensor, law_index: Any
) -> tuple[Tensor, Any, Sequence[Hashable] | None]:
    """Checked probabilities, labels and names of classes of a new dataset."""
    if law_index is not None:
        raise InputError(
            "probabilities are of classes, and need a law for each class",
            "a law_index, with laws of single samples",
            "Leave probabilities out, or join the laws by class.",
        )
    given = as_probabilities(probabilities, like, None if classes is None else len(classes))
    k = given.shape[1]
    if y is None:
        names = tuple(range(k)) if classes is None else classes
        # by name: positions would be looked up among names that are numbers
        return given, [names[code] for code in given.argmax(dim=1).tolist()], names
    labels, names = as_codes(y, classes, len(like))
    if len(names) != k:
        raise InputError(
            f"probabilities need a class for each of {k} columns",
            f"{len(names)} different labels",
            "Name all classes: classes=[…].",
        )
    if bool((labels < 0).any()):
        raise InputError(
            "samples with probabilities have labels",
            f"{int((labels < 0).sum())} that are missing",
            "Leave y out: it is then the likeliest class.",
        )
    return given, [names[code] for code in labels.tolist()], names


def balanced_doubt(probabilities: Tensor) -> Tensor:
    """Weights with the same mass Σ w_i p_ic for each class, as near as these probabilities let them.

    Every step is w_i ← w_i Σ_c p_ic m/m_c, for masses m_c that are to be m: of certain labels the
    first one is the last.
    """
    present = probabilities.amax(dim=0) > 0
    shares, aim = probabilities[:, present], 1 / int(present.sum())
    weights = shares.new_full((len(shares),), 1 / len(shares))
    for _ in range(_STEPS):
        masses = weights @ shares
        if float((masses - aim).abs().max()) < 1e-12:
            break
        weights = weights * (shares @ (aim / masses))
    return weights / weights.sum()
