"""The base class of functionals, and their algebra: F + G, 0.1 * F (paper, eq. 12)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from advect._util import Shown, check_number, refuse_if
from advect.data.dataset import LabeledDataset

# The state of a functional between two calls: a flat dictionary, which a checkpoint can hold.
State = dict[str, Tensor]


def under(prefix: str, state: State) -> State:
    """The part of a state whose names begin with a prefix, without it."""
    return {key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)}


def converged(state: State) -> bool:
    """Whether every solve of the call that returned this state met its tolerance."""
    return all(bool(v) for key, v in state.items() if key.rpartition(".")[2] == "converged")


class Functional(Shown):
    """A number F(ρ) for a dataset ρ, differentiable in its features (and laws).

    A subclass defines ``__call__``. A functional with a state (warm starts, a width fixed by the first
    dataset, a count of random draws) defines ``begin`` and ``terms`` instead. The state is a flat
    dictionary of tensors. It is passed in and returned, never stored in the object. Evaluating a
    functional therefore changes nothing, two flows can share one, and a checkpoint is complete.

    Attributes:
        name: name of the term in results; by default the name of the class.
        target: the dataset that a flow approaches, if there is one.
        stochastic: whether values depend on random draws; a flow then does not control its steps.
        curved: whether features pass through a map of unknown curvature, such as a network; a flow
            then controls its steps wherever that is possible.

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
        # The name of the class, unless the class defines a name.
        if cls.name == cls.__mro__[1].__name__:
            cls.name = cls.__name__

    @property
    def parts(self) -> tuple[Functional, ...]:
        """The terms of a ``Sum``; otherwise the functional itself."""
        return (self,)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the distance to the target by name (``cost``, ``solver``), for reports."""
        return {}

    def __call__(self, rho: LabeledDataset) -> Tensor:
        """F(ρ), as at the first step of a flow."""
        if type(self).terms is Functional.terms:
            raise NotImplementedError("a functional needs __call__(self, rho)")
        values = list(self.terms(rho, self.begin(rho))[0].values())
        return sum(values[1:], start=values[0])

    def begin(self, rho: LabeledDataset) -> State:
        """The state before the first call of ``terms``, at the dataset that a flow starts from."""
        return {}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """The value by named terms, which sum to F(ρ), and the state for the next call.

        If something was solved, "converged" in the returned state says whether it met its tolerance,
        and "error" bounds the distance of the value from the exact one."""
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
        self.functionals = parts = tuple(part for whole in functionals for part in whole.parts)
        refuse_if(not parts, "a sum needs at least one functional", "none", "Pass functionals.")
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
        return {f"{k}.{key}": v for k, state in enumerate(states) for key, v in state.items()}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        terms: dict[str, Tensor] = {}
        after: State = {}
        for k, part in enumerate(self.functionals):
            part_terms, part_state = part.terms(rho, under(f"{k}.", state) or part.begin(rho))
            after |= {f"{k}.{key}": v for key, v in part_state.items()}
            for name, value in part_terms.items():
                numbered = (f"{name} ({n})" for n in range(2, len(terms) + 3))
                terms[next(free for free in (name, *numbered) if free not in terms)] = value
        return terms, after
