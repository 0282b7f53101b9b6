"""Tables and annotated matrices of other libraries, to and from data frames. Each library is imported on
demand."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from advect._util import InputError, check_known, check_room, one_or_more, refuse_if

INDEX = "__index_level_"  # how pandas begins the name of an index without a name in other tables


def as_frame(data: Any, label: Any, weights: Any, target: Any) -> Any:
    """A table from a Hugging Face dataset, a frame from an AnnData object; anything else as it is."""
    members = {*dir(data)}
    if members >= {"with_format", "features", "__getitem__"}:
        return _from_huggingface(data)
    if not members >= {"obs", "var_names", "to_df"}:
        return data
    what, wanted = "the dense X of the AnnData object", {*map(str, one_or_more(target or ()))}
    check_room(what, 8 * data.n_obs * data.n_vars, "Select variables or samples first.")
    if label is not None:
        check_known("column of obs", str(label), map(str, data.obs.columns))
    obs = data.obs.loc[:, data.obs.columns.astype(str).isin(wanted | {str(label), str(weights)})]
    both = ", ".join(data.var_names.intersection(obs.columns))
    refuse_if(both, "a name must be of obs or of var", both, "Rename one of them.")
    return data.to_df().join(obs)


def _from_huggingface(data: Any) -> Any:
    """The table of a Hugging Face dataset, whose class labels become categories; −1 is a missing label."""
    import pyarrow as pa

    table = data.with_format("arrow")[:]
    for at, name in enumerate(table.column_names):
        if "names" in dir(data.features[name]):
            codes = [None if code == -1 else code for code in table.column(at).to_pylist()]
            parts = pa.array(codes, pa.int32()), pa.array(data.features[name].names)
            table = table.set_column(at, name, pa.DictionaryArray.from_arrays(*parts))
    return table


def split_index(table: Any) -> tuple[Any, Any]:
    """An Arrow table without the index of a pandas frame, and this index or None."""
    listed = (table.schema.pandas_metadata or {}).get("index_columns", ())
    names = [name for name in table.column_names if name in listed or name.startswith(INDEX)]
    if not names:
        return table, None
    index = table.select(names).replace_schema_metadata().to_pandas().set_index(names).index
    index.names = [None if name.startswith(INDEX) else name for name in names]
    return table.drop_columns(names), index


def arrow_table(frame: Any) -> Any:
    """A pandas frame as an Arrow table. Categories that are not text become plain values, and the index
    loses its name, so that ``split_index`` finds it in every table."""
    import pyarrow as pa

    for name, kind in frame.dtypes.items():
        if kind == "category" and frame[name].cat.categories.inferred_type != "string":
            frame = frame.assign(**{name: frame[name].astype(object)})
    try:
        return pa.Table.from_pandas(frame.rename_axis([None] * frame.index.nlevels))
    except (pa.ArrowException, TypeError) as error:
        what, got = "a column of this table must be of one type", str(error).splitlines()[0]
        raise InputError(what, got, "Take to_pandas(), or save .npz.") from None


def _categories(table: Any) -> dict[str, Any]:
    """The columns of categories."""
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return {name: column for name, column in columns.items() if "dictionary" in dir(column)}


def polars_frame(table: Any) -> Any:
    """An Arrow table as a polars frame; categories become enumerations, which have an order."""
    import narwhals as nw

    found = _categories(table).items()
    enums = [nw.col(name).cast(nw.Enum(column.dictionary.to_pylist())) for name, column in found]
    return nw.from_arrow(table, backend="polars").with_columns(enums).to_native()


def huggingface_dataset(table: Any) -> Any:
    """An Arrow table as a Hugging Face dataset; categories become class labels."""
    datasets: Any = import_module("datasets")
    features = datasets.Dataset(table).features
    for name, column in _categories(table).items():
        features[name] = datasets.ClassLabel(names=column.dictionary.to_pylist())
        table = table.set_column(table.column_names.index(name), name, column.indices.cast("int64"))
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=features))


def anndata_object(frame: Any, n_features: int) -> Any:
    """A frame whose first columns are the features as an AnnData object."""
    anndata: Any = import_module("anndata")
    frame = frame.set_axis(frame.index.astype(str)).rename(columns=str)
    x, obs = frame.iloc[:, :n_features], frame.iloc[:, n_features:]
    return anndata.AnnData(X=x.to_numpy(), obs=obs, var=x.iloc[:0].T)
