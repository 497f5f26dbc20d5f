# SPDX-License-Identifier: MIT
"""Shapes of layers on lines, volumes and sequences: 1-d and 3-d convolutions and pools, recurrent layers, bags."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from grid_cells import ROWS, SHARED, Space, rows, rows_cost
from pairwise import Values
from torch import nn

import dnnsuite

OWN = {"batch": ["own"]}
LINES = {"samples": [1, 8, 64], "channels": [1, 3, 16, 40, 64, 256], "length": [1, 7, 32, 100, 512]}
VOLUMES = {"samples": [1, 2, 8], "channels": [1, 3, 16, 32, 64], "side": [2, 4, 7, 8, 16, 24]}
LINE_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "max": lambda channels: nn.MaxPool1d(2),
    "max overlap": lambda channels: nn.MaxPool1d(3, 2, 1),
    "avg": lambda channels: nn.AvgPool1d(2),
    "adaptive max": lambda channels: nn.AdaptiveMaxPool1d(1),
    "adaptive avg": lambda channels: nn.AdaptiveAvgPool1d(4),
    "batch_norm": nn.BatchNorm1d,
    "instance_norm": nn.InstanceNorm1d,
    "group_norm": lambda channels: nn.GroupNorm(1, channels),
    "nearest": lambda channels: nn.Upsample(scale_factor=2),
    "linear": lambda channels: nn.Upsample(scale_factor=2, mode="linear"),
    "reflect": lambda channels: nn.ReflectionPad1d(2),
    "zero": lambda channels: nn.ConstantPad1d((4, 0), 0.0),
}
VOLUME_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "max": lambda channels: nn.MaxPool3d(2),
    "avg": lambda channels: nn.AvgPool3d(2),
    "adaptive": lambda channels: nn.AdaptiveAvgPool3d(1),
    "batch_norm": nn.BatchNorm3d,
    "instance_norm": nn.InstanceNorm3d,
    "nearest": lambda channels: nn.Upsample(scale_factor=2),
    "trilinear": lambda channels: nn.Upsample(scale_factor=2, mode="trilinear"),
}
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "mish": nn.Mish,
    "selu": nn.SELU,
    "celu": nn.CELU,
    "softplus": nn.Softplus,
    "hardtanh": nn.Hardtanh,
    "relu6": nn.ReLU6,
    "logsigmoid": nn.LogSigmoid,
    "hardsigmoid": nn.Hardsigmoid,
    "glu": nn.GLU,
    "prelu": nn.PReLU,
    "log_softmax": lambda: nn.LogSoftmax(-1),
    "gelu tanh": lambda: nn.GELU("tanh"),
}
RECURRENT: dict[str, Callable[..., nn.Module]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS: dict[str, Callable[..., nn.Module]] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


class FirstResult(nn.Module):
    """The first result of a layer with several: of a recurrent one its outputs, of an LSTM's cell its state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found = self.layer(*inputs)
        y: torch.Tensor = found[0] if isinstance(found, tuple) else found
        return y


class FirstResultOfModels(nn.Module):
    """The same of an array's layer, `[B, ...]`."""

    def __init__(self, models: list[Any]) -> None:
        super().__init__()
        layers = [model.layer for model in models]
        kind: Any = getattr(dnnsuite.nn, type(layers[0]).__name__)
        self.layer = kind.from_models(layers)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found = self.layer(*inputs)
        y: torch.Tensor = found[0] if isinstance(found, tuple) else found
        return y


def _line(v: Values) -> list[Any]:
    return [(v["samples"], v["channels"], v["length"])]


def _line_cost(v: Values) -> tuple[float, float]:
    numbers = float(math.prod(_line(v)[0]))
    return 10 * numbers, numbers


def _volume(v: Values) -> list[Any]:
    return [(v["samples"], v["channels"], *[v["side"]] * 3)]


def _volume_cost(v: Values) -> tuple[float, float]:
    numbers = float(math.prod(_volume(v)[0]))
    return 10 * numbers, numbers


def _groups(v: Values) -> int:
    return {"one": 1, "depthwise": v["inputs"]}[v["groups"]]


def _outputs(v: Values) -> int:
    return int(v["inputs"] if v["groups"] == "depthwise" else v["outputs"])


def _line_convolution(v: Values) -> nn.Module:
    sizes = (v["kernel"], v["stride"], v["kernel"] // 2 * v["dilation"], v["dilation"])
    return nn.Conv1d(v["inputs"], _outputs(v), *sizes, groups=_groups(v))


def _line_transposed(v: Values) -> nn.Module:
    padding = (v["kernel"] - v["stride"] + 1) // 2
    return nn.ConvTranspose1d(v["inputs"], _outputs(v), v["kernel"], v["stride"], padding, groups=_groups(v))


def _convolution_cost(v: Values) -> tuple[float, float]:
    pixels = v["samples"] * (v["length"] if "length" in v else v["side"] ** 3)
    taps = v["kernel"] ** (1 if "length" in v else 3)
    products = pixels * taps * v["inputs"] * _outputs(v) / _groups(v)
    return 2 * products, float(pixels * max(v["inputs"], _outputs(v)))


LINE_CHANNELS = {
    "samples": [1, 8, 32, 64],
    "inputs": [1, 3, 16, 64, 128, 256],
    "outputs": [1, 16, 64, 256],
    "length": [1, 7, 32, 100, 500, 4000],
    "groups": ["one", "one", "depthwise"],
}
SPACES: dict[str, Space] = {
    "conv1d": Space(
        LINE_CHANNELS | {"kernel": [1, 3, 5, 9], "stride": [1, 2], "dilation": [1, 1, 4]} | SHARED,
        _line_convolution,
        lambda v: [(v["samples"], v["inputs"], v["length"])],
        _convolution_cost,
        lines=True,
    ),
    "transposed1d": Space(
        LINE_CHANNELS | {"kernel": [2, 3, 4, 16], "stride": [1, 2, 4]} | SHARED,
        _line_transposed,
        lambda v: [(v["samples"], v["inputs"], v["length"])],
        _convolution_cost,
        lambda v: v["kernel"] >= v["stride"] and v["length"] > 4,
        lines=True,
    ),
    "line_layer": Space(
        LINES | {"kind": list(LINE_LAYERS)} | OWN,
        lambda v: LINE_LAYERS[v["kind"]](v["channels"]),
        _line,
        _line_cost,
        lambda v: v["length"] > 4 and (v["samples"] > 1 or v["kind"] != "batch_norm"),
        lines=True,
    ),
    "conv3d": Space(
        {
            "samples": [1, 2, 8],
            "inputs": [1, 3, 16, 32, 64],
            "outputs": [1, 16, 32, 64],
            "side": [2, 4, 8, 16, 24],
            "kernel": [1, 3],
            "stride": [1, 2],
            "groups": ["one"],
        }
        | SHARED,
        lambda v: nn.Conv3d(v["inputs"], v["outputs"], v["kernel"], v["stride"], v["kernel"] // 2),
        lambda v: [(v["samples"], v["inputs"], *[v["side"]] * 3)],
        _convolution_cost,
        images=True,
    ),
    "volume_layer": Space(
        VOLUMES | {"kind": list(VOLUME_LAYERS)} | OWN,
        lambda v: VOLUME_LAYERS[v["kind"]](v["channels"]),
        _volume,
        _volume_cost,
        images=True,
    ),
    "more_activation": Space(
        ROWS | {"kind": list(ACTIVATIONS)} | OWN, lambda v: ACTIVATIONS[v["kind"]](), rows, rows_cost
    ),
    "recurrent": Space(
        {
            "samples": [1, 8, 64],
            "length": [1, 10, 50],
            "inputs": [1, 16, 64, 256],
            "width": [8, 32, 128, 256],
            "layers": [1, 2],
            "directions": [1, 1, 2],
            "kind": list(RECURRENT),
        }
        | SHARED,
        lambda v: FirstResult(
            RECURRENT[v["kind"]](
                v["inputs"], v["width"], v["layers"], batch_first=True, bidirectional=v["directions"] == 2
            )
        ),
        lambda v: [(v["samples"], v["length"], v["inputs"])],
        lambda v: (
            8.0 * v["samples"] * v["length"] * v["width"] * (v["width"] + v["inputs"]) * v["layers"],
            float(v["samples"] * v["length"] * max(v["inputs"], 4 * v["width"])),
        ),
        ours=FirstResultOfModels,
    ),
    "recurrent_cell": Space(
        {"samples": [1, 8, 64], "inputs": [1, 16, 64, 256], "width": [8, 32, 128, 256], "kind": list(CELLS)} | SHARED,
        lambda v: FirstResult(CELLS[v["kind"]](v["inputs"], v["width"])),
        lambda v: [(v["samples"], v["inputs"])],
        lambda v: (8.0 * v["samples"] * v["width"] * (v["width"] + v["inputs"]), 1.0),
        ours=FirstResultOfModels,
    ),
    "bilinear": Space(
        {"samples": [1, 16, 64], "inputs": [8, 32, 100], "more": [8, 32, 100], "outputs": [1, 10, 64]} | SHARED,
        lambda v: nn.Bilinear(v["inputs"], v["more"], v["outputs"]),
        lambda v: [(v["samples"], v["inputs"]), (v["samples"], v["more"])],
        lambda v: (
            2.0 * v["samples"] * v["inputs"] * v["more"] * v["outputs"],
            float(v["inputs"] * v["more"] * v["outputs"]),
        ),
    ),
    "embedding_bag": Space(
        {
            "samples": [1, 16, 64],
            "length": [1, 10, 50],
            "words": [10, 1000, 10000],
            "width": [16, 64, 256],
            "kind": ["mean", "sum", "max"],
        }
        | SHARED,
        lambda v: nn.EmbeddingBag(v["words"], v["width"], mode=v["kind"]),
        lambda v: [((v["samples"], v["length"]), v["words"])],
        lambda v: (1.0, float(v["words"] * v["width"])),
    ),
}
