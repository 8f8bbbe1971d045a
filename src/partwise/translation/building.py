"""A translator's model, the tokens beside the tokenizer's own, and how it wants its pairs."""

from partwise.model.gpt import GPT
from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import SPECIAL, Seq2SeqConfig
from partwise.sampling.translate import Marks
from partwise.text.pair_batches import InARow, Layout, SideBySide
from partwise.translation.shape import Shape


def build_model(config: Shape) -> Seq2Seq | GPT:
    """The model with its first weights, from torch's random numbers."""
    return Seq2Seq(config) if isinstance(config, Seq2SeqConfig) else GPT(config)


def marks(config: Shape) -> Marks:
    """PAD, START and END: the last tokens of the vocabulary."""
    pad = config.vocab_size - SPECIAL
    return Marks(pad, pad + 1, pad + 2)


def layout(config: Shape) -> Layout:
    """How the model wants its pairs."""
    known = marks(config)
    if isinstance(config, Seq2SeqConfig):
        return SideBySide(known.pad, known.start, known.end)
    return InARow(known.pad, known.start, known.end)
