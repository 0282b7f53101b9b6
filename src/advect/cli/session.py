"""A running command: it reads datasets, checks where results go, turns warnings into notes, and prints the
result on stdout. Everything else goes to stderr.

Exit codes: 0 done, 1 failure, 2 wrong usage or bad input, 3 not converged with ``--strict``, 4 drift found by
``advect drift``, 130 interrupted."""

from __future__ import annotations

import json
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import advect as ad
import advect.registry as registry
from advect._util import (
    ConvergenceWarning,
    InputError,
    Result,
    check_count,
    check_known,
    plain,
    query,
    refuse_if,
    show,
    visible,
    write_atomically,
)
from advect.cli.options import Output, Reading, Table

INPUTS: ContextVar[dict[str, str]] = ContextVar("INPUTS", default={})  # noqa: B039 (never changed)
DONE, FAILED, BAD_INPUT, NOT_CONVERGED, DRIFTED, INTERRUPTED = 0, 1, 2, 3, 4, 130
_PATIENCE = 3.0  # seconds without a word
DATA_FILES = (".npz", ".csv", ".tsv", ".parquet")


class Exit(Exception):
    """Ends a command with an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit {code}")
        self.code = code


class Facts(Result):
    """A result that is a few named values.

    Example:
        >>> print(Facts({"samples": 30, "classes": None}))
        samples  30
    """

    def __init__(
        self, facts: Mapping[str, Any], notes: Iterable[Any] = (), tables: Sequence[Any] = ()
    ) -> None:
        self.facts, self.notes, self.tables = dict(facts), tuple(notes), list(tables)

    def _summary(self) -> dict[str, Any]:
        return {name: value for name, value in self.facts.items() if value not in (None, [], {})}

    def _tables(self) -> list[Any]:
        return self.tables

    def to_dict(self) -> dict[str, Any]:
        """The values, those that are missing included, as JSON."""
        return plain(self.facts) | super().to_dict()


class Session:
    """The state of a running command: options for reading data, the files that it writes, and its output."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.read = output if isinstance(output, Reading) else Reading()
        self.unconverged: list[str] = []
        self.draws: list[str] = []  # notes on draws of the datasets
        self.files: dict[str, Path] = {}
        self.timer = threading.Timer(_PATIENCE, self.note, ["working (Ctrl-C stops)"])
        self.file("report", output.report, ".html", ".htm")

    @property
    def progress(self) -> Any:
        """The ``progress`` argument of the library: None shows it, False is silent."""
        return False if self.output.quiet else None

    def note(self, message: str) -> None:
        """Print a message on stderr unless the command is quiet."""
        if not self.output.quiet:
            say(message)

    def file(self, option: str, path: Path | None, *suffixes: str) -> None:
        """The file that an option names, checked now and again when it is written."""
        if path is None:
            return
        path = path.expanduser()
        refuse_if(
            suffixes and path.suffix.lower() not in suffixes,
            "the file has the wrong suffix",
            path,
            f"Use {', '.join(suffixes)}.",
        )
        refuse_if(
            path.resolve() in [other.resolve() for other in self.files.values()],
            "two results cannot go to one file",
            path,
            "Rename one of them.",
        )
        check_free_file(path, self.output.overwrite)
        self.files[option] = path

    def write(self, option: str, write: Callable[[Path], object]) -> None:
        """Write the file of an option if it was given, and if it is still free."""
        if option in self.files:
            check_free_file(self.files[option], self.output.overwrite)
            write(self.files[option])

    def load(self, reference: str) -> ad.LabeledDataset:
        """Load a dataset; options in the reference take precedence over those of the command."""
        import torch

        read = self.read
        check_count("seed", read.seed, least=0)
        options: dict[str, Any] = {"seed": read.seed, "max_samples": read.max_samples}
        options["balanced"] = read.balanced or None
        chosen = set(_parsed(reference).options)
        chosen |= {"max_samples"} if "n" in chosen else set()
        options = {k: v for k, v in options.items() if v is not None and k not in chosen}
        data = ad.datasets.load(reference, progress=self.progress, **options)
        data = data.to(device(read.device), read.dtype and getattr(torch, read.dtype))
        return data.balanced() if read.equal_mass else data

    def space(self, source: ad.LabeledDataset, target: ad.LabeledDataset) -> ad.FeatureSpace:
        """The common feature space of two datasets."""
        options = registry.convert("space", ad.FeatureSpace.fit, self.read.space or {})
        return ad.FeatureSpace.fit(source, target, **options)

    def pair(
        self, source: str, target: str
    ) -> tuple[ad.LabeledDataset, ad.LabeledDataset, ad.FeatureSpace]:
        """Two datasets in their common feature space, and the space."""
        a, b = self.load(source), self.load(target)
        space = self.space(a, b)
        return space.apply(a), space.apply(b, side="target"), space

    def most(self, *references: str, solver: Any = None) -> int | None:
        """The ``max_samples`` argument of the library: no limit if an option of the command or of a
        reference sets the number of samples, or if the solver works by batches.
        """
        is_set = self.read.max_samples is not None or any(
            {"n", "max_samples"} & {*_parsed(reference).options} for reference in references
        )
        return 2**62 if is_set or (solver is not None and solver.stochastic) else None

    def sampled(
        self,
        sets: Sequence[ad.LabeledDataset],
        work: str,
        *references: str,
        solver: Any = None,
    ) -> list[ad.LabeledDataset]:
        """Datasets, or draws for which a computation takes a minute if no option sets their size."""
        from advect.data.size import drawn

        few, note = drawn(sets, work, self.most(*references, solver=solver), seed=self.read.seed)
        if note:
            self.draws.append(note.replace("max_samples", "--max-samples"))
            self.note(self.draws[-1])
        return few

    def in_space(self, *sets: ad.LabeledDataset) -> list[ad.LabeledDataset]:
        """The first two datasets span the space; unchanged if they fit and no option is set."""
        first, second = sets[0], sets[min(1, len(sets) - 1)]
        fits = first.sample_shape == second.sample_shape and first.columns == second.columns
        if fits and not self.read.space:
            return list(sets)
        space = self.space(first, second)
        return [space.apply(first), *(space.apply(data, side="target") for data in sets[1:])]

    def cost(self, table: Table, *sets: ad.LabeledDataset) -> ad.GroundCost:
        """The ground cost; between values where the datasets have continuous targets."""
        from advect.data.dataset import has_classes

        texts: dict[str, Any] = dict(table or {})
        if "label" not in texts and not all(map(has_classes, sets)):
            texts["label"] = "values"
        return registry.make("cost", texts)

    def embedding(self, text: str) -> Any:
        """The ``embedding`` argument of the library."""
        names = ("auto", "features", "gradients", "standardized")
        if text not in names:
            with suppress(ValueError):
                return query.typed(text, "int | float")
            check_known("embedding (or a number of principal components)", text, names)
        return None if text == "features" else text

    def finish(
        self,
        result: Any,
        facts: Mapping[str, Any] | None = None,
        *,
        title: str = "",
        converged: bool = True,
        **files: Path | None,
    ) -> None:
        """Write the page, and print the result as text or JSON; with ``--strict``, exit 3 if something did
        not converge. ``files`` are further files that were written.
        """
        if title:
            self.write("report", lambda path: result.report(path, title=title))
        written = {name: path for name, path in (self.files | files).items() if path is not None}
        if self.output.json:
            table = {**INPUTS.get(), **(facts or {}), **result.to_dict(), **written}
            table["notes"] = [*self.draws, *table.get("notes", ())]
            text = json.dumps(plain(table), ensure_ascii=False, allow_nan=False)
        else:
            places = "\n".join(f"{name} written to {show(path)}" for name, path in written.items())
            draws = "\n".join(f"note: {note}" for note in self.draws)
            text = "\n\n".join(filter(None, (str(result), draws, places)))
        _print(text, sys.stdout)
        if self.output.strict and (self.unconverged or not converged):
            say(f"not converged: {(self.unconverged or ['the transport problem'])[0]}")
            raise Exit(NOT_CONVERGED)


@contextmanager
def session(output: Output) -> Iterator[Session]:
    """A session that shows each warning once, and says that it works if that takes some seconds."""
    running = Session(output)
    seen: set[str] = set()

    def note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, ConvergenceWarning):
            running.unconverged.append(str(message))
        if str(message) not in seen:
            seen.add(str(message))
            running.note(visible(f"warning: {message}"))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = note
        running.timer.start()
        try:
            yield running
        finally:
            running.timer.cancel()


def device(name: str) -> Any:
    """A device that is available."""
    import torch

    try:
        place = torch.device(name)
        torch.zeros(1, device=place).item()  # fails for meta
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            "no such device", f"{name} ({str(error).splitlines()[0]})", "Use cpu, for instance."
        ) from None
    return place


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a table as readable JSON."""
    write_atomically(path, (json.dumps(plain(facts), indent=2, ensure_ascii=False) + "\n").encode())


def write_table(path: Path, result: Any) -> None:
    """Write the table of a result as CSV."""
    write_atomically(path, result.to_pandas().to_csv(index=False).encode())


def check_free_file(path: Path, overwrite: bool) -> None:
    """Raise an error unless a file can be written there."""
    refuse_if(
        path.exists() and not path.is_file(),
        "a directory or device exists at this path",
        path,
        "Choose another name.",
    )
    refuse_if(
        path.exists() and not overwrite,
        "the file exists",
        path,
        "Pass --overwrite, or choose another name.",
    )
    check_parents(path)


def check_parents(path: Path) -> None:
    """Raise an error if a parent of the path is a file."""
    there = next((folder for folder in path.absolute().parents if folder.exists()), None)
    refuse_if(
        there is not None and not there.is_dir(),
        "a parent folder is a file",
        there,
        "Choose another place.",
    )


def absolute_reference(reference: str) -> str:
    """The reference with an absolute path.

    Example:
        >>> absolute_reference("digits?n=5")
        'digits?n=5'
    """
    parsed = _parsed(reference)
    if not (parsed.is_file or parsed.kind == "run"):
        return reference
    scheme = "" if parsed.kind == "path" else f"{parsed.kind}:"
    rest = reference.removeprefix(scheme)[len(parsed.path) :]
    return f"{scheme}{Path(parsed.path).expanduser().absolute()}{rest}"


def _parsed(reference: str) -> Any:
    from advect.io.loading import Reference

    return Reference.parse(reference, names=[row.name for row in ad.datasets.names()])


def short_names(references: Sequence[str]) -> list[str]:
    """A short unique name for each reference, for tables and file names.

    Example:
        >>> short_names(["usps?n=5", "csv:data/my pets.csv?label=kind", "usps"])
        ['usps', 'my-pets', 'usps-2']
    """
    names: list[str] = []
    for reference in references:
        path = re.sub(r"^[a-z]+:(?=.)", "", reference.partition("?")[0])
        stem = Path(path.rstrip("/")).name.partition(".")[0] or "data"
        name = re.sub(r"[^\w@=-]+", "-", stem).strip("-") or "data"
        numbered = (f"{name}-{k}" for k in range(2, len(references) + 2))
        names.append(next(free for free in (name, *numbered) if free not in names))
    return names


def say(message: str) -> None:
    """Print a message on stderr; nothing if it is closed."""
    with suppress(OSError, ValueError, AttributeError):
        _print(message, sys.stderr)


def _print(text: str, stream: Any) -> None:
    """Print a text with escaped control characters; ASCII only if the stream requires it."""
    text = "\n".join(map(visible, text.split("\n")))
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:
        print(text.encode("ascii", "replace").decode(), file=stream, flush=True)
