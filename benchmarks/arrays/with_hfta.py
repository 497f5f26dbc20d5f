# SPDX-License-Identifier: MIT
"""B plain torch models as one model of HFTA's operators (github.com/UofT-EcoSystem/hfta, MLSys 2021).

`convert` puts HFTA's operator in the place of each layer that has one. The modules around them keep their own
`forward`, since most of it means the same in HFTA's layouts: images `[N, B, C, H, W]`, features `[B, N, F]`, tokens
`[B, N, L]`. Where it does not, a function below takes its place. The converted model takes and gives `[B, N, ...]`.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from dnnsuite.errors import Unavailable

Forward = Callable[..., torch.Tensor]
_NOT_ARGUMENTS = {"B", "device", "dtype"}


class NoOperator(Exception):
    """HFTA has nothing for a layer of the model."""


def package() -> Any:
    """HFTA's package, with `ops` and `optim`.

    Raises Unavailable where it cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its regular expressions are no raw strings
            importlib.import_module("hfta.ops")
            importlib.import_module("hfta.optim")
    except ImportError as error:
        raise Unavailable(
            "HFTA's operators",
            f"import hfta: {error}",
            "get a checkout of github.com/UofT-EcoSystem/hfta and name it in PYTHONPATH",
        ) from error
    return sys.modules["hfta"]


def convert(plain: Sequence[nn.Module]) -> nn.Module:
    """One model of HFTA's operators with the weights of the `plain` ones.

    Raises Unavailable without the package, NoOperator for a layer that it does not have.
    """
    hfta = package()
    return _converted(hfta, list(plain))


def adam(parameters: Any, rates: list[float]) -> torch.optim.Optimizer:
    """HFTA's Adam with a learning rate for each model."""
    make: Any = package().optim.get_hfta_optim_for(torch.optim.Adam, B=len(rates))
    optimizer: torch.optim.Optimizer = make(parameters, lr=rates)
    return optimizer


def _converted(hfta: Any, twins: list[nn.Module]) -> nn.Module:
    """`twins` are the same module of each model."""
    first = twins[0]
    if isinstance(first, nn.TransformerEncoderLayer):
        return EncoderLayer(hfta, twins)
    if not first._modules:
        return _operator(hfta, twins)
    if any(True for _ in first.parameters(recurse=False)):
        raise NoOperator(f"HFTA has no operator for the parameters of {type(first).__name__} itself")
    whole = copy.copy(first)
    whole.__dict__["_modules"] = {
        name: None if child is None else _converted(hfta, [twin._modules[name] for twin in twins])
        for name, child in first._modules.items()
    }
    forward = FORWARDS.get(type(first).__name__)
    if forward is not None:
        whole.forward = functools.partial(forward, whole)
    return whole


def _operator(hfta: Any, twins: list[nn.Module]) -> nn.Module:
    first = twins[0]
    learns = any(True for _ in first.parameters())
    try:
        make = hfta.ops.get_hfta_op_for(type(first), B=len(twins))
    except KeyError:
        make = None
    if make is type(first) and not learns:  # serves arrays as it is
        return first
    if make in (None, type(first)):
        raise NoOperator(f"HFTA has no operator for {type(first).__name__}")
    operator = make(**arguments(first, make))
    if learns:
        for b, twin in enumerate(twins):
            operator.snatch_parameters(twin, b)
    return operator


def arguments(module: nn.Module, operator: Any) -> dict[str, Any]:
    """Arguments that make `operator` like a layer, read back from the layer's attributes."""
    found = {}
    for name in inspect.signature(operator).parameters:
        if name not in _NOT_ARGUMENTS and hasattr(module, name):
            value = getattr(module, name)
            # `bias` is a flag there, and a parameter or None here.
            found[name] = value is not None if name == "bias" else value
    return found


class EncoderLayer(nn.Module):
    """torch's TransformerEncoderLayer of HFTA's parts, `[B, N, L, E]`: its own adds the wrong residual."""

    def __init__(self, hfta: Any, twins: list[nn.Module]) -> None:
        super().__init__()
        first = twins[0]
        attention = first.self_attn
        if first.norm_first or not attention.batch_first or not attention._qkv_same_embed_dim:
            raise NoOperator("HFTA has no operator for a TransformerEncoderLayer of this form")
        self.attention = hfta.ops.MultiheadAttention(
            attention.embed_dim, attention.num_heads, dropout=attention.dropout, B=len(twins)
        )
        for b, twin in enumerate(twins):
            self.attention.snatch_parameters(twin.self_attn, b + 1)  # counts models from 1
        for name in ("linear1", "linear2", "norm1", "norm2"):
            setattr(self, name, _operator(hfta, [getattr(twin, name) for twin in twins]))
        self.dropout, self.dropout1, self.dropout2 = first.dropout, first.dropout1, first.dropout2
        self.activation = first.activation

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        seen, _ = self.attention(x, x, x, need_weights=False, attn_mask=mask)
        x = self.norm1(x + self.dropout1(seen))
        return self.norm2(x + self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x))))))


def _second(x: torch.Tensor) -> torch.Tensor:
    """The model to the second dimension, where HFTA's images have it; its operators want contiguous ones."""
    return x.transpose(0, 1).contiguous()


def _mlp(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.flatten(2)
    for layer in self.layers[:-1]:
        x = self.dropout(torch.relu(layer(x)))
    return self.layers[-1](x)


def _transform(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Points `[N, B, k, P]` to matrices `[N, B, k, k]`."""
    cloud = self.points(x).amax(dim=3).transpose(0, 1)
    matrix = self.matrix(self.dense(cloud)).transpose(0, 1).unflatten(2, (self.k, self.k))
    return matrix + torch.eye(self.k, device=x.device)


def _features(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    x = self.first((self.input_transform(x).transpose(3, 2) @ x).contiguous())
    matrix = None
    if self.feature_transform is not None:
        matrix = self.feature_transform(x)
        x = (matrix.transpose(3, 2) @ x).contiguous()
    return x, self.third(self.second(x)).amax(dim=3), matrix


def _pointnet(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    _, cloud, matrix = self.features(_second(x))
    return self.head(cloud.transpose(0, 1)), matrix


def _gan(self: Any, x: torch.Tensor, generate: bool) -> torch.Tensor:
    return (self.generator if generate else self.discriminator)(_second(x)).transpose(0, 1)


def _discriminator(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.layers(x).flatten(2).squeeze(2)


def _resnet(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = self.maxpool(self.relu(self.bn1(self.conv1(_second(x)))))
    x = self.avgpool(self.layer4(self.layer3(self.layer2(self.layer1(x)))))
    return self.fc(x.flatten(2).transpose(0, 1))


def _mobilenet(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.classifier(self.features(_second(x)).mean((3, 4)).transpose(0, 1))


def _convnet(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.head(self.features(_second(x)).flatten(2).transpose(0, 1))


def _fire(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = self.squeeze_activation(self.squeeze(x))
    wide = self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))
    return torch.cat(wide, 2)


def _squeezenet(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.classifier(self.features(_second(x))).flatten(2).transpose(0, 1)


def _unet(self: Any, x: torch.Tensor) -> torch.Tensor:
    outer = self.outer(_second(x))
    middle = self.middle(self.pool(outer))
    x = self.up_middle(self.inner(self.pool(middle)))
    x = self.up_outer(self.back_middle(torch.cat([middle, x], 2)))
    return self.head(self.back_outer(torch.cat([outer, x], 2))).transpose(0, 1)


def _deq(self: Any, x: torch.Tensor) -> torch.Tensor:
    raise NoOperator("HFTA would iterate every model as often as the slowest: not what each does alone")


def _position(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.dropout(x + self.table[: x.size(-2)])


def _encoder(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    for layer in self.layers:
        x = layer(x, mask)
    return x


def _language_model(self: Any, tokens: torch.Tensor) -> torch.Tensor:
    mask = nn.Transformer.generate_square_subsequent_mask(tokens.size(-1), device=tokens.device)
    return self.head(self.encoder(self.position(self.embedding(tokens) * math.sqrt(self.width)), mask))


FORWARDS: dict[str, Forward] = {
    "MLP": _mlp,
    "TransformNet": _transform,
    "PointFeatures": _features,
    "PointNetClassifier": _pointnet,
    "GAN": _gan,
    "Discriminator": _discriminator,
    "ResNet": _resnet,
    "ConvNet": _convnet,
    "Fire": _fire,
    "SqueezeNet": _squeezenet,
    "UNet": _unet,
    "DEQ": _deq,
    "MobileNetV2": _mobilenet,
    "MobileNetV3": _mobilenet,
    "PositionalEncoding": _position,
    "TransformerEncoder": _encoder,
    "TransformerLanguageModel": _language_model,
}
