"""Tools that do not depend on datasets: checks and errors, atomic files, locks, progress,
memory, threads, results."""

from advect._util.atomic import (
    atomic_directory as atomic_directory,
    atomic_file as atomic_file,
    is_leftover as is_leftover,
    recover as recover,
    remove as remove,
    set_aside as set_aside,
    sync_directory as sync_directory,
    write_atomically as write_atomically,
)
from advect._util.checks import (
    check_count as check_count,
    check_finite as check_finite,
    check_kind as check_kind,
    check_known as check_known,
    check_methods as check_methods,
    check_non_negative as check_non_negative,
    check_number as check_number,
    check_positive as check_positive,
    check_sides as check_sides,
    check_weights as check_weights,
    missing_labels as missing_labels,
    one_or_more as one_or_more,
    refuse_if as refuse_if,
)
from advect._util.memory import (
    MemoryLimit as MemoryLimit,
    ScaleWarning as ScaleWarning,
    as_bytes as as_bytes,
    check_room as check_room,
    readable as readable,
)
from advect._util.progress import (
    Bar as Bar,
    Progress as Progress,
    time_left as time_left,
    track as track,
)
from advect._util.result import (
    Result as Result,
    Table as Table,
    plain as plain,
    show as show,
    visible as visible,
)
from advect._util.shown import Shown as Shown
from advect.errors import (
    AdvectError as AdvectError,
    ConvergenceWarning as ConvergenceWarning,
    DamageWarning as DamageWarning,
    InputError as InputError,
)
