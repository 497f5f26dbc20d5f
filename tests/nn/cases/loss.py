# SPDX-License-Identifier: MIT
"""Losses: how to draw inputs and targets for each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st

from . import Case, Example

Draw = Callable[[int, int], tuple[torch.Tensor, ...]]


def probabilities(n: int, c: int) -> torch.Tensor:
    return torch.rand(n, c) * 0.9 + 0.05


def signs(*shape: int) -> torch.Tensor:
    return torch.randint(2, shape).float() * 2 - 1


def case(name: str, draw: Draw, *more: dict, double_backward: bool = True, bf16: bool = True) -> Case:
    """`draw(N, C)` gives one model's inputs; `more` are sets of arguments beside the defaults."""
    defaults = [] if name == "KLDivLoss" else [{}]  # torch warns of its 'mean'
    arguments = [*defaults, *more, {"reduction": "sum"}]
    examples = st.builds(
        lambda n, c, kw: Example(lambda: getattr(torch.nn, name)(**kw), lambda: draw(n, c)),
        st.integers(1, 5),
        st.integers(2, 20),
        st.sampled_from(arguments),
    )
    return Case(name, examples, double_backward=double_backward, bf16=bf16)


def scores_and_classes(n: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(n, c), torch.randint(c, (n,))


def scores_and_two_classes(n: int, c: int) -> tuple[torch.Tensor, ...]:
    """The first is never ignored: torch's mean of nothing is NaN, which equals nothing."""
    return torch.randn(n, c), torch.cat([torch.zeros(1, dtype=torch.long), torch.randint(2, (n - 1,))])


def numbers(n: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(n, c), torch.randn(n, c)


CASES = [
    case("CrossEntropyLoss", scores_and_two_classes, {"label_smoothing": 0.2}, {"ignore_index": 1}),
    case("NLLLoss", lambda n, c: (torch.randn(n, c).log_softmax(-1), torch.randint(c, (n,)))),
    case("BCELoss", lambda n, c: (probabilities(n, c), torch.rand(n, c))),
    case("BCEWithLogitsLoss", lambda n, c: (torch.randn(n, c), torch.rand(n, c))),
    case("MSELoss", numbers),
    case("L1Loss", numbers),
    case("SmoothL1Loss", numbers, {"beta": 0.5}),
    case("HuberLoss", numbers, {"delta": 0.5}),
    case(
        "KLDivLoss",
        lambda n, c: (torch.randn(n, c).log_softmax(-1), torch.rand(n, c).softmax(-1)),
        {"reduction": "batchmean"},
        {"log_target": True, "reduction": "batchmean"},
    ),
    case("PoissonNLLLoss", lambda n, c: (torch.randn(n, c), torch.rand(n, c) * 3), {"full": True}),
    case("GaussianNLLLoss", lambda n, c: (*numbers(n, c), probabilities(n, c)), {"full": True}),
    case("HingeEmbeddingLoss", lambda n, c: (torch.rand(n, c) * 2, signs(n, c)), {"margin": 0.5}),
    case("SoftMarginLoss", lambda n, c: (torch.randn(n, c), signs(n, c).long())),
    case("MultiMarginLoss", scores_and_classes, {"p": 2, "margin": 0.5}, double_backward=False, bf16=False),
    case(
        "MultiLabelMarginLoss",
        lambda n, c: (torch.randn(n, c), torch.stack([torch.randperm(c) for _ in range(n)])),
        double_backward=False,
        bf16=False,
    ),
    case("MultiLabelSoftMarginLoss", lambda n, c: (torch.randn(n, c), torch.randint(2, (n, c)).float())),
    case("CosineEmbeddingLoss", lambda n, c: (*numbers(n, c), signs(n)), {"margin": 0.3}),
    case("MarginRankingLoss", lambda n, c: (torch.randn(n), torch.randn(n), signs(n)), {"margin": 0.3}),
    case("TripletMarginLoss", lambda n, c: (*numbers(n, c), torch.randn(n, c)), {"swap": True}, bf16=False),
]
if hasattr(torch.nn, "LinearCrossEntropyLoss"):
    CASES.append(
        Case(
            "LinearCrossEntropyLoss",
            st.builds(
                lambda n, c, bias: Example(
                    lambda: torch.nn.LinearCrossEntropyLoss(4, c, bias=bias),
                    lambda: (torch.randn(n, 4), torch.randint(c, (n,))),
                ),
                st.integers(1, 5),
                st.integers(2, 20),
                st.booleans(),
            ),
        )
    )
