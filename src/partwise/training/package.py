"""A function of tensors, compiled to machine code once and kept in the cache for every later run.

Compiling takes about twenty seconds; loading what was compiled takes milliseconds, since it needs
neither the function's trace nor the compiler.
"""

import hashlib
import json
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

import partwise
from partwise.machine.facts import cpu_model
from partwise.storage import cache_folder, write_atomic
from partwise.training.feature_major import InMemoryOrder

# Given example inputs, what is compiled: returns its results as a tuple, and may change inputs by
# `copy_` at its very end.
Function = Callable[..., tuple[Tensor, ...]]

# Whose source decides what is compiled.
_SOURCES = (
    "model/*.py",
    "training/feature_major.py",
    "training/flat.py",
    "training/package.py",
    "training/whole_step.py",
)


class Package:
    """Compiled code, loaded.

    Args:
        path: the library.
        seconds: what compiling it took now; 0 when it was in the cache.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self.seconds = seconds
        # torch's own loader of packages first imports the compiler, which takes longer than many a
        # training of a small model.
        runners: Any = torch._C._aoti
        self._runner = runners.AOTIModelContainerRunnerCpu(str(path), 1)

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """The function's results; `inputs` must have the shapes and strides it was compiled for."""
        results: list[Tensor] = self._runner.run(inputs)
        return results


def load_package(
    what: dict[str, Any], function: Callable[[], Function], inputs: Callable[[], Sequence[Tensor]]
) -> Package:
    """The compiled function that `what` describes, from the cache or compiled now.

    Args:
        what: plain data that, with the source of this package, decides the function.
        function: gives the function to compile.
        inputs: gives inputs to trace it with, on the CPU; they may be changed.

    Raises:
        Exception: whatever a missing or broken compiler raises, which is not documented.
    """
    folder = _folder()
    key = _key(what)
    for path in sorted(folder.glob(f"{key}.*")):
        with suppress(Exception):
            return Package(path, 0.0)
        # Of no use here, whatever happened to it.
        path.unlink(missing_ok=True)
    start = time.perf_counter()
    examples = inputs()
    with warnings.catch_warnings():
        # torch's compiler warns of itself.
        warnings.simplefilter("ignore")
        library = _compiled(traced(function(), examples), examples)
    path = folder / (key + library.suffix)
    write_atomic(path, library.read_bytes())
    return Package(path, time.perf_counter() - start)


def has_package(what: dict[str, Any]) -> bool:
    """Whether `load_package` would find its code in the cache; `what` as there."""
    return any(_folder().glob(f"{_key(what)}.*"))


def _folder() -> Path:
    return cache_folder() / "compiled"


def traced(function: Function, inputs: Sequence[Tensor]) -> fx.GraphModule:
    """The operations of a function, each in the order in which its numbers lie in memory.

    Args:
        function: see `Function`.
        inputs: what to call it with; they may be changed.
    """
    # Imported here: that takes longer than loading what was compiled earlier.
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(function)(*inputs)
    # Nothing is changed in place any more but the inputs, at the end.
    pure = torch.func.functionalize(graph)
    graph = make_fx(pure, decomposition_table=select_decomp_table())(*inputs)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    graph = make_fx(InMemoryOrder(graph).run)(*inputs)
    for node in graph.graph.nodes:
        # What tracing noted of each value. The compiler finds it out anew, and trips over this.
        node.meta.pop("val", None)
    return graph


def _compiled(graph: fx.GraphModule, inputs: Sequence[Tensor]) -> Path:
    """Compile a graph for inputs like these; the library."""
    import torch._inductor

    # One thread: what is worth it is too small to be shared out.
    library = torch._inductor.aot_compile(graph, tuple(inputs), options={"cpp.threads": 1})
    if not isinstance(library, str):
        raise RuntimeError("the compiler gave no library")
    return Path(library)


def _key(what: dict[str, Any]) -> str:
    """A name for the code that `what` leads to here: by machine, versions and source."""
    root = Path(partwise.__file__).parent
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        for path in sorted(root.glob(pattern)):
            digest.update(path.read_bytes())
    here = {
        "torch": torch.__version__,
        "machine": [platform.system(), platform.machine(), cpu_model()],
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "source": digest.hexdigest(),
    }
    text = json.dumps([what, here], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]
