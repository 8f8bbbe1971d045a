"""The commands on a tiny model: from a text to a run, on to more steps, and out to text again."""

import json
import os
import shutil
from pathlib import Path

import pytest

from partwise.cli import main

TINY = [
    *("--model.n-layers", "1", "--model.d-model", "16", "--model.n-heads", "2"),
    *("--model.context-length", "16", "--batch-size", "4", "--steps", "20"),
    *("--train.threads", "1", "--dtype", "float32", "--train.compile", "off"),
    *("--train.eval-every", "10", "--train.sample-chars", "20", "--device", "cpu"),
]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds `novel.txt` and, trained on it, `runs/first`."""
    folder = tmp_path_factory.mktemp("work")
    lines = (f"第{n}行: the quick brown fox jumps over dog {n}.\n" for n in range(200))
    (folder / "novel.txt").write_text("".join(lines), encoding="utf-8")
    text, runs = str(folder / "novel.txt"), str(folder / "runs")
    words = ["train", text, *TINY, "--name", "first", "--runs-dir", runs, "--quiet"]
    assert main(words) == 0
    return folder


@pytest.fixture
def work(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in."""
    shutil.copytree(trained, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def files_in(folder: Path) -> list[Path]:
    """Everything but the locks, which stay where they are and are empty."""
    return sorted(path for path in folder.rglob("*") if path.name != ".lock")


def refused(words: list[str], capsys: Captured) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err


def test_training_in_a_pipe_is_plain_lines(work: Path, capsys: Captured) -> None:
    assert main(["train", "novel.txt", *TINY, "--name", "second"]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\r" not in out + err
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == f"run folder {Path('runs/second')}"
    assert any(line.startswith("model small, with changes: ") for line in lines)
    assert any(line.startswith("float32") for line in lines)
    assert any(line.startswith("step 10/20: loss ") for line in lines)
    assert any("finished at step 20" in line for line in lines)
    assert lines[-1] == f"for more: partwise sample {Path('runs/second')} --chars 2000"


def test_quiet_prints_the_folder_alone(work: Path, capsys: Captured) -> None:
    assert main(["train", "novel.txt", *TINY, "--name", "second", "--quiet"]) == 0
    assert capsys.readouterr() == (f"{Path('runs/second')}\n", "")


def test_json_lines_tell_everything(work: Path, capsys: Captured) -> None:
    assert main(["train", "novel.txt", *TINY, "--name", "second", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    events = [json.loads(line) for line in out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "opened"
    assert kinds[-1] == "finished"
    assert {"said", "started", "stepped", "evaluated", "sampled", "saved"} <= set(kinds)
    assert events[-1]["step"] == 20
    assert events[-1]["reason"] == "steps"


def test_what_is_said_wins_over_file_over_recipe(work: Path, capsys: Captured) -> None:
    (work / "my.toml").write_text(
        "[train]\nsteps = 2\nbatch_size = 2\n[model]\nd_model = 32\nn_layers = 1\n",
        encoding="utf-8",
    )
    words = ["train", "novel.txt", "--recipe", "nanogpt-cpu", "--config", "my.toml"]
    words += ["--batch-size", "3", "--name", "layers", "--train.threads", "1", "--quiet"]
    assert main([*words, "--model.context-length", "8", "--train.sample-chars", "0"]) == 0
    capsys.readouterr()
    assert main(["runs", "show", "layers", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["train"]["steps"] == 2  # the file
    assert settings["train"]["batch_size"] == 3  # the flag
    assert settings["train"]["beta2"] == 0.99  # the recipe
    assert settings["model"]["d_model"] == 32
    assert settings["model"]["norm_bias"] is False


def test_a_runs_own_settings_can_be_used_again(work: Path, capsys: Captured) -> None:
    words = ["train", "novel.txt", "--config", "runs/first/run.toml", "--name", "again", "--quiet"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["runs", "compare", "first", "again", "--json"]) == 0
    differences = json.loads(capsys.readouterr().out)["differences"]
    assert set(differences) <= {"seconds"}


def test_context_is_fitted_to_a_short_text_unless_named(work: Path, capsys: Captured) -> None:
    (work / "short.txt").write_text("abcde" * 40, encoding="utf-8")
    few = ["--steps", "1", "--train.threads", "1", "--model.d-model", "16", "--model.n-heads", "2"]
    assert main(["train", "short.txt", *few, "--name", "short"]) == 0
    assert "context of 16 tokens instead of 128" in capsys.readouterr().out
    err = refused(["train", "short.txt", *few, "--model.context-length", "64"], capsys)
    assert "20" in err
    assert "65" in err
    assert sorted(path.name for path in (work / "runs").glob("[!.]*")) == ["first", "short"]


def test_training_begins_from_another_run(work: Path, capsys: Captured) -> None:
    words = ["train", "novel.txt", "--from", "first", "--name", "tuned", "--steps", "2"]
    assert main([*words, "--train.sample-chars", "0"]) == 0
    out = capsys.readouterr().out
    assert "learning rate" in out
    err = refused([*words, "--preset", "small"], capsys)
    assert "--from=first" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "novel.txt", "--name", "first"], "exists already"),
        (["train", "novel.txt", "--name", "a/b"], "a/b"),
        (["train", "novel.txt", "--preset", "smal"], "did you mean small?"),
        (["train", "novel.txt", "--recipe", "nanogp"], "did you mean nanogpt"),
        (["train", "novel.txt", "--preset", "small", "--recipe", "small"], "both choose the model"),
        (
            ["train", "novel.txt", "--model.n-heads", "5"],
            "d_model=128 is not divisible by n_heads=5",
        ),
        (["train", "novl.txt"], "novel.txt"),
        (["train", "novel.txt", "--device", "tpu"], "tpu"),
        (["train", "novel.txt", "--config", "absent.toml"], "--config=absent.toml cannot be read"),
        (["resume", "frist"], "did you mean first?"),
        (["sample", "frist"], "did you mean first?"),
        (["sample", "first", "--prompt", "Ω"], "--unknown skip"),
        (["sample", "first", "--temperature=-1"], "temperature=-1"),
        (["sample", "first", "--out", "runs"], "--out=runs is a folder"),
        # Before anything is sampled, and before a text is prepared that takes long.
        (["sample", "frist", "--out", "novel.txt/x"], "novel.txt/x cannot be written"),
        (["sample", "first", "--count", str(10**11)], "count=100,000,000,000 samples"),
        (["train", "novl.txt", "--name", "first"], "exists already"),
        (["train", "novl.txt", "--name", "con"], "'con'"),
        (["runs", "shwo"], "did you mean show?"),
        (["runs", "compare", "first"], "two runs or more"),
        (["size", "gtp2"], "did you mean gpt2?"),
        (["size", "--diff", "gpt2"], "--diff needs two models"),
        (["size", "gpt2", "--accelerator", "A1000"], "did you mean A100"),
        (["data"], "name a text"),
        (["data", "novel.txt", "two"], "'two'"),
        (["data", "remove"], "--all"),
        (["data", "remove", "nothing"], "'nothing'"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: list[str], said: str, work: Path, capsys: Captured
) -> None:
    before = files_in(work)
    assert said in refused(words, capsys)
    assert files_in(work) == before


def test_resume_trains_longer(work: Path, capsys: Captured) -> None:
    assert main(["resume", "first", "--steps", "30"]) == 0
    out = capsys.readouterr().out
    assert "going on from step 20" in out
    assert "finished at step 30" in out
    assert main(["runs", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["step"] == 30


def test_resume_of_a_finished_run_says_how_to_train_longer(work: Path, capsys: Captured) -> None:
    assert main(["resume", "first"]) == 0
    assert "--steps" in capsys.readouterr().out


def test_sample_streams_the_prompt_and_what_follows(work: Path, capsys: Captured) -> None:
    assert main(["sample", "first", "--prompt", "the ", "--chars", "30"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("the ")
    assert len(out) == 34
    assert err == ""
    assert main(["sample", "--prompt=the ", "--chars=30"]) == 0
    again, err = capsys.readouterr()
    assert again == out
    assert err == f"the newest run: {Path('runs/first')}\n"


def test_sample_takes_any_words_as_a_prompt(work: Path, capsys: Captured) -> None:
    words = ["sample", "first", "--chars", "3", "--unknown", "skip", "--quiet"]
    for prompt in ("a=b", "--x", "", "🙂", "--prompt=", "\\n"):
        assert main([*words, f"--prompt={prompt}"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(prompt)
        assert err == ""


def test_sample_into_a_file(work: Path, capsys: Captured) -> None:
    assert main(["sample", "first", "--chars", "500", "--out", "more.txt", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert len((work / "more.txt").read_text(encoding="utf-8")) == 500
    assert main(["sample", "first", "--chars", "500", "--quiet"]) == 0
    assert capsys.readouterr().out == (work / "more.txt").read_text(encoding="utf-8")


def test_several_samples(work: Path, capsys: Captured) -> None:
    words = ["sample", "first", "--count", "3", "--chars", "20", "--prompt", "dog"]
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [len(text) for text in report["samples"]] == [23, 23, 23]
    assert main(words) == 0
    out = capsys.readouterr().out
    for number, text in enumerate(report["samples"], start=1):
        assert f"--- sample {number} of 3 ---\n{text}\n" in out


def test_prompt_from_standard_input(
    work: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.write(write, "第1行".encode())
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as piped:
        monkeypatch.setattr("sys.stdin", piped)
        assert main(["sample", "first", "--prompt", "-", "--chars", "5"]) == 0
    assert capsys.readouterr().out.startswith("第1行")


def test_runs_are_listed_shown_and_compared(work: Path, capsys: Captured) -> None:
    shutil.copytree(work / "runs" / "first", work / "runs" / "copy")
    (work / "runs" / "broken").mkdir()
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    assert "first" in out
    assert "broken" in out
    assert main(["runs", "show", "first"]) == 0
    assert "train.batch_size" in capsys.readouterr().out
    assert main(["runs", "compare", "first", "copy"]) == 0
    assert capsys.readouterr().out == "they do not differ\n"
    assert main(["runs", "--runs-dir", "nowhere"]) == 0
    assert "nowhere" in capsys.readouterr().out


def test_data_is_looked_at_listed_and_removed(
    work: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTWISE_CACHE", str(work / "cache"))
    assert main(["data", "novel.txt", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    characters = len((work / "novel.txt").read_text(encoding="utf-8"))
    assert report["train_tokens"] + report["validation_tokens"] == characters
    assert report["first"].startswith("第0行")
    assert main(["data", "novel.txt"]) == 0
    assert "char-" in capsys.readouterr().out
    assert main(["data", "list", "--json"]) == 0
    (kept,) = json.loads(capsys.readouterr().out)["prepared"]
    assert kept["tokens"] == characters
    assert main(["data", "remove", kept["mark"]]) == 0
    assert not Path(kept["folder"]).exists()
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    assert capsys.readouterr().out == "nothing is prepared yet\n"


def test_size_of_presets_runs_and_flags(work: Path, capsys: Captured) -> None:
    assert main(["size", "gpt2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    # 124,439,808: the released weights' count, see the preset
    assert report["parameters"] == 124_439_808
    assert main(["size", "--model.n-layers", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "small"
    assert main(["size", "--compare", "gpt2", "first"]) == 0
    assert "124,439,808" in capsys.readouterr().out
    assert main(["size", "gpt2", "llama-7b", "--diff"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["norm", "layernorm", "rmsnorm"] for line in lines)
    assert main(["size"]) == 0
    assert "gpt2-xl" in capsys.readouterr().out


def test_doctor_says_ok_in_words(capsys: Captured) -> None:
    assert main(["doctor", "--quick"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert all(line.split()[0] in ("ok", "warn") for line in out.splitlines())
    assert main(["doctor", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert "compiler" not in [check["check"] for check in report["checks"]]


def test_doctor_fails_where_nothing_can_be_written(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "file"))
    assert main(["doctor", "--quick"]) == 1
    assert any(line.startswith("fail  cache") for line in capsys.readouterr().out.splitlines())
