"""Correspondence between the classes of two datasets, and predictions through it (paper, section 5.4).

The class masses are coupled by exact optimal transport under the squared label distances. A model of k
classes then predicts k' classes by a k' × k matrix: a final linear layer, or applied to its
probabilities. Its gradients are not needed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from advect._util import refuse_if
from advect.cost import GroundCost, check_cost
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.transport.class_tables import otdd_classes


@dataclass(frozen=True, eq=False)
class ClassMatching:
    """A correspondence between the classes of a dataset and those of a reference.

    Args:
        coupling: (k', k) masses shared by class i of the data and class j of the reference, for
            instance the ``class_matching`` of ``ad.otdd``; see ``between``.

    Example:
        >>> import advect as ad
        >>> letters = ad.LabeledDataset([[0.0], [0.1], [5.0], [5.1]], ["b", "b", "a", "a"])
        >>> digits = ad.LabeledDataset([[0.2], [0.3], [5.2], [5.3]], [0, 0, 1, 1])
        >>> matching = ad.ClassMatching.between(letters, digits)
        >>> matching.hard
        {'a': 1, 'b': 0}
        >>> matching.apply([[0.9, 0.1]]).tolist()        # a model of digits predicts letters: P(a), P(b)
        [[0.1, 0.9]]
    """

    coupling: ClassTable

    def __post_init__(self) -> None:
        values = np.asarray(self.coupling.values, dtype=np.float64)
        refuse_if(
            not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0),
            "a coupling must hold masses",
            "negative, NaN or no mass",
            "Pass the class_matching of an ad.otdd distance.",
        )

    @classmethod
    def between(
        cls,
        data: LabeledDataset,
        reference: LabeledDataset,
        *,
        cost: GroundCost | None = None,
        balanced: bool = True,
    ) -> ClassMatching:
        """The matching of two datasets' classes by optimal transport of their masses.

        Args:
            data: the dataset with new classes.
            reference: a dataset with the classes of the model.
            cost: its label cost gives the distances; Gaussian (Bures) by default.
            balanced: give each class the same mass, so that frequent classes do not spill over.

        Example:
            >>> import advect as ad
            >>> data = ad.datasets.load("digits", n=200, balanced=True)
            >>> matching = ad.ClassMatching.between(data, data)
            >>> all(name == match for name, match in matching.hard.items())
            True
        """
        if balanced:
            same = reference is data
            data = data.balanced()
            reference = data if same else reference.balanced()
        return cls(otdd_classes(data, reference, check_cost(cost) or GroundCost()))

    @cached_property
    def soft(self) -> ClassTable:
        """P(reference class | class of the data), rows; zero for classes without mass."""
        return self._normalised(axis=1)

    @cached_property
    def weights(self) -> ClassTable:
        """P(class of the data | reference class), columns: the (k', k) matrix of ``apply``.

        It is π* of the paper with columns scaled to sum to one, so probabilities stay probabilities."""
        return self._normalised(axis=0)

    def _normalised(self, axis: int) -> ClassTable:
        values = self.coupling.values
        masses = values.sum(axis=axis, keepdims=True)
        table = np.divide(values, masses, out=np.zeros_like(values), where=masses > 0)
        return ClassTable(table, self.coupling.rows, self.coupling.columns)

    @cached_property
    def hard(self) -> dict[Hashable, Hashable]:
        """The reference class with most of the mass of each class of the data that has any."""
        return {
            name: self.coupling.columns[int(row.argmax())]
            for name, row in zip(self.coupling.rows, self.coupling.values, strict=True)
            if row.sum() > 0
        }

    def apply(self, scores: Any) -> np.ndarray:
        """Probabilities (n, k') of the classes of the data, from those of the reference or labels.

        Args:
            scores: (n, k) probabilities, or n class names of the reference. Classes without samples
                in the reference are ignored, so rows can sum to less than one.
        """
        return self._probabilities(scores) @ self.weights.values.T

    def predict(self, scores: Any, *, unknown: Hashable = None) -> list[Hashable]:
        """The most likely class of the data for each prediction of the model.

        Args:
            scores: as in ``apply``.
            unknown: returned for predictions with mass only on classes without samples in the
                reference.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [5.0]], ["low", "high"])
            >>> digits = ad.LabeledDataset([[0.0], [5.0]], [0, 1], classes=[0, 1, 2])  # 2 has no samples
            >>> ad.ClassMatching.between(data, digits).predict([0, 2], unknown="neither")
            ['low', 'neither']
        """
        probabilities = self.apply(scores)
        return [self.coupling.rows[row.argmax()] if row.any() else unknown for row in probabilities]

    def as_layer(self, *, dtype: torch.dtype = torch.float32) -> torch.nn.Linear:
        """The final linear layer of the paper, k → k' without bias, after a layer of probabilities.

        Example:
            >>> import torch, advect as ad
            >>> data = ad.LabeledDataset([[0.0], [5.0]], ["low", "high"])
            >>> layer = ad.ClassMatching.between(data, data).as_layer()
            >>> network = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Softmax(dim=1), layer)
            >>> network(torch.zeros(3, 1)).shape
            torch.Size([3, 2])
        """
        layer = torch.nn.Linear(*self.coupling.shape[::-1], bias=False, dtype=dtype)
        weights = torch.as_tensor(self.weights.values, dtype=dtype)
        layer.weight = torch.nn.Parameter(weights, requires_grad=False)
        return layer

    def __str__(self) -> str:
        return "\n".join(f"{name} → {match}" for name, match in self.hard.items())

    def _probabilities(self, scores: Any) -> np.ndarray:
        """Rows of probabilities of the reference classes."""
        k = len(self.coupling.columns)
        try:
            array: Any = np.asarray(scores.detach().cpu() if torch.is_tensor(scores) else scores)
        except ValueError:
            array = np.empty(0)
        if array.ndim == 1 and len(array):
            array = np.eye(k)[codes_of(array, self.coupling.columns)]
        refuse_if(
            not (array.ndim == 2 and array.shape[1] == k and np.isfinite(array).all()),
            f"scores must be finite probabilities (n, {k}) of the reference classes, or labels",
            f"shape {array.shape}",
            "Check the classes of the model.",
        )
        return array


def codes_of(labels: np.ndarray, classes: Sequence[Hashable]) -> np.ndarray:
    """Positions of labels among the classes."""
    position = {name: code for code, name in enumerate(classes)}
    unknown = [name for name in labels.tolist() if name not in position]
    refuse_if(
        unknown,
        "labels must be reference classes",
        f"{unknown[:1]}",
        f"Classes: {', '.join(map(str, classes))}.",
    )
    return np.array([position[name] for name in labels.tolist()], dtype=np.int64)
