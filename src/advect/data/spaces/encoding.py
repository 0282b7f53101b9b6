"""Features of an encoder as a step of a feature space: batches in, checked rows out, and the way back
where there is a decoder.

What can be an encoder is ``coders``' business. What is saved is what it is known by: it is given
again when the space is loaded, or opened again where it is an ONNX file."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect._util.onnx import file_digest
from advect._util.progress import Progress, track
from advect.data.spaces.coders import Coder, OnnxCoder, as_coder
from advect.data.spaces.saved import count_in, damaged, dict_in, field as entry, shape_in, word_in
from advect.data.spaces.step import Names, Step
from advect.errors import InputError

_NUMBERS, _ROWS = 2**22, 1024  # in a batch, at most: what goes in, and how many samples
_KINDS = ("torch", "function", "sklearn", "onnx")


@dataclass(frozen=True, eq=False)
class Encoding(Step):
    """Samples of ``shape`` as the ``dim`` features that an encoder gives them."""

    shape: tuple[int, ...]
    dim: int
    encoder: Coder
    decoder: Coder | None = None
    progress: Progress = None
    kind: ClassVar[str] = "encode"

    @classmethod
    def fit(
        cls,
        some: Tensor,
        shape: tuple[int, ...],
        encoder: Coder,
        decoder: Coder | None,
        progress: Progress = None,
    ) -> Encoding:
        """The step, tried on the first of some samples (n, d)."""
        first = some[:2]
        found = asked(encoder, first.reshape(len(first), *shape), "encoder", None)
        step = cls(shape, found.shape[1], encoder, decoder, progress)
        if decoder is not None:
            step.invert(found)
            return step
        with suppress(InputError):  # some transformers have a way back by name alone
            known = replace(step, decoder=encoder.backward)
            known.invert(found)
            return known
        return step

    @property
    def dim_in(self) -> int:
        return math.prod(self.shape)

    @property
    def dim_out(self) -> int:
        return self.dim

    @property
    def invertible(self) -> bool:
        return self.decoder is not None and self.decoder.kind != Missing.kind

    def apply(self, x: Tensor) -> Tensor:
        return self._in_batches(
            "encoding",
            x,
            lambda part: asked(self.encoder, part.reshape(-1, *self.shape), "encoder", self.dim),
        )

    def invert(self, x: Tensor) -> Tensor:
        decoder = self.decoder
        if decoder is None:
            raise InputError(
                "the features of an encoder have no way back without a decoder",
                self.encoder.name,
                "Pass decoder= where the space is fitted; or look at space.pictures(…), the "
                "nearest real samples.",
            )
        return self._in_batches(
            "decoding", x, lambda part: asked(decoder, part, "decoder", self.dim_in)
        )

    def _in_batches(self, label: str, x: Tensor, ask: Callable[[Tensor], Tensor]) -> Tensor:
        rows = max(1, min(_ROWS, _NUMBERS // max(1, x.shape[1])))
        parts = []
        with track(len(x), label, self.progress) as advance:
            for part in x.split(rows):
                parts.append(ask(part))
                advance(len(part))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def columns_after(self, names: Names) -> Names:
        return None

    def loses(self) -> str:
        return f"only the {self.dim} features of {self.encoder.name}"

    def describe(self) -> str:
        back = "" if self.decoder is None else ", with a decoder"
        return f"{self.dim} features of the encoder {self.encoder.name}{back}"

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        decoder = None if self.decoder is None else self.decoder.to_dict(folder)
        if self.encoder.backward is not None and self.decoder is not None:
            own = self.decoder.given is self.encoder.given
            decoder = {"kind": "inverse"} if own else decoder
        return {
            "shape": list(self.shape),
            "dim": self.dim,
            "encoder": self.encoder.to_dict(folder),
            "decoder": decoder,
        }

    @classmethod
    def from_dict(cls, facts: Any, given: Given) -> Encoding:
        shape, dim = shape_in(facts, "shape"), count_in(facts, "dim")
        encoder = given.coder(dict_in(facts, "encoder"), "encoder")
        if entry(facts, "decoder") is None:
            return cls(shape, dim, encoder, progress=given.progress)
        decoder = dict_in(facts, "decoder")
        if decoder.get("kind") == "inverse":
            return cls(shape, dim, encoder, encoder.backward, given.progress)
        return cls(shape, dim, encoder, given.coder(decoder, "decoder"), given.progress)


@dataclass(frozen=True)
class Missing:
    """An encoder or decoder that a saved space needs and was not given: an error when it is asked."""

    facts: dict[str, Any]
    what: str
    why: str
    given: Any = None
    kind: ClassVar[str] = "missing"

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def digest(self) -> str | None:
        return self.facts["digest"]

    @property
    def backward(self) -> Coder | None:
        return Missing(self.facts, self.what, self.why) if self.facts["kind"] == "sklearn" else None

    def __call__(self, samples: Tensor) -> Any:
        raise InputError(
            f"the feature space needs its {self.what} again",
            f"{self.name}, {self.why}",
            f"Bring the file back, or pass {self.what}= to FeatureSpace.from_dict."
            if self.facts["kind"] == "onnx"
            else f"Pass {self.what}= to FeatureSpace.from_dict.",
        )

    def to_dict(self, folder: Path | None) -> dict[str, Any]:
        return self.facts


@dataclass(frozen=True, eq=False)
class Given:
    """The encoder and decoder given for a saved space, and the folder that it is in; both sides of
    a space share what is opened."""

    encoder: Any = None
    decoder: Any = None
    folder: Path | None = None
    progress: Progress = None
    _opened: dict[tuple[str, str], Coder] = field(default_factory=dict)

    def coder(self, facts: dict[str, Any], what: str) -> Coder:
        """What was given, if it is the one that was saved; else the ONNX file that was; else one
        that asks for it."""
        kind, name, digest = _known_by(facts)
        given = getattr(self, what)
        if given is None and kind != "onnx":
            return Missing(facts, what, "which cannot be saved with it")
        key = (what, digest or name)
        if key not in self._opened:
            found = self._file(facts, what) if given is None else as_coder(given, what)
            if given is not None:
                _check_same(found, kind, name, digest, what)
            self._opened[key] = found
        return self._opened[key]

    def check_used(self, step: Encoding | None) -> None:
        """An error for what was given and the space has no use for."""
        has = {"encoder": step is not None, "decoder": step is not None and step.invertible}
        for what, one in (("encoder", self.encoder), ("decoder", self.decoder)):
            if one is not None and not has[what]:
                raise InputError(
                    f"the {what} must be that of a space that was fitted with one",
                    f"{type(one).__name__} for a space without",
                    "Leave it out.",
                )

    def _file(self, facts: dict[str, Any], what: str) -> Coder:
        """The ONNX file, beside the saved space or where it was."""
        places = [Path(str(entry(facts, "path")))]
        if facts.get("relative") is not None and self.folder is not None:
            near = self.folder.expanduser().absolute() / str(facts["relative"])
            places.insert(0, near.resolve())
        there = [place for place in places if place.is_file()]
        for place in there:
            if file_digest(place) == facts["digest"]:
                return OnnxCoder(place, f"the {what}")
        why = f"of which {there[0]} is another version" if there else f"no file {places[-1]}"
        return Missing(facts, what, why)


def _known_by(facts: dict[str, Any]) -> tuple[str, str, str | None]:
    kind, name, digest = (
        word_in(facts, "kind", _KINDS),
        entry(facts, "name"),
        entry(facts, "digest"),
    )
    if type(name) is not str or type(digest) is not (type(None) if kind == "function" else str):
        raise damaged("an encoder must have a name and a digest", f"{name!r} and {digest!r}")
    return kind, name, digest


def _check_same(coder: Coder, kind: str, name: str, digest: str | None, what: str) -> None:
    """An error for another encoder than the one that the space was fitted with."""
    if coder.kind == kind and (
        coder.digest == digest if digest is not None else coder.name == name
    ):
        return
    change = "another version of it" if (coder.kind, coder.name) == (kind, name) else coder.name
    raise InputError(
        f"the {what} must be the one that the space was fitted with: {name} ({kind}"
        f"{'' if digest is None else f', digest {digest[:12]}'})",
        f"{change} ({coder.kind}{'' if coder.digest is None else f', digest {coder.digest[:12]}'})",
        "Bring that one back, or fit the space again.",
    )


def asked(coder: Coder, samples: Tensor, what: str, dim: int | None) -> Tensor:
    """Answers as checked rows (n, dim), in the dtype and on the device of the samples."""
    n, shape = len(samples), tuple(samples.shape)
    try:
        answer = torch.as_tensor(coder(samples))
    except InputError:
        raise
    except Exception as error:  # whatever another's code raises
        raise InputError(
            f"the {what} must take samples like these",
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''} on a batch "
            f"of shape {shape}, with {coder.name}",
            _remedy(shape, what),
        ) from error
    if answer.ndim == 0 or len(answer) != n:
        raise InputError(
            f"the {what} must return a row for each of {n} samples",
            f"shape {tuple(answer.shape)} from {coder.name}",
            "Keep the batch axis.",
        )
    if answer.is_complex() or not answer.numel():
        raise InputError(
            f"the {what} must return real numbers, at least one for each sample",
            f"shape {tuple(answer.shape)} of {str(answer.dtype).removeprefix('torch.')} from "
            f"{coder.name}",
            "Let it return the features that samples are compared in.",
        )
    rows = answer.reshape(n, -1).to(device=samples.device, dtype=samples.dtype)
    if dim is not None and rows.shape[1] != dim:
        raise InputError(
            f"the {what} must return {dim} numbers for each sample",
            f"{rows.shape[1]} from {coder.name}",
            "A decoder gives samples as the encoder takes them."
            if what == "decoder"
            else "Check that it is the one the space was fitted with.",
        )
    check_finite(
        f"what the {what} {coder.name} returns", rows, "Check it, and the range of the samples."
    )
    return rows


def _remedy(shape: tuple[int, ...], what: str) -> str:
    if what == "encoder" and len(shape) == 3:
        return (
            f"Images come as (n, {shape[1]}, {shape[2]}); a network of (n, 1, H, W) takes them as "
            f"torch.nn.Sequential(torch.nn.Unflatten(1, (1, {shape[1]})), net)."
        )
    if what == "encoder" and len(shape) == 4:
        return f"Images come as (n, {', '.join(map(str, shape[1:]))}): move the axes in a function."
    return f"Wrap it in a function of a batch of shape {shape}."
