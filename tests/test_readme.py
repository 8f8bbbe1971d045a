"""The README's Python runs as it stands there, in both languages."""

import re
from pathlib import Path

import pytest

import partwise as pw

ROOT = Path(__file__).parent.parent


def blocks(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_its_python_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "It was the best of times, it was the worst of times; 从前如此。\n" * 200
    Path("novel.txt").write_text(text, encoding="utf-8")
    found = blocks(name)
    assert found
    for block in found:
        # A quarter of an hour is left out, and no more.
        assert "minutes=15" in block
        short = block.replace("minutes=15", "model=small, train=once")
        values = {
            "small": pw.ModelConfig(context_length=64, n_layers=1, d_model=16, n_heads=1),
            "once": pw.TrainConfig(steps=2),
        }
        exec(compile(short, name, "exec"), values)
        assert values["logits"].shape == (2, 256, 65)
    out, err = capsys.readouterr()
    assert err == ""
    assert "'event': 'finished'" in out
