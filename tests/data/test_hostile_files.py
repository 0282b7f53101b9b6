"""Files from strangers: nothing they hold starts a program, hangs, or takes memory out of all proportion."""

import gzip
import io
import os
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deadlines import within
from PIL import EpsImagePlugin, Image

import advect as ad
from advect.errors import InputError
from advect.io.formats import kind_of, open_source


def picture(path, size=(4, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size).save(path, "png")


def test_an_eps_in_a_png_starts_no_program(tmp_path, monkeypatch):
    started = []
    result = Image.new("RGB", (9, 9)).im
    start = lambda *args, **_: started.append(args) or result
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", start)
    picture(tmp_path / "f" / "a" / "x.png")
    text = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(some) run\n%%EOF\n"
    (tmp_path / "f" / "a" / "y.png").write_bytes(text)
    with pytest.raises(InputError, match="damaged.*y.png"):
        open_source(tmp_path / "f", size=4, channels="gray").read()
    assert started == []


def strange(path, kind):
    if kind == "device":
        os.symlink("/dev/zero", path)
    else:
        os.mknod(path, 0o600 | {"pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK}[kind])
    return path


@pytest.mark.parametrize("name", ["a.npz", "a.csv", "a.parquet"])
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_pipes_and_devices_are_refused(kind, name, tmp_path):
    place = strange(tmp_path / name, kind)
    for read in (open_source, kind_of, ad.datasets.load):
        with within(5), pytest.raises(InputError, match=f"not a file .*{name}"):
            read(place)
    picture(tmp_path / "f" / "a" / "x.png")
    strange(tmp_path / "f" / "a" / "y.png", kind)
    with within(5), pytest.raises(InputError, match="not a file or directory; got .*y.png"):
        open_source(tmp_path / "f").read()


@pytest.mark.parametrize("kind", ["ICO", "PCX", "TGA"])
def test_only_the_formats_that_are_named_are_decoded(kind, tmp_path):
    out = io.BytesIO()
    Image.new("L", (32, 32)).save(out, kind)
    picture(tmp_path / "f" / "a" / "x.png")
    (tmp_path / "f" / "a" / "x.png").write_bytes(out.getvalue())
    with pytest.raises(InputError, match="damaged"):
        open_source(tmp_path / "f").read()


MILLION = 1 << 20
BOMBS = {
    "a.csv.gz": lambda path: path.write_bytes(gzip.compress(b"u,v\n" + b"0,0\n" * MILLION)),
    "a.npz": lambda path: np.savez_compressed(path, x=np.zeros((MILLION, 1))),
    "a.parquet": lambda path: pq.write_table(pa.table({"u": np.zeros(MILLION)}), path),
}


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_is_bounded(name, tmp_path, monkeypatch):
    monkeypatch.setattr("advect._util.memory._LARGE", 1 << 16)
    monkeypatch.setattr("advect._util.memory.free_memory", lambda device: 1 << 20)
    BOMBS[name](tmp_path / name)
    with pytest.raises(InputError, match="does not fit into memory"):
        open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "message"),
    [(b"0," * 512, "262,144 characters"), (b"u,v\n" + b'"\n",' * 200, "damaged")],
    ids=["one line", "lines that quotes join"],
)
def test_a_row_without_an_end_is_not_held_in_memory(line, message, tmp_path, monkeypatch):
    monkeypatch.setattr("advect.io.formats.tables._LONGEST", 1 << 18)  # else 16 million
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(line * 400))
    with pytest.raises(InputError, match=message):
        open_source(tmp_path / "a.csv.gz")


def test_a_long_text_that_is_repeated_is_held_once(tmp_path, monkeypatch):
    word, n = "w" * 1_000_000, 3000  # 3 GB, were each row to have its own
    codes = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([word]))
    table = pa.table({"u": np.arange(n, dtype=float), "label": codes})
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False)
    before = pa.total_allocated_bytes()
    assert open_source(tmp_path / "a.parquet").classes == (word,)
    assert pa.default_memory_pool().max_memory() - before < 200_000_000


def test_what_does_not_fit_into_memory_is_refused_at_once(tmp_path, monkeypatch):
    with open(tmp_path / "a.npy", "wb") as file:
        facts = {"descr": "<f8", "fortran_order": False, "shape": (1 << 37, 2)}
        np.lib.format.write_array_header_1_0(file, facts)
        file.truncate(file.tell() + (1 << 41))  # 2 TiB that take no place on the disk
    with pytest.raises(InputError, match="does not fit into memory"):
        open_source(tmp_path / "a.npy").read()
    assert open_source(tmp_path / "a.npy").read(np.array([7])).tolist() == [[0.0, 0.0]]


def test_a_very_wide_table_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(map(str, range(1_048_577))) + "\n")
    with within(20), pytest.raises(InputError, match="1,048,576 columns"):
        open_source(tmp_path / "a.csv")


def test_deep_nesting(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=[0, 1], names=np.array("[" * 100_000))
    with pytest.raises(InputError, match="damaged"):
        open_source(tmp_path / "a.npz").read()


def test_data_that_cannot_be_read_is_not_replaced_by_another(tmp_path, monkeypatch):
    """Nobody may look into the directory; modes mean nothing to root."""
    place, look_up, access = tmp_path / "closed", os.stat, os.access
    place.mkdir()
    monkeypatch.setenv("ADVECT_DATA", str(place))

    def look(path, *args, **kwargs):
        if str(path).startswith(f"{place}/"):
            raise PermissionError(13, "Permission denied", str(path))
        return look_up(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", look)
    allowed = lambda path, mode: str(path) != str(place) and access(path, mode)
    monkeypatch.setattr(os, "access", allowed)
    with pytest.raises(InputError, match="ADVECT_DATA"):
        ad.datasets.load("mnist", n=10)
