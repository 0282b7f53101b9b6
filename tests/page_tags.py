"""A page taken apart."""

from html.parser import HTMLParser


class Tags(HTMLParser):
    """Every tag with its attributes, what is in scripts, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._open = tag
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        (self.scripts if self._open == "script" else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
