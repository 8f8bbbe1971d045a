"""`partwise import`, `export` and `train --from`, as they are typed."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from interop.folders import SENTENCES, whole
from transformers import AutoModelForCausalLM, AutoTokenizer

from partwise.cli import main
from partwise.run import Run

TINY = [
    *("--model.n-layers", "1", "--model.d-model", "16", "--model.n-heads", "2"),
    *("--model.context-length", "16", "--batch-size", "4", "--steps", "6"),
]
QUICK = [
    *("--train.threads", "1", "--dtype", "float32", "--train.compile", "off"),
    *("--train.eval-every", "3", "--train.sample-chars", "10", "--device", "cpu"),
]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, a run trained on it (`runs/first`), and a model made elsewhere."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "novel.txt").write_text("\n".join(SENTENCES * 30), encoding="utf-8")
    words = ["train", str(folder / "novel.txt"), *TINY, *QUICK, "--name", "first", "--quiet"]
    assert main([*words, "--runs-dir", str(folder / "runs")]) == 0
    whole(folder / "theirs", "gpt2")
    return folder


@pytest.fixture
def work(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def refused(words: list[str], capsys: Captured) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err


def test_the_usual_model_goes_out_and_writes_there_as_here(work: Path, capsys: Captured) -> None:
    assert main(["export", "first", "out"]) == 0
    out, err = capsys.readouterr()
    assert "out; its README.md is the model card" in out
    assert "llama.cpp" in err
    run = Run.open("runs/first")
    theirs = AutoModelForCausalLM.from_pretrained("out")
    tokenizer = AutoTokenizer.from_pretrained("out")
    text = SENTENCES[2] + "\n" + SENTENCES[0]
    ids = run.tokenizer().encode(text)[:16]
    assert tokenizer(text)["input_ids"][:16] == ids.tolist()
    with torch.no_grad():
        ours = run.model()(torch.from_numpy(ids)[None])
        torch.testing.assert_close(
            theirs(torch.from_numpy(ids)[None]).logits, ours, atol=1e-5, rtol=1e-5
        )
    card = Path("out/README.md").read_text(encoding="utf-8")
    for said in ("novel", "nats a token", 'license: "unknown"', f"{theirs.num_parameters():,}"):
        assert said in card
    # What went out comes back in, and is the same run's model.
    assert main(["import", "out", "--name", "back", "--quiet"]) == 0
    assert capsys.readouterr().out == f"{Path('runs/back')}\n"
    back = Run.open("runs/back")
    assert back.tokenizer().fingerprint == run.tokenizer().fingerprint
    assert main(["export", "back", "again", "--license", "cc0-1.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["form"] == "apertus"
    for file in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
        assert Path("again", file).read_bytes() == Path("out", file).read_bytes()
    assert 'license: "cc0-1.0"' in Path("again/README.md").read_text(encoding="utf-8")


def test_a_model_comes_in_and_is_a_run(work: Path, capsys: Captured) -> None:
    assert main(["import", "theirs", "--name", "mine"]) == 0
    out = capsys.readouterr().out
    assert "gpt2 with" in out and "partwise sample" in out and "--from" in out
    # A run may have the name of the folder that it was made of.
    assert main(["import", "theirs", "--name", "theirs", "--quiet"]) == 0
    assert main(["sample", "theirs", "--tokens", "3", "--quiet"]) == 0
    assert main(["sample", "mine", "--tokens", "5", "--prompt", "the cat", "--quiet"]) == 0
    assert main(["runs"]) == 0
    assert "imported" in capsys.readouterr().out
    assert main(["runs", "show", "mine"]) == 0
    assert str(Path("theirs").absolute()) in capsys.readouterr().out
    assert main(["size", "mine"]) == 0
    capsys.readouterr()
    assert "mine" in refused(["import", "theirs", "--name", "mine"], capsys)
    assert main(["resume", "mine"]) == 2
    assert "partwise train TEXT --from" in capsys.readouterr().err
    assert main(["import", "theirs", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == 1 and report["form"] == "gpt2" and report["dtype"] == "float32"
    assert Path(report["run"]).is_dir()


@pytest.mark.parametrize("name", ["theirs", "first"])
def test_training_goes_on_from_a_folder_and_from_a_run(
    name: str, work: Path, capsys: Captured
) -> None:
    words = ["train", "novel.txt", "--from", name, *QUICK, "--steps", "3", "--name", "tuned"]
    assert main(words) == 0
    assert "learning rate" in capsys.readouterr().out
    tables = tomllib.loads(Path("runs/tuned/run.toml").read_text(encoding="utf-8"))
    assert tables["ancestor"]["kind"] == ("folder" if name == "theirs" else "run")
    assert Path(tables["ancestor"]["path"]).name == name
    assert "lora" not in tables
    assert main(["sample", "tuned", "--chars", "5", "--quiet"]) == 0


def test_lora_is_asked_for_by_its_rank(work: Path, capsys: Captured) -> None:
    lora = ["--lora.rank", "2", "--lora.targets", "qkv,up", "--lora.alpha", "4"]
    words = ["train", "novel.txt", "--from", "theirs", *QUICK, "--steps", "3", *lora]
    assert main([*words, "--name", "tuned"]) == 0
    out = capsys.readouterr().out
    assert "LoRA: 1,152 parameters are trained in place of" in out
    tables = tomllib.loads(Path("runs/tuned/run.toml").read_text(encoding="utf-8"))
    assert tables["lora"] == {"rank": 2, "alpha": 4.0, "targets": ["qkv", "up"], "dropout": 0.0}
    largest = max(path.stat().st_size for path in Path("runs/tuned/checkpoints").rglob("model.*"))
    assert largest < Path("runs/tuned/initial.safetensors").stat().st_size / 10
    assert main(["export", "tuned", "out", "--quiet"]) == 0
    capsys.readouterr()
    theirs = AutoModelForCausalLM.from_pretrained("out")
    ids = torch.randint(0, 270, (1, 12))
    with torch.no_grad():
        ours = Run.open("runs/tuned").model()(ids)
        torch.testing.assert_close(theirs(ids).logits, ours, atol=1e-5, rtol=1e-5)
    assert "rank 2" in Path("out/README.md").read_text(encoding="utf-8")
    # The file of settings may be given again as it is.
    again = ["train", "novel.txt", "--from", "theirs", "--config", "runs/tuned/run.toml"]
    assert main([*again, "--name", "again", "--quiet"]) == 0
    assert Run.open("runs/again").record.lora == Run.open("runs/tuned").record.lora


def test_a_text_that_the_model_cannot_read_is_refused_with_a_way_out(
    work: Path, capsys: Captured
) -> None:
    Path("greek.txt").write_text("αβγ the cat sat on the mat\n" * 60, encoding="utf-8")
    words = ["train", "greek.txt", "--from", "first", *QUICK, "--steps", "2", "--name", "tuned"]
    err = refused(words, capsys)
    assert "U+03B1" in err and "--unknown skip" in err
    assert not Path("runs/tuned").exists()
    assert main([*words, "--unknown", "skip", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["import"], "name the FOLDER"),
        (["import", "nowhere"], "hf download nowhere"),
        (["import", "runs/first"], "no config.json"),
        (["import", "theirs", "--name", "first"], "exists already"),
        (["import", "theirs", "--name", "a/b"], "a/b"),
        (["export", "first"], "name the RUN to export and the FOLDER"),
        (["export", "frist", "out"], "did you mean first"),
        (["export", "first", "theirs"], "exists already"),
        (["export", "theirs", "out"], "partwise import theirs"),
        (["sample", "theirs"], "partwise import theirs"),
        (["export", "first", "out", "--which", "worst"], "worst"),
        (["train", "novel.txt", "--from", "frist"], "did you mean first"),
        (["train", "novel.txt", "--lora.rank", "2"], "--from"),
        (["train", "novel.txt", "--from", "first", "--lora.alpha", "2"], "--lora.rank"),
        (["train", "novel.txt", "--from", "first", "--lora.rank", "0"], "rank=0"),
        (["train", "novel.txt", "--from", "first", "--lora.rank", "x"], "--lora.rank='x'"),
        (
            ["train", "novel.txt", "--from", "first", "--lora.rank", "2", "--lora.targets", "gate"],
            "targets=gate",
        ),
        (["train", "novel.txt", "--from", "first", "--preset", "small"], "brings its model"),
        (
            ["train", "novel.txt", "--from", "first", "--data.tokenizer", "byte"],
            "leave out --data.tokenizer",
        ),
        (
            ["train", "novel.txt", "--from", "theirs", "--model.context-length", "99"],
            "context_length=99",
        ),
        (["train", "novel.txt", "--from", "theirs", "--model.d-model", "64"], "64"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], said: str, work: Path, capsys: Captured
) -> None:
    before = sorted(path for path in Path().rglob("*") if path.name != ".lock")
    assert said in refused(words, capsys)
    assert sorted(path for path in Path().rglob("*") if path.name != ".lock") == before


def test_help_is_quick_and_explains(work: Path, capsys: Captured) -> None:
    for name in ("import", "export"):
        assert main([name, "--help"]) == 0
        assert "--runs-dir" in capsys.readouterr().out
    assert main(["train", "--help"]) == 0
    assert "--lora.rank" in capsys.readouterr().out
