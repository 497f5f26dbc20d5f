# SPDX-License-Identifier: MIT
"""Shapes that layers are used with: factors and their values, and the layer and the inputs of a combination."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pairwise import Values
from torch import nn

import dnnsuite

MOST_FLOP, MOST_NUMBERS = (4e8, 4e6)  # of one model's forward, and of its largest tensor: a cell takes about a second
SHARED = {"batch": ["shared", "own"]}


@dataclass(frozen=True)
class Space:
    """An operator's cells.

    `layer(values)` makes torch's layer of one model; `inputs(values)` gives the shapes of its inputs, the first of
    which is differentiated; a shape and a number of classes are whole numbers below it. `cost(values)`: operations of
    a forward, and numbers of the largest tensor.
    """

    factors: Mapping[str, Sequence[Any]]
    layer: Callable[[Values], nn.Module]
    inputs: Callable[[Values], list[Any]]
    cost: Callable[[Values], tuple[float, float]]
    valid: Callable[[Values], bool] = lambda values: True
    images: bool = False
    lines: bool = False  # [N, C, L]: ours come from a convolution with the channels last, torch's contiguous
    ours: Callable[[list[Any]], Callable[..., torch.Tensor]] | None = None  # of B layers; None: layer or array

    def allowed(self, values: Values) -> bool:
        if not self.valid(values):
            return False
        flop, numbers = self.cost(values)
        return flop <= MOST_FLOP and numbers <= MOST_NUMBERS


class Attention(nn.Module):
    """`scaled_dot_product_attention` of queries, keys and values [N, heads, L, size]."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def _attention_of(models: list[Any]) -> Callable[..., torch.Tensor]:
    return functools.partial(dnnsuite.nn.functional.scaled_dot_product_attention, is_causal=models[0].causal)


class SelfAttention(nn.Module):
    """torch's layer on one tensor [N, L, E]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x, x, x, need_weights=False)[0]
        return y


class SelfAttentionOfModels(nn.Module):
    """The array's layer on [B, N, L, E]."""

    def __init__(self, models: list[Any]) -> None:
        super().__init__()
        self.layer = dnnsuite.nn.MultiheadAttention.from_models([model.layer for model in models])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x, x, x, need_weights=False)[0]
        return y


def _convolution(v: Values) -> nn.Module:
    groups = {"one": 1, "four": 4, "depthwise": v["inputs"]}[v["groups"]]
    outputs = v["inputs"] if v["groups"] == "depthwise" else v["outputs"]
    return nn.Conv2d(v["inputs"], outputs, v["kernel"], v["stride"], v["kernel"] // 2, groups=groups)


def _convolution_cost(v: Values) -> tuple[float, float]:
    pixels = v["samples"] * math.ceil(v["side"] / v["stride"]) ** 2
    taps = v["kernel"] ** 2 * (1 if v["groups"] == "depthwise" else v["inputs"])
    outputs = v["inputs"] if v["groups"] == "depthwise" else v["outputs"]
    return 2.0 * pixels * outputs * taps, max(pixels * outputs, v["samples"] * v["side"] ** 2 * v["inputs"])


def _image(v: Values) -> list[Any]:
    return [(v["samples"], v.get("channels", v.get("inputs")), v["side"], v["side"])]


def _image_cost(v: Values) -> tuple[float, float]:
    numbers = float(math.prod(_image(v)[0]))
    return 10 * numbers, numbers


def rows(v: Values) -> list[Any]:
    return [(v["samples"], v["length"], v["width"])]


def rows_cost(v: Values) -> tuple[float, float]:
    numbers = float(math.prod(rows(v)[0]))
    return 10 * numbers, numbers


IMAGES = {"samples": [1, 8, 32, 128], "channels": [1, 3, 6, 16, 40, 64, 256, 512], "side": [1, 4, 7, 8, 14, 28, 32, 64]}
ROWS = {"samples": [1, 8, 64], "length": [1, 32, 128], "width": [10, 64, 100, 256, 768]}
ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "hardswish": nn.Hardswish,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
}
LOSSES = {"cross_entropy": nn.CrossEntropyLoss, "mse": nn.MSELoss, "bce": nn.BCEWithLogitsLoss, "l1": nn.L1Loss}

SPACES: dict[str, Space] = {
    "convolution": Space(
        {
            "samples": [1, 8, 32, 64, 128],
            "inputs": [1, 3, 16, 32, 64, 128, 512],
            "outputs": [1, 6, 16, 32, 64, 128, 512],
            "side": [1, 2, 4, 7, 8, 14, 28, 32, 64],
            "kernel": [1, 3, 5, 7],
            "stride": [1, 2],
            "groups": ["one", "one", "four", "depthwise"],
        }
        | SHARED,
        _convolution,
        _image,
        _convolution_cost,
        lambda v: v["groups"] != "four" or (v["inputs"] % 4 == 0 and v["outputs"] % 4 == 0),
        images=True,
    ),
    "linear": Space(
        {
            "samples": [1, 16, 64, 256, 1024],
            "inputs": [1, 10, 64, 100, 256, 784, 1024],
            "outputs": [1, 10, 64, 128, 512, 1000],
            "bias": [False, True],
        }
        | SHARED,
        lambda v: nn.Linear(v["inputs"], v["outputs"], v["bias"]),
        lambda v: [(v["samples"], v["inputs"])],
        lambda v: (2.0 * v["samples"] * v["inputs"] * v["outputs"], float(v["inputs"] * v["outputs"])),
    ),
    "max_pool": Space(
        IMAGES | {"window": [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2), (2, 1, 0)], "batch": ["own"]},
        lambda v: nn.MaxPool2d(*v["window"]),
        _image,
        _image_cost,
        lambda v: v["side"] + 2 * v["window"][2] >= v["window"][0],
        images=True,
    ),
    "avg_pool": Space(
        IMAGES | {"window": [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2), (7, 7, 0)], "batch": ["own"]},
        lambda v: nn.AvgPool2d(*v["window"]),
        _image,
        _image_cost,
        lambda v: v["side"] + 2 * v["window"][2] >= v["window"][0],
        images=True,
    ),
    "batch_norm": Space(
        IMAGES | SHARED,
        lambda v: nn.BatchNorm2d(v["channels"]),
        _image,
        _image_cost,
        lambda v: v["samples"] * v["side"] > 1,
        images=True,
    ),
    "group_norm": Space(
        IMAGES | {"batch": ["own"]},  # of a shared one torch's gradient crashes, channels last
        lambda v: nn.GroupNorm(4, v["channels"]),
        _image,
        _image_cost,
        lambda v: v["channels"] % 4 == 0 and v["channels"] * v["side"] ** 2 > 4,
        images=True,
    ),
    "layer_norm": Space(ROWS | SHARED, lambda v: nn.LayerNorm(v["width"]), rows, rows_cost),
    "rms_norm": Space(ROWS | SHARED, lambda v: nn.RMSNorm(v["width"]), rows, rows_cost),
    "activation": Space(
        ROWS | {"kind": list(ACTIVATIONS), "batch": ["own"]}, lambda v: ACTIVATIONS[v["kind"]](), rows, rows_cost
    ),
    "softmax": Space(ROWS | {"batch": ["own"]}, lambda v: nn.Softmax(-1), rows, rows_cost),
    "dropout": Space(ROWS | {"batch": ["own"]}, lambda v: nn.Dropout(0.3), rows, rows_cost),
    "attention": Space(
        {
            "samples": [1, 4, 16],
            "length": [8, 32, 128, 256],
            "heads": [1, 2, 8],
            "size": [16, 32, 64],
            "causal": [False, True],
            "batch": ["own"],
        },
        lambda v: Attention(v["causal"]),
        lambda v: [(v["samples"], v["heads"], v["length"], v["size"])] * 3,
        lambda v: (
            4.0 * v["samples"] * v["heads"] * v["length"] ** 2 * v["size"],
            float(v["samples"] * v["length"] * 3 * v["heads"] * v["size"]),
        ),
        ours=_attention_of,
    ),
    "self_attention": Space(
        {"samples": [1, 4, 16], "length": [8, 32, 128, 256], "heads": [1, 2, 8], "size": [16, 32, 64]} | SHARED,
        lambda v: SelfAttention(v["heads"] * v["size"], v["heads"]),
        lambda v: [(v["samples"], v["length"], v["heads"] * v["size"])],
        lambda v: (
            (8.0 * v["heads"] * v["size"] + 4.0 * v["length"]) * v["samples"] * v["length"] * v["heads"] * v["size"],
            float(v["samples"] * v["length"] * 3 * v["heads"] * v["size"]),
        ),
        ours=SelfAttentionOfModels,
    ),
    "embedding": Space(
        {"samples": [1, 16, 64], "length": [1, 35, 128], "words": [10, 1000, 10000], "width": [16, 64, 256]} | SHARED,
        lambda v: nn.Embedding(v["words"], v["width"]),
        lambda v: [((v["samples"], v["length"]), v["words"])],
        lambda v: (1.0, float(v["words"] * v["width"])),
    ),
    "loss": Space(
        {"samples": [1, 32, 128, 1024], "classes": [2, 10, 100, 1000], "kind": list(LOSSES), "batch": ["own"]},
        lambda v: LOSSES[v["kind"]](),
        lambda v: [
            (v["samples"], v["classes"]),
            ((v["samples"],), v["classes"]) if v["kind"] == "cross_entropy" else (v["samples"], v["classes"]),
        ],
        lambda v: (20.0 * v["samples"] * v["classes"], float(v["samples"] * v["classes"])),
    ),
}
