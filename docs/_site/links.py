"""Every local link of a built site leads somewhere: ``python docs/_site/links.py out/docs``.

Files and anchors are looked up; what lies elsewhere is counted, never asked for."""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SOURCES = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src"}
SOURCES |= {"source": "src", "video": "src"}


class Page(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        link = values.get(SOURCES.get(tag, ""))
        if link:
            self.links.append(link)
        self.anchors |= {name for name in (values.get("id"), values.get("name")) if name}


@cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def broken(folder: Path) -> tuple[list[str], set[str]]:
    """Links that lead nowhere, each with its page, and the addresses outside."""
    dead, outside = [], set()
    for path in sorted(folder.rglob("*.html")):
        for link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme not in ("data", "mailto"):
                    outside.add(link)
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if there.is_dir() or not there.exists():
                dead.append(f"{path.relative_to(folder)}: {link}")
            elif anchor and there.suffix == ".html" and not _found(there, anchor):
                dead.append(f"{path.relative_to(folder)}: {link} (no such place in that page)")
    return dead, outside


def _found(path: Path, anchor: str) -> bool:
    # a report page takes #embed for the player alone; :~: is the browser's own
    return anchor in page(path).anchors or anchor.startswith((":~:", "embed"))


def main() -> int:
    folder = Path(sys.argv[1])
    dead, outside = broken(folder)
    print(f"{len(list(folder.rglob('*.html')))} pages, {len(outside)} addresses outside, not asked")
    for line in dead:
        print(f"dead link: {line}", file=sys.stderr)
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
