"""`import partwise as pw`: train, load and sample; public names load when they are used."""

import subprocess
import sys
from pathlib import Path

import pytest

import partwise as pw
from partwise.training.events import Finished, Said

WORDS = "the cat sat on the mat and the dog sat on the log\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(WORDS * 40, encoding="utf-8")


def test_train_load_and_sample() -> None:
    heard: list[object] = []
    run = pw.train(
        "text.txt",
        model=pw.ModelConfig(context_length=16, n_layers=1, d_model=32, n_heads=2),
        train=pw.TrainConfig(steps=60, batch_size=8, lr=1e-2, eval_every=30, warmup_steps=5),
        name="cats",
        listen=heard.append,
    )
    assert run.path == Path("runs/cats")
    assert isinstance(heard[-1], Finished)
    text = pw.sample("cats", "the ", chars=40, seed=3)
    assert len(text) == 40
    assert text == pw.sample(pw.load("runs/cats"), "the ", chars=40, seed=3)
    assert text == pw.sample(run, "the ", chars=40, seed=3, cache=False)
    assert set(text) <= set(WORDS)


def test_what_is_not_said_is_chosen_and_said() -> None:
    heard: list[object] = []
    run = pw.train(
        "text.txt",
        model="ladder-1",
        train=pw.TrainConfig(steps=2, batch_size=4),
        listen=heard.append,
    )
    assert run.record.model.d_model == 32
    assert run.record.model.vocab_size == len(set(WORDS))
    assert run.name.startswith("text-2")
    assert any(isinstance(event, Said) for event in heard)


def test_mistakes_are_one_line_and_leave_nothing() -> None:
    model = pw.ModelConfig(context_length=16, n_layers=1, d_model=32, n_heads=2)
    steps = pw.TrainConfig(steps=2)
    with pytest.raises(pw.PartwiseError, match=r"did you mean text\.txt"):
        pw.train("test.txt", model=model, train=steps)
    with pytest.raises(pw.PartwiseError, match="there is no preset 'gpt-2'"):
        pw.train("text.txt", model="gpt-2")
    with pytest.raises(pw.PartwiseError, match="context_length"):
        pw.train("text.txt", model=pw.ModelConfig(), train=steps)
    with pytest.raises(pw.PartwiseError, match="nothing ends this training"):
        pw.train("text.txt", model=model, train=pw.TrainConfig())
    with pytest.raises(pw.PartwiseError, match="reserved on Windows"):
        pw.train("text.txt", model=model, train=steps, name="aux")
    with pytest.raises(pw.PartwiseError, match="there is no run cats"):
        pw.load("cats")
    assert not Path("runs").exists()


def test_settings_of_a_sample_are_checked() -> None:
    with pytest.raises(pw.PartwiseError, match="did you mean temperature"):
        pw.sample("cats", temprature=1.0)
    with pytest.raises(pw.PartwiseError, match="count=2"):
        pw.sample("cats", count=2)


def test_every_public_name_is_there() -> None:
    for name in pw.__all__:
        assert getattr(pw, name) is not None
        assert name in dir(pw)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = pw.nonsense


def test_the_version_needs_no_torch() -> None:
    program = (
        "import sys, partwise; assert partwise.__version__; "
        "import partwise.settings, partwise.errors, partwise.messages; "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
