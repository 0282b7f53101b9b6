"""The Python of the guides runs as it stands: the blocks of a guide one after the other, in an empty directory."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
GUIDES = [path for path in sorted(FOLDER.glob("*.md")) if BLOCK.search(path.read_text())]


def blocks(guide):
    text = guide.read_text()
    return [
        compile("\n" * text.count("\n", 0, block.start(1)) + block[1], guide.name, "exec")
        for block in BLOCK.finditer(text)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_guides_run(guide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_DATA", "")  # a guide may set it
    names = {}
    for block in blocks(guide):
        exec(block, names)


def test_guides_are_python_and_linked():
    index, readme = ((FOLDER / name).read_text() for name in ("index.md", "../README.md"))
    assert GUIDES and all(map(blocks, GUIDES))
    reference = {"background.md", "index.md", "results.md"}
    assert all(f"({guide.name}" in index for guide in GUIDES if guide.name not in reference)
    assert BLOCK.search(index)[0] == BLOCK.search(readme)[0]  # the picture is of this code


def test_the_documentation_stays_short():
    pages = [path.read_text() for path in FOLDER.glob("*.md")]
    assert len(pages) <= 25 and sum(len(page.split()) for page in pages) <= 40_000
    assert len((FOLDER.parent / "README.md").read_text().splitlines()) <= 120


def test_every_page_is_listed():
    listed = set()
    for page in FOLDER.glob("*.md"):
        for block in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.DOTALL):
            listed |= set(re.findall(r"^(?:.*<)?([\w-]+)>?$", block, re.MULTILINE))
    pages = {page.stem for page in FOLDER.glob("*.md")} - {"index"}
    assert pages <= listed, "list these in docs/index.md"
