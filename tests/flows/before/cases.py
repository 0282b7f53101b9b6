"""The flows whose checkpoints are in this folder, written by version 0.2.0 after ``FIRST`` steps.

``expected.json`` has what that version found when it went on from them."""

from pathlib import Path

import torch
from flow_cases import labeled

import advect as ad

HERE = Path(__file__).parent
FIRST = 3


def cases():
    """Flows by name: source, functional, options."""
    source, target = labeled([9, 8], 2, 1), labeled([10, 8], 2, 2, shift=2.0)
    near = source.replace(x=source.x + 1e-4).to(dtype=torch.float32)
    lots = ad.Sinkhorn(ad.Relative(0.1), tol=1e-9)
    total = ad.OTDD(target, solver=lots) + 0.2 * ad.Potential(ad.norm()) + 0.1 * ad.Internal()
    mixed = 0.5 * ad.SlicedOTDD(target, 20) + 2 * (
        ad.Interaction(ad.repulsion()) + ad.OTDD(target, solver=lots)
    )
    return {
        "fd": (source, ad.OTDD(target), {}),
        "fd, smaller steps": (source, ad.OTDD(target), {"integrator": ad.Euler(3.0)}),
        "fd, exact": (source, ad.OTDD(target, solver=ad.ExactOT()), {}),
        "fd, exact labels": (
            source,
            ad.OTDD(target, cost=ad.GroundCost(label=ad.ExactLabelOT()), solver=lots),
            {"integrator": ad.Momentum(0.05)},
        ),
        "jd-fl": (
            source,
            ad.OTDD(target),
            {"dynamics": ad.JointFixedLabels(), "integrator": ad.Momentum(0.05)},
        ),
        "jd-vl": (
            source,
            ad.OTDD(target, solver=lots),
            {"dynamics": ad.JointVariableLabels(), "integrator": ad.Adam(0.05)},
        ),
        "sum": (source, total, {}),
        "mixed": (source, mixed, {"integrator": ad.Euler(0.1)}),
        "sliced": (source, ad.SlicedOTDD(target, 20), {"integrator": ad.Euler(0.3)}),
        "near, in float32": (near, ad.OTDD(source.to(dtype=torch.float32)), {}),
        "noise": (
            source,
            ad.Potential(ad.norm()),
            {
                "integrator": ad.EulerMaruyama(0.1, temperature=0.2),
                "generator": torch.Generator().manual_seed(5),
            },
        ),
    }


def numbers(result):
    """What is compared: the values after the checkpoint, and where the flow ended."""
    return {"values": result.values[FIRST:], "x": result.dataset.x.double().tolist()}


def file_of(name):
    return HERE / f"{name.replace(', ', '-').replace(' ', '-')}.safetensors"
