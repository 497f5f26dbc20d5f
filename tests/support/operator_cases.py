# SPDX-License-Identifier: MIT
"""Every differentiable operator as a row of a table, and what must hold for all of them.

A case makes inputs for B models, calls the operator, and knows what torch computes for one model. Run as a program
(`python operator_cases.py FILE`), it writes the results of all cases, for comparison between instruction sets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from channel_cases import (
    BATCH_NORM_CASES,
    BATCH_NORM_MAX_CASES,
    GLU_CASES,
    LARGE_WINDOW_CASES,
    PATCH_CASES,
    POOL_CASES,
    PRELU_CASES,
    SCALE_CASES,
    SOFTMAX_CASES,
    WINDOW_CASES,
    batch_norm_case,
    depthwise_case,
    group_norm_case,
    max_case,
    rms_norm_case,
)
from dnnsuite import ops
from operator_case import Case, Tensors, maker, normal
from random_reference import dropout_mask
from resample_cases import REARRANGED_CASES, RESAMPLE_CASES


def mask_of(t: Tensors, shape: torch.Size) -> torch.Tensor | float:
    """Factors for one model's tensor of `shape`."""
    if "p" not in t:
        return 1.0
    return dropout_mask(t["p"][None], t["rng"][None], (1, *shape))[0]


def with_bias(t: Tensors) -> torch.Tensor:
    return t["x"] + t["bias"] if "bias" in t else t["x"]


def activation(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return {"relu": functional.relu, "gelu": functional.gelu, "none": lambda x: x}[name]


def joined(t: Tensors) -> torch.Tensor:
    return t["residual"] + with_bias(t) * mask_of(t, t["x"].shape)


def norm(t: Tensors, x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:], t.get("weight"), t.get("norm_bias"), 1e-5)


def pointwise_cases(rows: tuple[int, ...], columns: int, label: str) -> list[Case]:
    cases = []
    for kind in ("none", "relu", "gelu"):
        for names, drop in (("x bias", True), ("x", False), ("x", True), ("x bias", False)):
            cases.append(
                Case(
                    f"act-{kind}-{names.replace(' ', '+')}{'-drop' if drop else ''}-{label}",
                    "bias_act_dropout",
                    maker(rows, columns, names, drop),
                    lambda t, k=kind: ops.bias_act_dropout(t["x"], t.get("bias"), k, t.get("p"), t.get("rng")),
                    lambda t, k=kind: activation(k)(with_bias(t)) * mask_of(t, t["x"].shape),
                )
            )
    for names, drop in (("x bias residual", True), ("x residual", False), ("x bias residual", False)):
        cases.append(
            Case(
                f"add-{names.replace(' ', '+')}{'-drop' if drop else ''}-{label}",
                "bias_dropout_add",
                maker(rows, columns, names, drop),
                lambda t: ops.bias_dropout_add(t["x"], t.get("bias"), t["residual"], t.get("p"), t.get("rng")),
                joined,
            )
        )
    cases.append(
        Case(
            f"dropout-{label}",
            "dropout",
            maker(rows, columns, "x", True),
            lambda t: ops.dropout(t["x"], t["p"], t["rng"]),
            lambda t: t["x"] * mask_of(t, t["x"].shape),
        )
    )
    return cases


def norm_cases(rows: tuple[int, ...], columns: int, label: str) -> list[Case]:
    cases = [
        Case(
            f"norm-{names.replace(' ', '+')}-{label}",
            "layer_norm",
            maker(rows, columns, names, False),
            lambda t: ops.layer_norm(t["x"], t.get("weight"), t.get("norm_bias")),
            lambda t: norm(t, t["x"]),
        )
        for names in ("x weight norm_bias", "x weight", "x")
    ]
    for names, drop in (("x bias residual weight norm_bias", True), ("x residual", False)):
        cases.append(
            Case(
                f"join-{names.replace(' ', '+')}-{label}",
                "bias_dropout_add_layer_norm",
                maker(rows, columns, names, drop),
                lambda t: ops.bias_dropout_add_layer_norm(
                    *(t.get(n) for n in ("x", "bias", "residual", "p", "rng", "weight", "norm_bias"))
                ),
                lambda t: norm(t, joined(t)),
            )
        )
    return cases


def attend(t: Tensors, heads: int, causal: bool) -> torch.Tensor:
    """One model's x [N, L, 3E] the long way."""
    sequences, length, width = t["x"].shape
    q, k, v = t["x"].view(sequences, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool().to(scores.device), -torch.inf)
    if "ignored" in t:
        scores = scores.masked_fill(t["ignored"][:, None, None, :], -torch.inf)
    p = scores.softmax(-1)
    return ((p * mask_of(t, p.shape)) @ v).transpose(1, 2).reshape(sequences, length, width // 3)


def attention_case(sequences: int, length: int, heads: int, dim: int, causal: bool, ignore: bool, drop: bool) -> Case:
    plain = maker((sequences, length), 3 * heads * dim, "x", drop)

    def make(B: int, dtype: torch.dtype) -> Tensors:
        tensors = plain(B, dtype)
        if ignore:
            tensors["ignored"] = torch.zeros(B, sequences, length, dtype=torch.bool)
            tensors["ignored"][:, 0, length // 2 :] = True
        return tensors

    options = "".join(f"-{name}" for name, on in (("causal", causal), ("ignore", ignore), ("drop", drop)) if on)
    return Case(
        f"attention-{sequences}x{length}x{heads}x{dim}{options}",
        "attention",
        make,
        lambda t: ops.attention(t["x"], heads, t.get("p"), t.get("rng"), causal, t.get("ignored")),
        lambda t: attend(t, heads, causal),
        exact=length <= 128,
    )


def loss_case(rows: int, classes: int, reduction: str, smoothing: float) -> Case:
    plain = maker((rows,), classes, "x", False)

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(1)
        target = torch.stack([torch.randint(classes, (rows,), generator=generator) for _ in range(B)])
        target[:, rows // 2] = -100
        return plain(B, dtype) | {"target": target}

    keywords = {"label_smoothing": smoothing, "reduction": reduction}
    return Case(
        f"loss-{rows}x{classes}-{reduction}-{smoothing}",
        "cross_entropy",
        make,
        lambda t: ops.cross_entropy(t["x"], t["target"], **keywords),
        lambda t: functional.cross_entropy(t["x"], t["target"], **keywords),
    )


def embedding_case(vocabulary: int, columns: int, shape: tuple[int, ...], shared: bool) -> Case:
    plain = maker((vocabulary,), columns, "x", False)

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(2)
        own = [torch.randint(vocabulary, shape, generator=generator) for _ in range(B)]
        indices = own[0].expand(B, *shape) if shared else torch.stack(own)
        return plain(B, dtype) | {"indices": indices}

    return Case(
        f"embedding-{vocabulary}x{columns}{'-shared' if shared else ''}",
        "embedding",
        make,
        lambda t: ops.embedding(t["x"], t["indices"]),
        lambda t: functional.embedding(t["indices"], t["x"]),
    )


def linear_case(rows: tuple[int, ...], bias: bool, inputs: int = 7, outputs: int = 5, act: str = "none") -> Case:
    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(3)
        shapes = {"x": (*rows, inputs), "weight": (outputs, inputs)} | ({"bias": (outputs,)} if bias else {})
        own = {n: [normal(generator, dtype, *s) for _ in range(B)] for n, s in shapes.items()}
        return {name: torch.stack(each) for name, each in own.items()}

    options = "".join(f"-{name}" for name, on in (("bias", bias), (act, act != "none")) if on)
    return Case(
        f"linear-{'x'.join(map(str, (*rows, inputs, outputs)))}{options}",
        "linear",
        make,
        lambda t: ops.linear(t["x"], t["weight"], t.get("bias"), act),
        lambda t: activation(act)(functional.linear(t["x"], t["weight"], t.get("bias"))),
    )


def matmul_case(a: tuple[int, ...], b: tuple[int, ...], turned: bool = False) -> Case:
    """`turned`: both lie in memory as their transposes."""

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(4)
        tensors = {"x": a, "weight": b}
        made = {n: torch.stack([normal(generator, dtype, *s) for _ in range(B)]) for n, s in tensors.items()}
        return {n: t.mT.contiguous().mT if turned else t for n, t in made.items()}

    return Case(
        f"matmul-{'x'.join(map(str, a))}-{'x'.join(map(str, b))}{'-turned' if turned else ''}",
        "matmul",
        make,
        lambda t: ops.matmul(t["x"], t["weight"]),
        lambda t: torch.matmul(t["x"], t["weight"]),
    )


CASES = [
    rms_norm_case((3, 5), 37, "x weight"),
    rms_norm_case((4,), 16, "x"),
    rms_norm_case((300,), 500, "x weight"),
    group_norm_case((3, 6, 5, 4), 3, "x weight bias"),
    group_norm_case((2, 4, 16), 1, "x weight"),
    group_norm_case((2, 4, 33), 4, "x"),
    group_norm_case((2, 4, 2, 2), 2, "x weight bias"),  # too small for the operator: composed
    group_norm_case((5, 32, 500), 8, "x weight bias"),
    max_case((3, 40), 1),
    max_case((3, 17, 37), 1),
    max_case((3, 20, 9), 2, turned=True),
    max_case((2, 500, 64), 1),
    *BATCH_NORM_CASES,
    *BATCH_NORM_MAX_CASES,
    *WINDOW_CASES,
    *LARGE_WINDOW_CASES,
    *GLU_CASES,
    *PATCH_CASES,
    *POOL_CASES,
    *PRELU_CASES,
    *SCALE_CASES,
    *SOFTMAX_CASES,
    *REARRANGED_CASES,
    *RESAMPLE_CASES,
    batch_norm_case((700, 64), "relu", "x weight bias"),  # several tasks for each model
    batch_norm_case((30, 24, 9, 9), "hardswish", "x weight bias"),
    depthwise_case(5, 18, 3, 1, True),
    depthwise_case(4, 3, 5, 2, False),
    depthwise_case(16, 40, 3, 1, True, 12, "-long"),
    *pointwise_cases((3, 5), 37, "odd"),
    *pointwise_cases((2, 90), 256, "long"),  # several tasks for each model
    *norm_cases((3, 5), 37, "odd"),
    *norm_cases((300,), 128, "long"),
    attention_case(2, 5, 2, 3, False, False, False),
    attention_case(2, 17, 1, 16, True, False, True),
    attention_case(3, 32, 4, 16, False, True, True),
    attention_case(1, 50, 2, 20, True, True, False),
    attention_case(1, 130, 1, 4, True, True, True),  # beyond the operator: composed
    loss_case(7, 19, "mean", 0.0),
    loss_case(7, 16, "sum", 0.1),
    loss_case(6, 3000, "mean", 0.1),
    loss_case(7, 19, "none", 0.0),
    embedding_case(11, 5, (3, 4), False),
    embedding_case(500, 64, (33,), True),
    linear_case((4, 3), True),
    linear_case((6,), False),
    linear_case((3, 8), True, 70, 21, "gelu"),
    linear_case((37,), True, 16, 40, "relu"),
    linear_case((30,), True, 600, 90, "relu"),  # several pieces of the depth
    matmul_case((5, 3), (3, 18)),
    matmul_case((13, 40), (40, 35), turned=True),
    matmul_case((2, 3, 6, 4), (3, 4, 5)),
    matmul_case((6,), (6, 5)),
    matmul_case((4, 6), (6,)),
]
LARGE = ("3000", "500", "700", "30x24", "40x30", "17x15", "12x13")
SMALL = [case for case in CASES if not case.name.endswith("long") and not any(size in case.name for size in LARGE)]


def run(case: Case, tensors: Tensors, rounded: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """The result ("y") and the gradient of each differentiable input, for a fixed gradient of the result, which is
    `rounded` as numbers of another dtype are."""
    leaves = {name: tensors[name].detach().requires_grad_() for name in case.differentiable(tensors)}
    y = case.call(tensors | leaves)
    # Counted in 32 bits: 16 have no number 257, and the weights beyond would repeat.
    count = torch.arange(y[0].numel(), dtype=torch.promote_types(y.dtype, torch.float32), device=y.device)
    weights = torch.cos(count).to(rounded or y.dtype).to(y.dtype).view(y[:1].shape).expand_as(y)
    grads = torch.autograd.grad(y, list(leaves.values()), weights)
    return {"y": y.detach()} | dict(zip(leaves, grads, strict=True))


def results() -> dict[str, Any]:
    """The name of the instruction set, and of each case what it computes with it."""
    found = {case.name: run(case, case.make(2, torch.float32)) for case in CASES}
    return {"isa": ops.instruction_set()} | found


if __name__ == "__main__":
    torch.save(results(), sys.argv[1])
