# SPDX-License-Identifier: MIT
"""Recurrent layers, transformers, attention between sequences, embedding bags, and distances."""

from __future__ import annotations

import functools
import warnings

import torch
from hypothesis import strategies as st

from . import Case, Example

SIZE = st.integers(1, 6)


@st.composite
def recurrent(draw, layer):
    inputs, hidden, layers = draw(SIZE), draw(st.integers(2, 7)), draw(st.integers(1, 2))
    arguments = {
        "num_layers": layers,
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
    }
    if layer is torch.nn.RNN:
        arguments["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    steps, rows = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    shape = (rows, steps, inputs) if arguments["batch_first"] else (steps, rows, inputs)
    states = layers * (1 + arguments["bidirectional"])
    given = draw(st.booleans())

    def make_inputs():
        x = torch.randn(shape)
        if not given:
            return (x,)
        h = torch.randn(states, rows, hidden)
        return (x, (h, torch.randn(states, rows, hidden)) if layer is torch.nn.LSTM else h)

    return Example(functools.partial(layer, inputs, hidden, **arguments), make_inputs)


@st.composite
def cell(draw, layer):
    inputs, hidden, rows = draw(SIZE), draw(st.integers(2, 7)), draw(st.integers(1, 5))
    arguments = {"bias": draw(st.booleans())}
    if layer is torch.nn.RNNCell:
        arguments["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    leading = draw(st.sampled_from([(rows,), ()]))
    given = draw(st.booleans())

    def make_inputs():
        x, h = torch.randn(*leading, inputs), torch.randn(*leading, hidden)
        state = (h, torch.randn_like(h)) if layer is torch.nn.LSTMCell else h
        return (x, state) if given else (x,)

    return Example(functools.partial(layer, inputs, hidden, **arguments), make_inputs)


@st.composite
def cross_attention(draw):
    heads, batch, length, keys = (draw(st.integers(1, 3)) for _ in range(4))
    width, batch_first = heads * draw(st.integers(1, 4)), draw(st.booleans())
    other = draw(st.booleans())
    kdim, vdim = (draw(SIZE), draw(SIZE)) if other else (width, width)
    make = functools.partial(
        torch.nn.MultiheadAttention,
        width,
        heads,
        bias=draw(st.booleans()),
        add_bias_kv=draw(st.booleans()),
        add_zero_attn=draw(st.booleans()),
        kdim=kdim if other else None,
        vdim=vdim if other else None,
        batch_first=batch_first,
    )
    keywords = {"need_weights": draw(st.booleans()), "average_attn_weights": draw(st.booleans())}

    def make_inputs():
        sizes = ((length, width), (keys, kdim), (keys, vdim))
        return tuple(torch.randn((batch, n, d) if batch_first else (n, batch, d)) for n, d in sizes)

    return Example(make, make_inputs, keywords)


def sizes(draw):
    heads, batch = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    arguments = {
        "dim_feedforward": draw(st.integers(2, 9)),
        "dropout": 0.0,
        "activation": draw(st.sampled_from(["relu", "gelu"])),
        "batch_first": draw(st.booleans()),
        "norm_first": draw(st.booleans()),
    }
    return heads * (draw(st.integers(1, 3)) + 1), heads, batch, arguments


def batch_of(arguments, batch, length, width):
    return torch.randn((batch, length, width) if arguments["batch_first"] else (length, batch, width))


@st.composite
def decoder_layer(draw):
    width, heads, batch, arguments = sizes(draw)
    lengths = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    make = functools.partial(torch.nn.TransformerDecoderLayer, width, heads, **arguments)
    return Example(make, lambda: tuple(batch_of(arguments, batch, n, width) for n in lengths))


@st.composite
def encoder(draw):
    width, heads, batch, arguments = sizes(draw)
    length, layers, normed = draw(st.integers(2, 5)), draw(st.integers(1, 2)), draw(st.booleans())

    def make():
        layer = torch.nn.TransformerEncoderLayer(width, heads, **arguments)
        norm = torch.nn.LayerNorm(width) if normed else None
        return torch.nn.TransformerEncoder(layer, layers, norm, enable_nested_tensor=False)

    keywords = {"mask": torch.ones(length, length, dtype=torch.bool).triu(1)} if draw(st.booleans()) else {}
    return Example(make, lambda: (batch_of(arguments, batch, length, width),), keywords)


@st.composite
def transformer(draw):
    width, heads, batch, arguments = sizes(draw)
    lengths = draw(st.integers(1, 4)), draw(st.integers(2, 5))

    def make():
        with warnings.catch_warnings():  # torch's, about a fast path that it will not take
            warnings.simplefilter("ignore")
            return torch.nn.Transformer(width, heads, 1, 2, **arguments)

    return Example(make, lambda: tuple(batch_of(arguments, batch, n, width) for n in lengths))


@st.composite
def bag(draw):
    rows, width, bags = draw(st.integers(2, 9)), draw(SIZE), draw(st.integers(1, 4))
    mode = draw(st.sampled_from(["sum", "mean", "max"]))
    make = functools.partial(torch.nn.EmbeddingBag, rows, width, mode=mode)
    if draw(st.booleans()):
        return Example(make, lambda: (torch.randint(rows, (bags, 3)),))
    offsets = 2 * torch.arange(bags)
    return Example(make, lambda: (torch.randint(rows, (2 * bags,)), offsets))


@st.composite
def table(draw):
    rows, width, leading = draw(st.integers(2, 5)), draw(SIZE), draw(st.integers(1, 9))
    make = functools.partial(torch.nn.Embedding, rows, width, scale_grad_by_freq=True)
    return Example(make, lambda: (torch.randint(rows, (leading,)),))


@st.composite
def bilinear(draw):
    one, two, out, leading = draw(SIZE), draw(SIZE), draw(SIZE), draw(st.integers(1, 4))
    make = functools.partial(torch.nn.Bilinear, one, two, out, bias=draw(st.booleans()))
    return Example(make, lambda: (torch.randn(leading, one), torch.randn(leading, two)))


@st.composite
def distance(draw, layer, **arguments):
    rows, width = draw(SIZE), draw(st.integers(2, 6))
    chosen = {name: draw(st.sampled_from(values)) for name, values in arguments.items()}
    return Example(functools.partial(layer, **chosen), lambda: (torch.randn(rows, width), torch.randn(rows, width)))


@st.composite
def silent(draw, layer, dims):
    shape = tuple(draw(SIZE) for _ in range(dims))
    return Example(lambda: layer(0.5).eval(), lambda: (torch.randn(shape),))


nn = torch.nn
NO_SECOND = {"double_backward": False}  # torch has none, or a wrong one

BITS = {"known_failures": {"bits": "torch's sigmoid rounds otherwise behind the last whole vector"}}
CASES = [
    *(Case(layer.__name__, recurrent(layer)) for layer in (nn.LSTM, nn.RNN)),
    Case("GRU", recurrent(nn.GRU)),
    Case("LSTMCell", cell(nn.LSTMCell)),
    Case("RNNCell", cell(nn.RNNCell)),
    Case("GRUCell", cell(nn.GRUCell)),
    Case("MultiheadAttention-cross", cross_attention()),
    Case("TransformerDecoderLayer", decoder_layer()),
    Case("TransformerEncoder", encoder()),
    Case("Transformer", transformer(), bf16=False),  # in 16 bits its parts are checked
    Case("EmbeddingBag", bag(), **NO_SECOND),
    Case("Embedding-rules", table(), **NO_SECOND),
    Case("Bilinear", bilinear()),
    Case("CosineSimilarity", distance(nn.CosineSimilarity, dim=[1, -1, 0])),
    Case("PairwiseDistance", distance(nn.PairwiseDistance, p=[2.0, 3.0], keepdim=[False, True])),
    Case("Dropout1d", silent(nn.Dropout1d, 3)),
    Case("Dropout2d", silent(nn.Dropout2d, 4)),
    Case("Dropout3d", silent(nn.Dropout3d, 5)),
    Case("AlphaDropout", silent(nn.AlphaDropout, 2)),
    Case("FeatureAlphaDropout", silent(nn.FeatureAlphaDropout, 3)),
]
