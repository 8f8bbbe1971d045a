"""Trainings that a page starts: checked first, followed by their files, stopped, found again."""

import errno
import json
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partwise.errors import PartwiseError, StorageError, UsageError
from partwise.ladder.config import LadderConfig
from partwise.ladder.plan import plan
from partwise.ladder.pool import Told
from partwise.messages import use_words
from partwise.studio import foresight
from partwise.studio.foresight import Foresight
from partwise.studio.orders import Order, order
from partwise.studio.state import State
from partwise.studio.tails import POINTS, Tail, thinned
from partwise.studio.texts import keep
from studio.live import Live, Message, running

SMALL = {
    "model": {"d_model": 16, "n_heads": 2, "n_layers": 1, "context_length": 16},
    "train": {"log_every": 5, "eval_every": 10, "batch_size": 4, "warmup_steps": 0},
}


@pytest.fixture
def text(tmp_path: Path) -> str:
    words = "To be, or not to be, that is the question.\n" * 100
    return str(keep(tmp_path / "home" / "texts", "hamlet", words)["id"])


def ended(live: Live, id: str) -> Message:
    end = time.monotonic() + 200
    while time.monotonic() < end:
        (job,) = (one for one in live.get("/api/jobs")["jobs"] if one["id"] == id)
        if job["state"] != "running":
            found: Message = job
            return found
        time.sleep(0.2)
    raise TimeoutError


def test_a_training_is_started_and_followed(tmp_path: Path, text: str) -> None:
    with running(tmp_path) as live, live.tab() as tab:
        tab.send("watch", channel="jobs")
        assert tab.until(lambda m: m.get("channel") == "jobs")["jobs"] == []
        sent = {"kind": "train", "text": text, "steps": 20, "settings": SMALL}
        status, job = live.post("/api/jobs", sent)
        assert status == 200 and job["state"] == "running" and job["name"] == "hamlet"
        tab.send("watch", channel=job["channel"])
        first = tab.until(lambda m: m.get("channel") == "run:hamlet")
        assert first["reset"]
        done = tab.until(lambda m: m.get("job", {}).get("state") == "done")["job"]
        assert (done["step"], done["steps"], done["error"]) == (20, 20, None)
        lines = [
            line
            for m in tab.heard
            if m.get("channel") == "run:hamlet" and not m["reset"]
            for line in m["lines"]
        ]
        lines = first["lines"] + lines
        steps = [line["step"] for line in lines if line["event"] == "step"]
        assert steps == [5, 10, 15, 20], "no line is lost or told twice"
        (summary,) = live.get("/api/runs")["runs"]
        assert (summary["name"], summary["step"], summary["status"]) == ("hamlet", 20, "steps")
        assert live.get("/api/runs/hamlet")["settings"]["model"]["d_model"] == 16
        assert live.get("/api/runs/hamlet/metrics")["lines"][-1]["event"] == "finished"
        # The next one of the same text has a name of its own; the model can be looked into.
        (model,) = (one for one in live.get("/api/models") if one["id"] == "run:hamlet")
        assert (model["layers"], model["ready"]) == (1, True)
        tab.send("sample.start", ask="s", model="run:hamlet", prompt="To", settings={"chars": 30})
        told = tab.until(lambda m: m["type"] in ("sample.done", "error"))
        assert told["characters"] == 30
        pieces = [m["text"] for m in tab.heard if m["type"] == "sample.piece"]
        assert len("".join(pieces)) == 30
        taken = live.post("/api/jobs", {**sent, "name": "hamlet"})
        assert taken[0] == 422 and "hamlet" in taken[1]["error"]["message"]
        longer = live.post("/api/jobs", {"kind": "train", "resume": "run:hamlet", "steps": 25})[1]
        assert ended(live, longer["id"])["step"] == 25


def test_a_training_goes_on_without_the_studio_and_is_stopped(tmp_path: Path, text: str) -> None:
    with running(tmp_path) as live:
        sent = {"kind": "train", "text": text, "minutes": 10, "settings": SMALL, "name": "long"}
        job = live.post("/api/jobs", sent)[1]
        end = time.monotonic() + 200
        while not (tmp_path / "runs" / "long" / "metrics.jsonl").exists():
            assert time.monotonic() < end
            time.sleep(0.2)
        again = live.post("/api/jobs", {**sent, "name": None, "resume": "run:long"})[1]
        assert again["id"] == job["id"], "one training of a run is enough"
    with running(tmp_path) as live:
        (found,) = live.get("/api/jobs")["jobs"]
        assert (found["id"], found["state"], found["minutes"]) == (job["id"], "running", 10)
        assert live.post(f"/api/jobs/{job['id']}/stop", {})[1]["stopping"]
        assert ended(live, job["id"])["state"] == "stopped"
        last = live.get("/api/runs/long/metrics")["lines"][-1]
        assert last["reason"] == "interrupted", "it has saved itself"
        assert live.post("/api/jobs/none/stop", {})[0] == 422


def test_a_training_that_fails_says_why(tmp_path: Path, text: str) -> None:
    model = {**SMALL["model"], "context_length": 100_000}
    sent = {"kind": "train", "text": text, "steps": 5, "settings": {"model": model}}
    with running(tmp_path) as live:
        job = live.post("/api/jobs", sent)[1]
        failed = ended(live, job["id"])
    assert failed["state"] == "failed" and "100,001" in failed["error"]


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"kind": "x"},
        {"kind": "train"},
        {"kind": "train", "text": "/etc/passwd"},
        {"kind": "train", "text": "upload:../x"},
        {"kind": "train", "text": "shakespeare", "steps": -1},
        {"kind": "train", "text": "shakespeare", "steps": "many"},
        {"kind": "train", "text": "shakespeare", "name": "../x"},
        {"kind": "train", "text": "shakespeare", "name": "--help"},
        {"kind": "train", "text": "shakespeare", "from": "/etc"},
        {"kind": "train", "text": "shakespeare", "resume": "run:none"},
        {"kind": "train", "resume": "tiny", "steps": 9},
        {"kind": "train", "text": "shakespeare", "settings": {"other": {}}},
        {"kind": "train", "text": "shakespeare", "settings": {"model": 1}},
        {"kind": "train", "text": "shakespeare", "settings": {"model": {"d_modell": 1}}},
        {"kind": "train", "text": "shakespeare", "settings": {"data": {"validation": "/etc"}}},
        {"kind": "ladder", "to": 99},
        {"kind": "ladder", "name": "../x"},
        {"kind": "ladder", "text": "/etc/passwd"},
    ],
)
def test_what_makes_no_sense_starts_nothing(tmp_path: Path, sent: dict[str, Any]) -> None:
    state = State(root=tmp_path / "runs", ladders=tmp_path / "ladders", data=tmp_path / "home")
    with pytest.raises(PartwiseError):
        order(state, sent, "en")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("settings", [{"train": 5}, {"train": "ab"}, {"train": [["lr"]]}])
def test_a_run_goes_on_with_settings_alone(tmp_path: Path, settings: dict[str, Any]) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "run.toml").touch()
    state = State(root=tmp_path / "runs", ladders=tmp_path / "ladders", data=tmp_path / "home")
    sent = {"kind": "train", "resume": "run:one", "settings": settings}
    with pytest.raises(UsageError, match="train"):
        order(state, sent, "en")


def test_settings_become_flags_that_mean_the_same(tmp_path: Path) -> None:
    state = State(root=tmp_path / "runs", ladders=tmp_path / "ladders", data=tmp_path / "home")
    settings = {"model": {"n_kv_heads": None, "causal": False}, "train": {"lr": 1e-4}}
    made = order(
        state, {"kind": "train", "text": "shakespeare", "minutes": 2, "settings": settings}, "zh"
    )
    assert {
        "--model.n-kv-heads=none",
        "--model.causal=false",
        "--train.lr=0.0001",
        "--train.minutes=2.0",
        "--offline",
    } <= set(made.words)
    assert made.words[-2:] == ("--lang", "zh") and made.minutes == 2
    sent = {"kind": "ladder", "only": "4", "without": ["residual", "mask"], "each": True}
    made = order(state, {**sent, "steps": 50, "seeds": 2}, "en")
    assert {"--only=4", "--without=residual", "--without=mask", "--each", "--seeds=2"} <= set(
        made.words
    )
    assert made.folder == tmp_path / "ladders" / "shakespeare-steps-50"


def test_a_ladder_is_climbed_and_followed(tmp_path: Path, text: str) -> None:
    with running(tmp_path) as live, live.tab() as tab:
        sent = {"kind": "ladder", "only": "1", "steps": 20, "text": text, "name": "short"}
        job = live.post("/api/jobs", sent)[1]
        assert job["channel"] == "ladder:short"
        tab.send("watch", channel="ladder:short")
        told = tab.until(lambda m: m.get("channel") == "ladder:short", 200)
        assert told["run"] == "rung-1-seed-1"
        assert ended(live, job["id"])["state"] == "done"
        (ladder,) = live.get("/api/ladders")["ladders"]
        assert ladder == {"name": "short", "runs": ["rung-1-seed-1"], "table": True}
        assert live.get("/api/ladders/short")["table"]["rungs"][0]["rung"] == 1
        assert live.request("GET", "/api/ladders/none")[0] == 422
        rungs = live.get("/api/ladder/rungs")["rungs"]
        assert [one["rung"] for one in rungs] == [1, 2, 3, 4, 5, 6]


def test_a_tail_reads_on_and_notices_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail.more() == {"reset": True, "lines": []}
    assert tail.more() is None
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert tail.more() == {"reset": False, "lines": [{"step": 1}, {"step": 2}]}
    with path.open("ab") as file:
        file.write(b'ep": 3}\nnonsense\n')
    assert tail.more() == {"reset": False, "lines": [{"step": 3}]}
    assert tail.whole()["lines"] == [{"step": 1}, {"step": 2}, {"step": 3}]
    path.write_bytes(b'{"step": 1}\n')
    assert tail.more() == {"reset": True, "lines": [{"step": 1}]}


def test_a_tail_whose_file_goes_meanwhile_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n', encoding="utf-8")
    tail = Tail(path)

    def gone(*given: object, **named: object) -> None:
        raise FileNotFoundError

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", gone)
        assert tail.more() == {"reset": True, "lines": []}
    assert tail.more() == {"reset": False, "lines": [{"step": 1}]}


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    lines: list[dict[str, Any]] = [{"event": "step", "step": n} for n in range(1, 10_001)]
    lines.insert(5000, {"event": "evaluation", "step": 5000})
    kept = thinned(lines)
    assert POINTS / 2 < len(kept) <= POINTS + 2
    assert kept[-1]["step"] == 10_000 and {"event": "evaluation", "step": 5000} in kept


def test_channels_lead_nowhere_but_into_their_folder(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"secret": 1}) + "\n", encoding="utf-8")
    with running(tmp_path) as live, live.tab() as tab:
        for channel in ("run:..", "run:../..", "run:", "ladder:..", "run:.", "run:/etc"):
            tab.send("watch", channel=channel)
        tab.send("watch", channel="x" * 300)
        tab.until(lambda m: m["type"] == "error")
        assert "secret" not in str(tab.heard)


def test_a_translator_is_trained_and_asked(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        assert live.get("/api/labs/translators") == []
        status, job = live.post("/api/jobs", {"kind": "translate", "task": "reverse", "steps": 4})
        assert status == 200 and (job["kind"], job["name"]) == ("translate", "reverse")
        assert job["channel"] == "run:reverse"
        done = ended(live, job["id"])
        assert (done["state"], done["error"], done["step"], done["steps"]) == ("done", None, 4, 4)
        (found,) = live.get("/api/labs/translators")
        assert (found["name"], found["text"]) == ("reverse", "reverse")
        sent = {"run": "reverse", "text": "partwise"}
        status, seen = live.post("/api/labs/alignment", sent)
        assert status == 200 and len(seen["weights"]) == len(seen["target"])
        # A translator is no model that writes on.
        assert [one["id"] for one in live.get("/api/models")] == ["tiny"]


def test_a_translator_takes_1500_steps_unless_told(tmp_path: Path) -> None:
    state = State(root=tmp_path / "runs", data=tmp_path / "home")
    (tmp_path / "runs" / "dates").mkdir(parents=True)
    made = order(state, {"kind": "translate", "task": "dates"}, "zh")
    assert made.name == "dates-2" and "--steps=1500" in made.words and "zh" in made.words
    wrong: list[dict[str, Any]] = [
        {},
        {"task": "../reverse"},
        {"task": "reverse", "steps": 0},
        {"task": "reverse", "steps": "1 --compare"},
        {"task": ["reverse"]},
    ]
    for sent in wrong:
        with pytest.raises(PartwiseError):
            order(state, {"kind": "translate", **sent}, "en")


def test_a_ladder_is_foretold(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    really = foresight.work_through

    def counted(tasks: Any, *given: Any, **named: Any) -> Any:
        measured.extend(task["job"]["run"] for task in tasks)
        return really(tasks, *given, **named)

    monkeypatch.setattr(foresight, "work_through", counted)
    sent = {"text": text, "to": 2, "steps": 20, "workers": 2}
    with running(tmp_path) as live:
        status, told = live.post("/api/ladder/estimate", sent)
        assert status == 200, told
        assert (told["models"], told["finished"], told["workers"]) == (2, 0, 2)
        assert told["first"] == 1 and 0 < told["seconds"] < 60
        assert len(measured) == 2
        # A longer one needs no new measurement, and takes longer.
        more = live.post("/api/ladder/estimate", {**sent, "steps": 2000, "seeds": 3})[1]
        assert more["models"] == 6 and more["seconds"] > 10 * told["seconds"]
        assert len(measured) == 2
        for wrong in ({"to": 9}, {"text": "none"}, {"steps": 0}):
            assert live.post("/api/ladder/estimate", {**sent, **wrong})[0] == 422


def test_rungs_are_told_in_the_readers_language(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        for language in ("en", "zh"):
            rungs = live.get("/api/ladder/rungs", language)["rungs"]
            words = [one["name"] for one in rungs] + [one["adds"] for one in rungs]
            words += [change["text"] for one in rungs for change in one.get("changes", ())]
            assert len(words) > 20
            chinese = [bool(re.search(r"[\u4e00-\u9fff]", one)) for one in words]
            assert all(chinese) if language == "zh" else not any(chinese)
        heads = rungs[1]["changes"][0]
        assert "（n_heads）：1 → 4" in heads["text"] and heads["after"] == 4


def asleep(folder: Path) -> Order:
    """A job that does nothing for long."""
    return Order("train", folder.name, folder, "import time; time.sleep(100)", ())


def test_a_job_that_is_killed_is_told_so(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        jobs = live.state.jobs
        id = jobs.begin(asleep(tmp_path / "runs" / "one"))["id"]
        process = jobs._processes[id]
        process.kill()
        process.wait(30)
        job = ended(live, id)
        assert job["state"] == "failed" and "status" in job["error"]
        # What took its place under the same number is left alone.
        assert live.post(f"/api/jobs/{id}/stop", {"now": True})[1]["state"] == "failed"


@pytest.mark.parametrize("broken", ["mkdir", "write"])
def test_a_full_disk_starts_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    really = subprocess.Popen

    def counted(*given: Any, **named: Any) -> Any:
        started.append(really(*given, **named))
        return started[-1]

    def full(*given: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def refused(*given: object, **named: object) -> None:
        raise StorageError("{reason}", reason="no space")

    with running(tmp_path) as live:
        jobs = live.state.jobs
        monkeypatch.setattr("partwise.studio.jobs.subprocess.Popen", counted)
        with monkeypatch.context() as patched:
            if broken == "mkdir":
                patched.setattr(Path, "mkdir", full)
            else:
                patched.setattr("partwise.studio.jobs.write_json", refused)
            with pytest.raises(StorageError):
                jobs.begin(asleep(tmp_path / "runs" / "one"))
        assert jobs.told() == []
        assert len(started) == (broken == "write")
        for process in started:
            assert process.wait(30) != 0
        assert list((tmp_path / "home" / "jobs").glob("*")) == []


def test_a_full_disk_keeps_nobody_from_stopping_and_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object, **named: object) -> None:
        raise StorageError("{reason}", reason="no space")

    with running(tmp_path) as live:
        id = live.state.jobs.begin(asleep(tmp_path / "runs" / "one"))["id"]
        monkeypatch.setattr("partwise.studio.jobs.write_json", refused)
        status, job = live.post(f"/api/jobs/{id}/stop", {})
        assert status == 200 and (job["stopping"] or job["state"] == "stopped")
        assert live.state.jobs._processes[id].wait(30) != 0
        assert ended(live, id)["state"] == "stopped"
        with live.tab() as tab:
            tab.send("watch", channel="jobs")
            (told,) = tab.until(lambda m: m.get("channel") == "jobs")["jobs"]
            assert told["state"] == "stopped"


def test_a_job_that_goes_on_knows_its_minutes(tmp_path: Path) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "run.toml").touch()
    state = State(root=tmp_path / "runs", ladders=tmp_path / "ladders", data=tmp_path / "home")
    assert order(state, {"kind": "train", "resume": "run:one", "minutes": 3}, "en").minutes == 3
    assert order(state, {"kind": "train", "resume": "run:one", "steps": 3}, "en").minutes is None


def test_models_are_timed_as_they_are_trained_and_leave_nothing_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def timed(tasks: Any, place: Any, *, threads: int, **named: Any) -> Any:
        assert Path(place.folder).is_dir() and Path(place.folder) != Path.cwd()
        assert place.words == {"a": "b"}
        asked.extend((task["job"]["rung"], threads) for task in tasks)
        message = {"kind": "timed", "step": 0.1, "evaluation": 0.2}
        return [Told(number, message) for number in range(len(tasks))]

    monkeypatch.setattr(foresight, "work_through", timed)
    monkeypatch.setattr(foresight, "cores", lambda: 7)
    seen = Foresight(State(data=tmp_path))
    with use_words({"a": "b"}):
        usual = LadderConfig(only="1,6", steps=5)
        for config in (usual, usual, replace(usual, dtype="float32"), replace(usual, device="cpu")):
            jobs, _ = plan(config)
            assert len(seen._took(jobs, "cats.txt")) == 2
    # Rung 6 alone is told the device and the dtype.
    assert asked == [(1, 1), (6, 7), (6, 7), (6, 7)]
