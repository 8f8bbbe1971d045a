"""`import partwise as pw`: train, load and sample; public names load when they are used."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import partwise as pw
from partwise.errors import ConfigError
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


def test_minutes_choose_model_and_training_as_the_command_does() -> None:
    heard: list[object] = []
    run = pw.train("text.txt", minutes=0.5, listen=heard.append)
    said = [str(event.notice) for event in heard if isinstance(event, Said)]
    assert said[0].startswith("0.5 minutes: 2 layers of width 48")
    assert any(line.startswith("validation loss expected") for line in said)
    assert (run.record.model.n_layers, run.record.model.d_model) == (2, 48)
    assert run.record.train.minutes is not None and run.record.train.minutes < 0.5
    assert run.record.train.optimizer == "muon" and run.record.train.steps is None
    assert isinstance(heard[-1], Finished)


def test_minutes_limit_what_was_chosen_otherwise() -> None:
    run = pw.train("text.txt", model="ladder-1", minutes=0.003)
    assert run.record.model.d_model == 32
    assert run.record.train.minutes == 0.003 and run.record.train.steps is None
    with pytest.raises(ConfigError, match="minutes=1 and train= both say how long"):
        pw.train("text.txt", train=pw.TrainConfig(steps=2), minutes=1)
    with pytest.raises(ConfigError, match="minutes"):
        pw.train("text.txt", minutes=-1)


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


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"text": 123}, "text=123 has the wrong type; give str, Path"),
        ({"text": b"novel"}, "text=b'novel' has the wrong type"),
        ({"model": 5}, "model=5 has the wrong type; give ModelConfig, str, None"),
        ({"model": {"d_model": 32}}, "model={'d_model': 32} has the wrong type"),
        ({"train": {"steps": 3}}, "give TrainConfig, None"),
        ({"train": pw.ModelConfig()}, "give TrainConfig, None"),
        ({"data": "char"}, "give DataConfig, None"),
        ({"begin": 5}, "give Run, str, Path, None"),
        ({"lora": 4}, "give LoraConfig, None"),
        ({"minutes": "5"}, "minutes='5' has the wrong type; give float, int, None"),
        ({"name": 5}, "name=5 has the wrong type; give str, None"),
        ({"root": 5}, "root=5 has the wrong type; give str, Path"),
    ],
)
def test_an_argument_of_another_type_is_refused(given: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(wanted)):
        pw.train(**{"text": "shakespeare", **given})


def test_a_run_or_prompt_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="path=5 has the wrong type"):
        pw.load(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="run=None has the wrong type"):
        pw.sample(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="prompt=None has the wrong type"):
        pw.sample("a", None)  # type: ignore[arg-type]
