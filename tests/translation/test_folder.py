"""A translator's run folder: whole, movable, resumed to the same bits, and refused when damaged."""

import dataclasses
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from partwise.errors import ConfigError, RunError, SamplingError
from partwise.model.gpt import GPT
from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.run import Run
from partwise.run.record import kind_of
from partwise.sampling.search_config import SearchConfig
from partwise.settings import plain
from partwise.text.pair_config import PairConfig
from partwise.training.checkpoint import weights_to_use
from partwise.training.config import TrainConfig
from partwise.training.events import Evaluated, Finished
from partwise.translation.folder import Translation
from partwise.translation.looking import alignment_picture
from partwise.translation.record import write_translation
from partwise.translation.shape import Shape, decoder_alone

MODEL = Seq2SeqConfig(
    context_length=24, n_encoder_layers=1, n_decoder_layers=1, d_model=16, n_heads=2, dropout=0.1
)
TRAIN = TrainConfig(
    steps=12,
    batch_size=8,
    warmup_steps=2,
    eval_every=4,
    log_every=4,
    label_smoothing=0.1,
    dtype="float32",
    compile="off",
    device="cpu",
    threads=1,
    schedule="inverse_sqrt",
)
DATA = PairConfig(task_pairs=200)


def create(root: Path, name: str = "t", model: Shape = MODEL) -> Translation:
    return Translation.create(root, name, "reverse", model, TRAIN, DATA)


def stop_after(asked: int) -> Callable[[], bool]:
    """A request to stop that is made when it has been asked for so many times."""
    count = itertools.count()
    return lambda: next(count) >= asked


def weights(run: Translation) -> str:
    digest = hashlib.sha256()
    for name, tensor in run.model("last").state_dict().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run = create(root)
    assert isinstance(list(run.train())[-1], Finished)
    return run.path


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "t")
    return tmp_path / "t"


def test_the_folder_is_complete(trained: Path) -> None:
    run = Translation.open(trained)
    assert kind_of(trained) == "partwise.translation"
    record = run.record
    assert record.model == dataclasses.replace(MODEL, vocab_size=29)
    assert (record.train, record.data) == (TRAIN, DATA)
    assert (record.text.train_pairs, record.text.validation_pairs) == (180, 10)
    assert record.text.parameters == sum(p.numel() for p in run.model().parameters())
    assert record.resolved is not None
    assert record.resolved.threads == 1
    assert len(run.test_pairs()) == record.text.test_pairs == 10
    assert all(target == source[::-1] for source, target in run.test_pairs())
    names = {path.name for path in trained.iterdir()}
    assert names >= {"run.toml", "tokenizer.json", "test.tsv", "metrics.jsonl", "checkpoints"}
    assert not [path for path in trained.rglob("*") if path.suffix in (".pt", ".pkl", ".bin")]
    assert sorted(path.name for path in (trained / "samples").iterdir()) == [
        f"step-{step:06d}.txt" for step in (4, 8, 12)
    ]
    assert [line["step"] for line in run.metrics() if "val_loss" in line][:3] == [4, 8, 12]


@pytest.mark.parametrize("alone", [False, True])
def test_a_stopped_run_ends_in_the_same_bits(tmp_path: Path, alone: bool) -> None:
    model = decoder_alone(MODEL) if alone else MODEL
    whole = create(tmp_path, "whole", model)
    list(whole.train())
    parts = create(tmp_path, "parts", model)
    for stop_at in (6, 5):
        list(Translation.open(parts.path).train(True, stop_after(stop_at)))
    again = Translation.open(parts.path)
    events = list(again.train(resume=True))
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "steps"
    assert weights(again) == weights(whole)
    losses = [
        [(line["step"], line["val_loss"]) for line in run.metrics() if "val_loss" in line]
        for run in (whole, again)
    ]
    assert losses[0] == losses[1]


def test_a_trained_run_is_not_trained_over(copy: Path) -> None:
    with pytest.raises(RunError, match="has checkpoints already; go on with: partwise translate"):
        list(Translation.open(copy).train())


def test_it_can_be_trained_longer(copy: Path) -> None:
    run = Translation.open(copy)
    longer = dataclasses.replace(TRAIN, steps=16)
    events = list(run.train(resume=True, settings=longer))
    assert [event.step for event in events if isinstance(event, Evaluated)] == [16]
    assert Translation.open(copy).record.train == longer


def test_scores_are_kept_with_the_translations(copy: Path) -> None:
    run = Translation.open(copy)
    assert run.scores() == []
    seen: list[tuple[int, int]] = []
    own, plain_copy = run.score(SearchConfig(beam=2), report=lambda a, b: seen.append((a, b)))
    assert seen[-1] == (10, 10)
    assert (own.system, plain_copy.system) == ("encoder-decoder", "copy")
    again = Translation.open(copy)
    assert again.scores() == [own, plain_copy]
    written = again.translations()
    assert written == run.translate(
        [source for source, _ in run.test_pairs()], SearchConfig(beam=2)
    )
    given = [target for _, target in run.test_pairs()]
    assert own.exact == sum(a == b for a, b in zip(written, given, strict=True)) / 10


def test_a_decoder_alone_is_a_translator_too(tmp_path: Path) -> None:
    run = create(tmp_path, "alone", decoder_alone(MODEL))
    list(run.train())
    opened = Translation.open(run.path)
    assert isinstance(opened.model(), GPT)
    assert opened.system == "decoder-only"
    assert opened.score()[0].system == "decoder-only"
    assert len(opened.translate(["abc", "de"])) == 2
    with pytest.raises(RunError, match="has no cross-attention to look at"):
        alignment_picture(opened, "abc")


def test_a_picture_has_a_square_for_each_pair_of_tokens(trained: Path) -> None:
    run = Translation.open(trained)
    assert isinstance(run.model(), Seq2Seq)
    written, picture = alignment_picture(run, "abcd", config=SearchConfig(longer_by=2))
    assert written == run.translate(["abcd"], SearchConfig(longer_by=2))[0]
    assert picture.count("<rect") == 5 * (len(written) + 1)
    one = alignment_picture(run, "abcd", layer=0, head=1, config=SearchConfig(longer_by=2))[1]
    assert one != picture
    with pytest.raises(RunError, match="layer=1 is none of the 1"):
        alignment_picture(run, "abcd", layer=1)
    with pytest.raises(RunError, match=r"head=-1 is none of the 2 .* give 0 to 1"):
        alignment_picture(run, "abcd", head=-1)


def test_pairs_that_changed_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    lines = [f"nombre {n}\tnumber {n}" for n in range(100)]
    file.write_text("\n".join(lines), encoding="utf-8")
    data = PairConfig(tokenizer="char")
    run = Translation.create(tmp_path, "x", str(file), MODEL, TRAIN, data)
    moved = file.rename(tmp_path / "moved.tsv")
    with pytest.raises(RunError, match="cannot be opened again: there are no pairs"):
        list(Translation.open(run.path).train())
    events = list(Translation.open(run.path).train(pairs=str(moved)))
    assert isinstance(events[-1], Finished)
    moved.write_text("\n".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(RunError, match=r"have changed since .* began"):
        list(Translation.open(run.path).train(resume=True, pairs=str(moved)))


def test_each_kind_of_run_knows_the_other(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is a translator; use it with: partwise translate"):
        Run.open(copy)
    text = (copy / "run.toml").read_text(encoding="utf-8")
    (copy / "run.toml").write_text(text.replace("partwise.translation", "partwise.run"))
    with pytest.raises(RunError, match="writes text, no translator"):
        Translation.open(copy)
    assert kind_of(tmp_path) is None


def test_a_changed_record_is_refused(copy: Path) -> None:
    path = copy / "run.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("d_model = 16", "d_model = 32"), encoding="utf-8")
    with pytest.raises(RunError, match="does not match its checksum"):
        Translation.open(copy)


def test_test_pairs_that_were_lost_are_refused(copy: Path) -> None:
    run = Translation.open(copy)
    path = copy / "test.tsv"
    path.write_text(path.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")
    with pytest.raises(RunError, match="does not hold the 10 pairs"):
        run.score()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b"\t", b"\tx", 1),
        lambda data: b"\xff" + data,
        lambda data: data[1:],
    ],
    ids=["another target", "not UTF-8", "another source"],
)
def test_other_test_pairs_are_not_scored_in_their_place(
    damage: Callable[[bytes], bytes], copy: Path
) -> None:
    path = copy / "test.tsv"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RunError, match="does not hold the 10 pairs"):
        Translation.open(copy).score()


def test_a_run_from_before_their_checksum_is_scored(copy: Path) -> None:
    record = Translation.open(copy).record
    text = dataclasses.replace(record.text, test_mark="")
    write_translation(copy, dataclasses.replace(record, text=text))
    assert Translation.open(copy).score()[0].pairs == 10


def test_the_best_weights_are_found_again_without_their_pointer(tmp_path: Path) -> None:
    # Steps far too long, so that the last weights are not the best: with most seeds, and with this.
    wild = dataclasses.replace(
        TRAIN, schedule="constant", warmup_steps=0, lr=1.0, grad_clip=None, eval_every=1, seed=2
    )
    run = Translation.create(tmp_path, "wild", "reverse", MODEL, wild, DATA)
    list(run.train())
    best, last = weights_to_use(run.path, "best"), weights_to_use(run.path, "last")
    assert any(not torch.equal(best[name], last[name]) for name in best)
    (run.path / "checkpoints" / "best.json").unlink()
    found = run.model("best").state_dict()
    assert all(torch.equal(found[name], best[name]) for name in best)


def test_the_last_weights_can_be_scored(copy: Path) -> None:
    run = Translation.open(copy)
    sources = [source for source, _ in run.test_pairs()]
    run.score(which="last")
    assert run.translations() == run.translate(sources, which="last")


def test_another_tokenizer_is_refused(copy: Path) -> None:
    path = copy / "tokenizer.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    value["characters"] = value["characters"][:-1] + "é"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(RunError, match="bring it back from a copy"):
        Translation.open(copy).translate(["abc"])


def test_a_text_that_is_too_long_is_refused(trained: Path) -> None:
    with pytest.raises(SamplingError, match="sentence by sentence"):
        Translation.open(trained).translate(["a" * 24])


def test_settings_are_written_as_they_were(trained: Path) -> None:
    record = Translation.open(trained).record
    assert plain(record.model)["norm_placement"] == "post"
    assert str(record.versions["torch"]).split("+")[0] == torch.__version__.split("+")[0]


def test_reversing_is_learned_in_seconds(tmp_path: Path) -> None:
    """Short words and few letters; the full task stands in `tests/cli/test_translate.py`."""
    file = tmp_path / "words.tsv"
    words = {f"{a}{b}{c}" for a in "abcdef" for b in "abcdef" for c in "abcdef"}
    file.write_text("".join(f"{w}\t{w[::-1]}.\n" for w in sorted(words)), encoding="utf-8")
    model = dataclasses.replace(MODEL, d_model=32, dropout=0.0, embedding_dropout=0.0)
    train = dataclasses.replace(
        TRAIN,
        steps=300,
        batch_size=32,
        lr=1e-2,
        warmup_steps=30,
        eval_every=300,
        sample_chars=0,
        label_smoothing=0.0,
        schedule="cosine",
        weight_decay=0.0,
    )
    data = PairConfig(tokenizer="char")
    run = Translation.create(tmp_path, "x", str(file), model, train, data)
    list(run.train())
    assert run.score()[0].exact >= 0.9


def test_pairs_are_never_cut(tmp_path: Path) -> None:
    """Neither where it is said nor where the record was changed by hand."""
    short = replace(TRAIN, short_context=4)
    with pytest.raises(ConfigError, match="short_context=4 would cut texts"):
        Translation.create(tmp_path, "no", "reverse", MODEL, short, DATA)
    assert not (tmp_path / "no").exists()
    run = create(tmp_path)
    with pytest.raises(ConfigError, match="would cut texts"):
        list(run.train(settings=short))
    assert Translation.open(run.path).record.train == TRAIN
    write_translation(run.path, replace(run.record, train=short))
    with pytest.raises(ConfigError, match="would cut texts"):
        list(Translation.open(run.path).train())
