"""How a model is trained: optimizer, schedule, batch, precision, evaluation and when to stop."""

from dataclasses import dataclass
from typing import Literal

from partwise.errors import ConfigError
from partwise.settings import above_zero, at_least_one, check, not_negative, option, share

Optimizer = Literal["adamw", "muon"]
MuonPolynomial = Literal["jordan", "polar_express"]
Order = Literal["random", "epochs"]
Schedule = Literal["cosine", "linear", "wsd", "constant", "inverse_sqrt"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
Compile = Literal["auto", "on", "off"]

# More than any machine has cores; a system out of threads ends the whole process.
MOST_THREADS = 1024

# Fields that say where and how fast the arithmetic is done, not what is computed.
MACHINE_FIELDS = ("dtype", "compile", "device", "threads")

# Fields that neither move weights nor change a figure: what is logged, kept and sampled.
RECORD_FIELDS = (
    "sample_chars",
    "log_every",
    "checkpoint_every",
    "keep_checkpoints",
    "tensorboard",
    "wandb",
)


@dataclass(frozen=True)
class TrainConfig:
    """The training of one run. Training ends at whichever limit is met first.

    Raises:
        ConfigError: a value outside its range, or a combination that makes no sense.
    """

    steps: int | None = option(None, "stop after this many steps; also the schedule's length")
    epochs: float | None = option(None, "stop after reading the training text this many times")
    tokens: int | None = option(None, "stop after this many tokens")
    minutes: float | None = option(None, "stop after this much training time (minutes)")
    target_loss: float | None = option(None, "stop when the validation loss is this low (nats)")
    patience: int | None = option(
        None, "stop after this many evaluations without a better validation loss"
    )

    batch_size: int = option(64, "sequences a step")
    accumulation: int = option(1, "parts that a batch is computed in, to save memory")
    order: Order = option(
        "random", "sequences start anywhere; epochs: none comes again before all have been read"
    )
    short_context: int | None = option(
        None, "tokens of each text in the first part of the run; none: the model's context"
    )
    short_share: float = option(0.8, "share of the steps that read texts of short_context")
    seed: int = option(1, "seed of the weights, the batches and the dropout")

    optimizer: Optimizer = option("adamw", "AdamW, or Muon for matrices with AdamW for the rest")
    lr: float = option(1e-3, "peak learning rate of AdamW")
    muon_lr: float = option(0.02, "peak learning rate of Muon")
    embedding_lr: float | None = option(None, "peak rate of embedding tables; none: as lr")
    head_lr: float | None = option(None, "peak rate of an untied output layer; none: as lr")
    beta1: float = option(0.9, "AdamW's decay of the gradient's mean")
    beta2: float = option(0.95, "AdamW's decay of the gradient's square")
    eps: float = option(1e-8, "AdamW's divisor floor")
    muon_momentum: float = option(0.95, "Muon's momentum")
    muon_momentum_steps: int = option(
        0, "steps over which Muon's momentum rises from 0.85; 0: none"
    )
    muon_polynomial: MuonPolynomial = option(
        "jordan",
        "what Muon's orthogonalisation iterates: one polynomial, or the best for each step",
    )
    muon_steps: int = option(5, "iterations of Muon's orthogonalisation")
    weight_decay: float = option(0.1, "AdamW's weight decay")
    muon_weight_decay: float = option(0.0, "Muon's weight decay")
    decay_all: bool = option(False, "decay every parameter; false: matrices only")
    grad_clip: float | None = option(1.0, "largest norm of the gradient; none: off")

    schedule: Schedule = option(
        "cosine",
        "cosine, linear to the floor, warmup-stable-decay, constant, or the original Transformer's",
    )
    warmup_steps: int = option(100, "steps over which the rate rises from 0")
    min_lr_ratio: float = option(0.1, "the schedule's floor as a share of the peak rate")
    decay_fraction: float = option(0.2, "wsd: share of the steps in which the rate falls")

    label_smoothing: float = option(0.0, "share of the target spread over all tokens")
    ema_decay: float | None = option(
        None, "also keep a running mean of the weights with this decay; it is what is evaluated"
    )

    dtype: Precision = option("auto", "numbers that matrix products are computed in")
    compile: Compile = option("auto", "compile the training step")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps")
    threads: int | None = option(None, "CPU threads; none: as torch has, at most one a core")

    eval_every: int = option(250, "steps between evaluations")
    eval_tokens: int | None = option(
        None, "evaluate on a fixed sample of this many tokens; none: the whole validation split"
    )
    sample_chars: int = option(200, "characters of text sampled at each evaluation; 0: none")
    log_every: int = option(10, "steps between log lines")
    checkpoint_every: int | None = option(
        None, "steps between checkpoints; none: at each evaluation"
    )
    keep_checkpoints: int = option(2, "newest checkpoints that are kept, besides the best")
    tensorboard: bool = option(False, "write TensorBoard events into the run folder")
    wandb: str | None = option(None, "send metrics to this Weights & Biases project")

    def __post_init__(self) -> None:
        check(self)
        at_least_one(self, "steps", "tokens", "patience", "batch_size", "accumulation", "threads")
        at_least_one(self, "muon_steps", "short_context")
        at_least_one(self, "eval_every", "eval_tokens", "log_every")
        at_least_one(self, "checkpoint_every", "keep_checkpoints")
        above_zero(self, "epochs", "minutes", "target_loss", "lr", "muon_lr", "embedding_lr")
        above_zero(self, "head_lr", "eps", "grad_clip")
        not_negative(self, "warmup_steps", "muon_momentum_steps", "sample_chars", "seed")
        share(self, "beta1", "beta2", "muon_momentum", "label_smoothing", "ema_decay")
        if self.threads is not None and self.threads > MOST_THREADS:
            raise ConfigError(
                "{name}={value} is more than {most}; give the number of cores",
                name="threads",
                value=self.threads,
                most=MOST_THREADS,
            )
        shares = ("min_lr_ratio", "decay_fraction", "weight_decay", "muon_weight_decay")
        for name in (*shares, "short_share"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ConfigError("{name}={value} must be from 0 to 1", name=name, value=value)
        if self.batch_size % self.accumulation:
            raise ConfigError(
                "batch_size={batch_size} is not divisible by accumulation={accumulation}; "
                "batch_size={choice} would do",
                batch_size=self.batch_size,
                accumulation=self.accumulation,
                choice=self.accumulation * max(1, round(self.batch_size / self.accumulation)),
            )
