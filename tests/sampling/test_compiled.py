"""One decoding step, model and choice together, is one graph that serves every length."""

from collections.abc import Callable

import pytest
import torch
from configurations import randomise
from torch import Tensor

from partwise.model.cache import KVCache
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.sampling.choose import choose
from partwise.sampling.draws import Draws

Step = Callable[[Tensor, Tensor, KVCache], Tensor]


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(
            vocab_size=11,
            context_length=24,
            n_layers=2,
            d_model=16,
            n_heads=2,
            ngram=2,
            tie_embeddings=False,
        ),
        ModelConfig(
            vocab_size=11,
            context_length=8,
            n_layers=1,
            d_model=16,
            n_heads=4,
            n_kv_heads=2,
            position="rotary",
            window=5,
            tie_embeddings=False,
        ),
    ],
    ids=["learned", "ring"],
)
def test_a_step_compiles_once_and_draws_the_same_tokens(config: ModelConfig) -> None:
    model = GPT(config).double().eval()
    randomise(model)

    def plain(ids: Tensor, uniforms: Tensor, cache: KVCache) -> Tensor:
        logits = model.logits(model.hidden(ids, cache)[:, -1])
        chosen = choose(logits, uniforms, temperature=2.0, top_k=8, top_p=0.95, min_p=0.01)
        return chosen[:, None]

    # The "eager" backend traces as every backend does, and needs no compiler on the machine.
    torch.compiler.reset()
    compiled: Step = torch.compile(plain, backend="eager", fullgraph=True)

    def tokens(step: Step) -> list[list[int]]:
        cache, draws = model.new_cache(2), Draws(1, 2, torch.device("cpu"))
        ids, said = torch.tensor([[1], [2]]), []
        for _ in range(20):
            ids = step(ids, draws.next(), cache)
            said.append(ids[:, 0].tolist())
        return said

    with torch.inference_mode():
        expected = tokens(plain)
        assert tokens(compiled) == expected
        with torch._dynamo.config.patch(error_on_recompile=True):
            assert tokens(compiled) == expected
    assert len({token for pair in expected for token in pair}) > 3
