"""Samples in files of common formats, as plain arrays: numpy, CSV, Parquet, folders of images,
MNIST's IDX, and formats of one's own.

Readers give labels at once and then the features of chosen rows in one pass, so that a sample of a
large file takes little memory. Writers leave a whole file or none. What the arrays mean is for
``advect.data.dataset``."""

from advect.data.formats.content import Content, Source
from advect.data.formats.kinds import Table
from advect.data.formats.registry import (
    as_path,
    formats,
    kind_of,
    open_source,
    reader_options,
    register_format,
    suffixes_known,
    write,
)

__all__ = [
    "Content",
    "Source",
    "Table",
    "as_path",
    "formats",
    "kind_of",
    "open_source",
    "reader_options",
    "register_format",
    "suffixes_known",
    "write",
]
