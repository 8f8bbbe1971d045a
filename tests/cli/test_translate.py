"""`partwise translate`: from pairs to a translator, its score, its words and its picture."""

import importlib.util
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from partwise.cli import main

TINY = [
    *("--model.n-encoder-layers", "1", "--model.n-decoder-layers", "1", "--model.d-model", "16"),
    *("--model.n-heads", "2", "--model.context-length", "24", "--batch-size", "8"),
    *("--steps", "8", "--train.threads", "1", "--dtype", "float32", "--train.compile", "off"),
    *("--train.eval-every", "4", "--device", "cpu", "--data.tokenizer", "char"),
]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="session")
def trained_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds `pairs.tsv` and, trained on it, `runs/first`."""
    folder = tmp_path_factory.mktemp("work")
    lines = [f"le nombre {n}\tthe number {n}\n" for n in range(100, 220)]
    (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    words = ["translate", str(folder / "pairs.tsv"), *TINY, "--name", "first", "--quiet"]
    assert main([*words, "--runs-dir", str(folder / "runs")]) == 0
    return folder


@pytest.fixture
def work(trained_pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in."""
    shutil.copytree(trained_pairs, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def refused(words: list[str], capsys: Captured) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err


def test_training_ends_with_scores_and_samples(work: Path, capsys: Captured) -> None:
    assert main(["translate", "pairs.tsv", *TINY, "--name", "second", "--beam", "2"]) == 0
    out, _ = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == f"run folder {Path('runs/second')}"
    assert any(line.startswith("model pair: ") for line in lines)
    assert any(
        "108 pairs to learn from; 6 to choose the best weights by and 6 to" in x for x in lines
    )
    assert any(line.startswith("step 4/8: validation loss ") for line in lines)
    table = [line for line in lines if line.startswith(("encoder-decoder ", "copying the source "))]
    assert len(table) == 2
    assert all(line.endswith("%") for line in table)
    assert any(line.startswith("    given: the number ") for line in lines)
    assert lines[-1] == f'translate with: partwise translate {Path("runs/second")} --text "…"'


def test_quiet_prints_the_folder_alone(work: Path, capsys: Captured) -> None:
    assert main(["translate", "pairs.tsv", *TINY, "--name", "second", "--quiet"]) == 0
    assert capsys.readouterr().out == f"{Path('runs/second')}\n"


def test_comparing_trains_a_decoder_alone_of_the_same_size(work: Path, capsys: Captured) -> None:
    words = ["translate", "pairs.tsv", *TINY, "--name", "both", "--compare", "--json"]
    assert main(words) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    sizes = [event["parameters"] for event in events if event["event"] == "started"]
    assert len(sizes) == 2
    assert sizes[1] == pytest.approx(sizes[0], rel=0.2)
    scored = events[-1]
    assert scored["event"] == "scored"
    assert [Path(run).name for run in scored["runs"]] == ["both", "both-decoder-only"]
    systems = [score["system"] for score in scored["scores"]]
    assert systems == ["encoder-decoder", "decoder-only", "copy"]
    assert {score["pairs"] for score in scored["scores"]} == {6}
    # Three words a text are fewer than BLEU compares in a row.
    assert scored["scores"][0]["bleu"] is None
    chrf = scored["scores"][0]["chrf"]
    assert (chrf is None) == (importlib.util.find_spec("sacrebleu") is None)


def test_a_decoder_alone_can_be_all(work: Path, capsys: Captured) -> None:
    words = ["translate", "pairs.tsv", *TINY, "--name", "alone", "--decoder-only"]
    assert main(words) == 0
    assert "decoder-only model" in capsys.readouterr().out
    assert main(["translate", "alone", "--text", "le nombre 7", "--json"]) == 0


def test_it_translates(work: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["translate", "first", "--text", "le nombre 7", "--text", "le"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err == ""
    lines = io.TextIOWrapper(io.BytesIO(b"le nombre 7\r\nle\n"))
    monkeypatch.setattr(sys, "stdin", lines)
    assert main(["translate", "runs/first", "--text", "-"]) == 0
    assert capsys.readouterr().out == out
    assert main(["translate", "first", "--text", "le nombre 7", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["texts"] == [{"source": "le nombre 7", "translation": out.splitlines()[0]}]


def test_the_picture_is_an_svg(work: Path, capsys: Captured) -> None:
    words = ["translate", "first", "--text", "le nombre 7", "--align", "a.svg", "--longer-by", "3"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert (work / "a.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert err == "the picture is in a.svg\n"
    assert main(["translate", "first", "--text", "le nombre 7", "--longer-by", "3"]) == 0
    assert capsys.readouterr().out == out


def test_scoring_again(work: Path, capsys: Captured) -> None:
    assert main(["translate", "first", "--score", "--beam", "1", "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored["search"]["beam"] == 1
    assert scored["scores"][0]["pairs"] == 6


def test_resuming_trains_longer(work: Path, capsys: Captured) -> None:
    assert main(["translate", "first", "--resume", "--steps", "12", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["step"] for event in events if event["event"] == "finished"] == [12]
    assert events[-1]["event"] == "scored"


def test_a_translator_is_a_run_like_others(work: Path, capsys: Captured) -> None:
    assert main(["runs", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["name"], run["text"], run["kind"]) == ("first", "pairs", "translation")
    assert (run["step"], run["status"], run["problem"]) == (8, "steps", None)
    assert run["parameters"] > 5000
    assert main(["resume", "first", "--steps", "12", "--quiet"]) == 0
    assert capsys.readouterr().out == f"{Path('runs/first')}\n"
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["step"] == 12
    # The newest run that writes is what `sample` means; there is none.
    assert "holds none yet" in refused(["sample"], capsys)


def test_pairs_that_were_moved_can_be_named(work: Path, capsys: Captured) -> None:
    assert main(["translate", "pairs.tsv", *TINY, "--name", "own", "--quiet"]) == 0
    (work / "pairs.tsv").rename(work / "moved.tsv")
    capsys.readouterr()
    longer = ["translate", "own", "--resume", "--steps", "12", "--quiet"]
    assert "say where they are with --pairs" in refused(longer, capsys)
    assert main([*longer, "--pairs", "moved.tsv"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["translate"], "name the PAIRS to learn, or the RUN to translate with"),
        (["translate", "nothing.tsv"], "there are no pairs nothing.tsv"),
        (["translate", "gettext:xx"], "xx"),
        (["translate", "nobody", "--text", "a"], "there is no run nobody; choose first"),
        (["translate", "first"], 'say what to translate: partwise translate runs/first --text "…"'),
        (["translate", "first", "--steps", "9"], "is trained already; go on with --resume"),
        (["translate", "first", "--text", "le", "--compare"], "is trained already"),
        (["translate", "first", "--text", "le", "--model.d-model", "8"], "is trained already"),
        (["translate", "first", "--align", "a.svg"], "--align draws one text and 0 are given"),
        (["translate", "first", "--text", "le", "--align", "."], "--align=. is a folder"),
        (["translate", "first", "--text", "é"], "é"),
        (["translate", "pairs.tsv", "--model.n-heads", "3"], "not divisible by n_heads=3"),
        (["translate", "pairs.tsv", "--preset", "transformer"], "did you mean transformer-b"),
        (["translate", "pairs.tsv", "--beam", "0"], "beam=0 is too small"),
        (["translate", "pairs.tsv", "--bean", "2"], "did you mean --beam?"),
        (["translate", "pairs.tsv", "--name", "first"], "exists already"),
        # Before the pairs are read, and of either model.
        (["translate", "nothing.tsv", "--name", "first"], "exists already"),
        (["translate", "first", "--text", "le", "--align", "pairs.tsv/a"], "cannot be written"),
        (["sample", "first"], "is a translator; use it with: partwise translate"),
    ],
)
def test_mistakes_are_one_line(work: Path, capsys: Captured, words: list[str], said: str) -> None:
    before = sorted(path for path in work.rglob("*") if path.name != ".lock")
    err = refused(words, capsys)
    assert said.replace("runs/first", str(Path("runs/first"))) in err
    assert sorted(path for path in work.rglob("*") if path.name != ".lock") == before


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from partwise.cli import main; status = main(['translate', '--help']); "
        "sys.exit(status or ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--model.n-encoder-layers" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("task", ["reverse", "sort", "dates"])
def test_tasks_are_learned_to_99_percent(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["translate", task, "--name", "x", "--json", "--train.sample-chars", "0"]) == 0
    scored = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert scored["scores"][0]["exact"] >= 0.99
