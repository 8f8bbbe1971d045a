"""Models by id, sampling as it happens, runs side by side, and what a model costs."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import partwise as pw
from partwise.cli import main
from partwise.errors import RunError
from partwise.studio.models import Models
from partwise.studio.state import MODELS, State
from studio.live import Live, running

MODEL = pw.ModelConfig(n_layers=1, d_model=16, n_heads=2, context_length=16)
TRAIN = pw.TrainConfig(steps=4, batch_size=4, warmup_steps=0, eval_every=2, sample_chars=20)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A studio with two runs and a folder that is none."""
    folder = tmp_path_factory.mktemp("studio")
    text = folder / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 40, encoding="utf-8")
    for name in ("first", "second"):
        pw.train(text, model=MODEL, train=TRAIN, name=name, root=folder / "runs", offline=True)
    (folder / "runs" / "broken").mkdir()
    (folder / "runs" / "broken" / "run.toml").write_text("nonsense", encoding="utf-8")
    with running(folder) as live:
        yield live


def test_models_are_the_tiny_one_and_every_run(studio: Live) -> None:
    models = studio.get("/api/models")
    assert models[0]["id"] == "tiny"
    assert {one["id"] for one in models[1:]} == {"run:first", "run:second"}
    first = next(one for one in models if one["id"] == "run:first")
    assert (first["layers"], first["heads"], first["d_model"]) == (1, 2, 16)
    assert first["ready"] and first["val_loss"] > 0 and first["text"] == "text"
    names = {language: studio.get("/api/models", language)[0]["name"] for language in ("zh", "en")}
    assert names["zh"] != names["en"]


def test_a_model_is_kept_and_loaded_anew_when_it_has_learned(
    studio: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(root=studio.state.root, data=studio.state.data)
    models = Models(state)
    model, tokenizer = models.load("run:first")
    assert models.load("run:first")[0] is model and Models(state).load("run:first")[0] is model
    assert not model.training and tokenizer.vocab_size == model.config.vocab_size
    monkeypatch.setattr("partwise.studio.models._step", lambda folder, pointer: 99)
    assert models.load("run:first")[0] is not model
    assert len(state.loaded) <= MODELS


@pytest.mark.parametrize("id", ["", "x", "run:", "run:none", "run:../runs/first", "/etc", "run:."])
def test_an_id_leads_to_a_run_or_nowhere(studio: Live, id: str) -> None:
    with pytest.raises(RunError):
        Models(studio.state).folder(id)


def test_a_sample_comes_in_pieces(studio: Live) -> None:
    with studio.tab() as tab:
        settings = {"chars": 300, "seed": 3, "count": 2, "temperature": 1.0}
        tab.send("sample.start", ask="a", model="run:first", prompt="To be", settings=settings)
        done = tab.until(lambda m: m["type"] in ("sample.done", "error"))
        assert (done["characters"], done["stopped"]) == (600, False)
        texts = ["", ""]
        for m in tab.heard:
            if m["type"] == "sample.piece":
                texts[m["index"]] += m["text"]
    model, tokenizer = Models(studio.state).load("run:first")
    from partwise.sampling.generate import complete

    assert texts == complete(model, tokenizer, "To be", pw.SampleConfig(**settings))


def test_a_sample_is_stopped_and_another_one_stops_it(studio: Live) -> None:
    long = {"chars": 100_000}
    with studio.tab() as tab:
        tab.send("sample.start", ask="a", model="run:first", settings=long)
        tab.until(lambda m: m["type"] == "sample.piece")
        tab.send("sample.start", ask="b", model="run:first", settings=long)
        assert tab.until(lambda m: m["type"] == "sample.done" and m["ask"] == "a")["stopped"]
        tab.until(lambda m: m["type"] == "sample.piece" and m["ask"] == "b")
        tab.send("sample.stop", ask="b")
        assert tab.until(lambda m: m["type"] == "sample.done" and m["ask"] == "b")["stopped"]
        # The first of one name leaves the second to be stopped.
        for _ in range(2):
            tab.send("sample.start", ask="c", model="run:first", settings=long)
        tab.until(lambda m: m["type"] == "sample.done" and m["ask"] == "c")
        tab.until(lambda m: m["type"] == "sample.piece" and m["ask"] == "c")
        tab.send("sample.stop", ask="c")
        assert tab.until(lambda m: m["type"] == "sample.done" and m["ask"] == "c")["stopped"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model": "run:none"}, "none"),
        ({"settings": {"temperature": -1}}, "temperature"),
        ({"settings": {"heat": 1}}, "heat"),
        ({"settings": {"count": 1000}}, "16"),
        ({"settings": {"chars": 10**7}}, "200,000"),
        ({"prompt": "字"}, "字"),
        ({"prompt": 5}, "prompt"),
    ],
)
def test_a_sample_that_makes_no_sense_is_one_line(
    studio: Live, change: dict[str, object], word: str
) -> None:
    with studio.tab() as tab:
        tab.send("sample.start", **{"ask": "x", "model": "run:first", "prompt": "To", **change})
        told = tab.until(lambda m: m["type"] in ("error", "sample.done"))
    assert told["type"] == "error" and told["ask"] == "x" and word in told["message"]


def test_runs_are_listed_compared_and_read(studio: Live) -> None:
    runs = studio.get("/api/runs")["runs"]
    assert {one["name"] for one in runs} == {"first", "second", "broken"}
    (broken,) = (one for one in runs if one["problem"])
    assert broken["name"] == "broken" and "run.toml" in broken["problem"]
    found = studio.get("/api/compare?names=first,second")
    assert found["runs"] == ["first", "second"]
    assert all(len(one["values"]) == 2 for one in found["differences"])
    samples = studio.get("/api/runs/first/samples")["samples"]
    assert samples and all(one["text"] for one in samples)
    for path in ("/api/runs/none", "/api/runs/none/metrics", "/api/compare?names=first,none"):
        assert studio.request("GET", path)[0] == 422, path
    assert studio.get("/api/compare") == {"runs": [], "differences": []}


def test_half_characters_are_repeated_as_they_came(studio: Live) -> None:
    status, answer = studio.post("/api/trace", {"model": "run:\ud800"})
    assert status == 422 and "\ud800" in answer["error"]["message"]
    with studio.tab() as tab:
        tab.send("kernel.open", lesson="\ud800")
        assert tab.until(lambda m: m["type"] == "error")["lesson"] == "\ud800"
        # The same tab is answered further on.
        tab.send("nothing")
        assert "'nothing'" in tab.until(lambda m: m["type"] == "error")["message"]


@pytest.mark.parametrize("name", ["\x00", "\ud800", "..", "a/b", "y" * 190])
def test_a_channel_leads_to_a_run_or_nowhere(studio: Live, name: str) -> None:
    with studio.tab() as tab:
        for kind in ("run", "ladder"):
            tab.send("watch", channel=f"{kind}:{name}")
        tab.send("nothing")
        assert "'nothing'" in tab.until(lambda m: m["type"] != "event")["message"]
    assert not [one for one in tab.heard if one["type"] == "event"]


def test_a_model_costs_what_the_command_says(
    studio: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", "gpt2", "--json", "--model.n-layers", "4", "--batch-size", "8"]) == 0
    told = json.loads(capsys.readouterr().out)
    sent = {"preset": "gpt2", "model": {"n_layers": 4}, "batch_size": 8}
    status, answer = studio.post("/api/size", sent)
    assert status == 200 and answer == told and answer["notices"]
    names = [one["name"] for one in studio.get("/api/presets")]
    assert {"small", "ladder-6", "gpt2"} <= set(names)
    for wrong in ({"preset": "gpt9"}, {"model": {"n_layers": 0}}, {"accelerator": "abacus"}):
        assert studio.post("/api/size", wrong)[0] == 422


def test_metrics_are_told_as_they_are_written(studio: Live, tmp_path: Path) -> None:
    path = studio.state.root / "first" / "metrics.jsonl"
    before = path.read_bytes()
    try:
        with studio.tab() as tab:
            tab.send("watch", channel="run:first")
            first = tab.until(lambda m: m.get("channel") == "run:first")
            assert first["reset"] and first["lines"][-1]["event"] == "finished"
            with path.open("ab") as file:
                file.write(b'{"event": "step", "step": 5, "loss": 1.5}\n')
                file.flush()
                os.fsync(file.fileno())
            more = tab.until(lambda m: m.get("channel") == "run:first")
            assert more["lines"] == [{"event": "step", "step": 5, "loss": 1.5}]
            with studio.tab() as other:
                other.send("watch", channel="run:first")
                seen = other.until(lambda m: m.get("channel") == "run:first")
                assert seen["reset"] and seen["lines"][-1]["step"] == 5
            tab.send("unwatch", channel="run:first")
            time.sleep(0.2)
    finally:
        path.write_bytes(before)
