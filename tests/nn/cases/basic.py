# SPDX-License-Identifier: MIT
"""Linear, LayerNorm, Embedding, Dropout that is off, and the layers of a transformer's encoder."""

from __future__ import annotations

import functools

import torch
from hypothesis import strategies as st

from . import Case, Example

SIZE = st.integers(1, 9)
LEADING = st.lists(st.integers(1, 5), min_size=1, max_size=2).map(tuple)


@st.composite
def linear(draw):
    inner, outer, leading = draw(SIZE), draw(SIZE), draw(LEADING)
    make = functools.partial(torch.nn.Linear, inner, outer, bias=draw(st.booleans()))
    return Example(make, lambda: (torch.randn(*leading, inner),))


@st.composite
def layer_norm(draw):
    shape = draw(st.lists(st.integers(2, 7), min_size=1, max_size=2).map(tuple))
    leading, affine = draw(LEADING), draw(st.booleans())
    make = functools.partial(
        torch.nn.LayerNorm,
        shape,
        eps=draw(st.sampled_from([1e-5, 1e-3])),
        elementwise_affine=affine,
        bias=draw(st.booleans()),
    )
    return Example(make, lambda: (torch.randn(*leading, *shape),))


@st.composite
def embedding(draw):
    rows, width, leading = draw(st.integers(2, 9)), draw(SIZE), draw(LEADING)
    padding = draw(st.none() | st.integers(0, rows - 1))
    make = functools.partial(torch.nn.Embedding, rows, width, padding_idx=padding)
    return Example(make, lambda: (torch.randint(rows, leading),))


@st.composite
def dropout(draw):
    p, leading = draw(st.floats(0, 1)), draw(LEADING)
    return Example(lambda: torch.nn.Dropout(p).eval(), lambda: (torch.randn(*leading, 6),))


@st.composite
def attention(draw):
    heads, batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    width, batch_first = heads * draw(st.integers(1, 4)), draw(st.booleans())
    make = functools.partial(
        torch.nn.MultiheadAttention, width, heads, bias=draw(st.booleans()), batch_first=batch_first
    )
    shape = (batch, length, width) if batch_first else (length, batch, width)
    keywords = {"need_weights": draw(st.booleans())}

    def inputs():
        x = torch.randn(shape)
        return x, x.flip(-1), 2 * x

    return Example(make, inputs, keywords)


@st.composite
def encoder_layer(draw):
    heads, batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(2, 5))
    width, batch_first = heads * draw(st.integers(1, 4)) + heads, draw(st.booleans())
    make = functools.partial(
        torch.nn.TransformerEncoderLayer,
        width,
        heads,
        draw(st.integers(2, 9)),
        dropout=0.0,
        activation=draw(st.sampled_from(["relu", "gelu"])),
        batch_first=batch_first,
        norm_first=draw(st.booleans()),
    )
    shape = (batch, length, width) if batch_first else (length, batch, width)
    return Example(make, lambda: (torch.randn(shape),))


CASES = [
    Case("Linear", linear()),
    Case("LayerNorm", layer_norm()),
    Case("Embedding", embedding()),
    Case("Dropout", dropout()),
    Case("MultiheadAttention", attention()),
    Case("TransformerEncoderLayer", encoder_layer()),
]
