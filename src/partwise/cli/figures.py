"""The figures of a model's size as lines of a table, the same ones for every model."""

from partwise.cli.units import count, data_size, duration, operations, share
from partwise.messages import Notice, message
from partwise.model.sizing import Size, Speed

PARTS = {
    "embedding": Notice("token embedding"),
    "position": Notice("positions"),
    "ngram": Notice("n-gram tables"),
    "attention": Notice("attention"),
    "cross_attention": Notice("cross-attention"),
    "feedforward": Notice("feed-forward layers"),
    "norms": Notice("norms"),
    "head": Notice("output layer"),
    "shortcut": Notice("embedding shortcut"),
}

Line = tuple[str, str]


def parts(found: Size) -> list[Line]:
    """The exact count, part by part, and 12 N d^2 beside it."""
    lines = [(message("parameters"), f"{found.parameters:,}")]
    for name, part in PARTS.items():
        lines.append((_inner(str(part)), f"{found.parameters_by_part.get(name, 0):,}"))
    lines.append((message("12 N d²"), f"{found.approximation_12nd2:,}"))
    lines.append((_inner(message("its error")), share(found.approximation_error)))
    return lines


def work(found: Size) -> list[Line]:
    """Operations for one token."""
    flops = found.flops_per_token
    return [
        (message("operations a token, forward"), operations(flops["forward"])),
        (_inner(message("in attention")), share(found.shares["attention_flops"])),
        (_inner(message("in feed-forward layers")), share(found.shares["feedforward_flops"])),
        (message("operations a token, training"), operations(flops["training"])),
        (_inner(_again()), operations(flops["training_checkpointed"])),
        (message("operations of the next token"), operations(flops["decode"])),
    ]


def memory(found: Size) -> list[Line]:
    """Bytes to train and to serve."""
    training, serving, workload = found.training, found.serving, found.workload
    return [
        (message("memory to train"), data_size(training.total)),
        (_inner(message("batch")), _texts(workload.batch_size, found.context)),
        (_inner(message("weights")), data_size(training.weights)),
        (_inner(message("gradients")), data_size(training.gradients)),
        (_inner(message("optimizer")), data_size(training.optimizer)),
        (_inner(message("mean of the weights")), data_size(training.average)),
        (_inner(message("copies in fewer bits")), data_size(training.copies)),
        (_inner(message("activations")), data_size(training.activations)),
        (_inner(_again()), data_size(training.total_checkpointed)),
        (message("memory to serve"), data_size(serving.total)),
        (_inner(message("batch")), _texts(workload.texts, found.context)),
        *(
            (_inner(message("weights in {dtype}", dtype=dtype)), data_size(bytes))
            for dtype, bytes in serving.weights.items()
        ),
        (_inner(message("keys and values")), data_size(serving.cache)),
        (_inner(message("if every head had its own")), data_size(serving.cache_multi_head)),
    ]


def time(found: Size) -> list[Line]:
    """Tokens, and hours on the hardware."""
    lines = [(message("tokens that it deserves"), count(found.compute_optimal_tokens))]
    speed = found.speed
    if speed is None:
        return lines
    hardware = message("this machine") if speed.hardware == "here" else speed.hardware
    lines.append((message("time to train"), duration(speed.hours)))
    lines.append((_inner(message("hardware")), hardware))
    if speed.fits is not None:
        lines.append((_inner(message("fits its memory")), _fits(speed)))
    if speed.decode_tokens is not None:
        lines.append((message("tokens/s of one text at best"), count(speed.decode_tokens)))
    return lines


def _fits(speed: Speed) -> str:
    if speed.fits:
        return message("yes")
    return _again() if speed.fits_checkpointed else message("no")


def _texts(number: int, context: int) -> str:
    return message("{number} × {context:,} tokens", number=number, context=context)


def _again() -> str:
    return message("with blocks computed again")


def _inner(label: str) -> str:
    return f"  {label}"
