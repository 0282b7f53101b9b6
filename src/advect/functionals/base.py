"""What a functional is, and their algebra: F + G, 0.1 * F (paper, eq. 11)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from advect._util.checks import check_number
from advect._util.shown import Shown
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

# What a functional remembers from one call to the next: a flat dictionary, which a checkpoint holds.
State = dict[str, Tensor]


def under(prefix: str, state: State) -> State:
    """The part of a state whose names begin with a prefix, without it."""
    return {key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)}


def met(state: State) -> bool:
    """Whether all that was solved in the call that returned this state met its tolerance."""
    return all(bool(v) for key, v in state.items() if key.rpartition(".")[2] == "converged")


class Functional(Shown):
    """A number F(ρ) for a dataset ρ, differentiable in its features (and laws); subclass and write
    ``__call__``.

    One that remembers something from one step of a flow to the next (warm starts, a width fixed by
    the first dataset, a count of random draws) writes ``begin`` and ``terms`` instead: the memory is
    a flat dictionary of tensors, passed in and returned, never kept in the object. So evaluating a
    functional changes nothing, two flows can share one, and a checkpoint holds all there is.

    Attributes:
        name: how the term is called in results; by default the name of the class.
        target: the dataset that a flow goes to, if there is one.
        stochastic: whether values at the same dataset with other states differ at random; a flow
            does not control its steps then.
        curved: whether its curvature is that of a map of the features, a network's say, of which
            nothing is known: a flow controls its steps then also where it otherwise would not.

    Example:
        >>> import torch, advect as ad
        >>> class StayNear(ad.Functional):
        ...     def __init__(self, anchor):
        ...         self.anchor = anchor
        ...     def __call__(self, rho):
        ...         return (rho.weights * (rho.x - self.anchor).square().sum(1)).sum()
        >>> data = ad.LabeledDataset([[0.0], [2.0]], ["a", "b"])
        >>> total = 0.5 * StayNear(data.x) + ad.Potential(ad.norm())
        >>> total(data.replace(x=data.x + 1)).item()         # ½ · 1 + (1 + 3)/2
        2.5
        >>> class Follow(ad.Functional):                     # toward the mean of the step before
        ...     def begin(self, rho):
        ...         return {"mean": rho.x.detach().mean(0)}
        ...     def terms(self, rho, state):
        ...         value = (rho.weights * (rho.x - state["mean"]).square().sum(1)).sum()
        ...         return {self.name: value}, self.begin(rho)
        >>> Follow()(data).item()
        1.0
    """

    target: Any = None  # a LabeledDataset where there is one
    stochastic: bool = False
    curved: bool = False
    name: str = "Functional"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if (
            cls.name == cls.__mro__[1].__name__
        ):  # the name of a class, unless one of its own was given
            cls.name = cls.__name__

    @property
    def parts(self) -> tuple[Functional, ...]:
        """What it is the sum of: itself, but for a ``Sum``."""
        return (self,)

    @property
    def options(self) -> dict[str, Any]:
        """How the distance to the target is computed, by name (``cost``, ``solver``), for
        reports.
        """
        return {}

    def __call__(self, rho: LabeledDataset) -> Tensor:
        """F(ρ), as at the first step of a flow."""
        if type(self).terms is Functional.terms:
            raise NotImplementedError("a functional needs __call__(self, rho)")
        values = list(self.terms(rho, self.begin(rho))[0].values())
        return sum(values[1:], start=values[0])

    def begin(self, rho: LabeledDataset) -> State:
        """What is remembered before the first call of ``terms``, at the dataset that a flow starts
        from.
        """
        return {}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """The value by named terms, which sum to F(ρ), and what to remember for the next call.

        In the returned state "converged" and "error" say, where something was solved, whether it
        met its tolerance, and how far the value can be from the exact one."""
        return {self.name: self(rho)}, state

    def __add__(self, other: Functional) -> Sum:
        if not isinstance(other, Functional):
            return NotImplemented
        return Sum(self, other)

    def __radd__(self, other: object) -> Functional:
        if other == 0:  # the start of sum([F, G])
            return self
        return NotImplemented

    def __mul__(self, factor: float) -> Scaled:
        if isinstance(factor, Functional):
            raise InputError(
                "a functional is scaled by a number",
                type(factor).__name__,
                "Add functionals; multiply by floats.",
            )
        return Scaled(factor, self)

    __rmul__ = __mul__

    def __neg__(self) -> Scaled:
        return Scaled(-1.0, self)

    def __sub__(self, other: Functional) -> Sum:
        return self + (-other)


class Scaled(Functional):
    """factor · F.

    Example:
        >>> import advect as ad
        >>> half = 0.5 * ad.Potential(ad.norm())
        >>> half(ad.LabeledDataset([[3.0, 4.0]], ["a"])).item(), half.name
        (2.5, '0.5 Potential')
    """

    def __init__(self, factor: float, functional: Functional) -> None:
        self.factor, self.functional = check_number("a factor of a functional", factor), functional
        self.name, self.target = f"{self.factor:g} {functional.name}", functional.target
        self.stochastic, self.curved = functional.stochastic, functional.curved

    def __repr__(self) -> str:
        return f"{self.factor:g} * {self.functional!r}"

    @property
    def options(self) -> dict[str, Any]:
        return self.functional.options

    def __call__(self, rho: LabeledDataset) -> Tensor:
        return self.factor * self.functional(rho)

    def begin(self, rho: LabeledDataset) -> State:
        return self.functional.begin(rho)

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        terms, state = self.functional.terms(rho, state)
        return {f"{self.factor:g} {name}": self.factor * v for name, v in terms.items()}, state


class Sum(Functional):
    """F_1 + F_2 + …; terms of the same name are numbered."""

    def __init__(self, *functionals: Functional) -> None:
        self.functionals = tuple(part for whole in functionals for part in whole.parts)
        if not self.functionals:
            raise InputError("a sum needs at least one functional", "none", "Pass functionals.")
        self.name = " + ".join(part.name for part in self.functionals)
        self.target = next((p.target for p in self.functionals if p.target is not None), None)
        self.stochastic = any(part.stochastic for part in self.functionals)
        self.curved = any(part.curved for part in self.functionals)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.functionals))

    @property
    def parts(self) -> tuple[Functional, ...]:
        return self.functionals

    @property
    def options(self) -> dict[str, Any]:
        return next((part.options for part in self.functionals if part.target is not None), {})

    def begin(self, rho: LabeledDataset) -> State:
        states = [part.begin(rho) for part in self.functionals]
        return {f"{k}.{key}": v for k, own in enumerate(states) for key, v in own.items()}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        terms: dict[str, Tensor] = {}
        after: State = {}
        for k, part in enumerate(self.functionals):
            found, own = part.terms(rho, under(f"{k}.", state) or part.begin(rho))
            after |= {f"{k}.{key}": v for key, v in own.items()}
            for name, value in found.items():
                numbered = (f"{name} ({n})" for n in range(2, len(terms) + 3))
                terms[next(free for free in (name, *numbered) if free not in terms)] = value
        return terms, after
