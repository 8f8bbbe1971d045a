"""Recipes: a model together with its training, each one value of both dataclasses."""

from dataclasses import dataclass, replace

from partwise.errors import ConfigError
from partwise.model.config import ModelConfig
from partwise.model.presets import preset
from partwise.settings import offer
from partwise.training.config import TrainConfig


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained.

    Args:
        model: the model; its vocabulary follows the text.
        train: the training.
    """

    model: ModelConfig
    train: TrainConfig


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        ConfigError: there is no such recipe; the message names the nearest.
    """
    if name not in RECIPES:
        raise ConfigError(
            "there is no recipe {name!r}; {offer}",
            name=name,
            offer=offer(name, RECIPES),
        )
    return RECIPES[name]


def _small() -> Recipe:
    """What `partwise train TEXT` does when nothing is said: readable text within two minutes.

    1.2 million tokens, which two CPU cores read in about that time. Muon learns more from each than
    AdamW does, and many short steps more than few long ones.
    """
    train = TrainConfig(
        steps=600,
        batch_size=16,
        optimizer="muon",
        muon_lr=0.02,
        lr=3e-3,
        beta2=0.99,
        schedule="linear",
        warmup_steps=20,
        min_lr_ratio=0.0,
    )
    return Recipe(preset("small"), train)


def _fast() -> Recipe:
    """A low loss on about a megabyte of text from two CPU cores in a minute or two.

    Every part of it was chosen by text held back from the training part (docs/experiments.md). What
    buys the most: a small model that reads much rather than a large one that reads little; Muon;
    tables of bigrams and trigrams, which cost no multiplication; many short steps, the first of
    which read short texts. No text is read more than three times, since the tables have it by heart
    soon after.
    """
    model = ModelConfig(
        context_length=512,
        n_layers=4,
        d_model=96,
        n_heads=2,
        qkv_bias=False,
        projection_bias=False,
        qk_norm=True,
        feedforward="relu2",
        feedforward_bias=False,
        norm="layernorm",
        norm_bias=False,
        position="rotary",
        rope_base=1000.0,
        tie_embeddings=False,
        ngram=3,
        ngram_rows=16384,
        embedding_shortcut=True,
        initialisation="zero_projection",
    )
    train = TrainConfig(
        steps=2700,
        epochs=3.1,
        batch_size=2,
        order="epochs",
        short_context=128,
        short_share=0.8,
        optimizer="muon",
        muon_lr=0.013,
        muon_momentum_steps=100,
        muon_polynomial="polar_express",
        muon_steps=3,
        lr=3e-3,
        embedding_lr=2e-2,
        beta1=0.8,
        beta2=0.95,
        weight_decay=0.1,
        muon_weight_decay=0.1,
        grad_clip=None,
        schedule="linear",
        warmup_steps=20,
        min_lr_ratio=0.0,
        eval_every=2700,
    )
    return Recipe(model, train)


def _long() -> Recipe:
    """The lowest loss on about a megabyte of text that two CPU cores reach in a quarter of an hour.

    As `fast`, with a larger model and no more readings: what is read a dozen times is learned by
    heart, and what holds against that costs more than it brings (docs/experiments.md).
    """
    fast = _fast()
    model = replace(fast.model, n_layers=5, d_model=320, n_heads=4)
    return Recipe(model, replace(fast.train, steps=3000, eval_every=1500))


def _nanogpt() -> Recipe:
    """The configuration that most figures on tiny Shakespeare are compared with.

    Source: Karpathy 2022, nanoGPT, config/train_shakespeare_char.py, over the defaults of train.py
    and model.py: no biases, exact GELU, dropout also on the embeddings.
    """
    model = ModelConfig(
        context_length=256,
        n_layers=6,
        d_model=384,
        n_heads=6,
        qkv_bias=False,
        projection_bias=False,
        feedforward="gelu",
        feedforward_bias=False,
        norm="layernorm",
        norm_bias=False,
        position="learned",
        dropout=0.2,
        embedding_dropout=0.2,
        tie_embeddings=True,
        initialisation="gpt2",
    )
    train = TrainConfig(
        steps=5000,
        batch_size=64,
        optimizer="adamw",
        lr=1e-3,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.1,
        grad_clip=1.0,
        schedule="cosine",
        warmup_steps=100,
        min_lr_ratio=0.1,
    )
    return Recipe(model, train)


def _nanogpt_cpu() -> Recipe:
    """The same, cut down for a laptop.

    Source: Karpathy 2022, nanoGPT, readme, "I only have a macbook" (or other cheap computer).
    """
    full = _nanogpt()
    model = replace(
        full.model,
        context_length=64,
        n_layers=4,
        d_model=128,
        n_heads=4,
        dropout=0.0,
        embedding_dropout=0.0,
    )
    return Recipe(model, replace(full.train, steps=2000, batch_size=12))


RECIPES = {
    "small": _small(),
    "fast": _fast(),
    "long": _long(),
    "nanogpt": _nanogpt(),
    "nanogpt-cpu": _nanogpt_cpu(),
}
