"""The whole of sampling: what is said, where it ends, and that nothing else changes it."""

import json
import random
from dataclasses import replace

import pytest
import torch
from configurations import CONFIGURATIONS, name, randomise
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import SamplingError, TextError
from partwise.messages import use_language
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.sampling import generate as generating
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import Piece, complete, generate
from partwise.sampling.reader import CHUNK, reach
from partwise.settings import build
from partwise.text.bpe import BPETokenizer, learn_bpe
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from sampling.doubles import Pieces, Scripted

LETTERS = CharTokenizer("\nabcdefghij")


def small(**choices: object) -> GPT:
    """A small model over LETTERS with weights that make it say different things."""
    sizes = {"vocab_size": 11, "context_length": 8, "n_layers": 2, "d_model": 16, "n_heads": 2}
    # A tied head would give each token the highest score after itself.
    model = GPT(build(ModelConfig, {**sizes, "tie_embeddings": False, **choices})).double()
    randomise(model)
    return model


# --- The same text by every way ------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_cached_and_uncached_say_the_same(config: ModelConfig) -> None:
    tokenizer = CharTokenizer("\nabcdefghij"[: config.vocab_size])
    model = GPT(config).double()
    randomise(model)
    ways = [
        complete(model, tokenizer, "abcab", SampleConfig(cache=cache, chars=25, count=2))
        for cache in (True, False)
    ]
    assert ways[0] == ways[1]
    assert all(len(text) == 25 for text in ways[0])


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**40),
    st.integers(1, 4),
    st.text("abcdefghij\n", max_size=30),
    st.booleans(),
    st.sampled_from([None, 3]),
)
def test_sample_i_is_the_same_whatever_the_count(
    seed: int, count: int, prompt: str, cache: bool, window: int | None
) -> None:
    model = small(position="rotary", window=window)
    config = SampleConfig(seed=seed, tokens=12, top_p=0.9, repetition_penalty=1.2, cache=cache)
    many = complete(model, LETTERS, prompt, replace(config, count=count))
    assert complete(model, LETTERS, prompt, config) == many[:1]
    assert complete(model, LETTERS, prompt, replace(config, count=count)) == many


def test_seeds_and_samples_differ() -> None:
    model = small()
    texts = [
        text
        for seed in (1, 2)
        for text in complete(model, LETTERS, "a", SampleConfig(seed=seed, chars=40, count=3))
    ]
    assert len(set(texts)) == 6


def test_a_longer_sample_begins_with_the_shorter_one() -> None:
    model = small()
    long = complete(model, LETTERS, "a", SampleConfig(chars=60))[0]
    assert complete(model, LETTERS, "a", SampleConfig(chars=20))[0] == long[:20]


def test_drawing_is_what_the_logits_say() -> None:
    """The greedy text, token by token, by hand from the model's own forward pass."""
    model = small(context_length=32)
    said = complete(model, LETTERS, "abc", SampleConfig(chars=20, temperature=0))[0]
    ids = LETTERS.encode("abc").tolist()
    model.eval()
    for _ in range(20):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert said == LETTERS.decode(ids[3:])


# --- The context ---------------------------------------------------------------------------------


def test_a_full_context_starts_anew_with_its_last_half() -> None:
    for cache in (True, False):
        model = Scripted([[1, 2, 3, 4, 5]], 11, context=6)
        complete(model, LETTERS, "jj", SampleConfig(tokens=7, cache=cache))
        windows = [read[0] for read in model.read]
        new = [10, 10, 1, 2, 3, 4], [3, 4, 5], [3, 4, 5, 1, 2, 3]
        if cache:
            assert windows == [[10, 10], [1], [2], [3], [4], [3, 4, 5], [1]]
        else:
            assert windows == [
                *(new[0][:n] for n in range(2, 7)),
                new[1],
                new[2][:4],
            ]


@pytest.mark.parametrize("context", [1, 2, 3])
def test_the_shortest_contexts_go_on(context: int) -> None:
    model = small(context_length=context)
    texts = {
        complete(model, LETTERS, "abc", SampleConfig(chars=30, cache=cache))[0]
        for cache in (True, False)
    }
    assert len(texts) == 1
    assert len(texts.pop()) == 30


def test_a_prompt_longer_than_the_context_keeps_its_end_and_says_so() -> None:
    model = small()
    pieces = list(generate(model, LETTERS, "j" * 20 + "abcdefgh", SampleConfig(chars=5)))
    assert pieces[0].text == ""
    assert "28 tokens" in str(pieces[0].notice) and "8 at once" in str(pieces[0].notice)
    with use_language("zh"):
        assert "28 个词元" in str(pieces[0].notice)
    short = complete(model, LETTERS, "abcdefgh", SampleConfig(chars=5))
    assert "".join(piece.text for piece in pieces) == short[0]
    assert all(piece.notice is None for piece in generate(model, LETTERS, "abcdefgh"))


@pytest.mark.parametrize("position", ["rotary", "alibi", "none"])
def test_with_a_window_a_long_prompt_is_read_whole_and_goes_on(position: str) -> None:
    model = small(position=position, window=3, n_layers=3)
    prompt = "abcdefghij" * 3
    pieces = list(generate(model, LETTERS, prompt, SampleConfig(chars=50)))
    assert all(piece.notice is None for piece in pieces)
    # Three layers that look back 3 tokens see 7, so what lies before them changes nothing.
    rest = complete(model, LETTERS, prompt[-7:], SampleConfig(chars=50))[0]
    assert "".join(piece.text for piece in pieces) == rest


@pytest.mark.parametrize("ngram", [1, 3])
def test_a_book_as_a_prompt_is_read_in_chunks(ngram: int) -> None:
    model = small(position="rotary", window=4, ngram=ngram)
    book = "".join(random.Random(0).choices("abcdefghij", k=2 * CHUNK + 100))
    config = SampleConfig(chars=30, temperature=2)
    said = complete(model, LETTERS, book, config)
    assert complete(model, LETTERS, book, replace(config, cache=False)) == said
    shapes: list[tuple[int, ...]] = []
    hook = model.blocks[0].register_forward_pre_hook(
        lambda module, inputs: shapes.append(tuple(inputs[0].shape))
    )
    complete(model, LETTERS, book, SampleConfig(tokens=1))
    hook.remove()
    assert [shape[1] for shape in shapes] == [CHUNK, CHUNK, 100]


@pytest.mark.parametrize("config", [c for c in CONFIGURATIONS if c.past_context], ids=name)
def test_nothing_beyond_its_reach_changes_the_next_token(config: ModelConfig) -> None:
    model = GPT(config).double().eval()
    randomise(model)
    ids = torch.randint(config.vocab_size, (1, 3 * reach(config)))
    seen = reach(config)
    whole, end = model(ids)[0, -1], model(ids[:, -seen:])[0, -1]
    torch.testing.assert_close(whole, end)
    if config.attention:
        assert not torch.allclose(whole, model(ids[:, -1:])[0, -1])


def test_a_model_without_a_mask_samples_without_a_cache_and_says_so() -> None:
    model = small(causal=False)
    pieces = list(generate(model, LETTERS, "ab", SampleConfig(chars=5)))
    assert "without a cache" in str(pieces[0].notice)
    assert len("".join(piece.text for piece in pieces)) == 5
    quiet = generate(model, LETTERS, "ab", SampleConfig(chars=5, cache=False))
    assert all(piece.notice is None for piece in quiet)


# --- The prompt ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokenizer", "first"),
    [
        (LETTERS, 0),
        (CharTokenizer("ab"), 0),
        (ByteTokenizer(), 10),
        (Pieces([b"x", b"\n", b"y"]), 1),
        (Pieces([b"x", b"", b"y"], end=1), 1),
        (Pieces([b"x", b"", b"\n"], end=1), 2),
        (Pieces([b"x", b"y"]), 0),
        # A tokenizer that cuts a newline in two has no token for it.
        (Pieces([b"x", b"y", b"\n\n"]), 0),
    ],
)
def test_without_a_prompt_a_text_starts_where_texts_start(tokenizer: Pieces, first: int) -> None:
    model = Scripted([[0]], tokenizer.vocab_size)
    complete(model, tokenizer, "", SampleConfig(tokens=2))
    assert model.read[0] == [[first]]


def test_unknown_characters_are_named_or_skipped() -> None:
    model = small()
    with pytest.raises(TextError, match=r"'é'.*--unknown skip"):
        generate(model, LETTERS, "abé")
    skipped = complete(model, LETTERS, "aéb", SampleConfig(chars=9, unknown="skip"))
    assert skipped == complete(model, LETTERS, "ab", SampleConfig(chars=9))
    (said,) = (
        piece.notice
        for piece in generate(model, LETTERS, "aéb", SampleConfig(chars=3, unknown="skip"))
        if piece.notice is not None
    )
    assert "'é'" in str(said)
    nothing_left = complete(model, LETTERS, "éé", SampleConfig(chars=9, unknown="skip"))
    assert nothing_left == complete(model, LETTERS, "", SampleConfig(chars=9))


def test_another_models_tokenizer_is_refused() -> None:
    with pytest.raises(SamplingError, match=r"256 tokens.*11"):
        generate(small(), ByteTokenizer(), "a")


def test_rows_of_the_model_beyond_the_tokenizer_are_never_said() -> None:
    model = small(vocab_size=40)
    assert len(complete(model, LETTERS, "a", SampleConfig(chars=200, temperature=5.0))[0]) == 200


def corpus_bpe(**special: int) -> BPETokenizer:
    """A real BPE over a few words, with special tokens by name behind its own."""
    learned = json.loads(learn_bpe(["the cat sat on the mat\n 你好 🙂\n"] * 20, 280).to_json())
    last = max(learned["model"]["vocab"].values())
    learned["added_tokens"] = [
        {"id": last + place, "content": content, "special": True, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for content, place in special.items()
    ]  # fmt: skip
    return BPETokenizer(json.dumps(learned))


@pytest.mark.parametrize("prompt", ["", "the cat", " 你好 🙂"])
def test_bpe_pieces_join_to_the_decoded_tokens(prompt: str) -> None:
    tokenizer = corpus_bpe()
    script = [*tokenizer.encode(" sat on 你好").tolist(), *range(tokenizer.vocab_size)]
    model = Scripted([script], tokenizer.vocab_size + 3)
    config = SampleConfig(tokens=len(script))
    pieces = [piece.text for piece in generate(model, tokenizer, prompt, config)]
    assert "".join(pieces) == tokenizer.decode(script)
    assert "".join(pieces).startswith(" sat on 你好")


def test_bpe_ends_at_its_end_of_text_token_and_starts_at_a_newline() -> None:
    tokenizer = corpus_bpe(**{"<|pad|>": 1, "<|endoftext|>": 2})
    end = tokenizer.end_of_text
    assert end is not None
    model = Scripted([[*tokenizer.encode("the cat").tolist(), end, 65]], tokenizer.vocab_size)
    assert complete(model, tokenizer, "", SampleConfig(chars=100)) == ["the cat"]
    assert tokenizer.decode(model.read[0][0]) == "\n"


# --- The end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"chars": 0}, {"tokens": 0}, {"chars": 0, "tokens": 5}])
def test_nothing_is_asked_for_and_nothing_said(limits: dict[str, int]) -> None:
    model = Scripted([[1]], 11)
    assert complete(model, LETTERS, "a", SampleConfig(count=2, **limits)) == ["", ""]
    assert model.read == []


def test_limits_are_exact_and_the_first_one_met_counts() -> None:
    tokenizer = Pieces([b"\n", b"abc", b"de"])
    model = Scripted([[1, 2]], 3)

    def said(**limits: int) -> str:
        model.read.clear()
        return complete(model, tokenizer, "", SampleConfig(**limits))[0]

    assert said(chars=4) == "abcd"
    assert said(tokens=3) == "abcdeabc"
    assert said(chars=100, tokens=2) == "abcde"
    assert said(chars=3, tokens=2) == "abc"
    assert said() == ("abcde" * 100)[:500]


def test_no_more_is_read_than_is_said() -> None:
    model = Scripted([[1]], 11)
    complete(model, LETTERS, "a", SampleConfig(chars=3))
    assert len(model.read) == 3


def test_stop_strings_across_tokens_are_never_shown() -> None:
    tokenizer = Pieces([b"\n", b"a", b"bE", b"N", b"Dc"])
    model = Scripted([[1, 2, 3, 4]], 5)
    pieces = [p.text for p in generate(model, tokenizer, "", SampleConfig(stop=("END",)))]
    assert pieces == ["a", "b"]
    assert len(model.read) == 4


def test_each_sample_stops_by_itself_and_pieces_are_interleaved() -> None:
    model = Scripted([[1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 2, 2]], 11)
    config = SampleConfig(count=2, chars=6, stop=("cd",))
    pieces = list(generate(model, LETTERS, "j", config))
    assert [(p.index, p.text) for p in pieces] == [
        (0, "a"), (1, "a"), (0, "b"), (1, "a"), (1, "b"), (1, "b"), (1, "a"), (1, "a"),
    ]  # fmt: skip


def test_what_was_held_back_is_shown_at_the_end() -> None:
    model = Scripted([[1, 2]], 11)
    assert complete(model, LETTERS, "j", SampleConfig(tokens=2, stop=("bc",))) == ["ab"]


def test_half_a_character_is_never_shown() -> None:
    smile, letter = "🙂".encode(), "é".encode()
    tokenizer = Pieces([b"\n", smile[:1], smile[1:3], smile[3:] + letter[:1], letter[1:]])
    model = Scripted([[1, 2, 3, 4]], 5)
    assert [p.text for p in generate(model, tokenizer, "", SampleConfig(tokens=4))] == ["🙂", "é"]
    model.read.clear()
    # Cut off in the middle, the rest is no character.
    assert complete(model, tokenizer, "", SampleConfig(tokens=3)) == ["🙂\ufffd"]


def test_the_end_of_text_token_ends_a_sample() -> None:
    tokenizer = Pieces([b"\n", b"a", b""], end=2)
    model = Scripted([[1, 1, 2, 1], [1, 1, 1, 1]], 3)
    assert complete(model, tokenizer, "", SampleConfig(tokens=4, count=2)) == ["aa", "aaaa"]


def test_a_model_that_says_only_tokens_without_text_comes_to_an_end() -> None:
    tokenizer = Pieces([b"\n", b""])
    assert complete(Scripted([[1]], 2), tokenizer, "", SampleConfig(chars=10)) == [""]


def test_ten_thousand_characters() -> None:
    model = Scripted([[1, 2, 3]], 11, context=256)
    text = complete(model, LETTERS, "", SampleConfig(chars=10_000, greedy=True))[0]
    assert text == ("abc" * 5000)[:10_000]
    # Once full, the context is read anew each 193 tokens: a quarter was kept, and the next came.
    assert len(model.read) == 10_000
    assert sum(len(read[0]) > 1 for read in model.read) == (10_000 - 1 - 256) // 193 + 1


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3))
def test_streamed_pieces_are_the_text_before_the_first_stop(seed: int, stop: list[str]) -> None:
    model = small()
    free = complete(model, LETTERS, "a", SampleConfig(seed=seed, chars=40))[0]
    ends = [(free.find(word) + len(word), free.find(word)) for word in stop if word in free]
    expected = free[: min(ends)[1]] if ends else free
    config = SampleConfig(seed=seed, chars=40, stop=tuple(stop))
    assert complete(model, LETTERS, "a", config)[0] == expected


# --- What stays untouched ------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_torchs_random_numbers_are_left_alone(training: bool) -> None:
    model = small(dropout=0.5, norm="batchnorm")
    model.train(training)
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    complete(model, LETTERS, "a", SampleConfig(chars=20, count=2))
    unfinished = generate(model, LETTERS, "a", SampleConfig(chars=20))
    next(unfinished)
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()
    unfinished.close()  # type: ignore
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    model(torch.tensor([[1, 2]])).sum().backward()


def test_dropout_is_off() -> None:
    model = small(dropout=0.5)
    model.train()
    texts = {complete(model, LETTERS, "a", SampleConfig(chars=30))[0] for _ in range(3)}
    assert len(texts) == 1


def test_weights_that_are_not_numbers_are_said_so() -> None:
    model = small()
    with torch.no_grad():
        model.blocks[1].feedforward.up.weight[0, 0] = torch.nan
    for greedy in (True, False):
        with pytest.raises(SamplingError, match="after 2 tokens"):
            complete(model, LETTERS, "ab", SampleConfig(greedy=greedy))


def test_half_precision_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiled step, which rounds matrices alone, does not serve."""
    monkeypatch.setattr(generating, "step_library", lambda *_: (None, None))
    model = small().float()
    text = complete(model, LETTERS, "a", SampleConfig(chars=30, dtype="bfloat16"))[0]
    assert len(text) == 30
    assert model.token_embedding.weight.dtype == torch.float32
    by_hand = small().bfloat16()
    assert complete(by_hand, LETTERS, "a", SampleConfig(chars=30))[0] == text


def test_a_repetition_penalty_ends_repetition() -> None:
    model = Scripted([[1]], 11)
    assert complete(model, LETTERS, "j", SampleConfig(tokens=5, greedy=True))[0] == "aaaaa"
    model = small(head_bias=True)
    with torch.no_grad():
        model.head.bias.fill_(100)  # where all scores are positive, what was said comes last
    config = SampleConfig(tokens=10, greedy=True, repetition_penalty=1e6)
    assert sorted(complete(model, LETTERS, "", config)[0]) == list("abcdefghij")


def test_a_piece_compares_by_what_it_says() -> None:
    assert Piece(0, "a") == Piece(0, "a", None)
