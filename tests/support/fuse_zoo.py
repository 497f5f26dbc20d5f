# SPDX-License-Identifier: MIT
"""Unmodified models for the tests of `dnnsuite.fuse`: how to make one, one model's batch, and its loss; and a check."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import data, models
from helpers import assert_near, make_models


@dataclass(frozen=True)
class Row:
    """`make()` builds a model, `batch()` draws (inputs, target) for one; `keywords` name the inputs, if any.

    `chaotic`: batch norm over a handful of values turns a rounding error into another training within some steps.
    """

    name: str
    make: Callable[[], torch.nn.Module]
    batch: Callable[[], tuple[tuple[torch.Tensor, ...], torch.Tensor]]
    loss: Callable[[Any, torch.Tensor], torch.Tensor] = F.cross_entropy
    keywords: tuple[str, ...] = ()
    package: str = ""
    lr: float = 0.05
    chaotic: bool = False

    def models(self, B: int, dtype: torch.dtype = torch.float32) -> list[torch.nn.Module]:
        """B different models, their biases and norms too."""
        built = []
        for index in range(B):
            torch.manual_seed(100 + index)
            model = self.make().to(dtype)
            with torch.no_grad():
                for parameter in model.parameters():
                    noise = torch.randn_like(parameter)
                    parameter.mul_(1 + 0.1 * noise).add_(0.02 * noise.flip(0) if noise.dim() else 0)
            built.append(model)
        return built

    def call(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
        if self.keywords:
            return module(**dict(zip(self.keywords, inputs, strict=True)))
        return module(*inputs)


class Functional(torch.nn.Module):
    """Parameters of its own, torch's functions on them, and a view that knows nothing of B."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = torch.nn.Parameter(0.3 * torch.randn(4, 2, 3, 3))
        self.bias = torch.nn.Parameter(torch.zeros(4))
        self.gain = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("shift", torch.tensor([0.25]))
        self.head = torch.nn.Linear(4 * 2 * 2, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(F.conv2d(x, self.kernel, self.bias, padding=1)) * self.gain + self.shift
        x = F.max_pool2d(x, 2)
        x = F.layer_norm(x, x.shape[1:])
        n, c, h, w = x.size()
        return self.head(x.permute(0, 2, 3, 1).reshape(n, h * w * c).view(x.size(0), -1))


class TiedAutoencoder(torch.nn.Module):
    """The decoder is the encoder's weight, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(0.3 * torch.randn(4, 6))
        self.bias = torch.nn.Parameter(torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x @ self.weight.t()) @ self.weight + self.bias


class ControlFlow(torch.nn.Module):
    """What runs depends on arguments, shapes and mode, never on values."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.blocks = torch.nn.ModuleDict({"a": torch.nn.Linear(6, 6), "b": torch.nn.Tanh()})
        self.norm = torch.nn.BatchNorm1d(6)
        self.head = torch.nn.Linear(6, 3)
        self.repeat = 2

    def forward(self, x: torch.Tensor, deep: bool = True) -> torch.Tensor:
        x = self.first(x)
        if deep and x.dim() == 2 and x.shape[-1] == 6:
            for _ in range(self.repeat):
                for name, block in self.blocks.items():
                    x = block(x) if name == "b" or self.training else x
        if len(x) > 1:
            x = self.norm(x)
        parts = [self.head(part) for part in x.split(2)]
        return torch.cat(parts)


def images(channels: int = 3, size: int = 32, classes: int = 5, n: int = 4) -> Callable[[], Any]:
    return lambda: ((torch.randn(n, channels, size, size),), torch.randint(classes, (n,)))


def features(width: int, classes: int, n: int = 6) -> Callable[[], Any]:
    return lambda: ((torch.randn(n, width),), torch.randint(classes, (n,)))


def tokens(vocab: int = 20, n: int = 3, length: int = 6) -> Callable[[], Any]:
    def draw() -> Any:
        x = torch.randint(vocab, (n, length + 1))
        return (x[:, :-1],), x[:, 1:]

    return draw


def next_token(output: Any, target: torch.Tensor) -> torch.Tensor:
    logits = output[0] if isinstance(output, tuple) else output
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


def of_points(output: Any, target: torch.Tensor) -> torch.Tensor:
    logits, matrix = output
    penalty = 0.0 if matrix is None else models.orthogonality_loss(matrix)
    return F.cross_entropy(logits.flatten(0, -2), target.flatten()) + 0.01 * penalty


def own_loss(output: Any, target: torch.Tensor) -> torch.Tensor:
    return output.loss


def points(per_point: bool) -> Callable[[], Any]:
    return lambda: ((torch.randn(4, 3, 8),), torch.randint(4, (4, 8) if per_point else (4,)))


def vision(name: str, **arguments: Any) -> Callable[[], torch.nn.Module]:
    return lambda: getattr(data.import_torchvision().models, name)(num_classes=5, **arguments)


def bert() -> torch.nn.Module:
    import transformers

    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForMaskedLM(config)


def gpt2() -> torch.nn.Module:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=20,
        n_positions=8,
        n_embd=8,
        n_layer=2,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def labelled() -> Any:
    x = torch.randint(20, (3, 6))
    return (x, torch.ones_like(x), x.clone()), x


TLM = {"width": 8, "hidden": 12, "dropout": 0.0, "max_len": 8}
LSTM = {"width": 6, "hidden": 6, "dropout": 0.0}
HUGGING = {"loss": own_loss, "keywords": ("input_ids", "attention_mask", "labels"), "package": "transformers"}
ROWS = [
    Row("mlp", lambda: models.MLP((6, 8, 8, 3)), features(6, 3)),
    Row("mlp tied", lambda: models.MLP((6, 6, 6, 3), tied=True), features(6, 3)),
    Row("functional", Functional, images(2, 4)),
    Row(
        "autoencoder",
        TiedAutoencoder,
        lambda: ((torch.randn(5, 6),), torch.zeros(())),
        lambda output, target: output.square().mean(),
    ),
    Row("control flow", ControlFlow, features(6, 3)),
    Row("pointnet", lambda: models.PointNetClassifier(4, dropout=0.0, width=32), points(False), of_points),
    Row(
        "pointnet features",
        lambda: models.PointNetClassifier(4, True, dropout=0.0, width=32),
        points(False),
        of_points,
        chaotic=True,
    ),
    Row("pointnet segmenter", lambda: models.PointNetSegmenter(4, True, 32), points(True), of_points, chaotic=True),
    Row("transformer lm", lambda: models.TransformerLanguageModel(20, **TLM), tokens(), next_token),
    Row("transformer lm tied", lambda: models.TransformerLanguageModel(20, tied=True, **TLM), tokens(), next_token),
    Row("lstm lm", lambda: models.LSTMLanguageModel(20, **LSTM), tokens(), next_token),
    Row("lstm lm tied", lambda: models.LSTMLanguageModel(20, tied=True, **LSTM), tokens(), next_token),
    Row("resnet18", vision("resnet18"), images(), package="torchvision", lr=1e-3, chaotic=True),
    Row("resnet50", vision("resnet50", width_per_group=8), images(), package="torchvision", lr=1e-4, chaotic=True),
    Row(
        "mobilenet_v2",
        vision("mobilenet_v2", dropout=0.0, width_mult=0.25),
        images(),
        package="torchvision",
        lr=1e-3,
        chaotic=True,
    ),
    Row(
        "mobilenet_v3_small",
        vision("mobilenet_v3_small", dropout=0.0, width_mult=0.25),
        images(),
        package="torchvision",
        lr=1e-3,
    ),
    Row("bert", bert, labelled, **HUGGING),
    Row("gpt2", gpt2, labelled, **HUGGING),
]
INSTALL = {"torchvision": "pip install torchvision==0.28.0", "transformers": "pip install transformers"}


def rows(*names: str) -> list[Any]:
    """The rows, or those named, as parameters that are skipped where their package is missing."""
    chosen = [row for row in ROWS if not names or row.name in names]
    return [pytest.param(row, id=row.name, marks=_marks(row)) for row in chosen]


def _marks(row: Row) -> list[pytest.MarkDecorator]:
    marks = []
    if row.package:
        missing = importlib.util.find_spec(row.package) is None
        marks.append(pytest.mark.skipif(missing, reason=INSTALL[row.package]))
    return marks


def fuse_checked(make: Any, x: torch.Tensor, B: int = 3, train: bool = True) -> torch.nn.Module:
    """Fuse B models of `make`, or the models given, and compare the array's output on x `[B, ...]` with each one's."""
    made = make_models(make, B) if callable(make) else make
    for model in made:
        model.train(train)
    array = dnnsuite.fuse(made)
    output = array(x)
    for index, model in enumerate(made):
        assert_near(output[index], copy.deepcopy(model)(x[index]), f"model {index}")
    return array
