"""A model card says what is known and cannot be broken by a name."""

import json
from dataclasses import replace

import pytest

from partwise.interop.card import Card, written
from partwise.interop.origin import is_legal, licence_details, licence_of, special_ids
from partwise.messages import Notice, use_language

CARD = Card(
    title="mine",
    model_type="gpt2",
    licence="apache-2.0",
    base="",
    sizes={"parameters": "1,234"},
    training={"text": "novel", "validation loss": "1.2345"},
    notices=[Notice("form {form}, {architecture} of transformers", form="a", architecture="b")],
    legal=[],
    version="9.9",
)


def head(card: Card) -> dict[str, object]:
    """The card's first lines, which are YAML of which each value is JSON."""
    lines = written(card).splitlines()
    assert lines[0] == "---"
    pairs = (line.split(": ", 1) for line in lines[1 : lines.index("---", 1)])
    return {key: json.loads(value) for key, value in pairs}


def test_it_begins_as_the_hub_reads_it() -> None:
    assert head(CARD) == {
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["partwise", "gpt2"],
    }


def test_it_says_what_is_known() -> None:
    text = written(CARD)
    for said in ("# mine", "Partwise 9.9", "| text | novel |", "| parameters | 1,234 |", "form a"):
        assert said in text
    assert "It comes from" not in text


def test_a_model_that_only_came_through_claims_no_training() -> None:
    text = written(replace(CARD, training={}, base="theirs", legal=["LICENSE"]))
    assert "What it learned" not in text and "trained with" not in text
    assert "theirs" in text and "`LICENSE`" in text


@pytest.mark.parametrize(
    "name", ["a|b", "a\n---\nlicense: mit", "`x`", "<script>", "[x](y)", "# x"]
)
def test_no_name_breaks_out_of_its_line(name: str) -> None:
    text = written(replace(CARD, title=name, base=name, training={"text": name}))
    assert head(replace(CARD, licence=name))["license"] == name
    assert text.count("\n---\n") == 1
    (row,) = [line for line in text.splitlines() if line.startswith("| text |")]
    assert row.replace("\\|", "").count("|") == 3
    assert "<script>" not in text.replace("\\<script>", "")


def test_it_speaks_chinese_too() -> None:
    with use_language("zh"):
        assert "学了什么" in written(CARD)


def test_the_licence_of_an_imported_model_is_read_from_its_card() -> None:
    def card(text: str) -> dict[str, bytes]:
        return {"README.md": text.encode()}

    assert licence_of(card("---\nlicense: mit\n---\n")) == "mit"
    assert licence_of(card("---\ntags:\n- x\nlicense: 'llama3.2'\n---\n")) == "llama3.2"
    assert licence_of(card("\ufeff---\r\nlicense: mit\r\n---\r\n")) == "mit"
    assert licence_of(card("# no head\nlicense: mit\n")) is None
    assert licence_of(card("---\nlicense:\n---\n")) is None
    assert licence_of(card("---\nlicense:\n- mit\n- apache-2.0\n---\n")) == "mit"
    assert licence_of(card("---\nlicense: [gpl-3.0, mit]  # both\n---\n")) == "gpl-3.0"
    assert licence_of(card("---\nx:\n  license: gpl\n---\n")) is None
    assert licence_of(card("---\nlicense: mit\n")) is None
    assert licence_of(card("")) is None
    assert licence_of({}) is None


def test_a_licence_of_its_own_keeps_its_name_and_place() -> None:
    theirs = b"---\nlicense: other\nlicense_name: one, two\nlicense_link: https://x.org/L\n---\n"
    details = licence_details({"README.md": theirs})
    assert details == {"license_name": "one, two", "license_link": "https://x.org/L"}
    found = head(replace(CARD, licence="other", details=details))
    assert found["license"] == "other" and found["license_name"] == "one, two"
    assert licence_details({"README.md": b"---\nlicense: mit\n---\n"}) == {}


def test_what_is_legal_is_known_by_its_name() -> None:
    for name in ("LICENSE", "LICENSE.txt", "licence.md", "NOTICE", "USE_POLICY.md", "COPYING"):
        assert is_legal(name)
    for name in ("README.md", "config.json", "model.safetensors"):
        assert not is_legal(name)


def test_special_tokens_are_those_of_the_model() -> None:
    files = {"config.json": b'{"eos_token_id": [1, 2], "bos_token_id": null, "x": 3}'}
    assert special_ids(files) == {"eos_token_id": [1, 2], "bos_token_id": None}
    assert special_ids({"config.json": b"{"}) == special_ids({}) == {}
