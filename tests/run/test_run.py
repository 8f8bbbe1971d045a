"""A run folder from its first line to its last: created whole, trained, moved, resumed, refused."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import torch

import partwise
from partwise.errors import ConfigError, PartwiseError, RunError, StorageError, TextError
from partwise.model.config import ModelConfig
from partwise.run import Run, Sampled
from partwise.sampling.generate import complete
from partwise.storage import lock
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare
from partwise.training.config import TrainConfig
from partwise.training.events import Evaluated, Event, Finished, Said, Saved, Started, Stepped

MODEL = ModelConfig(context_length=8, n_layers=1, d_model=16, n_heads=2)
TRAIN = TrainConfig(
    steps=6, batch_size=4, eval_every=3, log_every=1, sample_chars=10, warmup_steps=1, lr=1e-2
)
WORDS = "the cat sat on the mat\n"

Make = Callable[..., Run]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(WORDS * 30, encoding="utf-8")


def make(
    name: str | None = "a",
    text: str = "text.txt",
    model: ModelConfig = MODEL,
    train: TrainConfig = TRAIN,
    data: DataConfig | None = None,
    begin: Run | None = None,
) -> Run:
    return Run.create("runs", name, text, model, train, data or DataConfig(), begin=begin)


def trained(name: str = "a", **changes: object) -> Run:
    run = make(name, train=dataclasses.replace(TRAIN, **changes))  # type: ignore[arg-type]
    list(run.train())
    return run


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# --- Creating ---------------------------------------------------------------------------------


def test_a_new_run_is_complete_and_readable() -> None:
    run = make()
    assert tree(run.path) == {"run.toml", "tokenizer.json"}
    assert (run.path / "checkpoints").is_dir()
    tables = tomllib.loads((run.path / "run.toml").read_text(encoding="utf-8"))
    assert tables["text"]["asked"] == "text.txt"
    assert tables["text"]["spec"] == str(Path("text.txt").absolute())
    assert tables["model"]["vocab_size"] == len(set(WORDS))
    assert tables["model"]["n_kv_heads"] == "none"
    assert tables["train"]["steps"] == 6
    assert tables["data"]["tokenizer"] == "char"
    assert tables["versions"]["partwise"] == partwise.__version__
    assert tables["machine"]["cores"] >= 1
    assert "resolved" not in tables
    opened = Run.open(run.path)
    assert opened == run
    assert opened.record.model == dataclasses.replace(MODEL, vocab_size=len(set(WORDS)))
    assert opened.record.train == TRAIN
    assert opened.tokenizer().fingerprint == tables["text"]["tokenizer_fingerprint"]


def test_a_name_is_made_from_the_text_and_the_date() -> None:
    today = date.today().isoformat()
    assert [make(None).name for _ in range(3)] == [
        f"text-{today}",
        f"text-{today}-2",
        f"text-{today}-3",
    ]
    shutil.copy("text.txt", "con.txt")
    shutil.copy("text.txt", "红楼梦 上.txt")
    assert make(None, "con.txt").name == f"con-{today}"
    assert make(None, "红楼梦 上.txt").name == f"红楼梦 上-{today}"


def test_a_run_is_never_overwritten() -> None:
    run = make("novel")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"partwise resume .*novel, or give another --name"):
        make("novel")
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"name": "a/b"}, ConfigError, "a-b would do"),
        ({"name": "nul"}, ConfigError, "reserved on Windows"),
        ({"text": "texd.txt"}, TextError, "did you mean"),
        ({"model": dataclasses.replace(MODEL, context_length=69)}, TextError, "=68 would fit"),
        ({"train": TrainConfig()}, ConfigError, "nothing ends this training"),
        ({"train": dataclasses.replace(TRAIN, device="cuda:99")}, ConfigError, "cuda:99"),
        ({"train": dataclasses.replace(TRAIN, device="gpu")}, ConfigError, "no device 'gpu'"),
        ({"data": DataConfig(val_fraction=0.999)}, TextError, "training"),
    ],
)
def test_a_mistake_leaves_nothing(
    change: dict[str, object], error: type[PartwiseError], word: str
) -> None:
    with pytest.raises(error, match=word) as caught:
        make(**change)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not Path("runs").exists()


@pytest.mark.parametrize("size", [{"d_model": 10**9}, {"n_layers": 10**9}, {"d_model": 2**62}])
def test_a_model_beyond_the_memory_is_refused_before_it_is_made(size: dict[str, int]) -> None:
    (name,) = size
    model = dataclasses.replace(MODEL, **size)
    with pytest.raises(RunError, match=f"GB of memory; .*{name}={size[name]}"):
        make("a", model=model)
    assert not Path("runs").exists()


def test_the_longest_context_that_fits_works() -> None:
    # 69 characters to validate on: 68 and the last one's target.
    run = make(model=dataclasses.replace(MODEL, context_length=68))
    assert isinstance(list(run.train())[-1], Finished)


def test_a_full_disk_leaves_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare("text.txt", DataConfig(), cache=Path("cache"))

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match=r"runs.a.*the disk is full"):
        Run.create("runs", "a", "text.txt", MODEL, TRAIN, DataConfig(), prepared=prepared)
    assert [path.name for path in Path("runs").iterdir()] == [".lock"]


def test_what_a_killed_creation_left_is_swept() -> None:
    Path("runs/.partial-0123").mkdir(parents=True)
    Path("runs/.partial-0123/run.toml").write_bytes(b"half")
    make()
    assert sorted(path.name for path in Path("runs").iterdir()) == [".lock", "a"]


def test_many_that_start_at_once_get_names_of_their_own() -> None:
    prepared = prepare("text.txt", DataConfig(), cache=Path("cache"))

    def one(_: int) -> str:
        return Run.create(
            "runs", None, "text.txt", MODEL, TRAIN, DataConfig(), prepared=prepared
        ).name

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(one, range(8)))) == 8
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: taken(prepared), range(8)))
    assert sorted(results) == [False] * 7 + [True]


def taken(prepared: Prepared) -> bool:
    """Whether this one came first."""
    try:
        Run.create("runs", "same", "text.txt", MODEL, TRAIN, DataConfig(), prepared=prepared)
    except RunError:
        return False
    return True


# --- Training ---------------------------------------------------------------------------------


def test_training_tells_and_writes() -> None:
    run = make()
    events = list(run.train())
    assert [type(event) for event in events if not isinstance(event, Said)] == [
        Started,
        *[Stepped] * 3,
        Evaluated,
        Sampled,
        Saved,
        *[Stepped] * 3,
        Evaluated,
        Sampled,
        Saved,
        Finished,
    ]
    said = [str(event.notice) for event in events if isinstance(event, Said)]
    assert any("690 characters" in line for line in said)
    assert any("float32" in line for line in said)
    metrics = run.metrics()
    kinds = ["step"] * 3 + ["evaluation"]
    assert [line["event"] for line in metrics] == [*kinds, *kinds, "finished"]
    for event in events:
        if isinstance(event, Sampled):
            assert event.path.read_text(encoding="utf-8") == event.text
            assert len(event.text) == 10
    assert {"samples/step-000003.txt", "samples/step-000006.txt"} <= tree(run.path)
    tables = tomllib.loads((run.path / "run.toml").read_text(encoding="utf-8"))
    started = next(event for event in events if isinstance(event, Started))
    assert tables["resolved"] == {
        "device": started.device,
        "dtype": started.dtype,
        "compiled": started.compiled,
        "threads": started.threads,
    }
    assert Run.open(run.path).record == run.record


def test_samples_come_from_the_weights_that_were_judged() -> None:
    """With a running mean of the weights, it is the mean that speaks."""
    run = trained(ema_decay=0.9, keep_checkpoints=9)
    text = (run.path / "samples" / "step-000006.txt").read_text(encoding="utf-8")
    model = run.model("last")
    settings = partwise.SampleConfig(chars=10, seed=TRAIN.seed)
    assert complete(model, run.tokenizer(), "", settings) == [text]
    weights = model.state_dict()
    plain = trained("b")
    assert not torch.equal(
        weights["token_embedding.weight"],
        plain.model("last").state_dict()["token_embedding.weight"],
    )


def test_a_run_that_has_begun_is_resumed_or_refused() -> None:
    run = trained(steps=3)
    with pytest.raises(RunError, match="partwise resume"):
        next(run.train())
    assert isinstance(list(run.train(resume=True))[-1], Finished)


def test_two_processes_do_not_train_the_same_run() -> None:
    run = make()
    with lock(run.path / ".lock"), pytest.raises(RunError, match=f"process {os.getpid()}"):
        next(run.train())
    events = run.train()
    next(events)
    with pytest.raises(RunError, match="is being written by process"):
        next(Run.open(run.path).train())
    events.close()
    assert isinstance(list(Run.open(run.path).train())[-1], Finished)


def test_who_stops_listening_ends_the_training() -> None:
    run = make()
    events = run.train()
    while not isinstance(next(events), Saved):
        pass
    del events
    resumed = list(run.train(resume=True))
    started = next(event for event in resumed if isinstance(event, Started))
    assert started.step == 3
    assert started.resumed


def test_a_resumed_run_cuts_metrics_and_samples_back() -> None:
    whole = trained("whole")
    run = make()
    for event in run.train():
        if isinstance(event, Stepped) and event.step == 5:
            break
    (run.path / "samples" / "step-000005.txt").write_text("later", encoding="utf-8")
    (run.path / "metrics.jsonl").open("a", encoding="utf-8").write('{"event": "st')
    list(run.train(resume=True))
    assert tree(run.path) == tree(whole.path)
    for line, other in zip(run.metrics(), whole.metrics(), strict=True):
        assert {k: v for k, v in line.items() if "second" not in k} == {
            k: v for k, v in other.items() if "second" not in k
        }


def test_a_full_disk_ends_the_training_and_spoils_nothing(tmp_path: Path) -> None:
    """On a real small file system: the run folder stays whole, and goes on to the same bits."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small file system")
    mounting = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not permit mounting")
    try:
        whole = trained("whole", checkpoint_every=1)
        train = dataclasses.replace(TRAIN, checkpoint_every=1)
        run = Run.create(disk, "a", "text.txt", MODEL, train, DataConfig())
        with pytest.raises(StorageError) as caught:
            for event in run.train():
                if isinstance(event, Saved) and event.step == 3:
                    with pytest.raises(OSError, match="No space"):
                        (disk / "filler").write_bytes(b"x" * 2_000_000)
        assert "\n" not in str(caught.value)
        assert ".partial" not in str(caught.value)
        (disk / "filler").unlink()
        opened = Run.open(run.path)
        assert opened.model("last") is not None
        assert isinstance(list(opened.train(resume=True))[-1], Finished)
        last = "checkpoints/step-000006"
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert (run.path / last / name).read_bytes() == (whole.path / last / name).read_bytes()
        assert [m["step"] for m in opened.metrics()] == [m["step"] for m in whole.metrics()]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_text_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO((WORDS * 30).encode()), "utf-8"))
    run = make(text="-", train=dataclasses.replace(TRAIN, steps=3))
    list(run.train())
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b""), "utf-8"))
    assert isinstance(list(Run.open(run.path).train(resume=True))[-1], Finished)
    assert run.record.text.asked == "-"


def test_what_a_killed_process_left_half_written_is_swept() -> None:
    run = make()
    for folder in (".", "samples", "checkpoints"):
        (run.path / folder / ".partial-0123").write_bytes(b"half")
    list(run.train(resume=True))
    assert not any(".partial" in name for name in tree(run.path))


def test_choices_are_kept_when_resuming(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(steps=3)
    before = run.record.resolved
    edited = (run.path / "run.toml").read_text(encoding="utf-8").replace("steps = 3", "steps = 6")
    (run.path / "run.toml").write_text(edited, encoding="utf-8")
    # A machine that would choose differently.
    monkeypatch.setattr("partwise.machine.choices.measured", lambda: 1 / 0)
    monkeypatch.setattr("partwise.run.training.cores", lambda: 64)
    opened = Run.open(run.path)
    events = list(opened.train(resume=True))
    assert opened.record.resolved == before
    assert events[-1].step == 6  # type: ignore[union-attr]
    assert not any("as asked" in str(e.notice) for e in events if isinstance(e, Said))


def test_other_settings_when_resuming() -> None:
    run = trained(steps=3)
    longer = dataclasses.replace(run.record.train, steps=5, dtype="bfloat16", threads=1)
    with lock(run.path / ".lock"), pytest.raises(RunError, match="is being written"):
        next(run.train(resume=True, settings=longer))
    for wrong in ({"steps": None}, {"device": "cuda:99"}):
        with pytest.raises(ConfigError):
            next(run.train(resume=True, settings=dataclasses.replace(longer, **wrong)))  # type: ignore[arg-type]
    assert Run.open(run.path).record.train.steps == 3
    events = list(run.train(resume=True, settings=longer))
    assert events[-1].step == 5  # type: ignore[union-attr]
    started = next(event for event in events if isinstance(event, Started))
    assert (started.dtype, started.threads) == ("bfloat16", 1)
    assert Run.open(run.path).record.train == longer
    assert Run.open(run.path).record.resolved == run.record.resolved


def test_a_device_that_is_gone_is_said() -> None:
    run = trained(steps=3)
    path = run.path / "run.toml"
    text = path.read_text(encoding="utf-8").replace('device = "cpu"', 'device = "cuda:7"')
    path.write_text(text, encoding="utf-8")
    opened = Run.open(run.path)
    said = [str(event.notice) for event in opened.train(resume=True) if isinstance(event, Said)]
    assert any("trained on cuda:7, which is not here" in line for line in said)


# --- The text ---------------------------------------------------------------------------------


def test_the_text_is_prepared_anew_when_the_cache_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "cache"))
    run = trained(steps=3)
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.chdir("/")
    assert isinstance(list(Run.open(tmp_path / run.path).train(resume=True))[-1], Finished)
    assert (tmp_path / "cache").is_dir()


def test_a_text_that_has_changed_is_refused() -> None:
    run = trained(steps=3)
    before = run.record.text.fingerprint
    Path("text.txt").write_text(WORDS * 31, encoding="utf-8")
    with pytest.raises(RunError, match="has changed since") as caught:
        list(Run.open(run.path).train(resume=True))
    assert before[:12] in str(caught.value)
    assert "text.txt" in str(caught.value)


def test_a_text_that_has_moved_is_named() -> None:
    run = trained(steps=3)
    Path("text.txt").rename("elsewhere.txt")
    with pytest.raises(RunError, match=r"cannot be opened again.*--text"):
        list(Run.open(run.path).train(resume=True))
    last = list(Run.open(run.path).train(resume=True, text="elsewhere.txt"))[-1]
    assert isinstance(last, Finished)


def test_a_changed_validation_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("val.txt").write_text(WORDS * 2, encoding="utf-8")
    run = make(data=DataConfig(validation="val.txt"))
    assert run.record.data.validation == str(Path("val.txt").absolute())
    list(run.train())
    monkeypatch.chdir("/")
    folder = Path(run.record.text.spec).parent / run.path
    list(Run.open(folder).train(resume=True))
    Path(str(run.record.data.validation)).write_text(WORDS * 3, encoding="utf-8")
    with pytest.raises(RunError, match="has changed since"):
        list(Run.open(folder).train(resume=True))


# --- Using it ---------------------------------------------------------------------------------


def test_a_moved_folder_samples_without_its_text(tmp_path: Path) -> None:
    run = trained()
    settings = partwise.SampleConfig(chars=20)
    text = complete(run.model(), run.tokenizer(), "the ", settings)
    moved = tmp_path / "else where" / "红"
    moved.parent.mkdir()
    run.path.rename(moved)
    Path("text.txt").unlink()
    opened = Run.open(moved)
    assert opened.name == "红"
    assert complete(opened.model(), opened.tokenizer(), "the ", settings) == text
    absolute = str(tmp_path)
    for path in moved.rglob("*.json*"):
        assert absolute not in path.read_text(encoding="utf-8"), path


def test_best_and_last_are_separate() -> None:
    run = trained()
    root = run.path / "checkpoints"
    best = json.loads((root / "best.json").read_text(encoding="utf-8"))["value"]["step"]
    losses = {m["step"]: m["val_loss"] for m in run.metrics() if m["event"] == "evaluation"}
    assert best == min(losses, key=lambda step: losses[step])
    assert not run.model().training
    kept = run.model("best").token_embedding.weight
    (root / "best.json").unlink()
    assert torch.equal(run.model("best").token_embedding.weight, kept)


def test_a_run_without_a_checkpoint_says_so() -> None:
    with pytest.raises(RunError, match="train it first"):
        make().model()


def test_another_tokenizer_is_refused() -> None:
    run, other = trained(steps=3), None
    Path("other.txt").write_text("0123456789\n" * 50, encoding="utf-8")
    other = make("b", "other.txt")
    shutil.copy(other.path / "tokenizer.json", run.path / "tokenizer.json")
    with pytest.raises(RunError, match=r"char-11.*char-1") as caught:
        run.tokenizer()
    assert run.record.text.tokenizer_fingerprint[:8] in str(caught.value)


def test_beginning_from_another_run() -> None:
    first = trained()
    second = make("b", begin=first)
    assert "initial.safetensors" in tree(second.path)
    start = second._new_model().state_dict()
    for name, weight in first.model().state_dict().items():
        assert torch.equal(start[name], weight)
    assert isinstance(list(second.train())[-1], Finished)
    # The other run's vocabulary is kept, and its shape.
    Path("few.txt").write_text("the cat\n" * 40, encoding="utf-8")
    third = make("c", "few.txt", begin=first)
    assert third.record.model.vocab_size == len(set(WORDS))
    with pytest.raises(RunError, match="use the model settings of the run"):
        make("d", model=dataclasses.replace(MODEL, d_model=32), begin=first)
    assert not Path("runs/d").exists()


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    trained()
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_a_locale_that_is_not_utf8_changes_nothing(tmp_path: Path) -> None:
    Path("文.txt").write_text("你好，世界。naïve 🙂\n" * 40, encoding="utf-8")
    program = (
        "import sys\n"
        "from partwise.run import Run\n"
        "from partwise import ModelConfig, TrainConfig, DataConfig\n"
        "model = ModelConfig(context_length=8, n_layers=1, d_model=16, n_heads=2)\n"
        "train = TrainConfig(steps=2, batch_size=4, eval_every=1, dtype='float32')\n"
        "run = Run.create('runs', None, sys.argv[1], model, train, DataConfig())\n"
        "list(run.train())\n"
    )
    surroundings = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", program, "文.txt"],
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = Path("runs").glob("[!.]*")
    run = Run.open(folder)
    assert run.tokenizer().decode(run.tokenizer().encode("你好🙂")) == "你好🙂"
    assert (run.path / "samples" / "step-000002.txt").read_text(encoding="utf-8")


def test_event_union_covers_what_is_yielded() -> None:
    for event in make().train():
        assert isinstance(event, Event | Sampled)
