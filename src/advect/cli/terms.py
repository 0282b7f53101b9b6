"""Terms of the objective as text: a weight, a name and options, as in ``0.5*ball?centre=0,5&radius=2``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import advect as ad
import advect.registry as registry
from advect._util import InputError, check_known, query

_KINDS = ("functional", "potential", "interaction")
_DISTANCES = ("otdd", "sliced", "class-mmd")
_WEIGHT = re.compile(
    r"\s*(?P<weight>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*\*\s*(?P<rest>.*)", re.DOTALL
)


@dataclass(frozen=True)
class Term:
    """One term: a weight, a short name, and options as text.

    Example:
        >>> Term.parse("0.5*ball?centre=0,5&radius=2")
        Term(name='ball', weight=0.5, options={'centre': '0,5', 'radius': '2'})
    """

    name: str
    weight: float = 1.0
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Term:
        """Read a term."""
        match = _WEIGHT.fullmatch(text)
        weight, rest = (float(match["weight"]), match["rest"]) if match else (1.0, text.strip())
        name, _, options = rest.partition("?")
        check_known("functional", name, [name for kind in _KINDS for name in registry.names(kind)])
        return cls(name, weight, query.split(options, text))

    @property
    def target(self) -> str | None:
        """The reference of the dataset that a distance goes to; empty for the main target."""
        return self.options.get("target", "") if self.name in _DISTANCES else None

    def build(
        self,
        source: ad.LabeledDataset,
        targets: Mapping[str, ad.LabeledDataset],
        shared: Mapping[str, Any],
    ) -> ad.Functional:
        """The functional; ``shared`` are the arguments of every OTDD."""
        options = {name: text for name, text in self.options.items() if name != "target"}
        target = {} if self.target is None else {"target": targets[self.target]}
        kind = next(kind for kind in _KINDS if self.name in registry.names(kind))
        if self.name == "otdd":
            for option in options:
                check_known("option of otdd", option, ["target"], "; use --cost and --solver")
            energy = ad.OTDD(**target, **shared)
        elif kind == "functional":
            # a registered class of the user may take the datasets of the flow
            datasets = {"source": source, "target": targets.get("")} | target
            energy = registry.make("functional", {"name": self.name, **options}, **datasets)
        else:
            wrap = ad.Potential if kind == "potential" else ad.Interaction
            energy = wrap(registry.make(kind, {"name": self.name, **self.options}))
            _check_dimension(energy, self.name, source)
        return energy if self.weight == 1 else self.weight * energy


def functional(
    terms: Iterable[str],
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    shared: Mapping[str, Any],
) -> ad.Functional:
    """The sum of all terms."""
    first, *others = (Term.parse(text).build(source, targets, shared) for text in terms)
    return sum(others, start=first)


def _check_dimension(energy: ad.Functional, name: str, source: ad.LabeledDataset) -> None:
    """Evaluate once, so that options of another dimension are found before anything is written."""
    try:
        energy(source.subset(range(min(2, len(source)))))
    except (RuntimeError, IndexError) as error:
        raise InputError(
            f"{name} does not fit samples of {source.dim} features",
            str(error).splitlines()[0],
            "Check its options.",
        ) from None
