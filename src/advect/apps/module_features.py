"""The inside of a model: features of one of its layers, and the rest of it, which reads them.

Nothing is trained or changed. A module that is a chain (``nn.Sequential``, also of chains) is cut
after a layer that is named; of any other, the features are what the layer gives when the whole is
asked, and what follows it has to be named as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from advect._util.checks import check_known
from advect.apps.query import ask_module
from advect.data.coerce import as_features
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_BATCH = 1024
_REMEDY = (
    'Pass head=…: a function of the features, or the name of what follows, head="classifier" say.'
)


@dataclass(frozen=True, eq=False)
class Halves:
    """A model cut in two.

    Attributes:
        body: from samples to features; None where the model is asked about samples themselves.
        head: from features to answers.

    Example:
        >>> import torch, advect as ad
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        >>> halves = split_model(model, "1")
        >>> halves.encoded(ad.LabeledDataset(torch.zeros(5, 4))).sample_shape, len(halves.head)
        ((3,), 1)
    """

    body: Callable[[Tensor], Any] | None
    head: Any

    def features(self, samples: Tensor) -> Tensor:
        """Features (n, …) of samples (n, …)."""
        if self.body is None:
            return samples
        parts = [self._asked(part) for part in samples.split(_BATCH)]
        return torch.cat(parts) if parts else samples

    def encoded(self, data: LabeledDataset) -> LabeledDataset:
        """The same samples, weights and labels, with features of the model for features."""
        if self.body is None:
            return data
        found = self.features(data.samples)
        rows = found.flatten(1)
        return data.replace(
            x=rows, sample_shape=tuple(found.shape[1:]), law=None, law_index=None, columns=None
        )

    def _asked(self, part: Tensor) -> Tensor:
        assert self.body is not None
        try:
            found = as_features(self.body(part)).detach().to(part.device)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                "features must come for samples like these",
                f"{type(error).__name__}: {error} on shape {tuple(part.shape)}",
                "Pass the name of a layer, or a function of a batch of samples.",
            ) from error
        if found.ndim < 2 or len(found) != len(part) or not bool(torch.isfinite(found).all()):
            raise InputError(
                f"features must be finite, a row for each of {len(part)} samples",
                f"shape {tuple(found.shape)}",
                "Check the layer or the function.",
            )
        return found


def split_model(model: Any, features: Any = None, head: Any = None) -> Halves:
    """Cut a model after a layer.

    Args:
        model: a torch module where a layer is named; anything that can be asked otherwise.
        features: the name of a layer (as in ``model.named_modules()``), the layer itself, or a
            function of samples; None for the samples as they are.
        head: what answers for features: a function, or the name of a layer. It may be left out
            where the module is a chain.

    Raises:
        InputError: no such layer; a head that cannot be told; a head without features.
    """
    if features is None:
        if head is not None:
            raise InputError("a head needs features", "a head alone", "Pass features=… as well.")
        return Halves(None, model)
    layers = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
    name = next((one for one in layers if one and layers[one] is features), features)
    if not isinstance(name, str):
        if not callable(getattr(name, "transform", name)):
            raise InputError(
                "features must be the name of a layer or a function of samples",
                repr(features),
                "Pass for instance features=model.body.",
            )
        return Halves(_function(name), _head(layers, head, "a function"))
    if not layers:
        raise InputError(
            "a layer can be named in a torch module only",
            f"features={name!r} of {type(model).__name__}",
            "Pass a function of samples, and head=… for what answers for its features.",
        )
    check_known("layer", name, [one for one in layers if one])
    if head is not None:
        return Halves(_until(model, layers[name]), _head(layers, head, name))
    body, rest = _cut(model, name.split("."))
    if not rest:
        raise InputError(
            "something must follow the features",
            f"{name!r}, the last layer",
            "Name one before it.",
        )
    return Halves(_asking(nn.Sequential(*body)), nn.Sequential(*rest))


def _cut(module: nn.Module, path: list[str]) -> tuple[list[nn.Module], list[nn.Module]]:
    """The layers up to one and those after it, through chains of chains."""
    if not isinstance(module, nn.Sequential):
        raise InputError(
            f"only a chain of layers can be cut after {'.'.join(path)!r}",
            type(module).__name__,
            _REMEDY,
        )
    names = list(module._modules)
    place, layers = names.index(path[0]), list(module)
    if len(path) == 1:
        return layers[: place + 1], layers[place + 1 :]
    body, rest = _cut(layers[place], path[1:])
    return [*layers[:place], *body], [*rest, *layers[place + 1 :]]


def _until(model: nn.Module, layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """What a layer gives when the whole module is asked."""

    def ask(samples: Tensor) -> Tensor:
        seen: list[Any] = []
        hook = layer.register_forward_hook(lambda _, __, output: seen.append(output))
        try:
            ask_module(model, samples)
        finally:
            hook.remove()
        if len(seen) != 1:
            raise InputError(
                "a layer of features must be passed once",
                f"{len(seen)} times",
                "Name another layer, or pass a function of samples.",
            )
        return seen[0]

    return ask


def _asking(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda samples: ask_module(module, samples)


def _function(features: Any) -> Callable[[Tensor], Any]:
    if isinstance(features, nn.Module):
        return _asking(features)
    if callable(getattr(features, "transform", None)):  # of scikit-learn
        return lambda part: features.transform(part.reshape(len(part), -1).cpu().numpy())
    return features


def _head(layers: dict[str, nn.Module], head: Any, after: str) -> Any:
    if head is None:
        raise InputError(f"features of {after} need what answers for them", "no head", _REMEDY)
    if not isinstance(head, str):
        return head
    check_known("layer", head, [one for one in layers if one])
    return layers[head]
