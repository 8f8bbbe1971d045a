"""What a translator's model is: an encoder-decoder, or a decoder alone of the same size."""

from dataclasses import replace

from partwise.model.config import ModelConfig
from partwise.model.parameters import count_parameters
from partwise.model.seq2seq_config import SPECIAL, Seq2SeqConfig
from partwise.model.seq2seq_parameters import seq2seq_parameters

Shape = Seq2SeqConfig | ModelConfig


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


def longest(config: Shape) -> int:
    """The longest source and target (tokens).

    Each ends with END and so needs a place more; a decoder alone has both and START in one row.
    """
    if isinstance(config, Seq2SeqConfig):
        return config.context_length - 1
    return (config.context_length - 1) // 2


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
