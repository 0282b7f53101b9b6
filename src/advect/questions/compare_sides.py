"""Two datasets made comparable: in the features of a cost, with one list of classes, without rows that
have no weight.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import torch

from advect.cost import GroundCost, SquaredEuclidean
from advect.cost.ground import check_features
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.questions.compare_classes import Cloud
from advect.transport.transport import check_dataset


@dataclass(frozen=True, eq=False)
class Side:
    """One dataset: embedded, its classes those of both, and its points about the common centre."""

    data: LabeledDataset
    cloud: Cloud
    codes: np.ndarray

    def of_class(self, code: int) -> Cloud:
        return self.cloud.take(np.flatnonzero(self.codes == code))

    @property
    def counts(self) -> np.ndarray:
        """Samples of each class, (k,)."""
        return np.bincount(self.codes, minlength=len(self.data.classes))

    @property
    def shares(self) -> np.ndarray:
        """Mass of each class, (k,)."""
        return self.data.class_mass.cpu().numpy()


@dataclass(frozen=True, eq=False)
class Sides:
    """What is compared, and the cost between embedded samples.

    Attributes:
        names: of the classes: the real ones that have samples, then those that only synthetic
            samples have.
    """

    synthetic: Side
    real: Side
    held_out: Side | None
    cost: GroundCost
    names: tuple[Hashable, ...]

    @classmethod
    def of(
        cls,
        synthetic: LabeledDataset,
        real: LabeledDataset,
        held_out: LabeledDataset | None,
        cost: GroundCost,
    ) -> Sides:
        """Checked and embedded.

        Example:
            >>> import advect as ad
            >>> fake = ad.LabeledDataset([[0.0], [1.0]], ["cat", "fox"])
            >>> real = ad.LabeledDataset([[0.0], [2.0]], ["dog", "cat"])
            >>> sides = Sides.of(fake, real, None, ad.GroundCost())
            >>> sides.names, sides.synthetic.codes.tolist(), sides.real.codes.tolist()
            (('cat', 'dog', 'fox'), [0, 2], [1, 0])
        """
        synthetic, real = (
            check_dataset(n, d).hard() for n, d in (("synthetic", synthetic), ("real", real))
        )
        given = {"synthetic": synthetic, "real": real}
        given |= (
            {} if held_out is None else {"held_out": check_dataset("held_out", held_out).hard()}
        )
        for name, data in given.items():
            check_dataset(name, data).require_labels(f"a comparison ({name})")
            if data.x.device != real.x.device:
                raise InputError(
                    "all datasets must be on one device",
                    f"{data.x.device} and {real.x.device}",
                    "Move one with .to(device).",
                )
            if cost.feature_cost.one_space:
                check_features(data, real)
        if int((real.weights > 0).sum()) < 2:
            raise InputError(
                "a noise floor needs two halves of the real data",
                f"{int((real.weights > 0).sum())} real sample with weight",
                "Add real samples.",
            )
        names = _names(real, synthetic)
        fitted = cost.fitted(_bare(synthetic), _bare(real))
        embedded = {name: _embedded(data, fitted) for name, data in given.items()}
        moved = any(embedded[name].x is not data.x for name, data in given.items())
        inner = replace(fitted, feature=SquaredEuclidean()) if moved else fitted
        centre = _centre(embedded["real"])
        made = {name: _side(data, names, centre) for name, data in embedded.items()}
        return cls(made["synthetic"], made["real"], made.get("held_out"), inner, names)


def _names(real: LabeledDataset, synthetic: LabeledDataset) -> tuple[Hashable, ...]:
    there = [
        name
        for data in (real, synthetic)
        for name, mass in zip(data.classes, data.class_mass.tolist(), strict=True)
        if mass > 0
    ]
    return tuple(dict.fromkeys(there))


def _bare(data: LabeledDataset) -> LabeledDataset:
    """Without laws of its own: samples are compared."""
    return data.replace(x=data.x.detach(), law=None, law_index=None)


def _embedded(data: LabeledDataset, cost: GroundCost) -> LabeledDataset:
    bare, feature = _bare(data), cost.feature_cost
    with torch.no_grad():
        return feature.carry(bare, feature.points(bare).detach())


def _centre(data: LabeledDataset) -> np.ndarray:
    return data.x[data.weights > 0].double().mean(dim=0).cpu().numpy()


def _side(data: LabeledDataset, names: tuple[Hashable, ...], centre: np.ndarray) -> Side:
    """With the codes of ``names``; rows of other classes (of held-out samples) and without weight go."""
    place = {name: code for code, name in enumerate(names)}
    codes = torch.tensor([place.get(name, -1) for name in data.classes], device=data.x.device)
    y = codes[data.y]
    kept = (y >= 0) & (data.weights > 0)
    if not bool(kept.any()):
        raise InputError(
            "held-out samples must be of the classes of the real data",
            ", ".join(map(str, data.classes[:5])),
            "Name their classes as in the real data.",
        )
    rows = kept.nonzero()[:, 0]
    found = data.replace(y=y, classes=names).subset(rows)
    points = found.x.double().cpu().numpy() - centre
    cloud = Cloud(points, found.weights.cpu().numpy(), rows.cpu().numpy())
    return Side(found, cloud, found.y.cpu().numpy())
