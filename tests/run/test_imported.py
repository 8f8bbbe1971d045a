"""A model that was made elsewhere becomes a run like any other, and goes out again."""

import json
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers

pytest.importorskip("transformers")

from interop.folders import SENTENCES, byte_level, whole
from text.tokenizers_json import sentencepiece
from transformers import AutoModelForCausalLM, AutoTokenizer

from partwise.errors import InteropError, RunError, TextError
from partwise.model.config import ModelConfig
from partwise.run import Run, begin_with, export_run, import_folder, list_runs
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig
from partwise.training.events import Finished

TRAIN = TrainConfig(steps=4, batch_size=2, eval_every=2, log_every=1, sample_chars=5, lr=1e-3)
IDS = torch.randint(0, 279, (2, 16), generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n".join(SENTENCES * 20), encoding="utf-8")


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@torch.no_grad()
def logits(run: Run) -> torch.Tensor:
    scores: torch.Tensor = run.model()(IDS)
    return scores


@torch.no_grad()
def judged(folder: Path) -> torch.Tensor:
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    scores: torch.Tensor = theirs(IDS).logits
    return scores


@pytest.mark.parametrize("family", ["gpt2", "llama-3", "qwen3"])
def test_an_imported_model_is_a_run(family: str) -> None:
    whole(Path("theirs"), family)
    run = import_folder("theirs", "mine")
    assert run.path == Path("runs/mine")
    opened = Run.open(run.path)
    assert opened == run and opened.record.imported
    torch.testing.assert_close(logits(opened), judged(Path("theirs")), atol=1e-5, rtol=0)
    assert opened.tokenizer().encode(SENTENCES[2]).tolist() == byte_level().encode(SENTENCES[2]).ids
    (text,) = complete(opened.model(), opened.tokenizer(), "the", SampleConfig(tokens=5))
    assert text
    (summary,) = list_runs("runs")
    assert (summary.name, summary.status, summary.problem) == ("mine", "imported", None)
    assert not any(path.name.startswith(".") and path.is_dir() for path in Path("runs").iterdir())


def test_its_origin_is_written_down() -> None:
    whole(Path("theirs"), "gpt2")
    ancestor = import_folder("theirs").record.ancestor
    assert ancestor is not None
    assert (ancestor.kind, ancestor.origin, ancestor.step) == ("folder", "theirs", 0)
    assert ancestor.path == str(Path("theirs").absolute())
    assert len(ancestor.weights) == 64
    snapshot = Path("hub/models--openai--tiny/snapshots/1")
    whole(snapshot, "gpt2")
    again = import_folder(snapshot).record.ancestor
    assert again is not None and again.origin == "openai/tiny"
    assert again.weights == ancestor.weights


def test_importing_never_takes_a_place_that_is_taken() -> None:
    whole(Path("theirs"), "gpt2")
    import_folder("theirs", "mine")
    with pytest.raises(RunError, match="exists already"):
        import_folder("theirs", "mine")
    names = {import_folder("theirs").name for _ in range(2)}
    assert len(names) == 2 and all(name.startswith("theirs-") for name in names)


def test_nothing_is_left_of_an_import_that_fails() -> None:
    whole(Path("theirs"), "gpt2")
    Path("theirs/tokenizer.json").unlink()
    with pytest.raises(InteropError):
        import_folder("theirs", "mine")
    assert not Path("runs").exists()


def test_a_tokenizer_may_be_named() -> None:
    whole(Path("theirs"), "gpt2")
    Path("theirs/tokenizer.json").rename("elsewhere.json")
    run = import_folder("theirs", tokenizer="elsewhere.json")
    assert run.tokenizer().vocab_size == 280


def test_a_tokenizer_that_is_larger_than_the_model_is_refused_or_trimmed() -> None:
    whole(Path("theirs"), "gpt2", padding=-1)
    with pytest.raises(InteropError, match="280 tokens and the model 279"):
        import_folder("theirs")
    value = json.loads(Path("theirs/tokenizer.json").read_text(encoding="utf-8"))
    whole(Path("fits"), "gpt2", padding=0)
    extra = {**value["added_tokens"][0], "id": 280, "content": "<pad>"}
    value["added_tokens"].append(extra)
    Path("fits/tokenizer.json").write_text(json.dumps(value), encoding="utf-8")
    assert import_folder("fits").tokenizer().vocab_size == 280


def test_an_imported_model_is_not_resumed() -> None:
    whole(Path("theirs"), "gpt2")
    run = import_folder("theirs", "mine")
    with pytest.raises(RunError, match="partwise train TEXT --from"):
        list(run.train(resume=True))


@pytest.mark.parametrize("family", ["gpt2", "llama-biases", "qwen2"])
def test_in_and_out_is_the_same_model(family: str) -> None:
    theirs = whole(Path("theirs"), family)
    out = export_run(import_folder("theirs", "mine"), "out")
    assert out.parameters == theirs.num_parameters()
    # The very bits: what transformers reads from both folders is one model.
    assert torch.equal(judged(Path("out")), judged(Path("theirs")))
    one, two = (AutoTokenizer.from_pretrained(folder) for folder in ("theirs", "out"))
    for sentence in (*SENTENCES[:3], "a<|endoftext|>b"):
        assert one(sentence) == two(sentence)
    assert two.eos_token == "<|endoftext|>"


def test_licence_notice_and_card_go_with_the_model() -> None:
    whole(Path("theirs"), "gpt2")
    run = import_folder("theirs", "mine")
    for kept in ("LICENSE", "NOTICE.txt", "README.md", "config.json"):
        assert (run.path / "origin" / kept).read_bytes() == (Path("theirs") / kept).read_bytes()
    export_run(run, "out")
    assert Path("out/LICENSE").read_text() == "Do as you like.\n"
    assert Path("out/NOTICE.txt").read_text() == "Made elsewhere.\n"
    assert Path("out/README.original.md").read_bytes() == Path("theirs/README.md").read_bytes()
    card = Path("out/README.md").read_text(encoding="utf-8")
    assert 'license: "mit"' in card and "theirs" in card and "LICENSE" in card


def test_training_begins_with_a_folder_or_with_its_run() -> None:
    whole(Path("theirs"), "gpt2")
    imported = import_folder("theirs", "mine")
    for name in ("theirs", "mine", "runs/mine"):
        begin = begin_with(name)
        assert begin.train is None
        assert begin.ancestor.weights == imported.record.ancestor.weights  # type: ignore[union-attr]
    tuned = Run.create(
        "runs", "tuned", "text.txt", begin.model, TRAIN, DataConfig(), begin=begin_with("theirs")
    )
    assert isinstance(list(tuned.train())[-1], Finished)
    # The padded vocabulary stays, and so does the licence.
    assert tuned.record.model.vocab_size == 284
    assert tuned.tokenizer().fingerprint == imported.tokenizer().fingerprint
    assert not torch.equal(logits(tuned), logits(imported))
    export_run(tuned, "out")
    assert Path("out/LICENSE").exists()
    card = Path("out/README.md").read_text(encoding="utf-8")
    assert "theirs" in card and "nats a token" in card and 'license: "mit"' in card
    torch.testing.assert_close(logits(tuned), judged(Path("out")), atol=1e-5, rtol=0)


def test_a_shorter_context_keeps_the_first_positions() -> None:
    whole(Path("theirs"), "gpt2")
    begin = begin_with("theirs")
    short = ModelConfig(**{**vars(begin.model), "context_length": 10})
    tuned = Run.create("runs", "tuned", "text.txt", short, TRAIN, DataConfig(), begin=begin)
    weight = tuned._new_model().state_dict()["position_embedding.weight"]
    assert torch.equal(weight, begin.weights["position_embedding.weight"][:10])
    long = ModelConfig(**{**vars(begin.model), "context_length": 30})
    with pytest.raises(RunError, match="context_length=30 is more than the 24 positions"):
        Run.create("runs", "long", "text.txt", long, TRAIN, DataConfig(), begin=begin)
    assert not Path("runs/long").exists()


def test_special_tokens_are_read_when_asked_for() -> None:
    whole(Path("theirs"), "gpt2")
    Path("texts.txt").write_text("the cat<|endoftext|>the mat" * 90, encoding="utf-8")
    data = DataConfig(special_tokens=True)
    begin = begin_with("theirs")
    run = Run.create("runs", "a", "texts.txt", begin.model, TRAIN, data, begin=begin)
    assert run.prepared is not None and 0 in run.prepared.train[:200]
    assert isinstance(list(run.train())[-1], Finished)
    # A prompt is ordinary text all the same.
    assert len(begin_with("a").tokenizer.encode("<|endoftext|>")) > 1


def test_what_a_tokenizer_does_not_know_is_refused_unless_left_to_it() -> None:
    whole(Path("theirs"), "gpt2")
    rust = tokenizers.Tokenizer(
        models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2, "sat": 3, ".": 4}, unk_token="[UNK]")
    )
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    rust.save("theirs/tokenizer.json")
    begin = begin_with("theirs")
    Path("known.txt").write_text("the cat sat . " * 200, encoding="utf-8")
    Path("other.txt").write_text("the cat sat . " * 200 + "the dog sat .", encoding="utf-8")
    with pytest.raises(TextError, match=r"'\[UNK\]', first in '.*the.*\[UNK\].*--unknown skip"):
        Run.create("runs", "a", "other.txt", begin.model, TRAIN, DataConfig(), begin=begin)
    assert not Path("runs/a").exists()
    for name, text, data in (
        ("a", "known.txt", DataConfig()),
        ("b", "other.txt", DataConfig(unknown="skip")),
    ):
        run = Run.create("runs", name, text, begin.model, TRAIN, data, begin=begin)
        assert isinstance(list(run.train())[-1], Finished)


def test_a_tokenizer_of_llamas_first_kind_comes_in_and_goes_out() -> None:
    whole(Path("theirs"), "llama-1", padding=400)
    Path("theirs/tokenizer.json").write_text(sentencepiece().to_json(), encoding="utf-8")
    run = import_folder("theirs", "mine")
    theirs = AutoTokenizer.from_pretrained("theirs")
    for sentence in (*SENTENCES[:3], " a\n\n b  c", ""):
        ids = theirs(sentence, add_special_tokens=False)["input_ids"]
        assert run.tokenizer().encode(sentence).tolist() == ids
    export_run(run, "out")
    assert Path("out/tokenizer.json").read_bytes() == Path("theirs/tokenizer.json").read_bytes()
    tuned = Run.create(
        "runs", "tuned", "text.txt", run.record.model, TRAIN, DataConfig(), begin=run
    )
    assert isinstance(list(tuned.train())[-1], Finished)
