"""Samples in files as plain arrays: numpy, CSV, Parquet, folders of images.

Arrays that are not compressed are mapped and images are decoded on demand, so that a sample of a
large file takes little memory. Writers are atomic. These functions do not depend on datasets."""

from advect.io.formats.content import Content as Content
from advect.io.formats.registry import (
    as_path as as_path,
    formats as formats,
    kind_of as kind_of,
    open_source as open_source,
    reader_options as reader_options,
    write as write,
)
from advect.io.formats.table import Table as Table
