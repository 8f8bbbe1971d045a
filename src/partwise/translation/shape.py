"""What a translator's model is: an encoder-decoder, or a decoder alone of the same size."""

from dataclasses import replace

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.parameters import count_parameters
from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import SPECIAL, Seq2SeqConfig
from partwise.model.seq2seq_presets import seq2seq_parameters
from partwise.sampling.translate import Marks
from partwise.text.pair_batches import InARow, Layout, SideBySide

Shape = Seq2SeqConfig | ModelConfig


def build_model(config: Shape) -> Seq2Seq | GPT:
    """The model with its first weights, from torch's random numbers."""
    return Seq2Seq(config) if isinstance(config, Seq2SeqConfig) else GPT(config)


def parameters(config: Shape) -> int:
    """How many numbers the model learns."""
    if isinstance(config, Seq2SeqConfig):
        return sum(seq2seq_parameters(config).values())
    return count_parameters(config)


def with_vocabulary(config: Shape, tokens: int) -> Shape:
    """The model for a tokenizer with that many tokens; PAD, START and END follow them."""
    if isinstance(config, Seq2SeqConfig):
        return replace(config, vocab_size=tokens + SPECIAL)
    return replace(config, vocab_size=tokens + SPECIAL)


def marks(config: Shape) -> Marks:
    """PAD, START and END: the last tokens of the vocabulary."""
    pad = config.vocab_size - SPECIAL
    return Marks(pad, pad + 1, pad + 2)


def longest(config: Shape) -> int:
    """The longest source and target (tokens).

    Each ends with END and so needs a place more; a decoder alone has both and START in one row.
    """
    if isinstance(config, Seq2SeqConfig):
        return config.context_length - 1
    return (config.context_length - 1) // 2


def layout(config: Shape) -> Layout:
    """How the model wants its pairs."""
    known = marks(config)
    if isinstance(config, Seq2SeqConfig):
        return SideBySide(known.pad, known.start, known.end)
    return InARow(known.pad, known.start, known.end)


def decoder_alone(config: Seq2SeqConfig) -> ModelConfig:
    """A GPT of the same width and parts that reads the same texts, as near in size as layers allow.

    A decoder's block of the encoder-decoder has cross-attention as well, a third more than a
    GPT's; with 3 and 3 blocks the GPT gets 7.
    """
    one = replace(config.decoder, context_length=2 * config.context_length - 1)
    wanted = parameters(config)

    def gap(n_layers: int) -> int:
        return abs(parameters(replace(one, n_layers=n_layers)) - wanted)

    most = 2 * (config.n_encoder_layers + config.n_decoder_layers)
    return replace(one, n_layers=min(range(1, most + 1), key=gap))
