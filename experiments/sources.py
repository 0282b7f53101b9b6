"""Numbers in the documentation that look measured and have no source.

A number has a source if it is written from a file of results (a block, or the template of
docs/results.md: see ``report.py``), if its paragraph or line of a table names a test that holds it,
or if ``constants.toml`` says what it is: a setting, a limit, a formula. An expression that only
holds numbers reads no file. Code is not prose."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from evidence import FOLDER
from report import BLOCK, RESULTS, ROOT, TEMPLATE

CONSTANTS = FOLDER / "constants.toml"
_DIGITS = r"\d[\d,]*(?:\.\d+)?"
_WORDS = (
    "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|fifty|hundred|half"
)
_UNITS = (
    r"%|per cent|percent|times|points?|seconds?|s\b|ms\b|minutes?|min\b|hours?|h\b|days?|"
    r"[kMGT]i?B\b|bytes|flops|x\b|× (?:as|faster|slower|more|less|larger|smaller)"
)
MEASURED = re.compile(
    rf"(?im)±\s*{_DIGITS}"
    rf"|\d[\d,]*\.\d+(?:e[-−]?\d+)?|\d+e[-−]?\d+|n\^\d\S*"
    rf"|{_DIGITS}\s?(?:{_UNITS})"
    rf"|(?<![\w.]){_DIGITS} (?:of|out of|in) (?:{_DIGITS}|{_WORDS})\b"
    r"|\b\d{1,3}/\d{1,3}\b|(?<!\S)\.\d+"
    rf"|(?<=.)\|\s*\**{_DIGITS}\**\s*(?=\|)|<td>{_DIGITS}|\bfactor of {_DIGITS}"
    rf"|\baccurac\w+ (?:of|is|reaches|rises to|falls to|drops to) {_DIGITS}"
    rf"|\b(?:{_WORDS}) (?:times|per cent|percent|points|seconds|minutes|(?:out )?of (?:{_WORDS}|\d+))\b"
    rf"|\b(?:{_WORDS})-?fold\b|\border of magnitude\b|\baccuracy (?:doubles|halves)\b"
    r"|\b(?:two|three|four) (?:thirds|quarters|fifths)\b"
    rf"|\b(?:{_WORDS}|one) in (?:{_WORDS})\b"
    r"|\btwice as (?:fast|slow|long|much|many|good)\b"
    r"|\ba (?:third|quarter|fifth|sixth|tenth|twentieth) (?:longer|shorter|faster|slower|less|more|or less)\b"
)
_CODE = re.compile(
    r"```.*?```|`[^`\n]*`|(?<=\n\n)(?:    [^\n]*\n)+|https?://\S+|\]\([^)]*\)", re.DOTALL
)
_NAMED = re.compile(r"(?:§|[Ss]ections? |Python )\d+(?:\.\d+)*")  # of papers and versions
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_LITERAL = re.compile(r"(?<![\w.])\d+\.\d+")
# of an expression without a name, which reads no file
_PLAIN = r"""(?:[^A-Za-z"'{}]|"[^"]*"|'[^']*')*"""
_BARE = re.compile(rf"\{{\{{{_PLAIN}\}}\}}|\{{%-?\s*set\s[^=]*={_PLAIN}%\}}")
_TEST = re.compile(r"tests/[\w/]+(?:\.py)?")


@dataclass(frozen=True)
class Found:
    """A number without a source."""

    page: str
    line: int
    number: str
    context: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.number!r} in {self.context.strip()!r}"


def unsourced(page: Path, text: str | None = None) -> list[Found]:
    """The measured numbers of a page that nothing accounts for."""
    if page == RESULTS and text is None:
        page, text = TEMPLATE, TEMPLATE.read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8") if text is None else text
    name = str(page.relative_to(ROOT))
    allowed = [*constants().get(name, {}), *constants().get("any page", {})]
    found = [
        Found(name, _line(text, literal.start() + place.start()), literal[0], place[0])
        for place in _EXPRESSION.finditer(text)
        for literal in _LITERAL.finditer(place[0])
    ]
    found += [
        Found(name, _line(text, place.start()), place[0], "an expression that reads no file")
        for place in _BARE.finditer(text)
        if re.search(r"\d", place[0])
    ]
    prose = _blank(BLOCK, text, "text")
    prose = _blank(_EXPRESSION, prose)
    for phrase in allowed:
        prose = _blank(re.compile(_allowed(phrase), re.DOTALL), prose)
    plain = _blank(_NAMED, _blank(_CODE, prose))
    for match in MEASURED.finditer(plain):
        start, end = _passage(prose, match.start())
        if not _held_by_a_test(match[0], prose[start:end]):
            here = text[max(0, match.start() - 40) : match.end() + 40].replace("\n", " ")
            found.append(Found(name, _line(text, match.start()), match[0], here))
    return found


def constants() -> dict[str, dict[str, str]]:
    """Phrases of each page that hold settings, limits or formulas, with the reason."""
    return tomllib.loads(CONSTANTS.read_text(encoding="utf-8"))


def unused() -> list[str]:
    """Phrases of ``constants.toml`` that no page has any more."""
    return [
        f"{page}: {phrase}"
        for page, phrases in constants().items()
        for phrase in phrases
        if page != "any page"
        and not re.search(_allowed(phrase), (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    ]


def _allowed(phrase: str) -> str:
    """A phrase, over lines as it comes; a heading stands for all of its section."""
    if phrase.startswith("## "):
        return rf"(?m:^{re.escape(phrase)}$).*?(?=\n## |\Z)"
    return r"\s+".join(map(re.escape, phrase.split()))


def _blank(pattern: re.Pattern[str], text: str, group: str | int = 0) -> str:
    """The same text with spaces where the pattern is, so that places stay."""

    def spaces(match: re.Match[str]) -> str:
        inner = re.sub(r"[^\n]", " ", match[group])
        start = match.start(group) - match.start()
        return match[0][:start] + inner + match[0][start + len(inner) :]

    return pattern.sub(spaces, text)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _passage(text: str, place: int) -> tuple[int, int]:
    """The line of a table, else the paragraph."""
    start, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
    if text[start:].startswith("|"):
        return start, end if end >= 0 else len(text)
    start, end = text.rfind("\n\n", 0, place) + 2, text.find("\n\n", place)
    return (start if start > 1 else 0), end if end >= 0 else len(text)


def _held_by_a_test(number: str, passage: str) -> bool:
    """Whether a test that the passage names has this number, as it is written."""
    bare = re.sub(rf"\s?(?:{_UNITS})$", "", number).replace(",", "").replace("−", "-").strip("± ")
    if not re.fullmatch(r"[\d.e-]+", bare):
        return False
    whole = re.compile(rf"(?<![\w.]){re.escape(bare)}(?![\w.])")
    for name in _TEST.findall(passage):
        path = ROOT / name
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            if file.is_file() and whole.search(file.read_text(encoding="utf-8")):
                return True
    return False
