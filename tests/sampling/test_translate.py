"""Translating with either kind of model, and what a search must give back."""

import numpy as np
import pytest
import torch

from partwise.errors import SamplingError, TextError
from partwise.model.gpt import GPT
from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.sampling.beam import greedy
from partwise.sampling.search_config import SearchConfig
from partwise.sampling.translate import PairWriter, RowWriter, translate
from partwise.text.char import CharTokenizer
from partwise.translation.building import marks
from partwise.translation.shape import decoder_alone, longest

LETTERS = CharTokenizer("abcdefg")
CONFIG = Seq2SeqConfig(
    vocab_size=LETTERS.vocab_size + 3,
    context_length=16,
    n_encoder_layers=1,
    n_decoder_layers=2,
    d_model=16,
    n_heads=2,
)
ALONE = decoder_alone(CONFIG)
TEXTS = ["abc", "g", "", "abcdefg", "cab", "abc"]


def model(alone: bool) -> Seq2Seq | GPT:
    torch.manual_seed(0)
    built = GPT(ALONE) if alone else Seq2Seq(CONFIG)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def translated(alone: bool, texts: list[str], **search: object) -> list[str]:
    config = ALONE if alone else CONFIG
    return translate(
        model(alone),
        LETTERS,
        marks(config),
        texts,
        SearchConfig(**search),  # type: ignore[arg-type]
        longest=longest(config),
    )


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("beam", [1, 3])
def test_each_text_is_translated_as_if_it_were_alone(alone: bool, beam: int) -> None:
    together = translated(alone, TEXTS, beam=beam, longer_by=4)
    assert together == [translated(alone, [text], beam=beam, longer_by=4)[0] for text in TEXTS]
    assert together[0] == together[5]
    assert together[2] == ""
    for text, written in zip(TEXTS, together, strict=True):
        assert len(written) <= min(len(text) + 4, longest(CONFIG))


@pytest.mark.parametrize("alone", [False, True])
def test_greedy_is_the_likeliest_token_each_time(alone: bool) -> None:
    """Against a loop that computes the whole text anew for each token."""
    built = model(alone).eval()
    known = marks(CONFIG)
    source = LETTERS.encode("cab").tolist()
    written: list[int] = []
    while len(written) < 7:
        said = torch.tensor([[known.start, *written]])
        with torch.no_grad():
            if isinstance(built, Seq2Seq):
                logits = built(torch.tensor([[*source, known.end]]), said)
            else:
                logits = built(torch.tensor([[*source, *said[0].tolist()]]))
        logits[..., [known.pad, known.start]] = -torch.inf
        token = int(logits[0, -1].argmax())
        if token == known.end:
            break
        written.append(token)
    assert translated(alone, ["cab"], beam=1, longer_by=4) == [LETTERS.decode(written)]


def test_a_writer_goes_on_with_what_is_selected() -> None:
    built = model(alone=False)
    assert isinstance(built, Seq2Seq)
    built.eval()
    sources = torch.tensor([[0, 1, 9], [2, 3, 9]])
    writer = PairWriter(built, sources, 8)
    writer.read(torch.full((2, 1), CONFIG.start))
    writer.select(torch.tensor([1]))
    only = PairWriter(built, sources[1:], 8)
    only.read(torch.full((1, 1), CONFIG.start))
    ids = torch.tensor([[4]])
    with torch.no_grad():
        assert torch.allclose(writer.read(ids), only.read(ids), atol=1e-6)


def test_the_mode_of_the_model_stays() -> None:
    built = model(alone=False).train()
    translate(built, LETTERS, marks(CONFIG), ["abc"], SearchConfig(beam=2), longest=longest(CONFIG))
    assert built.training


def test_a_text_that_is_too_long_or_unknown_is_named() -> None:
    assert translated(False, ["a" * 15], beam=1)
    with pytest.raises(SamplingError, match="has 16 tokens and the model reads 15"):
        translated(False, ["a" * 16])
    with pytest.raises(TextError, match="z"):
        translated(False, ["abz"])


def test_a_decoder_alone_has_room_for_both_texts() -> None:
    # 15 tokens of source, START, and 15 of target: END is said after the last and read by nobody.
    assert ALONE.context_length == 31
    assert longest(ALONE) == longest(CONFIG) == 15
    built = model(alone=True)
    assert isinstance(built, GPT)
    begin = torch.zeros(1, 16, dtype=torch.int64)
    never = [token for token in range(CONFIG.vocab_size) if token != 1]
    (written,) = greedy(
        RowWriter(built.eval(), 1, 31), begin, end=CONFIG.end, never=never, longest=15
    )
    assert np.array_equal(written, [1] * 15)
