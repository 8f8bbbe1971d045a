"""LoRA described by data: which matrices get a small addition, and how small."""

from dataclasses import dataclass

from partwise.errors import ConfigError
from partwise.model.config import ModelConfig
from partwise.settings import above_zero, at_least_one, check, offer, option, share

TARGETS = ("qkv", "projection", "up", "gate", "down")


@dataclass(frozen=True)
class LoraConfig:
    """Which matrices of a trained model get an addition that is trained in their place.

    Raises:
        ConfigError: a value outside its range, or a matrix that no block has.
    """

    rank: int | None = option(
        None, "train an addition of this rank instead of the weights themselves; none: the weights"
    )
    alpha: float = option(16.0, "the addition counts alpha / rank times")
    targets: tuple[str, ...] | None = option(
        None, "matrices that get one: qkv, projection, up, gate, down; none: all that there are"
    )
    dropout: float = option(0.0, "share of an addition's input dropped in training")

    def __post_init__(self) -> None:
        check(self)
        at_least_one(self, "rank")
        above_zero(self, "alpha")
        share(self, "dropout")
        if self.targets is not None:
            self._check_targets(self.targets)

    def _check_targets(self, targets: tuple[str, ...]) -> None:
        # A command line gives words that may hold several names.
        words = [word.strip() for given in targets for word in given.split(",")]
        named = tuple(dict.fromkeys(word for word in words if word))
        object.__setattr__(self, "targets", named)
        if not named:
            raise ConfigError("targets is empty; name some of {known}", known=", ".join(TARGETS))
        for word in named:
            if word not in TARGETS:
                raise ConfigError(
                    "targets={word} is no matrix of a block; {offer}",
                    word=word,
                    offer=offer(word, TARGETS),
                )

    @property
    def on(self) -> bool:
        """Whether additions are trained at all."""
        return self.rank is not None

    def parameters(self, model: ModelConfig) -> int:
        """Numbers in all additions to a model: rank (inputs + outputs) for each matrix."""
        width, inner = model.d_model, model.inner_width
        queries = model.n_heads * model.head_size
        sizes: dict[str, int] = {}
        if model.attention:
            sizes["qkv"] = width + queries + 2 * model.key_value_heads * model.head_size
            if model.output_projection:
                sizes["projection"] = queries + width
        if model.feedforward != "none":
            sizes["up"] = width + inner
            if model.feedforward == "swiglu":
                sizes["gate"] = width + inner
            if model.feedforward_output:
                sizes["down"] = inner + width
        chosen = sum(size for name, size in sizes.items() if name in (self.targets or TARGETS))
        return model.n_layers * (self.rank or 0) * chosen
