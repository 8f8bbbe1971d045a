"""Optimizers: AdamW for everything, or Muon for the hidden matrices with AdamW for the rest.

Each parameter belongs to one group, by what it is: a hidden matrix, an embedding table, the output
layer, or a vector (bias, norm, learned scale). A group has a peak rate and a decay of its own; the
schedule multiplies every peak alike.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from partwise.errors import RunError
from partwise.training.config import TrainConfig
from partwise.training.muon import Muon

Kind = Literal["matrix", "embedding", "head", "vector"]

# Devices for which torch has AdamW as one kernel over all parameters.
_FUSED = ("cpu", "cuda", "mps")


class AdamW(torch.optim.AdamW):
    """torch's AdamW, built and used without loading torch's compiler.

    The compiler's hold on `add_param_group` and `step` imports it, which takes 1.4 s, as long as
    training a small model. It is of use only where the optimizer itself is compiled.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        inspect.unwrap(torch.optim.AdamW.add_param_group)(self, param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As torch's, which has no gradient of its own."""
        with torch.no_grad():
            return inspect.unwrap(torch.optim.AdamW.step)(self, closure)


def kinds(model: nn.Module) -> dict[str, Kind]:
    """What each trained parameter is, by name.

    A matrix is the weight of a linear layer; a tied output layer is the embedding that it shares.
    Everything that is neither a matrix, a table nor the output layer counts as a vector, whatever
    its shape: learned scales may stand in a table of two dimensions.
    """
    owners: dict[int, tuple[str, nn.Module]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            owners.setdefault(id(parameter), (name, module))
    found: dict[str, Kind] = {}
    for name, parameter in trained(model):
        own_name, owner = owners[id(parameter)]
        if isinstance(owner, nn.Embedding) or "embedding" in own_name:
            found[name] = "embedding"
        elif name.split(".")[0] == "head":
            found[name] = "head"
        elif isinstance(owner, nn.Linear) and parameter.ndim == 2:
            found[name] = "matrix"
        else:
            found[name] = "vector"
    return found


def trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that training changes; one that is shared appears once."""
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def build_optimizers(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """The optimizers of `config`, Muon first where it is asked for.

    Every group has a `name` and a `peak`, the rate that `set_rate` multiplies.

    Args:
        model: the model, on the device where it is trained.
        config: the optimizer's settings.

    Source: AdamW, Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm
    2; Muon, Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.
    """
    kind_of = kinds(model)
    # One group for all that share rate and decay: each group costs small models a kernel launch.
    members: dict[tuple[float, float], list[nn.Parameter]] = {}
    names: dict[tuple[float, float], list[str]] = {}
    hidden: list[nn.Parameter] = []
    device = torch.device("cpu")
    for name, parameter in trained(model):
        device = parameter.device
        kind = kind_of[name]
        if kind == "matrix" and config.optimizer == "muon":
            hidden.append(parameter)
            continue
        peak = config.lr
        if kind == "embedding":
            peak = config.embedding_lr or config.lr
        elif kind == "head":
            peak = config.head_lr or config.lr
        decays = config.decay_all or (kind != "vector" and parameter.ndim >= 2)
        group = (peak, config.weight_decay if decays else 0.0)
        members.setdefault(group, []).append(parameter)
        if kind not in names.setdefault(group, []):
            names[group].append(kind)

    built: list[torch.optim.Optimizer] = []
    if hidden:
        muon = Muon(
            [{"params": hidden, "name": "muon", "peak": config.muon_lr}],
            lr=config.muon_lr,
            momentum=config.muon_momentum,
            momentum_steps=config.muon_momentum_steps,
            weight_decay=config.muon_weight_decay,
            steps=config.muon_steps,
            polar_express=config.muon_polynomial == "polar_express",
        )
        built.append(muon)
    if members:
        groups = [
            {
                "params": members[peak, decay],
                "name": "+".join(names[peak, decay]),
                "peak": peak,
                "lr": peak,
                "weight_decay": decay,
            }
            for peak, decay in members
        ]
        adamw = AdamW(
            groups,
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            fused=device.type in _FUSED,
        )
        built.append(adamw)
    return built


def set_rate(optimizers: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """Give every group `rate` times its own peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * rate


def pack(
    model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimizers' whole memory as flat tensors, and what is no tensor as plain data.

    Keys are `AdamW/exp_avg/blocks.0.attention.qkv.weight`: who remembers what of which parameter.
    """
    names = {id(parameter): name for name, parameter in trained(model)}
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for optimizer in optimizers:
        for parameter, memory in optimizer.state.items():
            for what, value in memory.items():
                key = f"{type(optimizer).__name__}/{what}/{names[id(parameter)]}"
                if isinstance(value, Tensor):
                    tensors[key] = value
                else:
                    plain[key] = value
    return tensors, plain


def unpack(
    model: nn.Module,
    optimizers: Iterable[torch.optim.Optimizer],
    tensors: Mapping[str, Tensor],
    plain: Mapping[str, Any],
) -> None:
    """Give the optimizers the memory that `pack` made, bit for bit.

    Raises:
        RunError: the memory belongs to another optimizer or another model.
    """
    owners = {
        id(parameter): optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    parameters = dict(trained(model))
    for key, value in {**plain, **tensors}.items():
        who, what, name = key.split("/", 2)
        parameter = parameters.get(name)
        if parameter is None or who != type(owners[id(parameter)]).__name__:
            raise RunError(
                "the checkpoint holds what {who} remembers of {name}, which {who} does not train "
                "here; resume with the optimizer and model settings of the run",
                who=who,
                name=name,
            )
        if isinstance(value, Tensor):
            # torch keeps the step count of an optimizer without a fused kernel on the CPU.
            here = parameter.device if value.ndim or parameter.device.type in _FUSED else "cpu"
            value = value.to(here, copy=True)
        owners[id(parameter)].state[parameter][what] = value
    for name, parameter in parameters.items():
        memory = owners[id(parameter)].state[parameter].values()
        shapes = {value.shape for value in memory if isinstance(value, Tensor) and value.ndim}
        if shapes - {parameter.shape} or not memory:
            raise RunError(
                "the checkpoint's optimizer remembers nothing of {name} in this shape; resume with "
                "the optimizer and model settings of the run",
                name=name,
            )
