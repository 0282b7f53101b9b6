"""The page of a result is one file without scripts; names are text wherever they appear."""

import re
from dataclasses import dataclass, field

import numpy as np
import pytest
from page_tags import Tags

import advect as ad
from advect import viz
from advect._util.result import Result, Table, show
from advect.data.class_table import ClassTable
from advect.report import write_page

EVIL = "<script>alert(1)</script>"


@dataclass
class Answer(Result):
    """A result with every part of the protocol."""

    name: str = "digits"
    settings: dict = field(default_factory=dict)
    title = "An answer"

    @property
    def notes(self):
        return [f"Watch {self.name}."]

    def _summary(self):
        return {"distance": 12.3456789, "name": self.name, "converged": True}

    def _tables(self):
        rows = [[self.name, 0.0, 1.5], ["b", float("nan"), 3.0]]
        return [
            Table("Classes", ("", "a", self.name), rows, heat=True, caption="Smaller is nearer."),
            Table("Rows", ("row", "about"), [[i, f"text {i}"] for i in range(600)]),
        ]

    def figures(self):
        table = ClassTable(np.eye(2), (self.name, "b"), ("a", "b"))
        return {"Heat": viz.class_table(table), "Points": viz.particles([ad.datasets.moons(30)])}


def page_of(result: Result, path, **options) -> tuple[str, Tags]:
    text = result.report(path, **options).read_text(encoding="utf-8")
    return text, Tags(text)


def test_the_page_has_every_part_and_loads_nothing(tmp_path):
    text, tags = page_of(Answer(settings={"seed": 3}), tmp_path / "new" / "page.html")
    for words in ("An answer", "12.35", "converged yes", "Watch digits.", "Smaller is nearer."):
        assert words in tags.text
    assert "seed 3" in tags.text and "advect" in tags.text
    assert "100 more rows" in tags.text
    assert text.count("<svg") == 2 and "digits" in text[text.index("<svg") :]

    shades = re.findall(r'style="--s:([\d.]+)">([^<]+)<', text)
    assert shades == [("0.0", "0.00"), ("0.5", "1.50"), ("1.0", "3.00")]
    assert "script" not in {tag for tag, _ in tags.tags} and "script-src" not in text
    policy = next(a["content"] for t, a in tags.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"url\((?!#)|@import", text)
    for _, attributes in tags.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))


def test_names_are_text(tmp_path):
    result = Answer(name=EVIL, settings={EVIL: EVIL})
    text, tags = page_of(result, tmp_path / "page.html", title=EVIL)
    assert EVIL not in text and EVIL in tags.text
    assert EVIL not in result._repr_html_()


def test_bad_paths_are_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "page.pdf", tmp_path / "page", tmp_path / "file/page.html"):
        with pytest.raises(ad.InputError, match="report"):
            write_page(Answer(), path)


def test_text_and_json_say_the_same():
    result = Answer(settings={"seed": np.int64(3), "rate": np.float64(0.1)})
    assert "distance   12.35" in str(result) and "note: Watch digits." in str(result)
    told = result.to_dict()
    assert told["distance"] == 12.3456789 and told["settings"] == {"seed": 3, "rate": 0.1}
    assert told["Classes"][1] == {"": "b", "a": None, "digits": 3.0}
    assert show(np.float32(0.5)) == "0.5" and show(None) == ""


def test_the_page_is_readable(tmp_path, readable):
    path = Answer(settings={"seed": 3}).report(tmp_path / "page.html")
    for width, scheme in ((390, "light"), (1200, "dark")):
        readable(path, width=width, scheme=scheme)
