"""``advect drift``: whether a window of data still has the law of a reference, for a shell and for a
job that runs every day.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from advect.cli.code import is_code
from advect.cli.config import DataOptions, Overwrite, RunCode, SpaceOptions
from advect.cli.label import as_embedding
from advect.cli.output import DRIFTED, TALK, TalkOptions, leave
from advect.cli.places import check_free_file
from advect.cli.sections import SECTIONS
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad


class DriftOptions(DataOptions):
    """How a window is compared with a reference."""

    level: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="The chance of finding drift where there is none; with --state, in --horizon "
        "windows in a row.",
    )
    horizon: int = Field(
        default=30, ge=1, description="With --state: the windows that the level is meant for."
    )
    permutations: int = Field(
        default=999,
        ge=1,
        description="Of each test; with --state as many as the level needs.",
    )
    embedding: str = Field(
        default="auto",
        description="Where distances are measured: auto, features, gradients (of images), standardized "
        "(columns), a number of principal components, a network as model.onnx, or path.py:name.",
    )
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )


def drift(
    reference: str,
    window: str,
    *,
    state: Annotated[
        Path | None,
        Parameter(
            help="Remember windows in this file, and test each at level / horizon.",
            metavar="FILE.json",
        ),
    ] = None,
    report: Annotated[
        Path | None, Parameter(help="Also write a page, FILE.html.", metavar="FILE.html")
    ] = None,
    options: Annotated[DriftOptions, Parameter(name="*")] = DriftOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Whether a window of data still has the law of a reference, and which class changed.

    Labels of the window may be missing. Ends with 0 if no drift is found, with 4 if some is; 1 and
    2 are failures and bad input, as everywhere.

    Args:
        reference: What the window is compared with.
        window: New samples.
    """
    from advect.cli.typed import permission

    page = None if report is None else report.expanduser()
    if page is not None:
        if page.suffix.lower() not in (".html", ".htm"):
            raise InputError("a report is an HTML file", page, "Let its name end in .html.")
        check_free_file(page, overwrite)
    named = options.embedding if is_code(options.embedding) else None
    code = permission(run_code, [named, *options.space.code])
    with talk.listening():
        import advect as ad

        before, after = _in_one_space((reference, window), options, talk, code)
        embedding: Any = as_embedding(options.embedding, code)
        if state is None:
            found = ad.drift(
                before,
                after,
                level=options.level,
                embedding=embedding,
                n_permutations=options.permutations,
                seed=options.seed,
                progress=talk.progress,
            )
            facts: dict[str, Any] = {}
        else:
            monitor = ad.DriftMonitor(
                before,
                state,
                level=options.level,
                horizon=options.horizon,
                embedding=embedding,
                seed=options.seed,
            )
            found = monitor.update(after, window, progress=talk.progress)
            seen = monitor.windows
            facts = {"state": state, "windows": len(seen), "alarms": len(monitor.alarms)}
        if page is not None:
            check_free_file(page, overwrite)  # something may have come since
            found.report(page, title=f"{window} beside {reference}")
    facts = {"reference": reference, "window": window} | found.as_dict() | facts
    talk.result(facts | {"report": page}, _text(found, facts, page))
    if found.drifted:
        leave(DRIFTED)


def _in_one_space(
    refs: tuple[str, str], options: DriftOptions, talk: Any, code: Any
) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """Both datasets; as they are where they fit, so that the reference does not change with the
    window.
    """
    from advect.cli import build, inputs

    before, after = (inputs.load(ref, options, talk) for ref in refs)
    fit = before.sample_shape == after.sample_shape and before.columns == after.columns
    if fit and not options.space.given:
        return before, after
    coders = build.coders(options.space, code, talk.progress)
    space = build.space(before, after, options.space, coders)
    talk.detail(space.describe())
    return space.apply(before), space.apply(after, side="target")


def _text(found: ad.Drift, facts: dict[str, Any], page: Path | None) -> str:
    lines = [str(found)]
    flagged = {*found.changed_classes, *found.changed_shares}
    shown = [one for one in found.classes if one.name in flagged]
    if shown:
        lines += ["", "class                 share before    now   features moved by (deviations)"]
        for one in shown:
            lines.append(
                f"{str(one.name)[:20]:<20} {one.share_reference:13.1%} {one.share_window:6.1%}   "
                f"{one.shift:.2f}"
            )
    if "windows" in facts:
        lines.append(
            f"\n{facts['state']}: windows seen {facts['windows']}, with drift {facts['alarms']}"
        )
    if page is not None:
        lines.append(f"{page}: what changed, class by class")
    return "\n".join(lines)
