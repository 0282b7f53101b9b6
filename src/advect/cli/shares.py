"""``advect shares``: which shares the classes of a dataset have in another one without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from advect.cli.config import DataOptions, Overwrite, RunCode, SpaceOptions, Strict
from advect.cli.measure import SolverOptions
from advect.cli.output import TALK, TalkOptions
from advect.cli.places import check_free_file
from advect.cli.sections import SECTIONS
from advect.errors import InputError

_DRAWS = 200  # of the bootstrap: it takes no transport


class SharesOptions(DataOptions):
    """How shares are estimated."""

    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )
    solver: Annotated[SolverOptions, Parameter(group=SECTIONS["Solver"])] = (
        SolverOptions.model_construct()
    )


def shares(
    source: str,
    target: str,
    *,
    out: Annotated[
        Path | None,
        Parameter(
            alias="-o",
            help="Write the source, in the common feature space, with these shares as weights.",
            metavar="FILE.npz",
        ),
    ] = None,
    options: Annotated[SharesOptions, Parameter(name="*")] = SharesOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Estimate class shares of the target by transport from the source; its labels are not looked at.

    Args:
        source: Labeled samples.
        target: Samples in which the shares of their classes are asked for.
    """
    import torch

    from advect.cli import inputs
    from advect.cli.typed import permission

    place = None if out is None else out.expanduser()
    if place is not None:
        if place.suffix.lower() != ".npz":
            raise InputError("--out is a file that ends in .npz", place, "Rename it.")
        check_free_file(place, overwrite)
    code = permission(run_code, options.space.code)
    with talk.listening() as unconverged:
        import advect as ad

        a, b, _ = inputs.together((source, target), options, options.space, talk, code)
        asked = options.solver.given or dict(options.solver).get("name")
        solver = options.solver.built() if asked else None
        found = ad.class_shares(a, b, solver=solver)
        generator = torch.Generator().manual_seed(options.seed)
        errors = found.standard_error(_DRAWS, generator=generator)
        if place is not None:
            check_free_file(place, overwrite)  # something may have come since
            found.reweighted().save(place)
    before = a.class_mass.tolist()
    rows = zip(a.classes, before, found.shares.tolist(), errors.tolist(), strict=True)
    facts: dict[str, Any] = {
        "source": source,
        "target": target,
        "classes": list(a.classes),
        "shares": found.shares,
        "standard_errors": errors,
        "shares_of_source": before,
        "misfit": found.misfit,
        "mass_left": found.mass_left,
        "converged": found.converged,
        "n": [len(a), len(b)],
        "out": out,
    }
    width = max(len(str(name)) for name in a.classes)
    lines = ["shares of classes in the target, with standard errors; in brackets the source's"]
    lines += [f"{name!s:>{width}}  {p:6.1%} ± {e:.1%}  ({q:.1%})" for name, q, p, e in rows]
    lines.append(f"misfit {found.misfit:.1%}: what no mixture of these classes explains")
    lines += [] if place is None else [f"written to {place}"]
    talk.result(facts, "\n".join(lines))
    talk.end(unconverged if unconverged or found.converged else ["the transport problem"], strict)
