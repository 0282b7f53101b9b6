"""Terms of the objective as text: a weight, a name and options, as in ``0.5*ball?centre=0,5&radius=2``.

In a TOML file a term may also be a table: ``{name = "ball", weight = 0.5, centre = [0, 5], radius = 2}``."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cyclopts import App, ArgumentCollection

from advect._util import query, registry
from advect._util.checks import check_known, check_number
from advect.cli.code import TYPED, Permission, absolute, is_code, load_object
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad

# options whose value may be path.py:name; for objects, the keys
_TAKE_CODE = ("--functional", "--metric", "--embedding")
_CODE_KEYS = {"--cost": ("embedding",), "--space": ("encoder", "decoder")}
_KINDS = ("functional", "potential", "interaction")
_DISTANCES = ("otdd", "sliced", "class-mmd")
_WEIGHT = re.compile(
    r"\s*(?P<weight>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*\*\s*(?P<rest>.*)", re.DOTALL
)


@dataclass(frozen=True)
class Term:
    """One term: a weight, a short name or ``path.py:name``, and options as text.

    Example:
        >>> Term.parse("0.5*ball?centre=0,5&radius=2")
        Term(name='ball', weight=0.5, options={'centre': '0,5', 'radius': '2'})
    """

    name: str
    weight: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Term:
        """Read a term; a table of a TOML file comes as JSON."""
        if text.lstrip().startswith("{"):
            try:
                table = json.loads(text)
                name, weight = str(table.pop("name")), table.pop("weight", 1.0)
            except (ValueError, KeyError, AttributeError, RecursionError):
                raise InputError(
                    "a term must be text or a table with a name",
                    text,
                    'For example {name = "norm", weight = 0.1}.',
                ) from None
            term = cls(name, check_number("the weight of a term", weight), table)
        else:
            match = _WEIGHT.fullmatch(text)
            weight, rest = (float(match["weight"]), match["rest"]) if match else (1.0, text.strip())
            name, _, options = rest.partition("?")
            term = cls(name, weight, dict(query.split(options, text)))
        if not is_code(term.name):
            names = [name for kind in _KINDS for name in registry.known(kind)]
            check_known("functional", term.name, names)
        return term

    @property
    def target(self) -> str | None:
        """The reference of the dataset that a distance goes to; empty for the main target."""
        return str(self.options.get("target", "")) if self.name in _DISTANCES else None

    @property
    def kind(self) -> str:
        """The kind in the registry, or ``code``."""
        return next((kind for kind in _KINDS if self.name in registry.known(kind)), "code")


def note_typed(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Remember the code that was typed; cyclopts calls this before other sources of values."""
    names: list[str] = []
    for argument in arguments:
        tokens = [token for token in argument.tokens if token.source == "cli"]
        if not tokens:
            continue
        option = next((name for name in argument.names if name.startswith("--")), "")
        keys = _CODE_KEYS.get(option, ())
        values = [token.value for token in tokens if token.keys and token.keys[-1] in keys]
        values += [token.value for token in tokens] if option in _TAKE_CODE else []
        names += map(_term_name, values) if option == "--functional" else values
    TYPED.set(tuple(filter(is_code, names)))


def _term_name(text: str) -> str:
    """The name in a term: that of ``0.1*mine.py:f?a=1`` is ``mine.py:f``."""
    try:
        return Term.parse(text).name
    except InputError:  # whoever uses the term raises it again
        return ""


def absolute_term(text: str) -> str:
    """The term with the absolute path of its Python file.

    Example:
        >>> absolute_term("0.1*norm")
        '0.1*norm'
    """
    term = Term.parse(text)
    if not is_code(term.name):
        return text
    name = absolute(term.name)
    if text.lstrip().startswith("{") or "?" in name:
        return json.dumps({"name": name, "weight": term.weight, **term.options})
    return text.replace(term.name, name, 1)


def functional(
    terms: Iterable[str],
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
    shared: Mapping[str, Any],
) -> ad.Functional:
    """The sum of all terms; ``shared`` are the arguments of every OTDD."""
    parts = [_build(Term.parse(text), source, targets, code, shared) for text in terms]
    return sum(parts[1:], start=parts[0])


def _build(
    term: Term,
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
    shared: Mapping[str, Any],
) -> ad.Functional:
    import advect as ad

    options = dict(term.options)
    data: dict[str, Any] = {}
    if term.target is not None:
        options.pop("target", None)
        data["target"] = targets[term.target]
    if term.kind == "code":
        made = _user_functional(term, options, source, targets.get(""), code)
    elif term.name == "otdd":
        for option in options:
            remedy = "; use --cost and --solver"
            check_known("option of otdd", option, ["target"], remedy)
        made = ad.OTDD(**data, **shared)
    else:
        made = registry.make(term.kind, {"name": term.name, **options}, **data)
        if term.kind != "functional":
            made = (ad.Potential if term.kind == "potential" else ad.Interaction)(made)
            _check_dimension(made, term.name, source)
    return made if term.weight == 1 else term.weight * made


def _check_dimension(made: ad.Functional, name: str, source: ad.LabeledDataset) -> None:
    """Evaluate once, so that options of another dimension are found before anything is written."""
    try:
        made(source.subset(range(min(2, len(source)))))
    except (RuntimeError, IndexError) as error:
        what = f"{name} does not fit samples of {source.dim} features"
        raise InputError(what, str(error).splitlines()[0], "Check its options.") from None


def _user_functional(
    term: Term,
    options: dict[str, Any],
    source: ad.LabeledDataset,
    target: ad.LabeledDataset | None,
    code: Permission,
) -> ad.Functional:
    """A functional in a Python file, or a class or function that makes one; it gets ``source`` and
    ``target`` if it takes them.
    """
    import advect as ad

    made = load_object(term.name, "a functional", code)
    if callable(made) and not isinstance(made, ad.Functional):
        own = inspect.signature(made).parameters
        datasets = {"source": source, "target": target}
        shared = {name: data for name, data in datasets.items() if name in own}
        free = any(one.kind is one.VAR_KEYWORD for one in own.values())
        for name in options:
            if name in shared or not free:
                check_known(f"option of {term.name}", name, own.keys() - shared.keys())
        texts = {name: text for name, text in options.items() if name in own}
        extra = {k: query.guess(registry.as_text(options[k])) for k in options if k not in own}
        try:
            made = registry.call(term.name, made, texts, {**shared, **extra})
        except (TypeError, ValueError) as error:
            remedy = f"It takes {', '.join(own) or 'nothing'}."
            raise InputError(f"{term.name} cannot be made", error, remedy) from error
    elif options:
        got = f"options {', '.join(options)}"
        raise InputError(f"{term.name} is an object, not a class", got, "Name its class instead.")
    if not isinstance(made, ad.Functional):
        got = type(made).__name__
        raise InputError(f"{term.name} must be a Functional", got, "Subclass ad.Functional.")
    return made
