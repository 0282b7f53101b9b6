"""The Python of the guides runs as it stands: the blocks of a guide one after the other, in an empty directory."""

import re
from pathlib import Path
from types import CodeType

import pytest

FOLDER = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
GUIDES = [path for path in sorted(FOLDER.glob("*.md")) if BLOCK.search(path.read_text())]


def blocks(guide: Path) -> list[CodeType]:
    text = guide.read_text()
    return [
        compile("\n" * text.count("\n", 0, block.start(1)) + block[1], guide.name, "exec")
        for block in BLOCK.finditer(text)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_guides_run(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_DATA", "")  # a guide may set it
    names: dict[str, object] = {}
    for block in blocks(guide):
        exec(block, names)


def test_guides_are_python_and_linked():
    readme = (FOLDER.parent / "README.md").read_text()
    assert GUIDES and all(map(blocks, GUIDES))
    assert all(f"docs/{guide.name}" in readme for guide in GUIDES)


def test_every_page_is_listed():
    listed = set()
    for page in FOLDER.glob("*.md"):
        for block in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.DOTALL):
            listed |= set(re.findall(r"^(?:.*<)?([\w-]+)>?$", block, re.MULTILINE))
    pages = {page.stem for page in FOLDER.glob("*.md")} - {"index"}
    assert pages <= listed, "list these in docs/guides.md or docs/index.md"
