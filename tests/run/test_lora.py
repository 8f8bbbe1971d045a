"""LoRA in a run: the base keeps its bits, a checkpoint is small, resuming is exact."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import partwise as pw
from partwise.errors import ConfigError, RunError, StorageError
from partwise.model.config import ModelConfig
from partwise.model.lora import LoraLinear
from partwise.model.lora_config import LoraConfig
from partwise.run import Run, begin_with, compare
from partwise.run.beginning import fingerprint
from partwise.storage import read_tensors
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig
from partwise.training.events import Finished, Said, Started

MODEL = ModelConfig(context_length=8, n_layers=2, d_model=16, n_heads=2)
TRAIN = TrainConfig(
    steps=6, batch_size=4, eval_every=2, log_every=1, sample_chars=10, warmup_steps=1, lr=1e-2
)
LORA = LoraConfig(rank=2, alpha=4.0, targets=("qkv", "down"))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on the mat\n" * 30, encoding="utf-8")
    Path("other.txt").write_text("the mat sat on the cat\n" * 30, encoding="utf-8")


@pytest.fixture
def first() -> Run:
    run = Run.create("runs", "first", "text.txt", MODEL, TRAIN, DataConfig())
    list(run.train())
    return run


def tuned(name: str, first: Run, lora: LoraConfig = LORA, train: TrainConfig = TRAIN) -> Run:
    return Run.create(
        "runs", name, "other.txt", first.record.model, train, DataConfig(), lora=lora, begin=first
    )


def weights_at_last(run: Run) -> dict[str, torch.Tensor]:
    return read_tensors(run.path / "checkpoints" / "step-000006" / "model.safetensors")


@pytest.mark.parametrize("lora", [LORA, LoraConfig()], ids=["additions", "all weights"])
def test_the_weights_it_began_with_are_held_to_their_checksum(lora: LoraConfig, first: Run) -> None:
    run = tuned("tuned", first, lora)
    path = run.path / "initial.safetensors"
    assert run.record.ancestor is not None
    assert run.record.ancestor.initial == hashlib.sha256(path.read_bytes()).hexdigest()
    assert Run.open(run.path).record == run.record
    whole = path.read_bytes()
    # One bit of the last number: still safetensors, but other weights.
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(StorageError, match=r"initial\.safetensors does not match its checksum"):
        list(Run.open(run.path).train())
    path.unlink()
    with pytest.raises(StorageError, match=r"initial\.safetensors"):
        list(Run.open(run.path).train())
    path.write_bytes(whole)
    list(Run.open(run.path).train(stop=lambda: True))


def test_additions_are_never_put_into_other_weights(first: Run) -> None:
    run = tuned("tuned", first)
    list(run.train())
    path = run.path / "initial.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(StorageError, match="does not match its checksum"):
        Run.open(run.path).model()
    path.unlink()
    with pytest.raises(StorageError, match=r"initial\.safetensors"):
        Run.open(run.path).model()


def test_a_run_from_before_the_checksum_opens(first: Run) -> None:
    run = tuned("tuned", first)
    path = run.path / "run.toml"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(x for x in lines if not x.startswith("initial =")), encoding="utf-8")
    opened = Run.open(run.path)
    assert opened.record.ancestor is not None and opened.record.ancestor.initial == ""
    assert isinstance(list(opened.train())[-1], Finished)
    assert opened.model().config == first.record.model


def test_a_checkpoint_of_all_weights_needs_no_others(first: Run) -> None:
    run = tuned("tuned", first, LoraConfig())
    list(run.train())
    (run.path / "initial.safetensors").unlink()
    opened = Run.open(run.path)
    longer = replace(opened.record.train, steps=8)
    assert isinstance(list(opened.train(resume=True, settings=longer))[-1], Finished)


def test_the_base_keeps_its_bits_and_the_rest_is_small(first: Run) -> None:
    run = tuned("tuned", first)
    before = (run.path / "initial.safetensors").read_bytes()
    events = list(run.train())
    assert isinstance(events[-1], Finished)
    (started,) = [event for event in events if isinstance(event, Started)]
    trained = 2 * 2 * ((16 + 48) + (64 + 16))
    assert started.parameters == trained
    # The base is the ancestor's, and still what it was.
    assert (run.path / "initial.safetensors").read_bytes() == before
    base = read_tensors(run.path / "initial.safetensors")
    wanted = first.weights()
    assert base.keys() == wanted.keys()
    assert all(torch.equal(base[name], wanted[name]) for name in wanted)
    ancestor = run.record.ancestor
    assert ancestor is not None and ancestor.weights == fingerprint(base)
    # A checkpoint holds the additions alone.
    kept = weights_at_last(run)
    assert all(name.endswith(("lora_a", "lora_b")) for name in kept)
    assert sum(tensor.numel() for tensor in kept.values()) == trained
    assert all(tensor.abs().max() > 0 for tensor in kept.values())


def test_its_model_is_plain_and_says_what_the_composed_one_says(first: Run) -> None:
    run = tuned("tuned", first)
    list(run.train())
    merged = run.model("last")
    assert not any(isinstance(part, LoraLinear) for part in merged.modules())
    composed = run._new_model().eval()
    composed.load_state_dict(weights_at_last(run), strict=False)
    ids = torch.randint(0, MODEL.vocab_size // 8, (2, 8))
    with torch.no_grad():
        torch.testing.assert_close(merged(ids), composed(ids), atol=1e-5, rtol=0)
        assert not torch.allclose(merged(ids), first.model()(ids), atol=1e-3)
    # What it did not touch is the base's, bit for bit.
    state, base = merged.state_dict(), first.weights()
    touched = {name for name in base if not torch.equal(state[name], base[name])}
    assert {name.split(".")[-2] for name in touched} == {"qkv", "down"}


def test_the_text_is_learned() -> None:
    longer = replace(TRAIN, steps=60, eval_every=20)
    base = Run.create("runs", "base", "text.txt", MODEL, longer, DataConfig())
    list(base.train())
    run = tuned("tuned", base, LoraConfig(rank=4), longer)
    list(run.train())
    losses = [line["val_loss"] for line in run.metrics() if "val_loss" in line]
    assert losses[-1] < losses[0] - 0.05 < 0.65


def test_interrupted_and_resumed_it_ends_in_the_same_bits(first: Run) -> None:
    whole = tuned("whole", first, replace(LORA, dropout=0.2))
    list(whole.train())
    parts = tuned("parts", first, replace(LORA, dropout=0.2))
    steps = iter([False] * 3 + [True])
    list(parts.train(stop=lambda: next(steps, True)))
    assert not (parts.path / "checkpoints" / "step-000006").exists()
    list(Run.open(parts.path).train(resume=True))
    one, two = weights_at_last(whole), weights_at_last(parts)
    assert all(torch.equal(one[name], two[name]) for name in one)
    optimizers = [
        read_tensors(run.path / "checkpoints" / "step-000006" / "optimizer.safetensors")
        for run in (whole, parts)
    ]
    assert all(torch.equal(optimizers[0][name], optimizers[1][name]) for name in optimizers[0])


def test_an_average_is_of_the_additions_alone(first: Run) -> None:
    run = tuned("tuned", first, train=replace(TRAIN, ema_decay=0.5))
    list(run.train())
    averaged = read_tensors(run.path / "checkpoints" / "step-000006" / "averaged.safetensors")
    assert all(name.endswith(("lora_a", "lora_b")) for name in averaged)
    assert run.model().state_dict().keys() == first.model().state_dict().keys()


def test_it_is_written_down_and_read_again(first: Run) -> None:
    run = tuned("tuned", first)
    opened = Run.open(run.path)
    assert opened.record == run.record and opened.record.lora == LORA
    ancestor = opened.record.ancestor
    assert ancestor is not None
    assert (ancestor.kind, ancestor.path) == ("run", str(first.path.absolute()))
    assert ancestor.text == "text" and ancestor.step in (2, 4, 6)
    differing = {difference.name for difference in compare([first.path, run.path])}
    assert "lora.rank" in differing
    path = run.path / "run.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("rank = 2", "rank = 3"), "utf-8")
    with pytest.raises(RunError, match="checksum"):
        Run.open(run.path)


def test_another_training_begins_with_what_was_merged(first: Run) -> None:
    run = tuned("tuned", first)
    list(run.train())
    begin = begin_with("tuned")
    model = run.model().state_dict()
    assert all(torch.equal(begin.weights[name], model[name]) for name in begin.weights)
    again = tuned("again", run)
    assert isinstance(list(again.train())[-1], Finished)
    assert again.record.ancestor is not None
    assert again.record.ancestor.weights == fingerprint(begin.weights)


def test_the_folder_may_be_moved(first: Run) -> None:
    run = tuned("tuned", first)
    list(run.train())
    wanted = run.model().state_dict()
    import shutil

    shutil.rmtree(first.path)
    moved = run.path.rename("moved")
    found = Run.open(moved).model().state_dict()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_what_makes_no_sense_is_refused_before_anything_is_written(first: Run) -> None:
    with pytest.raises(RunError, match="rank=2"):
        Run.create("runs", "none", "text.txt", MODEL, TRAIN, DataConfig(), lora=LORA)
    with pytest.raises(ConfigError, match="targets=gate"):
        tuned("gate", first, LoraConfig(rank=2, targets=("gate",)))
    assert [path.name for path in Path("runs").iterdir() if path.is_dir()] == ["first"]


def test_from_python_it_is_one_call(first: Run) -> None:
    said: list[str] = []
    run = pw.train(
        "other.txt",
        begin="first",
        lora=LORA,
        train=TRAIN,
        name="tuned",
        listen=lambda event: said.append(str(event.notice)) if isinstance(event, Said) else None,
    )
    assert run.record.lora == LORA and run.record.train == TRAIN
    assert run.record.model == first.record.model
    assert any(line.startswith("LoRA: 576 parameters") for line in said)
    again = pw.train("other.txt", begin=run, train=replace(TRAIN, steps=1), name="again")
    assert again.record.ancestor is not None and not again.record.lora.on
    with pytest.raises(ConfigError, match="both choose the model"):
        pw.train("other.txt", model="small", begin=run)
    with pytest.raises(RunError, match="--from"):
        pw.train("other.txt", model=MODEL, lora=LORA, train=TRAIN)
