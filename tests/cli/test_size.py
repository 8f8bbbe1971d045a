"""`partwise size` of models with an encoder, beside those without."""

import json
from pathlib import Path

import pytest

from partwise.cli.program import main

Captured = pytest.CaptureFixture[str]


def test_the_original_transformer_is_sized(capsys: Captured) -> None:
    assert main(["size", "transformer-base", "transformer-big", "--json"]) == 0
    base, big = json.loads(capsys.readouterr().out)["models"]
    # Worked out from the paper's table 3; see tests/model/test_seq2seq_costs.py.
    assert (base["parameters"], big["parameters"]) == (63_045_632, 214_171_648)
    assert base["parameters_by_part"]["cross_attention"] == 6 * 4 * 512**2
    assert main(["size", "transformer-base"]) == 0
    out = capsys.readouterr().out
    assert ["cross-attention", "6,291,456"] in map(str.split, out.splitlines())
    assert "n-gram" not in out
    assert main(["size"]) == 0
    (line,) = (row for row in capsys.readouterr().out.splitlines() if "transformer-base" in row)
    assert line.split()[1:5] == ["63,045,632", "6", "+", "6"]


def test_models_with_and_without_an_encoder_stand_side_by_side(capsys: Captured) -> None:
    assert main(["size", "--compare", "transformer-base", "gpt2"]) == 0
    lines = {line[:24].strip(): line[24:].split() for line in capsys.readouterr().out.splitlines()}
    assert lines["parameters"] == ["63,045,632", "124,439,808"]
    assert lines["cross-attention"] == ["6,291,456", "0"]
    assert "n-gram tables" not in lines  # neither has any


def test_what_became_of_the_original_is_one_difference_each(capsys: Captured) -> None:
    assert main(["size", "--diff", "transformer-base", "gpt2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["differences"]
    assert found["n_encoder_layers"] == [6, None]
    assert found["norm_placement"] == ["post", "pre"]
    assert found["position"] == ["sinusoidal", "learned"]
    assert "causal" not in found and "parallel" not in found
    assert main(["size", "--diff", "transformer-base", "transformer-big"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("d_ff")] == [["d_ff", "2048", "4096"]]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["transformer-base", "--model.n-layers", "3"], "did you mean n_encoder_layers?"),
        (["gpt2", "--model.n-encoder-layers", "3"], "'n_encoder_layers' in ModelConfig"),
        (["transformer-base", "--model.position", "alibi"], "position"),
        (["transformr-big"], "did you mean transformer-big?"),
    ],
)
def test_settings_that_a_model_has_not_are_refused(
    capsys: Captured, words: list[str], named: str
) -> None:
    assert main(["size", *words]) == 2
    error = capsys.readouterr().err
    assert named in error and error.count("\n") == 1


def test_an_encoder_decoder_is_changed_like_any_other(capsys: Captured) -> None:
    words = ["--model.n-encoder-layers", "2", "--model.d-model", "256", "--json"]
    assert main(["size", "transformer-base", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters_by_part"]["cross_attention"] == 6 * 4 * 256**2
    assert found["parameters_by_part"]["attention"] == (2 + 6) * 4 * 256**2


def test_a_translator_is_sized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "cache"))
    tiny = ["--steps", "1", "--model.d-model", "16", "--model.n-heads", "2", "--batch-size", "4"]
    assert main(["translate", "reverse", "--name", "turned", "--quiet", *tiny]) == 0
    capsys.readouterr()
    assert main(["size", "turned", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] > 0 and found["parameters_by_part"]["cross_attention"] > 0
