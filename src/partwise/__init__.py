"""Partwise: build a GPT part by part, see what each part buys, train it on your own text."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from partwise.errors import PartwiseError as PartwiseError
    from partwise.front import load as load
    from partwise.front import sample as sample
    from partwise.front import train as train
    from partwise.interop.reader import load_folder as load_folder
    from partwise.ladder.api import ladder as ladder
    from partwise.model.attention import Attention as Attention
    from partwise.model.block import Block as Block
    from partwise.model.cache import KVCache as KVCache
    from partwise.model.config import ModelConfig as ModelConfig
    from partwise.model.cross_attention import CrossAttention as CrossAttention
    from partwise.model.feedforward import FeedForward as FeedForward
    from partwise.model.gpt import GPT as GPT
    from partwise.model.lora import add_lora as add_lora
    from partwise.model.lora import merge_lora as merge_lora
    from partwise.model.lora_config import LoraConfig as LoraConfig
    from partwise.model.norm import BatchNorm as BatchNorm
    from partwise.model.norm import LayerNorm as LayerNorm
    from partwise.model.norm import RMSNorm as RMSNorm
    from partwise.model.position import Alibi as Alibi
    from partwise.model.position import Rotary as Rotary
    from partwise.model.position import Sinusoidal as Sinusoidal
    from partwise.model.seq2seq import Seq2Seq as Seq2Seq
    from partwise.model.seq2seq_config import Seq2SeqConfig as Seq2SeqConfig
    from partwise.model.trace import trace as trace
    from partwise.run import Run as Run
    from partwise.run import export_run as export_run
    from partwise.run import import_folder as import_folder
    from partwise.sampling.config import SampleConfig as SampleConfig
    from partwise.text.config import DataConfig as DataConfig
    from partwise.training.config import TrainConfig as TrainConfig
    from partwise.translation.folder import Translation as Translation

# Where each public name lives. They load when first used, so that `partwise --help` needs no torch.
_HOMES = {
    "train": "partwise.front",
    "load": "partwise.front",
    "sample": "partwise.front",
    "ladder": "partwise.ladder.api",
    "Run": "partwise.run",
    "import_folder": "partwise.run",
    "export_run": "partwise.run",
    "load_folder": "partwise.interop.reader",
    "TrainConfig": "partwise.training.config",
    "DataConfig": "partwise.text.config",
    "SampleConfig": "partwise.sampling.config",
    "PartwiseError": "partwise.errors",
    "GPT": "partwise.model.gpt",
    "ModelConfig": "partwise.model.config",
    "LoraConfig": "partwise.model.lora_config",
    "add_lora": "partwise.model.lora",
    "merge_lora": "partwise.model.lora",
    "Block": "partwise.model.block",
    "Attention": "partwise.model.attention",
    "CrossAttention": "partwise.model.cross_attention",
    "FeedForward": "partwise.model.feedforward",
    "LayerNorm": "partwise.model.norm",
    "RMSNorm": "partwise.model.norm",
    "BatchNorm": "partwise.model.norm",
    "Rotary": "partwise.model.position",
    "Alibi": "partwise.model.position",
    "Sinusoidal": "partwise.model.position",
    "Seq2Seq": "partwise.model.seq2seq",
    "Seq2SeqConfig": "partwise.model.seq2seq_config",
    "Translation": "partwise.translation.folder",
    "KVCache": "partwise.model.cache",
    "trace": "partwise.model.trace",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'partwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
