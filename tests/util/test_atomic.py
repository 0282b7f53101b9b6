"""Files that are whole or not there: with several writers at a time, and after writers that were killed."""

import errno
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from advect._util.atomic import atomic_directory, atomic_file, write_atomically
from advect.errors import InputError


def fail(place):
    place.write_text("half")
    raise RuntimeError


def leftovers(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


@pytest.mark.slow
def test_several_writers_of_one_file(tmp_path):
    """Threads that write the same file, and a reader: no error, no torn content, nothing left."""
    path, done, torn = tmp_path / "file", threading.Event(), []
    contents = [bytes([65 + writer]) * (200_000 + writer) for writer in range(3)]
    write_atomically(path, contents[0])

    def read():
        while not done.is_set():
            found = path.read_bytes()
            if found not in contents:
                torn.append((len(found), set(found)))

    with ThreadPoolExecutor(4) as pool:
        reader = pool.submit(read)
        try:
            writers = [
                pool.submit(lambda c=content: [write_atomically(path, c) for _ in range(60)])
                for content in contents
            ]
            for writer in writers:
                writer.result()
        finally:
            done.set()
        reader.result()
    assert torn == [] and path.read_bytes() in contents and os.listdir(tmp_path) == ["file"]


def test_a_writer_that_fails_takes_nothing_of_another(tmp_path):
    with atomic_file(tmp_path / "a") as first:
        first.write_text("first")
        with pytest.raises(RuntimeError), atomic_file(tmp_path / "a") as second:
            fail(second)
    assert (tmp_path / "a").read_text() == "first" and os.listdir(tmp_path) == ["a"]


def test_several_writers_of_one_folder(tmp_path):
    path = tmp_path / "d"

    def fill(name):
        for _ in range(20):
            with atomic_directory(path, overwrite=True) as beside:
                for file in "pq":
                    (beside / file).write_text(name)

    with ThreadPoolExecutor(3) as pool:
        for writer in [pool.submit(fill, name) for name in "abc"]:
            writer.result()
    assert (path / "p").read_text() == (path / "q").read_text() and os.listdir(tmp_path) == ["d"]
    with atomic_directory(tmp_path / "e") as slow:
        (slow / "file").write_text("slow")
        with atomic_directory(tmp_path / "e") as fast:
            (fast / "file").write_text("fast")
        with pytest.raises(InputError, match="not empty"), atomic_directory(tmp_path / "e"):
            pass
        # an empty one may be replaced, also one that has come in the meantime
        (tmp_path / "e" / "file").unlink()
    assert (tmp_path / "e" / "file").read_text() == "slow"
    assert sorted(os.listdir(tmp_path)) == ["d", "e"]
    with pytest.raises(InputError, match="not empty"), atomic_directory(tmp_path / "f") as slow:  # noqa: SIM117
        with atomic_directory(tmp_path / "f") as fast:
            (fast / "file").write_text("fast")
    assert (tmp_path / "f" / "file").read_text() == "fast"
    assert sorted(os.listdir(tmp_path)) == ["d", "e", "f"]


KILLED = """
import os, signal, sys
from pathlib import Path
from advect._util.atomic import atomic_directory, atomic_file
with atomic_file(Path(sys.argv[1], "a")) as file, atomic_directory(Path(sys.argv[1], "d")) as folder:
    file.write_text("half")
    (folder / "file").write_text("half")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_what_killed_writers_leave_is_removed(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], **pipes)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    (tmp_path / ".mine.tmp").write_text("not ours")
    link = tmp_path / "link"  # another name of the folder: a writer looks around once in each
    link.symlink_to(tmp_path, target_is_directory=True)
    write_atomically(tmp_path / "other", b"")
    assert len(leftovers(tmp_path)) == 3  # its writer is alive
    child.kill()
    child.communicate(timeout=60)
    write_atomically(link / "other", b"")
    assert leftovers(tmp_path) == [".mine.tmp"]


def test_old_leftovers_of_other_machines(tmp_path):
    names = [f".a.{'0' * 8}-{os.getpid()}-{digit * 12}.tmp" for digit in "12"]
    for name in names:
        (tmp_path / name).write_text("half")
    os.utime(tmp_path / names[1], (0, 0))
    write_atomically(tmp_path / "a", b"")
    assert leftovers(tmp_path) == names[:1]  # the other may still be written


def test_a_folder_put_aside_stays_until_there_is_another(tmp_path):
    """A writer killed between its two renames: the folder that was there is the only one."""
    with atomic_directory(tmp_path / "d") as beside:
        name = beside.name
    aside = re.sub(r"[0-9]+-[0-9a-f]{12}\.tmp$", f"{2**31}-{'0' * 12}.old", name)
    (tmp_path / aside).mkdir()
    (tmp_path / aside / "file").write_text("precious")
    write_atomically(tmp_path / "other", b"")
    with pytest.raises(RuntimeError), atomic_directory(tmp_path / "d"):
        raise RuntimeError
    with atomic_directory(tmp_path / "e"):
        pass
    assert leftovers(tmp_path) == [aside]
    with atomic_directory(tmp_path / "d"):
        pass
    assert leftovers(tmp_path) == []


def test_links_stay_and_an_error_of_the_disk_is_one(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to("file")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"new"

    def fail(_):
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no disk"), atomic_directory(tmp_path / "d") as beside:
        (beside / "file").write_text("whole")
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_long_names(tmp_path):
    for name in ("x" * 250, "é" * 120):
        write_atomically(tmp_path / name, b"whole")
        with atomic_directory(tmp_path / name[::-1].replace(name[0], "y")) as beside:
            (beside / "file").write_text("whole")
        assert (tmp_path / name).read_bytes() == b"whole"
