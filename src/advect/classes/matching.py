"""Which class of one dataset is which class of another, and a model's answers read through that
(paper, section 5.4).

The class masses are coupled by exact optimal transport under the squared label distances. A model
of k classes then answers for k' classes by a k' × k matrix, as a final linear layer or applied to
its probabilities: its gradients are never needed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from advect._util.checks import check_count, check_positive
from advect.cost import GroundCost, MeansOnly
from advect.cost.ground import check_cost
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.transport.class_tables import class_distances, otdd_classes

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class ClassMatching:
    """A correspondence between the classes of a dataset and those of a reference, from a coupling
    of their masses.

    Args:
        coupling: (k', k) masses shared by class i of the data and class j of the reference; see
            ``between``.

    Attributes:
        data_classes, reference_classes: the names on both sides.

    Example:
        >>> import advect as ad
        >>> letters = ad.LabeledDataset([[0.0], [0.1], [5.0], [5.1]], ["b", "b", "a", "a"])
        >>> digits = ad.LabeledDataset([[0.2], [0.3], [5.2], [5.3]], [0, 0, 1, 1])
        >>> matching = ad.ClassMatching.between(letters, digits)
        >>> matching.hard
        {'a': 1, 'b': 0}
        >>> matching.apply([[0.9, 0.1]]).tolist()        # a model of digits answers for letters: P(a), P(b)
        [[0.1, 0.9]]
    """

    coupling: ClassTable

    def __post_init__(self) -> None:
        values = np.asarray(self.coupling.values, dtype=np.float64)
        if not np.isfinite(values).all() or (values < 0).any() or values.sum() <= 0:
            raise InputError(
                "a coupling must hold masses",
                "negative, NaN or no mass",
                "Pass the class_matching of an ad.otdd distance.",
            )

    def _repr_html_(self) -> str:
        return f"<p>Shares of mass, classes of the data in rows</p>{self.coupling._repr_html_()}"

    @classmethod
    def between(
        cls,
        data: LabeledDataset,
        reference: LabeledDataset,
        *,
        cost: GroundCost | None = None,
        balanced: bool = True,
    ) -> ClassMatching:
        """The matching of two datasets' classes under the label distances of ``cost`` (Gaussian by
        default).

        Args:
            data: whose classes a model does not know.
            reference: a sample of what it knows.
            cost: its label cost is used.
            balanced: give each class that has samples the same mass, so that a frequent class does
                not spill over others.

        Example:
            >>> import advect as ad
            >>> data = ad.datasets.load("digits", n=200, balanced=True)
            >>> matching = ad.ClassMatching.between(data, data)
            >>> all(name == match for name, match in matching.hard.items())
            True
        """
        if balanced:
            data, reference = (
                data.balanced(),
                data.balanced() if reference is data else reference.balanced(),
            )
        return cls(otdd_classes(data, reference, check_cost(cost) or GroundCost()))

    @classmethod
    def nearest(
        cls,
        data: LabeledDataset,
        reference: LabeledDataset,
        m: int | None = 2,
        *,
        temperature: float | None = None,
        cost: GroundCost | None = None,
    ) -> ClassMatching:
        """Each class of the data with the m classes of the reference that are nearest to it, however
        many others have them too.

        For borrowing from classes that resemble one another (``ad.classes.borrow``), where nothing
        has to be shared out; ``soft`` holds P(reference class | class of the data). ``between``
        couples masses instead, so that each class of the reference is somebody's.

        Args:
            data, reference: as in ``between``.
            m: how many; None for all.
            temperature: None counts the m alike; t > 0 weighs them by exp(−W₂²/(t W̄₂²)), with W̄₂²
                the mean over all pairs of classes.
            cost: its label cost gives the distances W₂. By default those of class means: covariances
                of a few samples are too small to be compared with those of many.

        Example:
            >>> import advect as ad
            >>> few = ad.LabeledDataset([[0.0], [9.0]], ["low", "high"])
            >>> many = ad.LabeledDataset([[0.0], [1.0], [7.0], [20.0]], list("abcd"))
            >>> matching = ad.ClassMatching.nearest(few, many, 2)
            >>> print(matching.soft)
                       a      b      c      d
            high       0    0.5    0.5      0
            low      0.5    0.5      0      0
        """
        cost = check_cost(cost) or GroundCost(label=MeansOnly())
        squared = np.square(class_distances(cost.fitted(data, reference).between(data, reference)))
        rows, columns = (~np.isnan(squared).all(axis=axis) for axis in (1, 0))
        squared, known = np.where(np.isnan(squared), np.inf, squared), int(columns.sum())
        squared[~rows] = 0.0
        m = known if m is None else min(check_count("m", m), known)
        order = squared.argsort(axis=1, kind="stable")
        near = order.argsort(axis=1, kind="stable") < m
        unit = squared[rows][:, columns].mean() if known else 0.0
        weights = near.astype(np.float64)
        if temperature is not None:
            gaps = squared - squared.min(axis=1, keepdims=True, initial=np.inf, where=near)
            unit = check_positive("temperature", temperature) * (unit or 1.0)
            weights[near] = np.exp(-gaps[near] / unit)
        weights[~rows] = 0.0
        masses = weights.sum(axis=1, keepdims=True) * max(int(rows.sum()), 1)
        return cls(ClassTable(_divided(weights, masses), data.classes, reference.classes))

    def sharpened(self) -> ClassMatching:
        """All mass of each class on the one that it shares most with: ``hard`` as a coupling.

        Example:
            >>> import advect as ad
            >>> table = ad.ClassTable([[0.3, 0.1], [0.2, 0.4]], ("u", "v"), ("a", "b"))
            >>> ad.ClassMatching(table).sharpened().coupling.values.tolist()
            [[0.4, 0.0], [0.0, 0.6000000000000001]]
        """
        values = np.asarray(self.coupling.values, dtype=np.float64)
        best = np.eye(values.shape[1])[values.argmax(axis=1)]
        masses = values.sum(axis=1, keepdims=True)
        return ClassMatching(ClassTable(best * masses, self.data_classes, self.reference_classes))

    def reversed(self) -> ClassMatching:
        """The same coupling read from the reference to the data."""
        values = np.asarray(self.coupling.values).T
        return ClassMatching(ClassTable(values, self.reference_classes, self.data_classes))

    @property
    def data_classes(self) -> tuple[Hashable, ...]:
        return self.coupling.rows

    @property
    def reference_classes(self) -> tuple[Hashable, ...]:
        return self.coupling.columns

    @cached_property
    def soft(self) -> ClassTable:
        """How each class of the data is spread over the reference's, rows summing to one (zero for
        classes without mass).
        """
        masses = self.coupling.values.sum(axis=1, keepdims=True)
        return ClassTable(
            _divided(self.coupling.values, masses), self.data_classes, self.reference_classes
        )

    @cached_property
    def weights(self) -> ClassTable:
        """The (k', k) matrix that turns probabilities of reference classes to those of the data's:
        π* by columns.

        Column j says how the answer j is shared among the classes of the data that are coupled to
        it. The paper's layer is π* itself; with columns scaled to sum to one, probabilities stay
        probabilities."""
        masses = self.coupling.values.sum(axis=0, keepdims=True)
        return ClassTable(
            _divided(self.coupling.values, masses), self.data_classes, self.reference_classes
        )

    @cached_property
    def hard(self) -> dict[Hashable, Hashable]:
        """The reference class with most of each class's mass; classes of the data without mass are
        left out.
        """
        values = self.coupling.values
        return {
            name: self.reference_classes[int(row.argmax())]
            for name, row in zip(self.data_classes, values, strict=True)
            if row.sum() > 0
        }

    def apply(self, scores: Any) -> np.ndarray:
        """A black box's answers for reference classes, (n, k) probabilities or n labels, as (n, k')
        ones for the data's.

        Labels are class names of the reference, each taken as a certain answer. What the model says
        of classes without samples in the reference, which are matched to none, is left out: such
        rows sum to less than one, to zero if it says nothing else."""
        return self._answers(scores) @ self.weights.values.T

    def predict(self, scores: Any, *, unknown: Hashable = ...) -> list[Hashable]:
        """The most likely class of the data for each answer of the model; see ``apply``.

        Args:
            scores: (n, k) probabilities or n labels.
            unknown: what stands for an answer that has nothing but classes without samples in the
                reference, which are matched to no class of the data. By default such an answer is
                an error.

        Raises:
            InputError: such an answer, unless ``unknown`` is given.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [5.0]], ["low", "high"])
            >>> digits = ad.LabeledDataset([[0.0], [5.0]], [0, 1], classes=[0, 1, 2])  # a model may answer 2
            >>> matching = ad.ClassMatching.between(data, digits)
            >>> matching.predict([[0.1, 0.2, 0.7]])
            ['high']
            >>> matching.predict([0, 2], unknown="neither")
            ['low', 'neither']
        """
        answers = self._answers(scores)
        matched = self.coupling.values.sum(axis=0) > 0
        empty: np.ndarray = np.abs(answers[:, matched]).sum(axis=1) == 0
        if unknown is ... and empty.any():
            codes = np.where(matched, -np.inf, answers)[empty].argmax(axis=1)
            names = dict.fromkeys(self.reference_classes[code] for code in codes)
            raise InputError(
                "an answer of the model must be a class that has samples in the reference",
                f"{', '.join(map(repr, names))} for {int(empty.sum())} of {len(answers)} samples",
                "Add samples of it to the reference, let the model give probabilities, or say with "
                "unknown=… what to return.",
            )
        best = (answers @ self.weights.values.T).argmax(axis=1)
        return [
            unknown if nothing else self.data_classes[code]
            for code, nothing in zip(best, empty, strict=True)
        ]

    def carry(self, data: LabeledDataset) -> LabeledDataset:
        """The data with labels of the reference, in doubt as far as the coupling is: a sample of class i
        has the probabilities ``soft[i]``; one whose label is in doubt, their mean.

        Raises:
            InputError: other classes, or samples of classes that are matched to none.

        Example:
            >>> import advect as ad
            >>> table = ad.ClassTable(np.array([[0.3, 0.1], [0.0, 0.6]]), ("u", "v"), ("a", "b"))
            >>> data = ad.ClassMatching(table).carry(ad.LabeledDataset([[0.0], [1.0]], ["u", "v"]))
            >>> data.labels, data.probabilities.round(decimals=2).tolist()
            (['a', 'b'], [[0.75, 0.25], [0.0, 1.0]])
        """
        if data.classes != self.data_classes:
            raise InputError(
                "data must have the classes that were matched",
                ", ".join(map(str, data.classes[:10])),
                f"They are {', '.join(map(str, self.data_classes[:10]))}.",
            )
        shares = data.memberships @ torch.as_tensor(self.soft.values).to(data.weights)
        if bool((shares.sum(dim=1) < 0.999).any()):
            raise InputError(
                "a sample is of a class that is matched to none",
                f"{int((shares.sum(dim=1) < 0.999).sum())} of {len(data)} samples",
                "Match the classes of this data: ad.ClassMatching.between(data, reference).",
            )
        bare = data.replace(law=None, law_index=None, classes=self.reference_classes)
        return bare.with_probabilities(shares)

    def as_layer(self, *, dtype: torch.dtype = torch.float32) -> nn.Linear:
        """The paper's final linear layer, k → k' without bias, to append to a classifier that gives
        probabilities.

        Example:
            >>> import torch, advect as ad
            >>> data = ad.LabeledDataset([[0.0], [5.0]], ["low", "high"])
            >>> layer = ad.ClassMatching.between(data, data).as_layer()
            >>> network = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Softmax(dim=1), layer)
            >>> network(torch.zeros(3, 1)).shape
            torch.Size([3, 2])
        """
        from torch import nn

        layer = nn.Linear(
            len(self.reference_classes), len(self.data_classes), bias=False, dtype=dtype
        )
        layer.weight = nn.Parameter(
            torch.as_tensor(self.weights.values, dtype=dtype), requires_grad=False
        )
        return layer

    def __str__(self) -> str:
        return "\n".join(f"{name} → {match}" for name, match in self.hard.items())

    def _answers(self, scores: Any) -> np.ndarray:
        """One row of numbers for each answer, one column for each reference class."""
        array = _as_array(scores)
        if array.ndim == 1:
            array = self._one_hot(array)
        if array.ndim != 2 or array.shape[1] != len(self.reference_classes):
            raise InputError(
                f"answers must be probabilities of the {len(self.reference_classes)} reference "
                "classes, or labels",
                f"shape {array.shape}",
                "Check which classes the model answers for.",
            )
        if not np.isfinite(array).all():
            raise InputError(
                "answers must be finite",
                "NaN or infinite scores",
                "Check the model on these samples.",
            )
        return array

    def _one_hot(self, labels: np.ndarray) -> np.ndarray:
        return np.eye(len(self.reference_classes))[codes_of(labels, self.reference_classes)]


def codes_of(labels: np.ndarray, classes: Sequence[Hashable]) -> np.ndarray:
    """Positions of a model's answers among the classes of its reference.

    Example:
        >>> codes_of(np.array(["b", "a"]), ("a", "b")).tolist()
        [1, 0]
    """
    position = {name: code for code, name in enumerate(classes)}
    names = labels.tolist()
    strange = [name for name in names if name not in position]
    if strange:
        raise InputError(
            "labels must be reference classes",
            repr(strange[0]),
            f"Classes: {', '.join(map(str, classes))}.",
        )
    return np.array([position[name] for name in names], dtype=np.int64)


def _divided(values: np.ndarray, masses: np.ndarray) -> np.ndarray:
    return np.divide(values, masses, out=np.zeros_like(values), where=masses > 0)


def _as_array(scores: Any) -> np.ndarray:
    if torch.is_tensor(scores):
        scores = scores.detach().cpu().numpy()
    try:
        return np.asarray(scores)
    except ValueError as error:
        raise InputError(
            "answers must be one row for each sample",
            str(error),
            "Pass an array (n, k) or n labels.",
        ) from None
