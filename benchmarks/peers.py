"""Our training step and our sampling beside other libraries', at equal work, in turn.

    python benchmarks/peers.py setup
    python benchmarks/peers.py train --out train.json              # about 5 minutes
    python benchmarks/peers.py train --shape small --compiled      # their compiled steps as well
    python benchmarks/peers.py sample --out sample.json            # about 2 minutes

`setup` makes an environment of its own in the cache, in which the peers stand beside the torch that
is installed here, so that all compute with the same library. Each pair has one architecture, which
is checked by the number of parameters, one batch, one precision and one optimizer (AdamW, gradients
clipped at 1, no dropout); theirs is the loop of their documentation, ours the product's own.
"""

import argparse
import json
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from partwise import Run, __version__
from partwise.bench.cases import Case, Series, alternate, load, ratio
from partwise.bench.training import no_windows
from partwise.budget.speed import RandomText
from partwise.machine import describe, git_state
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.storage import cache_folder, lock, write_atomic
from partwise.text.byte import ByteTokenizer
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.events import Stepped
from partwise.training.loop import train

PACKAGES = (
    "litgpt==0.5.13",
    "x-transformers==2.31.10",
    "einops",
    "einx",
    "loguru",
    "lightning",
    "lightning-utilities",
    "torchmetrics",
    "pytorch-lightning",
    "jsonargparse",
    "docstring-parser",
    "torch-einops-utils",
    "frozendict",
)
ENVIRONMENT = cache_folder() / "bench" / "peers"
PYTHON = ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and its batch."""

    layers: int
    width: int
    heads: int
    context: int
    batch: int
    vocab: int = 65


# nanoGPT's configuration for a laptop; and for a GPU, with a quarter of its batch of 64.
SHAPES = {"small": Shape(4, 128, 4, 64, 12), "full": Shape(6, 384, 6, 256, 16)}

TRAIN = TrainConfig(
    steps=1 << 30,
    lr=3e-4,
    warmup_steps=0,
    schedule="constant",
    weight_decay=0.1,
    log_every=1,
    eval_every=1 << 30,
    checkpoint_every=1 << 30,
)


def gpt2(shape: Shape, feedforward: Any = "gelu_tanh") -> tuple[torch.nn.Module, ModelConfig]:
    """transformers' GPT-2, and the same of ours."""
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=shape.vocab,
            n_positions=shape.context,
            n_embd=shape.width,
            n_layer=shape.layers,
            n_head=shape.heads,
            activation_function={"gelu_tanh": "gelu_new"}.get(feedforward, feedforward),
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    return theirs, _ours(shape, feedforward=feedforward)


def llama(shape: Shape) -> tuple[torch.nn.Module, ModelConfig]:
    """litgpt's GPT in LLaMA's form, and the same of ours."""
    import litgpt.model
    from litgpt.config import Config

    inner = 8 * -(-shape.width // 3)
    theirs = litgpt.model.GPT(
        Config(
            block_size=shape.context,
            n_layer=shape.layers,
            n_embd=shape.width,
            n_head=shape.heads,
            padded_vocab_size=shape.vocab,
            vocab_size=shape.vocab,
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=False,
            norm_class_name="RMSNorm",
            mlp_class_name="LLaMAMLP",
            intermediate_size=inner,
        )
    )
    config = _ours(
        shape,
        feedforward="swiglu",
        d_ff=inner,
        norm="rmsnorm",
        norm_bias=False,
        position="rotary",
        tie_embeddings=False,
        qkv_bias=False,
        projection_bias=False,
        feedforward_bias=False,
    )
    return theirs, config


def x_transformers(shape: Shape) -> tuple[torch.nn.Module, ModelConfig]:
    """x-transformers' decoder as it comes, and the same of ours."""
    from x_transformers import Decoder, TransformerWrapper

    theirs = TransformerWrapper(
        num_tokens=shape.vocab,
        max_seq_len=shape.context,
        attn_layers=Decoder(
            dim=shape.width,
            depth=shape.layers,
            heads=shape.heads,
            attn_dim_head=shape.width // shape.heads,
            attn_flash=True,
        ),
    )
    config = _ours(
        shape, qkv_bias=False, projection_bias=False, norm_bias=False, tie_embeddings=False
    )
    return theirs, config


def _ours(shape: Shape, **changed: Any) -> ModelConfig:
    common = ModelConfig(
        vocab_size=shape.vocab,
        context_length=shape.context,
        n_layers=shape.layers,
        d_model=shape.width,
        n_heads=shape.heads,
    )
    return replace(common, **changed)


PEERS: dict[str, Callable[[Shape], tuple[torch.nn.Module, ModelConfig]]] = {
    "transformers, GPT-2": gpt2,
    "litgpt, LLaMA": llama,
    "x-transformers": x_transformers,
}


class TheirStep:
    """A peer's training loop; each call goes on with it for some seconds (tokens a second).

    Args:
        model: ids -> logits, or something that holds them.
        shape: of model and batch.
        compiled: by torch.compile.
        bfloat16: under autocast.
        seconds: of one call.
    """

    def __init__(
        self, model: torch.nn.Module, shape: Shape, compiled: bool, bfloat16: bool, seconds: float
    ) -> None:
        self.model: Any = torch.compile(model) if compiled else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
        self.parameters = list(model.parameters())
        self.text = RandomText(_ours(shape), shape.batch)
        self.bfloat16 = bfloat16
        self.seconds = seconds
        self.step = 0

    def __call__(self) -> float:
        if self.step == 0:
            self._one()
        return _rate(self._one, self.seconds)

    def _one(self) -> int:
        inputs, targets = (torch.from_numpy(part) for part in self.text.batch(self.step))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bfloat16):
            logits = self.model(inputs)
        logits = getattr(logits, "logits", logits)
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.step += 1
        return inputs.numel()


class OurStep:
    """The product's loop, paused between calls (tokens a second).

    Args:
        config: the model.
        shape: of the batch.
        bfloat16: computed in it.
        compile_: "auto", "on" or "off".
        seconds: of one call.
    """

    def __init__(
        self, config: ModelConfig, shape: Shape, bfloat16: bool, compile_: Any, seconds: float
    ) -> None:
        self.model = GPT(config)
        dtype: Any = "bfloat16" if bfloat16 else "float32"
        settings = replace(TRAIN, batch_size=shape.batch, dtype=dtype, compile=compile_)
        data = Data(RandomText(config, shape.batch), torch.zeros(2).numpy(), no_windows, 1 << 30)
        self.events = self._steps(train(self.model, data, settings))
        self.a_step = shape.batch * shape.context
        self.seconds = seconds
        self.warm = False

    def _steps(self, events: Iterator[Any]) -> Iterator[Stepped]:
        return (event for event in events if isinstance(event, Stepped))

    def __call__(self) -> float:
        if not self.warm:
            self._one()
            self.warm = True
        return _rate(self._one, self.seconds)

    def _one(self) -> int:
        next(self.events)
        return self.a_step


def _rate(one: Callable[[], int], seconds: float) -> float:
    """Tokens a second of `one`, called until the time is up."""
    clock = time.process_time if "--core-seconds" in sys.argv else time.perf_counter
    tokens, began = 0, clock()
    while True:
        tokens += one()
        spent = clock() - began
        if spent >= seconds:
            return tokens / spent


def training_cases(asked: argparse.Namespace) -> list[Case]:
    """Every peer, eager and where it is asked for compiled, each beside ours."""
    cases = []
    for shape_name in asked.shape or SHAPES:
        shape = SHAPES[shape_name]
        for name, make in PEERS.items():
            if asked.peer and not any(word in name for word in asked.peer):
                continue
            for bfloat16 in (False, True) if asked.bfloat16 else (False,):
                theirs, config = make(shape)
                ours = OurStep(config, shape, bfloat16, asked.compile, asked.seconds)
                counts = [sum(p.numel() for p in m.parameters()) for m in (theirs, ours.model)]
                if abs(counts[0] / counts[1] - 1) > 0.01:
                    raise SystemExit(f"{name}: {counts[0]} parameters, ours has {counts[1]}")
                kind = "bfloat16" if bfloat16 else "float32"
                group = f"training {shape_name}, {kind}: {name}"
                mine = TheirStep(theirs, shape, False, bfloat16, asked.seconds)
                cases.append(_case(group, f"{name}, eager", mine, baseline=True))
                if asked.compiled:
                    again = TheirStep(make(shape)[0], shape, True, bfloat16, asked.seconds)
                    cases.append(_case(group, f"{name}, compiled", again))
                cases.append(_case(group, f"Partwise, compile={asked.compile}", ours))
    return cases


def sampling_cases(asked: argparse.Namespace) -> list[Case]:
    """One sequence of the lecture's last model, by `generate` and by ours.

    Its weights are random, unless a run of that shape is named: then ours also says a text that was
    learned, of which some tokens can be guessed ahead. To `generate` it makes no difference.
    """
    shape = replace(SHAPES["full"], vocab=256)
    theirs, config = gpt2(shape, "relu")
    theirs.eval()
    ours = GPT(config).eval()
    tokens = shape.context - 1

    @torch.inference_mode()
    def generate() -> int:
        model: Any = theirs
        prompt = torch.tensor([[10]])
        found = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=True,
            temperature=0.8,
            top_k=0,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            pad_token_id=0,
        )
        return int(found.shape[1]) - 1

    def own(dtype: Any, length: int, model: GPT = ours, tokenizer: Any = None) -> Callable[[], int]:
        settings = SampleConfig(tokens=length, dtype=dtype)

        def one() -> int:
            complete(model, tokenizer or ByteTokenizer(), "\n", settings)
            return length

        return one

    complete(ours, ByteTokenizer(), "\n", SampleConfig(tokens=2000))  # the compiler, once
    group = "sampling, one sequence, 6 layers of width 384"
    named = [
        ("transformers, generate", generate),
        ("Partwise, float32", own("float32", tokens)),
        ("Partwise, float32, 2,000 tokens", own("float32", 2000)),
        ("Partwise as it chooses for 2,000 tokens", own("auto", 2000)),
        ("Partwise, int8, 2,000 tokens", own("int8", 2000)),
    ]
    if asked.run:
        opened = Run.open(asked.run)
        trained, said = opened.model(), opened.tokenizer()
        sizes = [f"{c.n_layers} of {c.d_model}" for c in (trained.config, config)]
        if sizes[0] != sizes[1]:
            raise SystemExit(f"{asked.run} has {sizes[0]}, not {sizes[1]}")
        for dtype, chosen in (("auto", "as it chooses"), ("int8", "int8")):
            of_run = own(dtype, 10_000, trained, said)
            named.append((f"Partwise, trained, {chosen}, 10,000 tokens", of_run))
    return [
        _case(group, name, lambda one=one: _rate(one, asked.seconds), baseline=number == 0)
        for number, (name, one) in enumerate(named)
    ]


def _case(group: str, name: str, measure: Callable[[], float], baseline: bool = False) -> Case:
    return Case(group, Notice(name), "tokens/s", measure, baseline)


def run(cases: list[Case], asked: argparse.Namespace) -> None:
    """Take every figure in turn, tell it, and write the result."""
    with lock(cache_folder() / "bench" / "lock"):
        before = load()
        taken = {id(case): Series(case) for case in cases}
        for each in alternate(cases, asked.rounds):
            taken[id(each.case)].figures.append(each.figure)
            print(f"round {each.number}: {each.case.name}: {each.figure:,.0f}", file=sys.stderr)
    base = {s.case.group: s for s in taken.values() if s.case.baseline}
    figures = [
        {
            "benchmark": s.case.group,
            "name": str(s.case.name),
            "unit": s.case.unit,
            "median": s.median,
            "lowest": min(s.figures),
            "highest": max(s.figures),
            "figures": s.figures,
            "ratio_to_baseline": ratio(s, base[s.case.group]),
            "baseline": s.case.baseline,
        }
        for s in taken.values()
    ]
    result = {
        "schema": 1,
        "partwise": __version__,
        "git": git_state(),
        "machine": describe(),
        "threads": torch.get_num_threads(),
        "clock": "core seconds" if asked.core_seconds else "seconds",
        "load_before": [before],
        "rounds": asked.rounds,
        "figures": figures,
    }
    text = json.dumps(result, indent=2) + "\n"
    if asked.out:
        write_atomic(asked.out, text.encode("utf-8"))
    for figure in figures:
        print(
            f"{figure['benchmark']}: {figure['name']}: {figure['median']:,.0f} tokens/s, "
            f"{figure['ratio_to_baseline']:.2f}x"
        )


def setup() -> None:
    """Make the peers' environment."""
    subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    here = [sysconfig.get_paths()["purelib"], str(Path(__file__).parent.parent / "src")]
    own = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    ).stdout.strip()
    Path(own, "shared.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
    # Without what they depend on: torch and transformers are those of this environment.
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES]
    subprocess.run(pip, check=True)


def main() -> None:
    """See the top."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["setup", "train", "sample"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--shape", nargs="*", choices=list(SHAPES))
    parser.add_argument("--peer", nargs="*", help="only those whose name has one of these words")
    parser.add_argument("--compiled", action="store_true", help="their compiled steps as well")
    parser.add_argument("--compile", choices=["auto", "on", "off"], default="auto", help="ours")
    parser.add_argument("--bfloat16", action="store_true", help="that precision as well")
    parser.add_argument(
        "--core-seconds",
        action="store_true",
        help="count this process's time on a core, for a busy machine; with OMP_NUM_THREADS=1",
    )
    parser.add_argument("--run", type=Path, help="a run of rung 6's shape, to sample from as well")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.what == "setup":
        setup()
        return
    if Path(sys.prefix) != ENVIRONMENT:
        if not PYTHON.exists():
            raise SystemExit("first: python benchmarks/peers.py setup")
        raise SystemExit(subprocess.run([PYTHON, *sys.argv], check=False).returncode)
    torch.manual_seed(1)
    run(training_cases(asked) if asked.what == "train" else sampling_cases(asked), asked)


if __name__ == "__main__":
    main()
