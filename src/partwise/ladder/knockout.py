"""Remove now: a trained model measured with one part silenced, beside "trained without it".

Silenced means: attention, feed-forward or one head adds zero to what follows; a norm hands its
input on unchanged; positions are zero (learned, sinusoidal), no turn (rotary) or no distance
(ALiBi). Every weight stays as it was trained, and the model is whole again afterwards.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from partwise.errors import ConfigError
from partwise.model.attention import Attention
from partwise.model.block import Block
from partwise.model.gpt import GPT
from partwise.settings import offer


def parts(model: GPT) -> tuple[str, ...]:
    """The names of everything in `model` that can be silenced, from the text upwards.

    `positions`; for block i `block.{i}.attention` (all its heads), `block.{i}.attention.head.{h}`,
    `block.{i}.feedforward`, `block.{i}.norm1`, `block.{i}.norm2`; `final_norm`; and, each over all
    blocks at once, `attention`, `feedforward` and `norms` (the final one included).
    """
    names = []
    if _positions(model) is not None:
        names.append("positions")
    kinds: dict[str, int] = {"attention": 0, "feedforward": 0, "norms": 0}
    for i, block in enumerate(_blocks(model)):
        if block.norm1 is not None:
            names.append(f"block.{i}.norm1")
            kinds["norms"] += 1
        if block.attention is not None:
            names.append(f"block.{i}.attention")
            kinds["attention"] += 1
            heads = block.attention.n_heads
            if heads > 1:
                names += [f"block.{i}.attention.head.{h}" for h in range(heads)]
        if block.norm2 is not None:
            names.append(f"block.{i}.norm2")
            kinds["norms"] += 1
        if block.feedforward is not None:
            names.append(f"block.{i}.feedforward")
            kinds["feedforward"] += 1
    if model.final_norm is not None:
        names.append("final_norm")
        kinds["norms"] += 1
    # With one of a kind, all of them is that one, which stands above already.
    names += [kind for kind, count in kinds.items() if count > 1]
    return tuple(names)


@contextmanager
def silenced(model: GPT, part: str) -> Iterator[GPT]:
    """`model` with one part silenced inside the `with`; no weight changes.

    Args:
        model: a trained model.
        part: one of `parts(model)`.

    Raises:
        ConfigError: the model has no such part.
    """
    known = parts(model)
    if part not in known:
        raise ConfigError(
            "this model has no part {part!r} to silence; {offer}",
            part=part,
            offer=offer(part, known),
        )
    with ExitStack() as stack:
        for handle in _handles(model, part):
            stack.callback(handle.remove)
        yield model


def knock_out(model: GPT, measure: Callable[[], float]) -> Iterator[tuple[str, float]]:
    """Each part's name and what `measure` gives while it is silenced.

    Args:
        model: a trained model.
        measure: measures `model` as it is just then, such as its validation loss.
    """
    for part in parts(model):
        with silenced(model, part):
            found = measure()
        yield part, found


def _handles(model: GPT, part: str) -> list[Any]:
    if part == "positions":
        module = _positions(model)
        assert module is not None
        return [module.register_forward_hook(_no_position)]
    if part == "final_norm":
        assert model.final_norm is not None
        return [model.final_norm.register_forward_hook(_unchanged)]
    if part in ("attention", "feedforward"):
        modules = [getattr(block, part) for block in _blocks(model)]
        return [one.register_forward_hook(_zero) for one in modules if one is not None]
    if part == "norms":
        modules = [norm for block in _blocks(model) for norm in (block.norm1, block.norm2)]
        modules.append(model.final_norm)
        return [one.register_forward_hook(_unchanged) for one in modules if one is not None]
    words = part.split(".")
    block = _blocks(model)[int(words[1])]
    if words[-2] == "head":
        assert block.attention is not None
        return [_silence_head(block.attention, int(words[-1]))]
    module = getattr(block, words[-1])
    hook = _unchanged if words[-1].startswith("norm") else _zero
    return [module.register_forward_hook(hook)]


def _blocks(model: GPT) -> list[Block]:
    return [block for block in model.blocks if isinstance(block, Block)]


def _positions(model: GPT) -> nn.Module | None:
    for module in (model.position_embedding, model.sinusoidal, model.rotary, model.alibi):
        if module is not None:
            return module
    return None


def _zero(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def _unchanged(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return inputs[0]


def _no_position(module: nn.Module, inputs: Any, output: Any) -> Any:
    if isinstance(output, tuple):
        # Rotary: the angle 0 has cosine 1 and sine 0.
        cosine, sine = output
        return torch.ones_like(cosine), torch.zeros_like(sine)
    return torch.zeros_like(output)


def _silence_head(attention: Attention, head: int) -> Any:
    size = attention.head_size
    kept = slice(head * size, (head + 1) * size)

    def without(joined: Tensor) -> Tensor:
        changed = joined.clone()
        changed[..., kept] = 0
        return changed

    if attention.projection is None:
        return attention.register_forward_hook(lambda module, inputs, output: without(output))
    return attention.projection.register_forward_pre_hook(
        lambda module, inputs: (without(inputs[0]),)
    )
