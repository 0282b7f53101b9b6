"""Label shift: which shares the classes of one dataset have in another one without labels.

Classes of the source, all of one mass, are transported to the target. Column by column the plan is a
soft classifier of the target's samples,

    q_c(x) = Σ_{i of c} a_i exp((f_i − c(x_i, x))/ε) / Σ_i a_i exp((f_i − c(x_i, x))/ε) ,

whose potentials f have taken up what the datasets differ by. It errs, and how it errs is seen on the
source's own samples, each left out of its own sum: M_cd is the mean of q_d over class c. Whatever the
classifier, a target whose classes look as in the source has a mean of q that is Σ_c p_c M_c (black-box
shift estimation: Lipton, Wang and Smola 2018), and p is the mixture that comes nearest, by least
squares with p ≥ 0. To minimise the divergence itself over p is a convex problem too; it prefers classes
of many samples, which are nearer to anything, and is not done."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count
from advect._util.html import facts_table
from advect._util.memory import MemoryLimit
from advect.cost import GroundCost, NoLabels
from advect.cost.ground import check_cost
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot import Cost, Relative, Sinkhorn, Solver, check_solver
from advect.transport.transport import Transport, check_dataset

_EPSILON = 0.03  # of the mean cost
_REACH = 0.5  # of the root of the mean cost
_FIRM = 1e3  # how firmly shares are held to sum to one, against the residuals


@dataclass(frozen=True, eq=False)
class ClassShares:
    """Shares of the source's classes in the target.

    Attributes:
        source, target: the datasets.
        shares: one for each class of the source, in its order, summing to one.
        confusion: (k, k): what the classifier makes of each class of the source, as shares.
        seen: (k,): what it makes of the target.
        misfit: the share of what is seen that no mixture of classes explains: near 0 where classes
            look in the target as they do in the source.
        mass_left: the share of the mass that the plan left behind: near 1 where the datasets have little
            in common, and shares mean little.
        converged: whether the transport problem was solved.
        answers: q of each sample of the source, left out of its own, (n, k), and of the target, (m, k).

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(60, classes=2, generator=generator)
        >>> target = ad.datasets.gaussians(60, classes=2, generator=generator).reweighted([0.8, 0.2])
        >>> found = ad.class_shares(source, target)
        >>> found
        ClassShares(0: 80%, 1: 20%; misfit 0%, converged)
        >>> [round(mass, 1) for mass in found.reweighted().class_mass.tolist()]
        [0.8, 0.2]
    """

    source: LabeledDataset
    target: LabeledDataset
    shares: np.ndarray
    confusion: np.ndarray
    seen: np.ndarray
    mass_left: float
    converged: bool
    answers: tuple[np.ndarray, np.ndarray]

    @property
    def misfit(self) -> float:
        return float(np.abs(self.shares @ self.confusion - self.seen).sum() / 2)

    @property
    def by_name(self) -> dict[Hashable, float]:
        """The shares by the names of classes."""
        return dict(zip(self.source.classes, self.shares.tolist(), strict=True))

    def reweighted(self) -> LabeledDataset:
        """The source with these shares: what to flow instead of it. Samples of a class whose share is 0
        have no weight, and stay where they are.
        """
        return self.source.reweighted(self.shares)

    def standard_error(
        self, n: int = 200, *, generator: torch.Generator | None = None
    ) -> np.ndarray:
        """How much each share would vary with other draws of as many samples: its standard
        deviation, by bootstrap of the classifier's answers.

        Samples of the source are drawn class by class, those of the target across its classes; the plan
        is kept. What it does not tell is bias: classes that look otherwise in the target than in the
        source.

        Args:
            n: how many draws; the answer itself varies by about 1/√(2n) of itself.
            generator: source of randomness of the draws.

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> source = ad.datasets.gaussians(60, classes=2, generator=generator)
            >>> target = ad.datasets.gaussians(60, classes=2, generator=generator)
            >>> errors = ad.class_shares(source, target).standard_error(generator=generator)
            >>> [round(error, 2) for error in errors.tolist()]        # √(p (1 − p) / n) is 0.065
            [0.07, 0.07]
        """
        check_count("n", n, least=2)
        own, others = self.answers
        codes, weights = self.source.y.cpu(), self.source.weights.cpu()
        mass, draws = self.target.weights.cpu(), []
        for _ in range(n):
            rows = torch.multinomial(mass, len(mass), replacement=True, generator=generator)
            seen, confusion = others[rows.numpy()].mean(axis=0), self.confusion.copy()
            for code in codes[weights > 0].unique().tolist():
                part = ((codes == code) & (weights > 0)).nonzero()[:, 0]
                drawn = torch.multinomial(
                    weights[part], len(part), replacement=True, generator=generator
                )
                confusion[code] = own[part[drawn].numpy()].mean(axis=0)
            draws.append(_mixture(confusion, seen, self._there))
        return np.std(draws, axis=0, ddof=1)

    @property
    def _there(self) -> np.ndarray:
        return self.source.class_mass.cpu().numpy() > 0

    def __repr__(self) -> str:
        pairs = sorted(self.by_name.items(), key=lambda pair: -pair[1])
        shown = ", ".join(f"{name}: {share:.0%}" for name, share in pairs[:12])
        more = f", and {len(pairs) - 12} more" if len(pairs) > 12 else ""
        state = "converged" if self.converged else "not converged"
        return f"ClassShares({shown}{more}; misfit {self.misfit:.0%}, {state})"

    def _repr_html_(self) -> str:
        facts = {str(name): f"{share:.1%}" for name, share in self.by_name.items()}
        facts |= {"misfit": f"{self.misfit:.1%}", "converged": "yes" if self.converged else "no"}
        return facts_table("ClassShares", facts)


def class_shares(
    source: LabeledDataset,
    target: LabeledDataset,
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    memory_limit: MemoryLimit = None,
) -> ClassShares:
    """Estimate which shares the classes of the source have in the target, whose labels are not
    looked at.

    For imbalanced data that need not be balanced by hand: flow ``class_shares(…).reweighted()`` in place
    of the source. It asks that the target has the classes of the source, and that they look there
    about as they do in the source; ``misfit`` and ``standard_error()`` say how far to trust it.

    Args:
        source: labeled samples; classes without mass get no share.
        target: samples in the same feature space, labeled or not.
        cost: the ground cost of features; labels have no part in it.
        solver: an entropic one, by default ``Sinkhorn(epsilon, reach=…)`` with 3 % of the mean cost and
            half its root: classes that the target lacks may be left behind.
        memory_limit: bytes, or a text like "2GiB", that it may take beside the datasets.

    Returns:
        ``ClassShares``: shares, their standard error, and the source reweighted by them.

    Raises:
        InputError: samples of the source without a label, a cost with labels, a solver without
            epsilon or with random draws, or datasets in different spaces.

    Example:
        >>> import torch, advect as ad
        >>> digits = ad.datasets.load("digits")
        >>> some, rest = digits.split(0.3, generator=torch.Generator().manual_seed(0))
        >>> few = rest.subset(rest.y < 2)                        # zeros and ones
        >>> found = ad.class_shares(some, few.replace(y=few.y - few.y - 1))     # without labels
        >>> found.converged, round(found.by_name[0] + found.by_name[1], 1)
        (True, 0.9)
    """
    source, target = check_dataset("source", source), check_dataset("target", target)
    source.require_classes("class_shares")
    source.require_labels("class_shares")
    ground = check_cost(cost) or GroundCost(label=NoLabels())
    if ground.has_labels:
        raise InputError(
            "class_shares compares features alone: labels of the target are not known",
            f"a cost with {ground.label!r}",
            "Pass ad.GroundCost(feature=…, label=ad.NoLabels()).",
        )
    chosen = check_solver(solver or Sinkhorn(Relative(_EPSILON)))
    there = source.class_mass > 0
    alike = source.reweighted(there.double())  # classes of one mass
    transport = Transport(ground.fitted(source, target), chosen, memory_limit)
    problem, prepared = transport.problem(alike, target)
    epsilon = prepared.regularisation
    if solver is None:  # classes that the target lacks are left behind
        prepared = Sinkhorn(epsilon, reach=_REACH * math.sqrt(epsilon / _EPSILON))
    if prepared.stochastic or not epsilon > 0:
        raise InputError(
            "class_shares needs an entropic solver without random draws",
            repr(chosen),
            "Pass ad.Sinkhorn(…), with a sample of the data if there is much.",
        )
    solved = prepared.solve(problem.make("cross"), alike.weights, target.weights)
    membership = torch.nn.functional.one_hot(source.y, len(source.classes)).double()
    sums = solved.coupling.T @ membership
    potential = solved.potentials[0]
    solved.release()
    others = _shared(sums)
    own = _left_out(problem.make("source"), alike, potential, epsilon, membership)
    seen = (target.weights[:, None] * others).sum(dim=0).cpu().numpy()
    inner = source.weights / source.class_mass.clamp_min(1e-300)[source.y]
    confusion = (membership.T @ (inner[:, None] * own)).cpu().numpy()
    shares = _mixture(confusion, seen, there.cpu().numpy())
    answers = own.cpu().numpy(), others.cpu().numpy()
    return ClassShares(
        source, target, shares, confusion, seen, 1 - solved.mass, solved.converged, answers
    )


def _shared(sums: Tensor) -> Tensor:
    """Rows as shares; where all mass is left behind, equal ones."""
    total = sums.sum(dim=1, keepdim=True)
    return torch.where(total > 0, sums / total.clamp_min(1e-300), 1 / sums.shape[1])


def _left_out(
    cost: Cost, data: LabeledDataset, potential: Tensor, epsilon: float, membership: Tensor
) -> Tensor:
    """q of each sample by the others, whose class keeps its mass; of a class's only sample by itself,
    (n, k).
    """
    mass = data.class_mass[data.y]
    rest = mass - data.weights
    single = rest <= 1e-12 * mass
    base = (potential / epsilon + data.weights.log()).nan_to_num(neginf=-torch.inf)
    lift = torch.where(single, 0.0, (mass / rest.clamp_min(1e-300)).log())
    answers, places = [], torch.arange(len(data), device=data.x.device)
    for block in cost.blocks():
        rows = places[block]
        logits = base - cost.rows(block).double() / epsilon
        logits = logits + torch.where(data.y[rows][:, None] == data.y, lift[rows][:, None], 0.0)
        itself = (places == rows[:, None]) & ~single[rows][:, None]
        answers.append(torch.softmax(logits.masked_fill(itself, -torch.inf), dim=1) @ membership)
    return torch.cat(answers)


def _mixture(confusion: np.ndarray, seen: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Shares p ≥ 0 with Σ p = 1 for which p M is nearest to what is seen, by least squares."""
    from scipy.optimize import nnls

    matrix = np.vstack([confusion[there].T, np.full(int(there.sum()), _FIRM)])
    found, _ = nnls(matrix, np.append(seen, _FIRM))
    shares = np.zeros(len(there))
    shares[there] = found / found.sum()
    return shares
