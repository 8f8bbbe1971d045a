"""A rung with something taken out or exchanged: `--without PART`, `--swap FIELD=VALUE`.

A variant is a rung whose ModelConfig and TrainConfig differ in the named fields alone. It is
trained with the rung's own seeds, so the difference is paired. What makes no sense is refused
before anything is trained.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from partwise.errors import ConfigError, PartwiseError
from partwise.ladder.rungs import Rung, written
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.settings import offer, options, parse
from partwise.training.config import RECORD_FIELDS, TrainConfig
from partwise.training.pieces import reads_short
from partwise.training.plan import check_parts

# Part -> the fields that take it out. Two words may mean the same part.
PARTS: Mapping[str, Mapping[str, Any]] = {
    "residual": {"residual": False},
    "attention": {"attention": False},
    "feedforward": {"feedforward": "none"},
    "projection": {"output_projection": False},
    "norm": {"norm": "none"},
    "layernorm": {"norm": "none"},
    "final-norm": {"final_norm": False},
    "mask": {"causal": False},
    "position": {"position": "none"},
    "dropout": {"dropout": 0.0, "attention_dropout": None, "embedding_dropout": 0.0},
    "bias": {
        "qkv_bias": False,
        "projection_bias": False,
        "feedforward_bias": False,
        "norm_bias": False,
        "head_bias": False,
    },
    "weight-decay": {"weight_decay": 0.0, "muon_weight_decay": 0.0},
}

_DEFAULTS: Mapping[str, Any] = {name: field.default for name, field in options(ModelConfig).items()}

# Fields that one scaling of rotary frequencies alone has.
_LLAMA3 = ("rope_low_frequency_factor", "rope_high_frequency_factor", "rope_original_context")

# Fields that the ladder itself decides, each with what to do instead.
_OWNED = {
    "vocab_size": Notice("it follows from the text"),
    "seed": Notice("give --seeds"),
    "eval_tokens": Notice("the ladder's figure is the whole validation split"),
    "steps": Notice("give --steps, which every rung shares"),
}


@dataclass(frozen=True)
class Variant:
    """Changes to a rung.

    Args:
        label: how it was asked for: `without residual, norm=rmsnorm`; empty for the rung itself.
        model: ModelConfig fields and their values.
        train: TrainConfig fields and their values.
    """

    label: str
    model: tuple[tuple[str, Any], ...] = ()
    train: tuple[tuple[str, Any], ...] = ()

    def applied(self, rung: Rung) -> tuple[ModelConfig, TrainConfig]:
        """The rung's settings with the changes made.

        Raises:
            ConfigError: together they make no sense on this rung.
        """
        model = dataclasses.replace(rung.model, **dict(self.model))
        train = dataclasses.replace(rung.train, **dict(self.train))
        _check_together(model, train)
        return model, train

    def changes_nothing(self, rung: Rung) -> bool:
        """Whether the rung is the same with and without it: rung 3 without residual."""
        return _effect(*self.applied(rung)) == _effect(rung.model, rung.train)


FAITHFUL = Variant("")


def variants(
    without: Iterable[str] = (), swap: Iterable[str] = (), each: bool = False
) -> tuple[Variant, ...]:
    """The variants that a command line asks for; empty when it asks for none.

    Args:
        without: parts; a word may hold several with commas.
        swap: `FIELD=VALUE`; a word may hold several with commas.
        each: one variant for each change; else one variant with all of them.

    Raises:
        ConfigError: no such part or field, a value that the field cannot hold, or a field twice.
    """
    single = [_without(word) for word in _words(without)]
    single += [_swap(word) for word in _words(swap)]
    if each or len(single) < 2:
        return tuple(dict.fromkeys(single))
    return (_joined(single),)


def effective(model: ModelConfig) -> ModelConfig:
    """The model with fields that have no effect put at one value each.

    Without a norm, where it stands makes no difference; without attention, nor do heads. Two
    configs that are equal here describe the same network.
    """
    plain: dict[str, Any] = {"head_dim": model.head_size, "n_kv_heads": model.key_value_heads}
    plain["attention_dropout"] = model.attention_dropout_rate
    plain["d_ff"] = model.inner_width or None
    if model.norm == "none":
        plain.update(norm_placement="none", final_norm=False)
    if model.norm not in ("layernorm", "batchnorm"):
        plain["norm_bias"] = True
    if model.norm == "none" or (model.norm_placement == "none" and not model.final_norm):
        plain.update(norm="none", norm_placement="none", norm_eps=1e-5, norm_bias=True)
    if model.feedforward == "none":
        plain.update(d_ff=None, feedforward_bias=True, feedforward_output=True)
    if not model.attention:
        plain.update(n_heads=1, n_kv_heads=None, head_dim=None, window=None, qk_norm=False)
        plain.update(output_projection=True, qkv_bias=True, projection_bias=True)
        plain.update(causal=True, attention_dropout=0.0)
        if model.position in ("rotary", "alibi"):
            plain["position"] = "none"
    elif not model.output_projection:
        plain["projection_bias"] = True
    if model.window is not None and model.window >= model.context_length:
        plain["window"] = None
    if plain.get("position", model.position) != "rotary":
        plain.update(rope_base=1e4, rope_scaling="none")
    scaling = plain.get("rope_scaling", model.rope_scaling)
    if scaling == "none":
        plain["rope_factor"] = 1.0
    if scaling != "llama3":
        plain.update({name: _DEFAULTS[name] for name in _LLAMA3})
    if model.ngram == 1:
        plain["ngram_rows"] = None
    if model.initialisation not in ("normal", "gpt2"):
        plain["init_std"] = _DEFAULTS["init_std"]
    return dataclasses.replace(model, **plain)


def effective_training(train: TrainConfig, model: ModelConfig) -> TrainConfig:
    """The training with fields that change no figure put at one value each.

    Without Muon its settings make no difference, without a floor nor does its height. What is only
    logged, kept or sampled changes nothing; where and how it is computed does, if only the time.

    Args:
        train: the training.
        model: what is trained.
    """
    default = TrainConfig()
    unused = list(RECORD_FIELDS)
    if train.optimizer != "muon":
        unused += [name for name in options(TrainConfig) if name.startswith("muon_")]
    if train.schedule in ("constant", "inverse_sqrt"):
        unused.append("min_lr_ratio")
    if train.schedule != "wsd":
        unused.append("decay_fraction")
    if train.weight_decay == 0:
        unused.append("decay_all")
    if not reads_short(train, model.context_length):
        unused += ["short_context", "short_share"]
    if model.tie_embeddings or train.head_lr == train.lr:
        unused.append("head_lr")
    if train.embedding_lr == train.lr:
        unused.append("embedding_lr")
    return dataclasses.replace(train, **{name: getattr(default, name) for name in unused})


def _effect(model: ModelConfig, train: TrainConfig) -> tuple[ModelConfig, TrainConfig]:
    """Equal where two trainings come to the same."""
    return effective(model), effective_training(train, model)


def _words(typed: Iterable[str]) -> list[str]:
    return [part.strip() for word in typed for part in word.split(",") if part.strip()]


def _without(part: str) -> Variant:
    known = part.lower().replace("_", "-")
    if known not in PARTS:
        raise ConfigError(
            "there is no part {part!r} to leave out; {offer}",
            part=part,
            offer=offer(known, PARTS),
        )
    fields = PARTS[known]
    of_model = {name: value for name, value in fields.items() if name in options(ModelConfig)}
    of_train = {name: value for name, value in fields.items() if name in options(TrainConfig)}
    return Variant(f"without {known}", tuple(of_model.items()), tuple(of_train.items()))


def _swap(word: str) -> Variant:
    typed, equals, value = word.partition("=")
    if not equals or not value:
        raise ConfigError("swap {word!r} is not FIELD=VALUE, e.g. norm=rmsnorm", word=word)
    prefix, _, last = typed.strip().rpartition(".")
    name = last.replace("-", "_")
    homes = {"model": ModelConfig, "train": TrainConfig}
    for home, config in homes.items():
        if prefix in ("", home) and name in options(config):
            if name in _OWNED:
                raise ConfigError(
                    "{field} cannot be swapped: {reason}", field=name, reason=_OWNED[name]
                )
            held = parse(config, name, _completed(config, name, value.strip()))
            pair = ((name, held),)
            label = f"{name}={written(held)}"
            if config is ModelConfig:
                return Variant(label, model=pair)
            return Variant(label, train=pair)
    every = [*options(ModelConfig), *options(TrainConfig)]
    raise ConfigError(
        "neither model nor training has a field {field!r}; {offer}",
        field=typed,
        offer=offer(name, every),
    )


def _completed(config: type[Any], name: str, value: str) -> str:
    """`rms` becomes `rmsnorm` where only one choice begins so; anything else stays as typed."""
    choices = [str(choice) for choice in options(config)[name].choices]
    beginning = [choice for choice in choices if choice.startswith(value)]
    return beginning[0] if len(beginning) == 1 and value not in choices else value


def _joined(single: list[Variant]) -> Variant:
    model: dict[str, Any] = {}
    train: dict[str, Any] = {}
    for variant in single:
        for together, pairs in ((model, variant.model), (train, variant.train)):
            for name, value in pairs:
                if name in together and together[name] != value:
                    raise ConfigError(
                        "{field} is changed twice, to {first} and to {second}; keep one, or give "
                        "--each",
                        field=name,
                        first=written(together[name]),
                        second=written(value),
                    )
                together[name] = value
    label = ", ".join(dict.fromkeys(variant.label for variant in single))
    return Variant(label, tuple(model.items()), tuple(train.items()))


def _check_together(model: ModelConfig, train: TrainConfig) -> None:
    check_parts(train, model)
    rows = train.batch_size // train.accumulation
    if model.norm == "batchnorm" and rows == 1:
        raise ConfigError(
            "norm=batchnorm takes its mean over the sequences of a batch, and batch_size="
            "{batch_size} with accumulation={accumulation} leaves one; give 2 or more",
            batch_size=train.batch_size,
            accumulation=train.accumulation,
        )


@dataclass(frozen=True)
class Choice:
    """Which variant is trained on which rung, and what was left out and why."""

    pairs: tuple[tuple[Rung, Variant], ...]
    notices: tuple[Notice, ...]


def choose(rungs: Iterable[Rung], wanted: Iterable[Variant]) -> Choice:
    """Each rung with each variant that changes it.

    A variant that some chosen rung cannot take, or that leaves it as it is, is skipped there and
    that is said; one that no chosen rung can take is refused. Of two that come to the same, the
    first is trained.

    Raises:
        ConfigError: a variant changes nothing, or makes no sense, on every chosen rung.
    """
    rungs, pairs, notices = tuple(rungs), [], []
    trained: dict[tuple[int, ModelConfig, TrainConfig], str] = {}
    for variant in wanted:
        refused: PartwiseError | None = None
        same, skipped, fitting = [], [], []
        twice: dict[str, list[int]] = {}
        for rung in rungs:
            try:
                if variant.changes_nothing(rung):
                    same.append(rung.number)
                    continue
                effect = (rung.number, *_effect(*variant.applied(rung)))
                first = trained.setdefault(effect, variant.label)
                if first == variant.label:
                    fitting.append(rung)
                else:
                    twice.setdefault(first, []).append(rung.number)
            except ConfigError as error:
                refused = refused or error
                skipped.append((rung, error))
        if not fitting and not twice:
            if refused is not None:
                raise refused
            raise ConfigError(
                "{variant} changes nothing on rung {rungs}; choose another rung with --only",
                variant=variant.label,
                rungs=_listed(same),
            )
        if same:
            notices.append(
                Notice(
                    "{variant} changes nothing on rung {rungs}: not trained there",
                    variant=variant.label,
                    rungs=_listed(same),
                )
            )
        notices += [
            Notice(
                "{variant} is the same as {other} on rung {rungs}: not trained there",
                variant=variant.label,
                other=other,
                rungs=_listed(numbers),
            )
            for other, numbers in twice.items()
        ]
        notices += [
            Notice(
                "{variant} is not trained on rung {rung}: {reason}",
                variant=variant.label,
                rung=rung.number,
                reason=error,
            )
            for rung, error in skipped
        ]
        pairs += [(rung, variant) for rung in fitting]
    return Choice(tuple(pairs), tuple(notices))


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
