"""The report: one valid page that loads nothing, escapes everything and shows the right numbers."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from ladder.made import SAMPLE, ladder
from partwise.ladder.cover import cover
from partwise.ladder.pictures import overfits
from partwise.ladder.record import Record
from partwise.ladder.report import report
from partwise.ladder.rungs import rungs
from partwise.ladder.table import LadderTable, Silenced
from partwise.messages import use_language

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Holds tags to be closed in order, and keeps what a test asks for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style",):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page(table: LadderTable, records: dict[str, Record], extra: str = "") -> tuple[str, Page]:
    html = report(table, records, rungs(), extra)
    return html, Page(html)


@pytest.fixture
def made() -> tuple[LadderTable, dict[str, Record]]:
    silenced = (
        Silenced(5, 1, "positions", 2.7, 0.6),
        Silenced(5, 1, "block.0.attention.head.1", 2.2, 0.1),
    )
    return ladder(variants={"without <residual>": 0.5, "lr=0.002": 0.0004}, silenced=silenced)


def test_it_loads_nothing(made: tuple[LadderTable, dict[str, Record]]) -> None:
    html, found = page(*made)
    for tag in ("script", "link", "img", "iframe", "object", "embed", "base", "form"):
        assert not found.all(tag), tag
    for _, attributes in found.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert name not in attributes
        assert not any(name.startswith("on") for name in attributes)
    assert "@import" not in html
    assert "url(" not in html
    # The only addresses are the names of XML's and SVG's own language.
    addresses = re.findall(r"https?://[^\"'\s<]+", html)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    policies = [meta["content"] for meta in found.all("meta") if "http-equiv" in meta]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_what_a_model_writes_is_text(made: tuple[LadderTable, dict[str, Record]]) -> None:
    html, found = page(*made)
    assert "<script>" not in html
    assert SAMPLE.strip("\n") in found.text
    assert "without <residual>" in found.text
    assert "<cpu & co>" in found.text


def test_every_picture_has_words(made: tuple[LadderTable, dict[str, Record]]) -> None:
    html, found = page(*made)
    pictures = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    # Curves, waterfall, parameters, variants and knock-outs, wide and narrow each; five gaps.
    assert len(pictures) == 2 * 5 + 5
    for picture in pictures:
        assert re.search(r"<title>[^<]+</title><desc>[^<]+</desc>", picture)
        assert 'role="img"' in picture
    assert len(found.all("table")) == 3


def test_figures_and_verdicts(made: tuple[LadderTable, dict[str, Record]]) -> None:
    table, records = made
    _, found = page(table, records)
    for group in table.groups:
        assert f"{group.val_loss.mean:.3f}" in found.text
        assert f"{group.best_val_loss.mean:.3f}" in found.text
        assert f"{group.estimate.mean:.3f}" in found.text
        assert f"{group.parameters:,}" in found.text
    assert "beyond noise at 3 seeds" in found.text
    assert "lr=0.002" in found.text
    assert "within noise at 3 seeds" in found.text
    assert "block 1: head 2" in found.text


def test_published_values_are_references_on_tiny_shakespeare() -> None:
    table, records = ladder("tinyshakespeare")
    html, found = page(table, records)
    assert "published (reference)" in found.text
    assert "Karpathy" in found.text
    assert 'class="reference' in html
    assert 'class="diamond' in html


def test_another_text_has_no_published_values() -> None:
    table, records = ladder("shakespeare")
    html, found = page(table, records)
    title = re.search(r"<title>([^<]*)</title>", html)
    assert title is not None
    assert "on shakespeare" in title[1]
    assert "published (reference)" not in found.text
    assert "Karpathy" not in found.text
    assert 'class="reference' not in html
    assert 'class="diamond' not in html
    for value in ("2.28", "2.24", "2.08", "2.06", "1.48"):
        assert not re.search(rf">{value}<", html)


def test_one_seed_says_that_it_cannot_tell() -> None:
    _, found = page(*ladder(seeds=1))
    assert "one seed cannot tell" in found.text


def test_configuration_differences(made: tuple[LadderTable, dict[str, Record]]) -> None:
    _, found = page(*made)
    assert "model.residual: false -> true" in found.text
    assert "model.norm: none -> layernorm" in found.text
    assert "model.d_model=32" in found.text


def test_it_speaks_chinese(made: tuple[LadderTable, dict[str, Record]]) -> None:
    with use_language("zh"):
        html, found = page(*made)
    assert 'lang="zh-Hans"' in html
    assert "验证集" in found.text
    # Nothing but names, numbers and settings is left in English.
    left = re.findall(r"[A-Za-z]{4,} [a-z]{3,} [a-z]{3,}", found.text)
    samples = {words for words in left if words in SAMPLE}
    assert set(left) - samples == set()


def test_overfitting_is_found_where_validation_turns() -> None:
    table, records = ladder(seeds=1)
    group = table.rungs[0]
    assert overfits(group, records) is None
    (only,) = group.rows
    turned = ((500, 2.5), (1000, 2.2), (1500, 2.3), (2000, 2.4))
    records[only.run] = Record(only, turned, turned, "")
    assert overfits(group, records) == 1000


def test_an_empty_ladder_is_a_page() -> None:
    page(*ladder(seeds=0))


def test_extra_sections_are_taken_in(made: tuple[LadderTable, dict[str, Record]]) -> None:
    _, found = page(*made, "<section><h2>Depth</h2></section>")
    assert "Depth" in found.text


def test_the_cover_is_one_valid_drawing(made: tuple[LadderTable, dict[str, Record]]) -> None:
    table, _ = made
    root = ElementTree.fromstring(cover(table))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(root.itertext())
    for group in table.rungs:
        assert f"{group.rung} {group.name}" in words
    assert "url(" not in words and "@import" not in words
