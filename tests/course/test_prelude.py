"""What the cells of a lesson find, and that it costs little until it is used."""

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import partwise.course.learner as learner_module
import partwise.course.tiny as tiny_module
from partwise.course.lacking import Part, lacking
from partwise.course.learner import LazyModel, LazyWeights, loss_on, observe, windows
from partwise.course.pictures import plot, show
from partwise.course.tiny import TINY, tiny_folder, tiny_ready, train_tiny
from partwise.errors import PartwiseError, TextError
from partwise.messages import use_language
from partwise.run import Run
from partwise.text.char import CharTokenizer

START = "from partwise.course.prelude import *\n"


def namespace(model: str | Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(f"{START}use_model({str(model)!r})", names)
    return names


def test_the_tiny_model_is_an_ordinary_run(tiny: Path) -> None:
    assert tiny == tiny_folder() and tiny_ready()
    run = Run.open(tiny)
    assert run.record.model.d_model == TINY.d_model
    assert run.metrics()[-1]["reason"] == "steps"
    # Far better than how common each character is (about 3.3).
    assert min(line["val_loss"] for line in run.metrics() if line.get("val_loss")) < 2.4
    assert list(train_tiny()) == []


@pytest.mark.long
def test_without_the_plays_it_learns_the_lessons_own_prose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> bytes:
        raise TextError("not installed")

    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(tiny_module, "shakespeare", gone)
    monkeypatch.setattr(learner_module, "shakespeare", gone)
    tiny_module._spec.cache_clear()
    try:
        names = namespace("tiny")
        text, config = names["text"], names["config"]
        assert text in tiny_module.prose() and len(text) > 2 * config.context_length
        # What it is judged by was not learned from.
        seen = names["decode"](names["train_ids"])
        assert text[:200] not in seen
        assert 1 < names["val_loss"]() < 2.7
        assert tiny_ready() and "tiny-" in tiny_folder().name
    finally:
        tiny_module._spec.cache_clear()


def test_no_two_sizes_of_the_tiny_model_are_equal(tiny: Path) -> None:
    config = Run.open(tiny).record.model
    sizes = [config.vocab_size, config.context_length, config.d_model, config.head_size]
    assert len({*sizes, config.inner_width}) == 5


def test_a_lesson_starts_without_torch(tiny: Path) -> None:
    program = (
        f"{START}import sys\nuse_model('tiny')\n"
        "assert weights['token_embedding.weight'].shape[1] == config.d_model\n"
        "assert decode(encode(text[:50])) == text[:50]\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
        "model.config\nassert 'torch' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_name_is_there_and_fits_the_model(tiny: Path) -> None:
    names = namespace("tiny")
    config, weights, text = names["config"], names["weights"], names["text"]
    assert set(weights) == set(names["model"].state_dict())
    assert len(weights) == len(list(weights)) and "head.weight" in repr(weights)
    assert names["tokenizer"].vocab_size == config.vocab_size
    assert len(text) >= 2 * config.context_length and text[0] not in " \n"
    assert names["val_ids"].dtype == np.int64
    assert not np.array_equal(names["val_ids"][:100], names["train_ids"][:100])
    assert 1.5 < names["val_loss"]() < 2.6
    assert names["val_loss"](ids=names["train_ids"]) < names["val_loss"](ids=names["val_ids"][::-1])


def test_the_lazy_model_stands_for_the_real_one(tiny: Path) -> None:
    import copy

    import torch

    lazy = LazyModel(tiny)
    with pytest.raises(AttributeError):
        _ = lazy._repr_html_
    assert lazy._found is None
    ids = torch.zeros((1, 5), dtype=torch.int64)
    assert lazy(ids).shape == (1, 5, lazy.config.vocab_size)
    assert "GPT" in repr(lazy)
    twin = copy.deepcopy(lazy)
    with torch.no_grad():
        twin.token_embedding.weight.zero_()
    assert lazy.token_embedding.weight.abs().sum() > 0
    lazy.note = 3
    assert lazy._found.note == 3


def test_what_a_model_lacks_is_said_in_a_sentence(tiny: Path) -> None:
    weights = namespace("tiny")["weights"]
    assert weights.get("blocks.9.norm1.weight") is None
    with pytest.raises(PartwiseError, match="was built without that part"):
        weights["blocks.9.norm1.weight"]
    for part in get_args(Part):
        with use_language("en"):
            english = lacking(part)
        with use_language("zh"):
            assert lacking(part) != english
        assert english.endswith(".")


def test_another_run_by_its_folder(modern: Path) -> None:
    names = namespace(modern)
    assert names["config"].norm == "rmsnorm" and names["config"].n_layers == 3
    assert "small model" in names["text"]
    assert isinstance(names["weights"], LazyWeights)
    assert "head.weight" not in names["weights"]


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartwiseError):
        namespace(tmp_path / "none")


def test_a_tokenizer_that_knows_no_english_gets_text_of_the_model_itself(tiny: Path) -> None:
    from partwise.course.learner import _texts

    lazy = LazyModel(tiny)
    known = Run.open(tiny).tokenizer()

    class Hard(CharTokenizer):
        """Knows hardly any of the usual text when asked leniently."""

        def encode(self, text: str, *, unknown: Any = "refuse") -> Any:
            ids = super().encode(text, unknown=unknown)
            return ids[:10] if unknown == "skip" else ids

    hard = Hard(known.decode(range(known.vocab_size)))
    train, text = _texts(None, hard, lazy, lazy.config)
    assert len(train) >= 500 and len(text) >= 500 and train != text


def test_observe_and_windows(tiny: Path) -> None:
    names = namespace("tiny")
    ids = names["val_ids"][:12]
    one, many = observe(names["model"], ids), observe(names["model"], np.stack([ids, ids]))
    assert one["embedding"].shape == (12, TINY.d_model)
    assert one["block.0.attention.weights"].shape == (4, 12, 12)
    assert np.allclose(many["logits"][1], one["logits"], atol=1e-4)
    assert windows(range(30), 9, 4).shape == (3, 10)
    assert windows(range(5), 9).shape == (1, 5)
    assert loss_on(names["model"], ids) > 0


def test_pictures_are_drawn_without_a_notebook() -> None:
    show(np.eye(3), rows="ab\n", cols=["x", " ", "z"], title="one")
    show({"a": np.eye(2), "b": -np.eye(2)}, centre=0)
    show(np.zeros((2, 3, 3)))
    show({str(i): np.eye(2) for i in range(4)})
    plot({"a": [1, 10, 100], "b": range(1, 4)}, log=True, xlabel="step", title="t")
    plot({"long": np.linspace(0, 1, 50)}, x=range(50))
