"""run.toml: readable, editable where it may be, checked where it may not, old formats open."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import RunError
from partwise.model.config import ModelConfig
from partwise.run import record as records
from partwise.run.record import Record, Resolved, TextRecord, read_record, write_record
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig

TEXT = TextRecord(
    asked="a b.txt",
    spec="/x/a b.txt",
    name="a b",
    fingerprint="0" * 64,
    validation_fingerprint="0" * 64,
    tokenizer="char-65",
    tokenizer_fingerprint="1" * 64,
    train_tokens=900,
    validation_tokens=100,
)
RECORD = Record(
    created="2026-11-29T00:00:00+00:00",
    text=TEXT,
    model=ModelConfig(window=None, dropout=0.1),
    train=TrainConfig(steps=10, grad_clip=None, lr=3e-4),
    data=DataConfig(),
    resolved=None,
    versions={"torch": "2.13.0"},
    machine={"cores": 2},
    git={},
)


@given(
    name=st.text(st.characters(codec="utf-8")),
    lr=st.floats(1e-9, 10),
    steps=st.none() | st.integers(1, 10**12),
    clip=st.none() | st.floats(1e-9, 10),
    wandb=st.none() | st.text(st.characters(codec="utf-8")).filter(lambda t: t != "none"),
    resolved=st.none() | st.just(Resolved("cuda:1", "bfloat16", True, 8)),
)
def test_every_setting_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    lr: float,
    steps: int | None,
    clip: float | None,
    wandb: str | None,
    resolved: Resolved | None,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    written = dataclasses.replace(
        RECORD,
        text=dataclasses.replace(TEXT, asked=name, name=name),
        train=TrainConfig(lr=lr, steps=steps, grad_clip=clip, wandb=wandb),
        data=DataConfig(validation=name or None),
        resolved=resolved,
        versions={},
    )
    write_record(folder, written)
    if name == "none":
        written = dataclasses.replace(written, data=DataConfig())
    assert read_record(folder) == written


def test_a_file_name_that_is_not_utf8_does_no_harm(tmp_path: Path) -> None:
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    write_record(tmp_path, dataclasses.replace(RECORD, text=dataclasses.replace(TEXT, asked=name)))
    assert read_record(tmp_path).text.asked == "caf?.txt"


def edited(folder: Path, before: str, after: str) -> None:
    write_record(folder, RECORD)
    path = folder / "run.toml"
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")


def test_training_may_be_edited_and_laid_out_anew(tmp_path: Path) -> None:
    edited(tmp_path, "steps = 10", "# longer\n  steps=20_000")
    assert read_record(tmp_path).train.steps == 20_000


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ("n_heads = 6", "n_heads = 3", "was changed after the run was created"),
        ('spec = "/x', 'spec = "/y', "was changed after the run was created"),
        ("val_fraction = 0.1", "val_fraction = 0.2", "was changed after the run was created"),
        ("steps = 10", 'steps = "ten"', "steps='ten' has the wrong type"),
        ("steps = 10", "stepz = 10", "did you mean steps"),
        ("lr = 0.0003", "lr = -1", "lr=-1"),
        ("format = 1", "format = 2", "reads up to 1; upgrade Partwise"),
        ("format = 1", 'format = "1"', "not a number from 1"),
        ("format = 1", "format = true", "not a number from 1"),
        ('kind = "partwise.run"', 'kind = "x"', "does not describe a run"),
        ("[versions]", "[visions]", "'versions' is missing"),
        ("[train]\n", "[train\n", "is not TOML"),
        ("steps = 10", "steps = " + "[" * 100_000, "is not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, before: str, after: str, word: str) -> None:
    edited(tmp_path, before, after)
    with pytest.raises(RunError, match=word) as caught:
        read_record(tmp_path)
    assert str(tmp_path / "run.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_torn_file_is_refused(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    path = tmp_path / "run.toml"
    data = path.read_bytes()
    # Behind the last table's heading nothing is lost.
    for length in range(0, data.index(b"[machine]"), 7):
        path.write_bytes(data[:length])
        with pytest.raises(RunError):
            read_record(tmp_path)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"it has no run\.toml"):
        read_record(tmp_path)
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match="is not TOML"):
        read_record(tmp_path)


def test_an_older_format_is_brought_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it will be when format 3 renames a table of format 1 and format 2 stood between."""
    write_record(tmp_path, RECORD)

    def second(tables: dict[str, Any]) -> dict[str, Any]:
        return {**tables, "data": {**tables["data"], "value_share": tables["data"]["val_fraction"]}}

    def third(tables: dict[str, Any]) -> dict[str, Any]:
        data = dict(tables["data"])
        data["val_fraction"] = data.pop("value_share") / 2
        return {**tables, "data": data}

    monkeypatch.setattr(records, "FORMAT", 3)
    monkeypatch.setattr(records, "MIGRATIONS", {1: second, 2: third})
    assert read_record(tmp_path).data.val_fraction == 0.05
    write_record(tmp_path, read_record(tmp_path))
    assert tomllib.loads((tmp_path / "run.toml").read_text(encoding="utf-8"))["format"] == 3


def test_each_older_format_has_its_step() -> None:
    assert set(records.MIGRATIONS) == set(range(1, records.FORMAT))


def test_a_setting_that_is_newer_than_the_run_has_its_default(tmp_path: Path) -> None:
    edited(tmp_path, "log_every = 10\n", "")
    assert read_record(tmp_path).train.log_every == TrainConfig().log_every
