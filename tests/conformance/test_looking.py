"""Looking changes nothing: whatever else evaluates a functional, a flow of it goes bit for bit as it
goes alone.
"""

import re
from itertools import islice

import pytest
import torch
from covering import first_of_each
from flow_cases import labeled, states

import advect as ad

SOURCE, TARGET = labeled([7, 6], 2, 1), labeled([6, 8], 2, 2, shift=1.5)
ELSEWHERE = labeled([5, 5], 2, 3, shift=-2.0)
INNER = ad.Sinkhorn(ad.Relative(0.1), tol=1e-6)
STEPS = 2


class Follow(ad.Functional):
    """One that a user may write, with a state: the squared distance from where each sample was a
    step before.
    """

    def begin(self, rho):
        return {"x": rho.x.detach() + 1}

    def terms(self, rho, state):
        near = len(state["x"]) == len(rho)
        value = (rho.x - state["x"]).square().sum() if near else rho.x.square().sum()
        return {self.name: value / len(rho)}, {"x": rho.x.detach()}


def otdd(solver=INNER, **cost):
    return ad.OTDD(TARGET, cost=ad.GroundCost(**cost), solver=solver)


FUNCTIONALS = {
    "OTDD, defaults": lambda: ad.OTDD(TARGET),
    "OTDD, Sinkhorn": otdd,
    "OTDD, loose Sinkhorn near the target": lambda: ad.OTDD(
        SOURCE.replace(x=SOURCE.x + 0.01), solver=ad.Sinkhorn(ad.Relative(0.1), tol=1e-2)
    ),
    "OTDD, float32": lambda: ad.OTDD(TARGET.to(dtype=torch.float32)),
    "OTDD, blocks": lambda: ad.OTDD(TARGET, solver=INNER, memory_limit=8000),
    "OTDD, ExactOT": lambda: otdd(ad.ExactOT()),
    "OTDD, MiniBatch": lambda: otdd(ad.MiniBatch(INNER, size=6)),
    "OTDD, MiniBatch of ExactOT": lambda: otdd(ad.MiniBatch(ad.ExactOT(), size=6)),
    "OTDD, exact labels": lambda: otdd(label=ad.ExactLabelOT()),
    "OTDD, names": lambda: otdd(label=ad.ByName()),
    "SlicedOTDD": lambda: ad.SlicedOTDD(TARGET, 8),
    "ClassMMD": lambda: ad.ClassMMD(TARGET, 8),
    "ClassMMD, a width of its own": lambda: ad.ClassMMD(TARGET, 8, kernel="gaussian"),
    "SlicedOTDD, moments": lambda: ad.SlicedOTDD(TARGET, 8, projection="moments"),
    "Potential": lambda: ad.Potential(ad.norm()),
    "Interaction": lambda: ad.Interaction(ad.repulsion()),
    "Internal": ad.Internal,
    "Internal, porous": lambda: ad.Internal(2.0, by_class=True),
    "of one's own": Follow,
    "scaled": lambda: 0.5 * otdd(),
    "sum": lambda: otdd() + 0.1 * ad.Potential(ad.norm()) + 0.1 * ad.Internal(),
    "sums in sums": lambda: 2 * (0.5 * ad.SlicedOTDD(TARGET, 8) + otdd()) - 0.1 * Follow(),
}
STEEP = {"integrator": ad.Euler(1.9)}  # too long a step, which is made smaller where it rises
JOINT = {"dynamics": ad.JointVariableLabels(), "integrator": ad.Heun(0.1)}
CASES = {name: (name, STEEP) for name in FUNCTIONALS}
for name in ("OTDD, Sinkhorn", "OTDD, MiniBatch", "sums in sums"):
    CASES[f"jointly: {name}"] = (name, JOINT)
KIND = re.compile(r"OTDD|[A-Z][a-zA-Z]+|of|s|jointly")


def same(walk, alone):
    assert [step.terms for step in walk] == [step.terms for step in alone]
    for step, other in zip(walk, alone, strict=True):
        assert torch.equal(step.dataset.x, other.dataset.x)
        assert step.state.keys() == other.state.keys()
        assert all(torch.equal(step.state[key], other.state[key]) for key in step.state)


def metric(functional, options):
    """An energy measured at each step, there and elsewhere."""
    walk = []
    measures = [
        ad.Metric("energy", functional),
        ad.Metric("elsewhere", lambda rho: functional(ELSEWHERE)),
    ]
    ad.flow(SOURCE, functional, n_steps=STEPS, callbacks=[*measures, walk.append], **options)
    return walk


def called(functional, options):
    """Called between two steps, with a gradient, and with the flow's own state."""
    walk = []
    for step in islice(ad.iterate(SOURCE, functional, **options), STEPS + 1):
        walk.append(step)
        moving = step.dataset.replace(x=step.dataset.x.clone().requires_grad_() + 0.1)
        functional(moving).backward()
        functional.terms(moving, step.state)
        functional.terms(ELSEWHERE, functional.begin(ELSEWHERE))
    return walk


def interleaved(functional, options):
    """Two walks of one functional from two datasets, a step of each in turn."""
    walks = (ad.iterate(data, functional, **options) for data in (SOURCE, ELSEWHERE))
    return [step for step, _ in islice(zip(*walks, strict=True), STEPS + 1)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", first_of_each(CASES, lambda name: KIND.match(name)[0]))
def test_looking_changes_nothing(case):
    name, options = case
    alone = states(SOURCE, FUNCTIONALS[name](), STEPS, **options)
    for look in (metric, called, interleaved):
        same(look(FUNCTIONALS[name](), options), alone)
