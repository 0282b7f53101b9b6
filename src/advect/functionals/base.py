"""What a functional is, and their algebra: F + G, 0.1 * F (paper, eq. 11)."""

from __future__ import annotations

from torch import Tensor

from advect._util.checks import check_number
from advect.data.dataset import LabeledDataset
from advect.errors import InputError


class Functional:
    """A number F(ρ) for a dataset ρ, differentiable in its features (and laws); subclass and write
    ``__call__``.

    A functional with a memory (warm starts) also gives and takes it as a flat dictionary of tensors
    through ``state`` and ``load_state``, and forgets it on ``reset``, which every flow does first.

    Attributes:
        stochastic: whether two calls at the same dataset may differ; a flow does not control its
            steps then.
        converged: whether all that was solved in the last call met its tolerance.

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
    """

    @property
    def stochastic(self) -> bool:
        return False

    @property
    def converged(self) -> bool:
        return True

    def __call__(self, rho: LabeledDataset) -> Tensor:
        raise NotImplementedError("a functional needs __call__(self, rho)")

    @property
    def name(self) -> str:
        """How the term is called in results."""
        return type(self).__name__

    def terms(self, rho: LabeledDataset) -> dict[str, Tensor]:
        """The value by named terms, which sum to F(ρ)."""
        return {self.name: self(rho)}

    def reset(self) -> None:
        """Forget warm starts."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint has to keep, as a flat dictionary of tensors."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take up where ``state`` left off."""

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

    @property
    def name(self) -> str:
        return f"{self.factor:g} {self.functional.name}"

    @property
    def stochastic(self) -> bool:
        return self.functional.stochastic

    @property
    def converged(self) -> bool:
        return self.functional.converged

    def __call__(self, rho: LabeledDataset) -> Tensor:
        return self.factor * self.functional(rho)

    def terms(self, rho: LabeledDataset) -> dict[str, Tensor]:
        return {
            f"{self.factor:g} {name}": self.factor * value
            for name, value in self.functional.terms(rho).items()
        }

    def reset(self) -> None:
        self.functional.reset()

    def state(self) -> dict[str, Tensor]:
        return self.functional.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.functional.load_state(state)


class Sum(Functional):
    """F_1 + F_2 + …; terms of the same name are numbered.

    Example:
        >>> import advect as ad
        >>> total = ad.Potential(ad.norm()) + ad.Potential(ad.norm())
        >>> list(total.terms(ad.LabeledDataset([[3.0, 4.0]], ["a"])))
        ['Potential', 'Potential (2)']
    """

    def __init__(self, *functionals: Functional) -> None:
        self.functionals = tuple(
            part
            for functional in functionals
            for part in (functional.functionals if isinstance(functional, Sum) else (functional,))
        )
        if not self.functionals:
            raise InputError("a sum needs at least one functional", "none", "Pass functionals.")

    @property
    def name(self) -> str:
        return " + ".join(functional.name for functional in self.functionals)

    @property
    def stochastic(self) -> bool:
        return any(functional.stochastic for functional in self.functionals)

    @property
    def converged(self) -> bool:
        return all(functional.converged for functional in self.functionals)

    def __call__(self, rho: LabeledDataset) -> Tensor:
        values = list(self.terms(rho).values())
        return sum(values[1:], start=values[0])

    def terms(self, rho: LabeledDataset) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        for functional in self.functionals:
            for name, value in functional.terms(rho).items():
                numbered = (f"{name} ({k})" for k in range(2, len(terms) + 3))
                terms[next(free for free in (name, *numbered) if free not in terms)] = value
        return terms

    def reset(self) -> None:
        for functional in self.functionals:
            functional.reset()

    def state(self) -> dict[str, Tensor]:
        return {
            f"{k}.{key}": value
            for k, part in enumerate(self.functionals)
            for key, value in part.state().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        for k, part in enumerate(self.functionals):
            prefix = f"{k}."
            part.load_state(
                {
                    key.removeprefix(prefix): value
                    for key, value in state.items()
                    if key.startswith(prefix)
                }
            )
