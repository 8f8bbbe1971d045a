"""Known encoder-decoder models, each one value of `Seq2SeqConfig`."""

from dataclasses import replace

from partwise.errors import ConfigError
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.settings import offer


def seq2seq_preset(name: str) -> Seq2SeqConfig:
    """The encoder-decoder model of that name, such as `transformer-base`.

    Raises:
        ConfigError: there is no such preset; the message names the nearest.
    """
    if name not in SEQ2SEQ_PRESETS:
        raise ConfigError(
            "there is no preset {name!r}; {offer}",
            name=name,
            offer=offer(name.lower(), SEQ2SEQ_PRESETS),
        )
    return SEQ2SEQ_PRESETS[name]


def _transformer() -> dict[str, Seq2SeqConfig]:
    """The two models of the paper.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3, section 5.1 (a shared
    vocabulary of about 37,000 tokens for English and German) and table 3 (65M and 213M parameters).
    Built from those numbers, with no biases in attention as its formulas have none, they hold
    63,045,632 and 214,171,648: 3.0 % below and 0.6 % above the table, whose vocabulary is given in
    round numbers only. Dropout 0.1 and 0.3 as in table 3; for English to French the paper trained
    the big model with 0.1.
    """
    base = Seq2SeqConfig(
        vocab_size=37_000,
        context_length=512,
        n_encoder_layers=6,
        n_decoder_layers=6,
        d_model=512,
        n_heads=8,
        d_ff=2048,
        dropout=0.1,
        embedding_dropout=0.1,
    )
    big = replace(base, d_model=1024, n_heads=16, d_ff=4096, dropout=0.3, embedding_dropout=0.3)
    return {"transformer-base": base, "transformer-big": big}


def _small() -> dict[str, Seq2SeqConfig]:
    """The models of `partwise translate` when nothing is said about their size.

    No paper's: the original's parts at sizes that two CPU cores train in minutes, `pair` for
    sentences and `task` for tasks on characters. The norm stands before each sublayer, as they
    learn faster so (measured in docs/translate.md); `norm_placement="post"` is the original's.
    """
    pair = Seq2SeqConfig(
        context_length=128,
        n_encoder_layers=2,
        n_decoder_layers=2,
        d_model=128,
        n_heads=4,
        norm_placement="pre",
        dropout=0.2,
        embedding_dropout=0.2,
    )
    task = Seq2SeqConfig(
        vocab_size=32,
        context_length=48,
        n_encoder_layers=2,
        n_decoder_layers=2,
        d_model=64,
        n_heads=4,
        norm_placement="pre",
        dropout=0.0,
        embedding_dropout=0.0,
    )
    return {"pair": pair, "task": task}


SEQ2SEQ_PRESETS = {**_small(), **_transformer()}
