"""The explorer's addresses: what a page asks, and what nobody should."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partwise.ladder.table import LadderTable, Row, write_table
from partwise.model.config import ModelConfig
from partwise.run import Run
from partwise.studio.interventions import trained_without
from partwise.studio.tensors import unpack
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig
from studio.live import Live, running

WORDS = "To be, or not to be: that is the question\n" * 60
CONFIG = ModelConfig(context_length=48, n_layers=2, d_model=16, n_heads=4)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("explorer")
    (folder / "text.txt").write_text(WORDS, encoding="utf-8")
    train = TrainConfig(
        steps=2, batch_size=2, eval_every=2, sample_chars=0, compile="off", device="cpu", threads=1
    )
    run = Run.create(
        folder / "runs", "first", str(folder / "text.txt"), CONFIG, train, DataConfig()
    )
    for _ in run.train():
        pass
    with running(folder) as one:
        yield one


def traced(live: Live, text: str | None = "that is the question", **more: Any) -> dict[str, Any]:
    status, answer = live.post("/api/trace", {"model": "run:first", "text": text, **more})
    assert status == 200, answer
    return answer


def view(live: Live, trace: dict[str, Any], what: str) -> tuple[dict[str, Any], Any]:
    status, headers, data = live.request("GET", f"/api/trace/{trace['key']}/{what}")
    assert status == 200, data
    if headers["content-type"].startswith("application/json"):
        return json.loads(data), None
    return unpack(data)


def test_a_text_is_read_and_looked_at(live: Live) -> None:
    trace = traced(live)
    assert "".join(token["text"] for token in trace["tokens"]) == "that is the question"
    assert trace["sizes"]["T"] == 20
    assert len(trace["stages"]) == 8
    for stage in trace["stages"]:
        header, numbers = view(live, trace, f"tensor?name=block.1.{stage['tensor']}&by_token=1")
        assert header["shape"] == [20, 16]
        assert len(numbers) == 320
        assert len(header["by_token"]["norm"]) == 20
    header, numbers = view(live, trace, "tensor?name=block.0.attention.weights&head=3")
    assert header["shape"] == [20, 20]
    assert sum(numbers) == pytest.approx(20, rel=1e-5), "each row adds up to 1"
    header, _ = view(live, trace, "tensor?name=logits&row=4&rows=1")
    assert header["from"] == [4, 0]
    assert header["sent"] == [1, trace["sizes"]["V"]]


def test_every_view_answers(live: Live) -> None:
    trace = traced(live)
    assert view(live, trace, "maps?layer=1")[0]["sent"] == [4, 20, 20]
    assert view(live, trace, "small?layer=0")[0]["sent"][0] == 8
    assert view(live, trace, "stream")[0]["names"][0] == "embedding"
    assert len(view(live, trace, "lens?position=3")[0]["layers"]) == 3
    assert view(live, trace, "grid?first=2&count=5")[0]["count"] == 5
    top = view(live, trace, "next")[0]["top"]
    assert len({one["token"]["id"] for one in top}) == len(top) > 5


def test_a_text_is_found_where_none_is_given(live: Live) -> None:
    assert traced(live, None)["text"] == "To be, or not to be: that is the question"


def test_what_is_read_again_is_at_hand(live: Live) -> None:
    first = traced(live, "question")
    second = traced(live, "question")
    assert second["kept"]
    assert second["key"] == first["key"]


def test_odd_texts_are_answered_plainly(live: Live) -> None:
    answer = traced(live, "to 世界 be")
    assert "U+4E16" in answer["notices"][0]
    assert "48" in traced(live, "be " * 40)["notices"][0]
    status, answer = live.post("/api/trace", {"model": "run:first", "text": "世界"}, "zh")
    assert status == 422
    assert "一个也不认识" in answer["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": "run:first", "text": 7},
        {"model": "run:nobody", "text": "be"},
        {"model": "run:../first", "text": "be"},
        {"model": 3, "text": "be"},
        {"model": "run:first", "text": "be", "causal": "no"},
    ],
)
def test_what_makes_no_sense_is_refused(live: Live, body: dict[str, Any]) -> None:
    status, answer = live.post("/api/trace", body)
    assert status == 422
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    "what",
    [
        "nothing",
        "tensor",
        "tensor?name=../../secrets",
        "tensor?name=logits&row=two",
        "tensor?name=block.0.attention.weights&head=99",
        "maps?layer=99",
        "small?layer=-1",
        "lens?position=9999",
        "grid?first=-3",
        "next?position=1e3",
    ],
)
def test_a_view_that_there_is_not_is_refused(live: Live, what: str) -> None:
    trace = traced(live)
    status, _, data = live.request("GET", f"/api/trace/{trace['key']}/{what}")
    assert status == 422
    assert json.loads(data)["error"]["message"]


def test_a_trace_that_is_gone_says_so(live: Live) -> None:
    status, _, data = live.request("GET", "/api/trace/0123456789abcdef/stream")
    assert status == 422
    assert json.loads(data)["error"]["kind"] == "gone"


def test_a_token_is_exchanged(live: Live) -> None:
    trace = traced(live)
    body = {"key": trace["key"], "position": 5, "text": "quest"}
    status, found = live.post("/api/perturb", body)
    assert status == 200, found
    assert found["after"]["text"] == "q"
    assert found["leaks"] == 0
    assert [value > 0 for value in found["output"]] == [place >= 5 for place in range(20)]
    free = traced(live, causal=False)
    assert free["masked"] and not free["causal"]
    status, found = live.post("/api/perturb", {**body, "key": free["key"]})
    assert found["leaks"] == 5
    for wrong in ({"text": ""}, {"token": 10**6}, {"text": "世"}, {"position": 99, "token": 0}):
        status, _ = live.post("/api/perturb", {"key": trace["key"], "position": 5, **wrong})
        assert status == 422


def test_parts_are_silenced_on_the_validation_text(live: Live) -> None:
    status, known = live.post("/api/parts", {"model": "run:first"}, "zh")
    assert status == 200, known
    assert known["text"] == "text"
    names = {part["id"] for part in known["parts"]}
    assert {"block.0.attention", "block.1.attention.head.3", "norms"} <= names
    labels = {part["id"]: part["label"] for part in known["parts"]}
    assert "头" in labels["block.1.attention.head.3"]
    losses = []
    for silent in ([], ["attention"], ["block.0.attention", "block.1.attention"], ["norms"]):
        status, found = live.post("/api/silence", {"model": "run:first", "parts": silent})
        assert status == 200, found
        losses.append(found["loss"])
    assert losses[0] == known["loss"]
    assert losses[1] == losses[2] != losses[0]
    typed = {"model": "run:first", "text": "to be", "parts": ["norms"]}
    assert live.post("/api/silence", typed)[1]["loss"] != losses[3]
    for wrong in (["block.9.attention"], [1], "attention"):
        assert live.post("/api/silence", {"model": "run:first", "parts": wrong})[0] == 422


def test_shares_are_exact(live: Live) -> None:
    own, gpt2, *_ = live.get("/api/shares?model=run:first")
    assert own["parts"]["attention"] == 2 * (4 * 16**2 + 4 * 16)
    assert own["parameters"] == sum(own["parts"].values())
    assert gpt2["name"] == "GPT-2 small"
    assert gpt2["parameters"] == 124_439_808
    assert gpt2["parts"]["feedforward"] / gpt2["parameters"] == pytest.approx(0.455, abs=5e-4)
    assert gpt2["block"] == {"attention": 4 * 768**2, "feedforward": 8 * 768**2}
    names = {one["name"]: one["block"] for one in live.get("/api/shares")}
    llama = names["Llama 2 70B"]
    share = llama["feedforward"] / (llama["attention"] + llama["feedforward"])
    assert share == pytest.approx(0.824, abs=5e-4)


def test_what_was_trained_without_a_part_is_found_in_ladders(tmp_path: Path) -> None:
    def row(rung: int, variant: str | None, seed: int, loss: float) -> Row:
        return Row(rung, "x", variant, seed, 1, 1.0, 1.0, 1, loss, loss, loss, loss, None, "r")

    rows = [row(r, None, s, 2.0) for r in (4, 5) for s in (1, 2)]
    rows += [row(4, "without attention", 1, 9.0), row(5, "without attention", 1, 2.4)]
    rows += [row(5, "without attention", 2, 2.6)]
    folder = tmp_path / "ladders" / "mine"
    folder.mkdir(parents=True)
    write_table(folder / "ladder.json", LadderTable("shakespeare", folder, {}, {}, tuple(rows)))
    (tmp_path / "ladders" / "torn").mkdir()
    (tmp_path / "ladders" / "torn" / "ladder.json").write_text("{", encoding="utf-8")
    (found,) = trained_without(tmp_path / "ladders")
    assert (found["part"], found["rung"], found["seeds"]) == ("attention", 5, 2)
    assert found["difference"] == pytest.approx(0.5)
    assert trained_without(tmp_path / "nowhere") == []
