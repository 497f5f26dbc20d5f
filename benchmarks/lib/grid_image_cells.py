# SPDX-License-Identifier: MIT
"""Shapes of layers on images that come from a convolution: resampling, pools with options, transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from grid_cells import IMAGES, SHARED, Space
from pairwise import Values
from torch import nn

OWN = {"batch": ["own"]}
SMALL = IMAGES | {"samples": [1, 8, 32], "side": [1, 4, 7, 8, 14, 28, 32]}
UPSAMPLING: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest"},
    "bilinear": {"mode": "bilinear"},
    "corners": {"mode": "bilinear", "align_corners": True},
    "bicubic": {"mode": "bicubic"},
}
POOLS: dict[str, Callable[[], nn.Module]] = {
    "max dilated": lambda: nn.MaxPool2d(3, 1, 1, dilation=2),
    "max dilated stride": lambda: nn.MaxPool2d(3, 2, 1, dilation=2),
    "max ceil": lambda: nn.MaxPool2d(3, 2, ceil_mode=True),
    "max wide": lambda: nn.MaxPool2d((3, 5), (1, 2), (1, 2)),
    "avg ceil": lambda: nn.AvgPool2d(3, 2, ceil_mode=True),
    "avg uncounted": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "lp": lambda: nn.LPPool2d(2, 2),
}
ADAPTIVE = {"max": nn.AdaptiveMaxPool2d, "avg": nn.AdaptiveAvgPool2d}
PADDING = {
    "zero": nn.ZeroPad2d,
    "reflect": nn.ReflectionPad2d,
    "replicate": nn.ReplicationPad2d,
    "circular": nn.CircularPad2d,
}
REARRANGED = {
    "pixel_shuffle": lambda: nn.PixelShuffle(2),
    "pixel_unshuffle": lambda: nn.PixelUnshuffle(2),
    "channel_shuffle": lambda: nn.ChannelShuffle(4),
}
ACTIVATIONS: dict[str, Callable[[int], nn.Module]] = {
    "prelu": nn.PReLU,
    "prelu of one": lambda channels: nn.PReLU(),
    "glu": lambda channels: nn.GLU(1),
    "softmax2d": lambda channels: nn.Softmax2d(),
    "relu6": lambda channels: nn.ReLU6(),
    "mish": lambda channels: nn.Mish(),
    "silu": lambda channels: nn.SiLU(),
    "hardswish": lambda channels: nn.Hardswish(),
}


def _shape(v: Values) -> tuple[int, ...]:
    return v["samples"], v["channels"], v["side"], v["side"]


def _image(v: Values) -> list[Any]:
    return [_shape(v)]


def _image_cost(v: Values) -> tuple[float, float]:
    numbers = float(math.prod(_shape(v)))
    return 10 * numbers, numbers


def _scaled(v: Values) -> nn.Module:
    """Upsample by a factor, or to a size that no factor gives."""
    arguments = UPSAMPLING[v["kind"]]
    if v["scale"] == "size":
        return nn.Upsample(size=(v["side"] * 3 // 2 + 1,) * 2, **arguments)
    return nn.Upsample(scale_factor=v["scale"], **arguments)


def _scaled_cost(v: Values) -> tuple[float, float]:
    factor = 1.5 if v["scale"] == "size" else v["scale"]
    numbers = float(math.prod(_shape(v))) * factor**2
    return (3000 if v["kind"] == "bicubic" else 100) * numbers, numbers


def _groups(v: Values) -> int:
    return {"one": 1, "four": 4, "depthwise": v["inputs"]}[v["groups"]]


def _outputs(v: Values) -> int:
    return int(v["inputs"] if v["groups"] == "depthwise" else v["outputs"])


def _transposed(v: Values) -> nn.Module:
    """As models have it: a stride of 2 doubles the sides."""
    kernel, stride = v["kernel"], v["stride"]
    padding = (kernel - stride + 1) // 2
    extra = stride - kernel + 2 * padding if stride == 2 else 0
    return nn.ConvTranspose2d(
        v["inputs"], _outputs(v), kernel, stride, padding, extra, groups=_groups(v), bias=v["bias"]
    )


def _transposed_cost(v: Values) -> tuple[float, float]:
    pixels = v["samples"] * v["side"] ** 2
    products = pixels * v["kernel"] ** 2 * v["inputs"] * _outputs(v) / _groups(v)
    return 2 * products, float(pixels * max(v["inputs"], _outputs(v) * v["stride"] ** 2))


def _windows(v: Values) -> nn.Module:
    return nn.Unfold(*v["window"])


class Joined(nn.Module):
    """A block's code of its own between layers: halves, a product, a shuffle of channels, a sum with the input."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "cat":
            return torch.cat([x, x * 2], 1)
        first, second = x.chunk(2, 1)
        if self.kind == "gate":
            return first * second.sigmoid()
        if self.kind == "shuffle":
            halves = torch.cat([first, second * 2], 1)
            N, C, H, W = halves.shape
            return halves.view(N, 2, C // 2, H, W).transpose(1, 2).reshape(N, C, H, W)
        return x * x.mean((2, 3), keepdim=True).sigmoid()


def _gathered(v: Values) -> nn.Module:
    return Joined(v["kind"])


SPACES: dict[str, Space] = {
    "upsample": Space(
        SMALL | {"kind": list(UPSAMPLING), "scale": [2, 4, "size"]} | OWN, _scaled, _image, _scaled_cost, images=True
    ),
    "adaptive_pool": Space(
        IMAGES | {"kind": list(ADAPTIVE), "size": [1, 2, 3, 6, 7]} | OWN,
        lambda v: ADAPTIVE[v["kind"]](v["size"]),
        _image,
        _image_cost,
        images=True,
    ),
    "pool_options": Space(
        IMAGES | {"kind": list(POOLS)} | OWN,
        lambda v: POOLS[v["kind"]](),
        _image,
        _image_cost,
        lambda v: v["side"] > 4,
        images=True,
    ),
    "transposed": Space(
        {
            "samples": [1, 8, 32, 64],
            "inputs": [1, 3, 16, 32, 64, 128, 512],
            "outputs": [1, 3, 16, 32, 64, 256],
            "side": [1, 2, 4, 7, 8, 14, 16, 32],
            "kernel": [2, 3, 4, 5],
            "stride": [1, 2],
            "groups": ["one", "one", "one", "four", "depthwise"],
            "bias": [False, True],
        }
        | SHARED,
        _transposed,
        lambda v: [(v["samples"], v["inputs"], v["side"], v["side"])],
        _transposed_cost,
        lambda v: (
            (v["groups"] != "four" or (v["inputs"] % 4 == 0 and v["outputs"] % 4 == 0))
            and (v["side"] - 1) * v["stride"] + v["kernel"] > 2 * ((v["kernel"] - v["stride"] + 1) // 2)
        ),
        images=True,
    ),
    "instance_norm": Space(
        IMAGES | {"affine": [False, True]} | OWN,
        lambda v: nn.InstanceNorm2d(v["channels"], affine=v["affine"]),
        _image,
        _image_cost,
        lambda v: v["side"] > 1,
        images=True,
    ),
    "padding": Space(
        SMALL | {"kind": list(PADDING), "around": [1, 3]} | OWN,
        lambda v: PADDING[v["kind"]](v["around"]),
        _image,
        _image_cost,
        lambda v: v["side"] > v["around"],
        images=True,
    ),
    "rearranged": Space(
        SMALL | {"channels": [4, 16, 64, 256], "side": [2, 4, 8, 14, 32], "kind": list(REARRANGED)} | OWN,
        lambda v: REARRANGED[v["kind"]](),
        _image,
        _image_cost,
        images=True,
    ),
    "image_activation": Space(
        IMAGES | {"channels": [2, 6, 16, 40, 64, 256], "kind": list(ACTIVATIONS)} | OWN,
        lambda v: ACTIVATIONS[v["kind"]](v["channels"]),
        _image,
        _image_cost,
        images=True,
    ),
    "local_response_norm": Space(
        SMALL | {"channels": [3, 16, 64, 256], "size": [3, 5]} | OWN,
        lambda v: nn.LocalResponseNorm(v["size"]),
        _image,
        _image_cost,
        images=True,
    ),
    "unfold": Space(
        SMALL | {"channels": [1, 3, 16, 64], "window": [(3, 1, 1, 1), (2, 1, 0, 2), (5, 1, 2, 2)]} | OWN,
        _windows,
        _image,
        lambda v: (10 * _image_cost(v)[0], 25 * _image_cost(v)[1]),
        lambda v: v["side"] >= 4,
        images=True,
    ),
    "user_code": Space(
        SMALL | {"channels": [2, 6, 16, 40, 64, 256], "kind": ["cat", "gate", "shuffle", "squeeze"]} | OWN,
        _gathered,
        _image,
        _image_cost,
        images=True,
    ),
}
