"""Device and precision: what was asked for, or the best choice here with its reason."""

import re
from typing import TYPE_CHECKING

from partwise.errors import ConfigError
from partwise.machine.measure import autocast_ratio, measured
from partwise.messages import Notice
from partwise.settings import offer

if TYPE_CHECKING:
    import torch

# Below this gain, casting the rest of the step to and from bfloat16 costs what the products save.
_WORTH_IT = 1.5


def pick_device(name: str) -> "torch.device":
    """The device called `name`.

    Args:
        name: cpu, cuda, cuda:N, mps; auto is cuda where there is one, else mps, else cpu.

    Raises:
        ConfigError: there is no such name, or no such device on this machine.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    here = [f"cuda:{index}" for index in range(gpus)]
    if torch.backends.mps.is_available():
        here.append("mps")
    here.append("cpu")
    if name == "auto":
        return torch.device(here[0].split(":")[0])
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise ConfigError(
            "there is no device {name!r}; {offer}",
            name=name,
            offer=offer(name, ["auto", "cpu", "cuda", "cuda:0", "mps"]),
        )
    if name not in here and not (name == "cuda" and gpus):
        raise ConfigError(
            "device={name} is not on this machine, which has {here}; give one of these or auto",
            name=name,
            here=", ".join(here),
        )
    return torch.device(name)


def pick_precision(
    name: str, device: "torch.device", *, rows: int | None = None, width: int | None = None
) -> tuple["torch.dtype", Notice]:
    """What matrix products are computed in, and the reason in one line.

    A type that is asked for is honoured, and it is said when it is slow here; auto takes bfloat16
    where this machine multiplies it faster, and where the model is not so narrow that a CPU loses
    more by casting.

    Args:
        name: auto, float32, bfloat16 or float16.
        device: where the model is trained.
        rows: tokens computed at once; None: many.
        width: features that the model's narrowest matrix takes; None: many.

    Raises:
        ConfigError: there is no such type.
    """
    import torch

    dtypes = {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }
    if name != "auto" and name not in dtypes:
        raise ConfigError(
            "there is no precision {name!r}; choose {choices}",
            name=name,
            choices=", ".join(["auto", *dtypes]),
        )
    if device.type == "cpu":
        found, notice = _on_cpu(name, rows, width)
    elif device.type == "cuda":
        found, notice = _on_cuda(name)
    else:
        found, notice = _elsewhere(name)
    return dtypes[found], notice


def _on_cpu(name: str, rows: int | None, width: int | None) -> tuple[str, Notice]:
    if name in ("float32", "float16"):
        return name, _as_asked(name)
    ratio = measured().bfloat16_ratio
    if name == "bfloat16" and ratio < 1:
        return name, Notice(
            "bfloat16, as asked: this CPU multiplies it at {ratio:.1f}x the speed of float32",
            ratio=ratio,
        )
    if name == "auto" and ratio >= _WORTH_IT and rows is not None and width is not None:
        layer = autocast_ratio(rows, width)
        if layer < 1:
            return "float32", Notice(
                "float32: in a model this narrow, casting to bfloat16 costs more than its faster "
                "products save"
            )
    if name == "bfloat16" or ratio >= _WORTH_IT:
        return "bfloat16", Notice(
            "bfloat16: this CPU multiplies it {ratio:.1f}x faster than float32", ratio=ratio
        )
    return "float32", Notice(
        "float32: this CPU multiplies bfloat16 at {ratio:.1f}x its speed, too little to gain",
        ratio=ratio,
    )


def _on_cuda(name: str) -> tuple[str, Notice]:
    import torch

    native = torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "bfloat16" and not native:
        return name, Notice(
            "bfloat16, as asked: this GPU only imitates it; float16 would be faster"
        )
    if name != "auto":
        return name, _as_asked(name)
    if native:
        return "bfloat16", Notice("bfloat16: this GPU has fast units for it")
    return "float16", Notice(
        "float16 with loss scaling: this GPU has fast units for it, and none for bfloat16"
    )


def _elsewhere(name: str) -> tuple[str, Notice]:
    if name != "auto":
        return name, _as_asked(name)
    return "float32", Notice("float32: what this device computes most dependably")


def _as_asked(name: str) -> Notice:
    return Notice("{name}, as asked", name=name)
