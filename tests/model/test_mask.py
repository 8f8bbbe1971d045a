"""The mask says of every two tokens what the definition says, and is left out where it may be."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from partwise.model.attention import attend
from partwise.model.mask import attention_mask
from partwise.model.position import Alibi, alibi_slopes

HEADS = 3


def by_definition(length: int, causal: bool, window: int | None, alibi: bool) -> torch.Tensor:
    """Numbers to add to the scores (HEADS, T, T), entry by entry."""
    bias = torch.zeros(HEADS, length, length, dtype=torch.float64)
    for h, slope in enumerate(alibi_slopes(HEADS)):
        for i in range(length):
            for j in range(length):
                seen = not causal or (j <= i and (window is None or i - window < j))
                price = slope * abs(i - j) if alibi else 0.0
                bias[h, i, j] = -price if seen else -math.inf
    return bias


@given(
    length=st.integers(1, 9),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 10),
    alibi=st.booleans(),
)
def test_the_mask_is_its_definition(length, causal, window, alibi):
    window = window if causal else None
    mask, is_causal = attention_mask(
        torch.arange(length),
        causal=causal,
        window=window,
        alibi=Alibi(HEADS).double() if alibi else None,
    )
    scores = torch.zeros(1, HEADS, length, 4, dtype=torch.float64)
    _, weights = attend(scores, scores, scores, mask=mask, causal=is_causal)
    wanted = by_definition(length, causal, window, alibi).softmax(-1)
    assert torch.allclose(weights[0], wanted, atol=1e-12)
    if not alibi and (window is None or window >= length):
        assert mask is None and is_causal == causal
    else:
        assert mask is not None and mask.dim() == 4 and not is_causal
