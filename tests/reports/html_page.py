"""A page read back: whether it is well-formed, and whether it loads anything from elsewhere."""

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}
TAGS = re.compile(
    "html|head|meta|title|style|body|main|mark|footer|header|section|nav|a|h1|h2|h3|p|b|i|br|code|"
    "small|ol|ul|li|span|div|figure|figcaption|svg|path|"
    "rect|polyline|table|thead|tbody|tfoot|tr|th|td|dl|dt|dd|details|summary|"
    "blockquote|bdi|ins|del|pre|fieldset|legend|label|input"
)


class Page(HTMLParser):
    """Checks that every tag that opens closes; collects tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def targets(self) -> set[str]:
        """Everything that the page points at."""
        return {
            value
            for name, value in self.attributes
            if name in ("href", "src", "xlink:href", "action", "srcset")
        }

    @property
    def words(self) -> str:
        """The text, with every run of white space as one space."""
        return " ".join("".join(self.text).split())

    def assert_self_contained(self) -> None:
        """No script, no image, no markup from foreign text; links lead to this page or to files
        beside it."""
        foreign = {tag for tag in self.tags if not TAGS.fullmatch(tag)}
        assert not foreign
        ids = [value for name, value in self.attributes if name == "id"]
        assert len(set(ids)) == len(ids)
        assert self.targets
        assert {target for target in self.targets if target.startswith("#")} <= {
            f"#{name}" for name in ids
        }
        assert all(re.fullmatch(r"#[\w-]+|[\w-]+\.(html|md)", target) for target in self.targets)
        assert not [name for name, _ in self.attributes if name.startswith("on")]
        styles = [value for name, value in self.attributes if name == "style"]
        assert not re.search(r"url\(|@import|expression", " ".join([*styles, *self.text]))
