"""Data frames of pandas, polars and Arrow through narwhals; and back to pandas."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

from advect._util.checks import check_known
from advect.errors import InputError
from advect.io.formats.content import Content
from advect.io.formats.kinds import Column
from advect.io.formats.table import check_names, data_frame, grid_names, layout

_WHERE = "the frame"


def frame_fields(
    frame: Any,
    label: Hashable | None,
    weights: Any,
    categorical: str | None,
    probabilities: Any = None,
    target: Any = None,
) -> dict[str, Any]:
    """The arguments of ``LabeledDataset`` for the rows of a data frame."""
    import narwhals as nw
    import pyarrow as pa

    from advect.io.formats.arrow import TableSource

    if hasattr(frame, "iloc") and hasattr(frame, "columns"):  # pandas: no index, names as text
        check_names(_WHERE, [str(name) for name in frame.columns])
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)
    try:
        rows = nw.from_native(frame, eager_only=True)
        fields: dict[str, Any] = {}
        if label is not None:
            check_known("label column", str(label), rows.columns)
            fields |= _labels(rows[str(label)])
            rows = rows.drop(str(label))
        table = rows.to_arrow().combine_chunks().unify_dictionaries()
    except TypeError:
        got, remedy = type(frame).__name__, "Arrays go to LabeledDataset(x, y)."
        raise InputError("a data frame of pandas, polars or Arrow is needed", got, remedy) from None
    except pa.ArrowException as error:
        what, remedy = "features must be numbers, truth values or text", "Convert or drop them."
        raise InputError(what, error, remedy) from None

    def stream(names: list[str], rows: object) -> Iterator[tuple[int, Any]]:
        first = 0
        for batch in table.select(names).to_batches(max_chunksize=1 << 16):
            yield first, batch
            first += len(batch)

    by_name = type(weights) is str and (weights in table.column_names or weights != "balanced")
    own = weights if by_name else False
    place = layout(_WHERE, table.column_names, False, own, None, target, probabilities)
    facts = (stream, table.schema, len(table), place, _categories(table, categorical))
    source: Any = TableSource(_WHERE, *facts, categorical=categorical)
    names = ("columns", "probabilities", "targets", "target_columns")
    fields |= {name: getattr(source, name) for name in names}
    fields |= {"classes": source.classes} if source.probabilities is not None else {}
    named = str(label) if type(label) is str else None
    fields |= {"x": source.read(), "table": replace(source.table, label=named)}
    return {**fields, "weights": source.weights if by_name else weights}


def _labels(series: Any) -> dict[str, Any]:
    """Labels, None where missing, and the categories in their order."""
    both = zip(series.to_list(), series.is_null().to_list(), strict=True)
    fields: dict[str, Any] = {"y": [None if missing else name for name, missing in both]}
    native = series.to_native()
    if hasattr(native, "cat") and hasattr(native.cat, "categories"):  # pandas
        fields["classes"] = native.cat.categories.tolist()
    elif "Categorical" in str(series.dtype) or "Enum" in str(series.dtype):
        fields["classes"] = series.to_arrow().dictionary.to_pylist()
    return fields


def _categories(table: Any, categorical: str | None) -> dict[str, Column]:
    """Categorical columns and their values in order; they need ``categorical``."""
    from pyarrow import types

    known = {}
    for field in table.schema:
        if types.is_dictionary(field.type) and not types.is_temporal(field.type.value_type):
            if categorical is None:
                got, remedy = f"column {field.name!r} of categories", "Pass categorical='onehot'."
                raise InputError("features must be numbers", got, remedy)
            values = table.column(field.name).chunk(0).dictionary.to_pylist()
            whole = all(type(value) is int for value in values)
            values = tuple(values if whole else map(str, values))
            known[field.name] = Column(field.name, "category", values)
    return known


def to_frame(content: Content, label: str | bool | None, weights: str | None) -> Any:
    """A pandas frame with columns in their original types, and labels as categories."""
    named = (content.table and content.table.label) or "label"
    label = named if label is True else label or None
    names = content.columns or grid_names(content.shape)
    if content.columns is None and len(content.shape) == 1:
        names = [f"x{position}" for position in range(content.shape[0])]
    return data_frame(content, names, label, weights)
