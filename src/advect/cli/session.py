"""A running command: it reads datasets, checks where results go, turns warnings into notes, and prints the
result on stdout. Everything else goes to stderr.

Exit codes: 0 done, 1 failure, 2 wrong usage or bad input, 3 not converged with ``--strict``, 4 drift found by
``advect drift``, 130 interrupted."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advect._util import registry
from advect._util.result import Result, plain
from advect.cli.code import Permission, load_network, load_object
from advect.cli.options import Output, Reading, Table, Writing
from advect.errors import ConvergenceWarning, InputError

if TYPE_CHECKING:
    import advect as ad

DONE, FAILED, BAD_INPUT, NOT_CONVERGED, DRIFTED, INTERRUPTED = 0, 1, 2, 3, 4, 130
PAGES, DATA_FILES = (".html", ".htm"), (".npz", ".csv", ".tsv", ".parquet")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but newline and tab


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

    def __init__(self, facts: Mapping[str, Any], notes: Iterable[Any] = ()) -> None:
        self.facts, self.notes = dict(facts), tuple(notes)

    def _summary(self) -> dict[str, Any]:
        return {name: _inline(one) for name, one in self.facts.items() if one not in (None, [], {})}

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON."""
        return plain({**self.facts, "notes": [str(note) for note in self.notes]})


def _inline(value: Any) -> Any:
    match value:
        case Mapping():
            return ", ".join(f"{name}: {_inline(part)}" for name, part in value.items())
        case list() | tuple():
            return ", ".join(str(_inline(part)) for part in value)
    return f"{value:.6g}" if type(value) is float else value


class Session:
    """What a command uses while it runs."""

    def __init__(self, output: Output, code: Permission) -> None:
        self.output, self.code = output, code
        self.read = output if isinstance(output, Reading) else Reading()
        self.overwrite = isinstance(output, Writing) and output.overwrite
        self.strict = isinstance(output, Writing) and output.strict
        self.unconverged: list[str] = []
        self._places: list[Path] = []

    @property
    def progress(self) -> Any:
        """The ``progress`` argument of the library: None shows it, False is silent."""
        return False if self.output.quiet else None

    def note(self, message: str) -> None:
        """Print a message on stderr unless the command is quiet."""
        if not self.output.quiet:
            say(message)

    def detail(self, message: str) -> None:
        """Print a message on stderr if the command is verbose."""
        if self.output.verbose:
            say(message)

    def place(self, path: Path | None, suffixes: Sequence[str] = ()) -> Path | None:
        """A file to write, checked now and again when the result is there."""
        if path is None:
            return None
        path = path.expanduser()
        if suffixes and path.suffix.lower() not in suffixes:
            raise InputError("the file has another suffix", path, f"Use {', '.join(suffixes)}.")
        if path.resolve() in [other.resolve() for other in self._places]:
            raise InputError("two results cannot go to one file", path, "Rename one of them.")
        check_free_file(path, self.overwrite)
        self._places.append(path)
        return path

    def recheck(self) -> None:
        """Check again that files are free: something may have been written meanwhile."""
        for path in self._places:
            check_free_file(path, self.overwrite)

    def load(self, reference: str) -> ad.LabeledDataset:
        """A dataset; what the reference says itself takes precedence over the options."""
        import torch

        import advect as ad
        from advect.data.conversions import has_classes
        from advect.io.reference import Reference

        read = self.read
        own = Reference.parse(reference, names=[row.name for row in ad.datasets.names()]).options
        wanted: dict[str, Any] = {"seed": read.seed, "max_samples": read.max_samples}
        wanted["balanced"] = read.balanced or None
        if "n" in own:
            wanted.pop("max_samples")
        given = {name: value for name, value in wanted.items() if value is not None}
        given = {name: value for name, value in given.items() if name not in own}
        data = ad.datasets.load(reference, progress=self.progress, **given)
        data = data.to(device(read.device), read.dtype and getattr(torch, read.dtype))
        self.detail(f"{reference}: {data}")
        if not read.equal_mass:
            return data
        if not (bool(data.labeled.all()) and has_classes(data)):
            raise InputError(
                "equal_mass needs a label for every sample",
                reference,
                "Leave equal_mass out, or name the labels in the reference (?label=…).",
            )
        return data.balanced()

    def coders(self, table: Table) -> dict[str, Any]:
        """The encoder and decoder of a feature space."""
        texts = {name: (table or {}).get(name) for name in ("encoder", "decoder")}
        return {
            name: load_network(text, f"the {name}", self.code)
            for name, text in texts.items()
            if text is not None
        }

    def space(
        self, source: ad.LabeledDataset, target: ad.LabeledDataset, table: Table
    ) -> ad.FeatureSpace:
        """The common feature space of two datasets."""
        import advect as ad

        coders = self.coders(table)
        texts = {name: text for name, text in (table or {}).items() if name not in coders}
        values = registry.converted("space", ad.FeatureSpace.fit, texts)
        if coders:
            values["progress"] = self.progress
        space = ad.FeatureSpace.fit(source, target, **values, **coders)
        self.detail(space.describe())
        return space

    def pair(
        self, one: str, other: str, table: Table
    ) -> tuple[ad.LabeledDataset, ad.LabeledDataset, ad.FeatureSpace]:
        """Two datasets in their common feature space, and the space."""
        a, b = self.load(one), self.load(other)
        space = self.space(a, b, table)
        return space.apply(a), space.apply(b, side="target"), space

    def in_space(
        self, sets: Sequence[ad.LabeledDataset], table: Table
    ) -> tuple[list[ad.LabeledDataset], ad.FeatureSpace | None]:
        """The first two datasets span the space; unchanged if they fit and no option is set."""
        first, second = sets[0], sets[min(1, len(sets) - 1)]
        fits = first.sample_shape == second.sample_shape and first.columns == second.columns
        if fits and not table:
            return list(sets), None
        space = self.space(first, second, table)
        return [space.apply(first), *(space.apply(one, side="target") for one in sets[1:])], space

    def cost(self, table: Table, *sets: ad.LabeledDataset, **usual: Any) -> ad.GroundCost:
        """The ground cost; between values where the datasets have continuous targets."""
        import advect as ad
        from advect.data.conversions import has_classes

        texts: dict[str, Any] = dict(table or {})
        embedding = texts.pop("embedding", None)
        if "label" not in texts and not all(map(has_classes, sets)):
            texts["label"] = "values"
        if embedding is not None:
            function = load_object(embedding, "an embedding", self.code)
            usual["feature"] = ad.Embedding(function)
        return registry.make("cost", texts, **usual)

    def embedding(self, text: str) -> Any:
        """The ``embedding`` argument of the library."""
        if text in ("auto", "gradients", "standardized"):
            return text
        if text == "features":
            return None
        try:
            return float(text) if "." in text else int(text)
        except ValueError:
            return load_network(text, "embedding", self.code)

    def finish(
        self,
        result: Any,
        facts: Mapping[str, Any] | None = None,
        files: Mapping[str, Path | None] | None = None,
        *,
        page: Path | None = None,
        title: str = "",
        converged: bool = True,
    ) -> None:
        """Write the page, and print the result as text or JSON; with ``--strict``, exit 3 if something did
        not converge.
        """
        if page is not None:
            check_free_file(page, self.overwrite)
            result.report(page, title=title)
            files = {**(files or {}), "report": page}
        written = {name: path for name, path in (files or {}).items() if path is not None}
        if self.output.json:
            table = {**(facts or {}), **result.to_dict(), **(files or {})}
            text = json.dumps(plain(table), ensure_ascii=False, allow_nan=False)
        else:
            places = [f"{name} written to {path}" for name, path in written.items()]
            text = "\n".join([str(result), *([""] if places and str(result) else []), *places])
        _print(text, sys.stdout)
        if self.strict and (self.unconverged or not converged):
            say(f"not converged: {(self.unconverged or ['the transport problem'])[0]}")
            raise Exit(NOT_CONVERGED)


@contextmanager
def session(
    output: Output, *tables: Table, code: Iterable[str | None] = (), light: bool = False
) -> Iterator[Session]:
    """A session; code that ``tables`` or ``code`` name is refused here unless it is permitted.

    ``light`` commands only read files and do not load torch.
    """
    named = [text for table in tables for text in (table or {}).values()]
    run_code = isinstance(output, Writing) and output.run_code
    running = Session(output, Permission.given(run_code, [*named, *code]))
    if not light and "torch" not in sys.modules:
        with loading("loading torch …"):
            import torch as _torch  # noqa: F401
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, ConvergenceWarning):
            running.unconverged.append(str(message))
        if str(message) not in seen:
            seen.add(str(message))
            running.note(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield running


@contextmanager
def loading(text: str) -> Iterator[None]:
    """A line on a terminal while libraries are loaded."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    if shown:
        print(text, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def device(name: str) -> Any:
    """A device that is available."""
    import torch

    try:
        place = torch.device(name)
        torch.zeros(1, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise InputError(
            "no such device", f"{name} ({why})", "Use cpu; see advect doctor."
        ) from None
    return place


def check_free_file(path: Path, overwrite: bool) -> None:
    """Raise an error unless a file can be written there."""
    if path.is_dir():
        raise InputError("a directory is in the way", path, "Choose another name.")
    if path.exists() and not path.is_file():
        raise InputError("not a regular file", path, "Choose another name.")
    if path.exists() and not overwrite:
        raise InputError("the file exists", path, "Pass --overwrite, or choose another name.")
    check_parents(path)


def check_parents(path: Path) -> None:
    """Raise an error if a parent of the path is a file."""
    there = next((folder for folder in path.absolute().parents if folder.exists()), None)
    if there is not None and not there.is_dir():
        raise InputError("a parent folder is a file", there, "Choose another place.")


def absolute_reference(reference: str) -> str:
    """The reference with an absolute path.

    Example:
        >>> absolute_reference("digits?n=5")
        'digits?n=5'
    """
    import advect as ad
    from advect.io.reference import Reference

    parsed = Reference.parse(reference, names=[row.name for row in ad.datasets.names()])
    if not (parsed.is_file or parsed.kind == "run"):
        return reference
    scheme = "" if parsed.kind == "path" else f"{parsed.kind}:"
    rest = reference.removeprefix(scheme)[len(parsed.path) :]
    return f"{scheme}{Path(parsed.path).expanduser().absolute()}{rest}"


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
    """Print a text, control characters escaped; ASCII only if the stream knows no more."""
    text = _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:
        print(text.encode("ascii", "replace").decode(), file=stream, flush=True)
