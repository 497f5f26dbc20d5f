# SPDX-License-Identifier: MIT
"""Rows of the table of operators: norms, and what is computed of images and points."""

from __future__ import annotations

import torch
from torch.nn import functional

from dnnsuite import ops
from operator_case import Case, Tensors, maker, normal


def depthwise_case(
    side: int, channels: int, kernel: int, stride: int, bias: bool, samples: int = 2, label: str = ""
) -> Case:
    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(4)
        tensors = {"x": (samples, side, side, channels), "weight": (kernel, kernel, channels)}
        tensors |= {"bias": (channels,)} if bias else {}
        return {n: torch.stack([normal(generator, dtype, *s) for _ in range(B)]) for n, s in tensors.items()}

    steps = (stride, stride), (kernel // 2, kernel // 2)

    def one(t: Tensors) -> torch.Tensor:
        image, filters = t["x"].movedim(-1, 1), t["weight"].movedim(-1, 0).unsqueeze(1)
        return functional.conv2d(image, filters, t.get("bias"), *steps, groups=channels).movedim(1, -1)

    return Case(
        f"depthwise-{side}x{side}x{channels}-k{kernel}s{stride}{label}",
        "depthwise",
        make,
        lambda t: ops.depthwise(t["x"], t["weight"], t.get("bias"), *steps),
        one,
    )


def batch_norm_case(shape: tuple[int, ...], kind: str, names: str, last: bool = False, given: bool = False) -> Case:
    """x [B, N, C, *], contiguous or with the channels last; `given`: with statistics that are not the batch's."""

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(4)
        shapes = {name: shape if name in ("x", "residual") else shape[1:2] for name in names.split()}
        tensors = {n: torch.stack([normal(generator, dtype, *s) for _ in range(B)]) for n, s in shapes.items()}
        if last:
            for name in {"x", "residual"} & tensors.keys():
                tensors[name] = tensors[name].movedim(2, -1).contiguous().movedim(-1, 2)
        if given:
            tensors["mean"], tensors["var"] = (
                torch.ones(B, shape[1]).to(dtype),
                torch.full((B, shape[1]), 2.0).to(dtype),
            )
        return tensors

    def one(t: Tensors) -> torch.Tensor:
        y = functional.batch_norm(
            t["x"], t.get("mean"), t.get("var"), t.get("weight"), t.get("bias"), "mean" not in t, 0.1, 1e-5
        )
        return ops.NORM_ACTIVATIONS[kind](y + t["residual"] if "residual" in t else y, 0.2)

    text = f"{'x'.join(map(str, shape))}-{kind}-{names.replace(' ', '+')}"
    return Case(
        f"batch-norm-{text}{'-last' if last else ''}{'-given' if given else ''}",
        "batch_norm_act",
        make,
        lambda t: ops.batch_norm_act(
            *(t.get(name) for name in ("x", "weight", "bias", "residual", "mean", "var")), 1e-5, kind, 0.2
        )[0],
        one,
    )


BATCH_NORM_CASES = [
    *(batch_norm_case((5, 7), kind, "x weight bias residual") for kind in ops.NORM_ACTIVATIONS),
    batch_norm_case((4, 3, 2, 2), "relu", "x weight bias"),
    batch_norm_case((4, 3, 5, 5), "hardswish", "x weight bias residual"),
    batch_norm_case((4, 3, 5, 5), "relu6", "x bias", last=True),
    batch_norm_case((4, 20, 3, 2), "silu", "x weight residual", last=True),
    batch_norm_case((4, 6, 18), "leaky_relu", "x weight bias", given=True),
    batch_norm_case((6, 40, 8, 8), "relu", "x weight bias residual", last=True, given=True),
]


def rms_norm_case(rows: tuple[int, ...], columns: int, names: str) -> Case:
    return Case(
        f"rms-norm-{'x'.join(map(str, (*rows, columns)))}-{names.replace(' ', '+')}",
        "rms_norm",
        maker(rows, columns, names, False),
        lambda t: ops.rms_norm(t["x"], t.get("weight"), 1e-4),
        lambda t: functional.rms_norm(t["x"], t["x"].shape[-1:], t.get("weight"), 1e-4),
    )


def group_norm_case(shape: tuple[int, ...], groups: int, names: str) -> Case:
    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(5)
        shapes = {name: shape if name == "x" else shape[1:2] for name in names.split()}
        return {n: torch.stack([normal(generator, dtype, *s) for _ in range(B)]) for n, s in shapes.items()}

    return Case(
        f"group-norm-{'x'.join(map(str, shape))}-{groups}-{names.replace(' ', '+')}",
        "group_norm",
        make,
        lambda t: ops.group_norm(t["x"], groups, t.get("weight"), t.get("bias")),
        lambda t: functional.group_norm(t["x"], groups, t.get("weight"), t.get("bias")),
    )


def max_case(shape: tuple[int, ...], dim: int, turned: bool = False) -> Case:
    """The largest over dimension `dim` of one model's x; `turned`: with the last dimensions exchanged in memory."""
    plain = maker(shape[:-1], shape[-1], "x", False)

    def make(B: int, dtype: torch.dtype) -> Tensors:
        x = plain(B, dtype)["x"]
        return {"x": x.transpose(-1, -2).contiguous().transpose(-1, -2) if turned else x}

    return Case(
        f"max-{'x'.join(map(str, shape))}-{dim}{'-turned' if turned else ''}",
        "max_over",
        make,
        lambda t: ops.max_over(t["x"], dim + 1)[0],
        lambda t: torch.max(t["x"], dim, keepdim=True)[0],
    )


def batch_norm_max_case(shape: tuple[int, ...], kind: str, names: str, given: bool = False) -> Case:
    """The largest over the points of x [N, C, L], channels last."""
    norm = batch_norm_case(shape, kind, names, True, given)
    return Case(
        norm.name.replace("batch-norm", "batch-norm-max"),
        "batch_norm_act",
        norm.make,
        lambda t: ops.batch_norm_max(
            *(t.get(name) for name in ("x", "weight", "bias", "mean", "var")), 1e-5, kind, 0.2
        )[0],
        lambda t: norm.one(t).amax(-1, keepdim=True),
    )


BATCH_NORM_MAX_CASES = [
    *(batch_norm_max_case((3, 20, 9), kind, "x weight bias") for kind in sorted(ops.MAX_ACTIVATIONS)),
    batch_norm_max_case((3, 33, 40), "relu", "x", given=True),
    batch_norm_max_case((2, 5, 7), "none", "x weight"),
]


def window_case(
    sides: tuple[int, int],
    channels: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    samples: int = 3,
    bias: bool = True,
) -> Case:
    """A convolution of images, or volumes, with the channels last in memory."""
    inputs, outputs = channels
    steps = stride, padding, dilation
    shapes = {"x": (samples, *sides, inputs), "weight": (outputs, *kernel, inputs // groups)}
    offsets = {"bias": (outputs,)} if bias else {}
    convolve = functional.conv2d if len(sides) == 2 else functional.conv3d

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(4)
        known = {n: normal(generator, dtype, B, *s).movedim(-1, 2) for n, s in shapes.items()}
        return known | {n: normal(generator, dtype, B, *s) for n, s in offsets.items()}

    words = "".join(f"-{n}{'x'.join(map(str, v))}" for n, v in zip("kspd", (kernel, *steps), strict=True))
    return Case(
        f"windows-{'x'.join(map(str, (samples, *sides, *channels)))}{words}g{groups}{'-bias' * bias}",
        "window_convolution",
        make,
        lambda t: ops.window_convolution(t["x"], t["weight"], t.get("bias"), *steps, groups),
        lambda t: convolve(t["x"], t["weight"], t.get("bias"), *steps, groups),
    )


WINDOW_CASES = [
    window_case((2, 2), (5, 4), (3, 3), padding=(1, 1), bias=False),
    window_case((4, 4), (3, 2), (4, 4)),
    window_case((1, 1), (3, 2), (5, 5), padding=(2, 2)),
    window_case((3, 4), (6, 8), (1, 1)),  # windows that are pixels
    window_case((5, 4), (6, 34), (1, 1), (2, 1)),
    window_case((5, 6), (4, 6), (3, 2), (2, 1), (1, 2), (1, 2), groups=2),
    window_case((4, 5), (2, 8), (2, 2), dilation=(2, 1), groups=2),  # short windows: gradients are turned
    window_case((4, 5), (18, 1), (3, 3), padding=(1, 1)),  # sums along windows
    window_case((3, 4, 3), (2, 4), (2, 3, 1), (1, 2, 1), (1, 1, 0), (1, 1, 1)),  # volumes
    window_case((4, 3, 5), (4, 6), (2, 2, 2), (2, 1, 1), (0, 1, 1), (1, 2, 2), groups=2, bias=False),
]

LARGE_WINDOW_CASES = [
    window_case((17, 15), (40, 35), (3, 3), padding=(1, 1), samples=2),  # several pieces of lines, and of the depth
    window_case((12, 13), (32, 40), (3, 3), (2, 1), (1, 1), (1, 2), groups=2, samples=5),
]


def patch_case(
    sides: tuple[int, int], channels: int, kernel: tuple[int, int], stride: int, padding: int, add: bool = False
) -> Case:
    """Windows of 3 images, or, to `add` up, of as many as these windows have come from."""
    steps = kernel, (stride, stride), (padding, padding)
    windows = tuple((n + 2 * padding - k) // stride + 1 for n, k in zip(sides, kernel, strict=True))
    taps = kernel[0] * kernel[1]

    def of_torch(t: Tensors) -> torch.Tensor:
        images = t["x"].movedim(-1, 1)
        columns = functional.unfold(images, kernel, 1, padding, stride).unflatten(1, (channels, taps))
        return columns.permute(0, 3, 2, 1).reshape(3, *windows, -1)

    def added_by_torch(t: Tensors) -> torch.Tensor:
        columns = t["x"].flatten(1, 2).unflatten(2, (taps, channels)).permute(0, 3, 2, 1).flatten(1, 2)
        return functional.fold(columns, sides, kernel, 1, padding, stride).movedim(1, -1)

    name = f"{'x'.join(map(str, (*sides, channels)))}-k{kernel[0]}x{kernel[1]}s{stride}p{padding}"
    if add:
        make = maker((3, *windows), taps * channels, "x", False)
        return Case(
            f"add-patches-{name}", "add_patches", make, lambda t: ops.add_patches(t["x"], sides, *steps), added_by_torch
        )
    make = maker((3, *sides), channels, "x", False)
    return Case(f"patches-{name}", "patches", make, lambda t: ops.patches(t["x"], *steps), of_torch)


PATCH_CASES = [
    patch_case((5, 6), 3, (4, 4), 2, 1),
    patch_case((5, 6), 3, (4, 4), 2, 1, add=True),
    patch_case((7, 4), 5, (3, 2), 3, 0),
    patch_case((7, 4), 5, (3, 2), 3, 0, add=True),  # some pixels are in no window
    patch_case((3, 2), 20, (5, 3), 1, 3),  # some windows see padding alone
    patch_case((3, 2), 20, (5, 3), 1, 3, add=True),
]


def pool_case(sides: tuple[int, int], channels: int, kernel: int, stride: int, padding: int, kind: str) -> Case:
    """Pooling of 3 images; `kind`: mean, largest, or the largest above zero."""
    steps = (kernel, kernel), (stride, stride), (padding, padding)

    def call(t: Tensors) -> torch.Tensor:
        if kind == "mean":
            return ops.avg_pool(t["x"], *steps, count_include_pad=False)
        return ops.max_pool(t["x"], *steps, ceil_mode=True, activation=kind)

    def one(t: Tensors) -> torch.Tensor:
        images = t["x"].movedim(-1, 1)
        if kind == "mean":
            return functional.avg_pool2d(images, *steps, count_include_pad=False).movedim(1, -1)
        images = images.relu() if kind == "relu" else images
        return functional.max_pool2d(images, *steps, ceil_mode=True).movedim(1, -1)

    return Case(
        f"pool-{kind}-{'x'.join(map(str, (*sides, channels)))}-k{kernel}s{stride}p{padding}",
        "avg_pool" if kind == "mean" else "max_pool",
        maker((3, *sides), channels, "x", False),
        call,
        one,
    )


POOL_CASES = [
    pool_case((7, 6), 5, 2, 2, 0, "none"),
    pool_case((5, 8), 18, 3, 2, 1, "relu"),
    pool_case((5, 8), 18, 3, 2, 1, "mean"),
    pool_case((3, 4), 1, 2, 1, 1, "mean"),
    pool_case((40, 30), 40, 2, 2, 0, "relu"),
]


def glu_case(shape: tuple[int, ...], dim: int) -> Case:
    """Gated halves along dimension `dim` of `[B, *shape]`."""

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(7)
        return {"x": torch.stack([normal(generator, dtype, *shape) for _ in range(B)])}

    def call(t: Tensors) -> torch.Tensor:
        y = ops.glu(t["x"], dim)
        return ops.glu(t["x"].contiguous(), dim) if y is None else y  # type: ignore[return-value]

    name = f"glu-{'x'.join(map(str, shape))}-{dim}"
    return Case(name, "glu", make, call, lambda t: functional.glu(t["x"], dim - 1))


GLU_CASES = [
    glu_case((3, 6, 5), 2),
    glu_case((7, 10), 2),
    glu_case((4, 36), 1),
    glu_case((9000, 6), 2),  # several tasks for each model
    glu_case((700, 64), 2),
]


def prelu_case(shape: tuple[int, ...], slopes: int, last: bool) -> Case:
    """Rectified channels, a slope of each or one of all, the channels last in memory or not."""

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(6)
        rows = (shape[0], *shape[2:], shape[1]) if last else shape
        x = torch.stack([normal(generator, dtype, *rows) for _ in range(B)])
        return {"x": x.movedim(-1, 2) if last else x, "weight": normal(generator, dtype, B, slopes)}

    def call(t: Tensors) -> torch.Tensor:
        y = ops.prelu(t["x"], t["weight"])
        return ops.prelu(t["x"].contiguous(), t["weight"]) if y is None else y  # type: ignore[return-value]

    name = f"prelu-{'x'.join(map(str, shape))}-{slopes}{'-last' * last}"
    return Case(name, "prelu", make, call, lambda t: functional.prelu(t["x"], t["weight"]))


PRELU_CASES = [
    prelu_case((3, 5, 4, 3), 5, False),
    prelu_case((3, 5, 4, 3), 5, True),
    prelu_case((3, 18, 2), 18, True),
    prelu_case((3, 5, 4), 1, True),
    prelu_case((4, 6), 6, False),
    prelu_case((9, 40, 500), 40, True),  # several tasks for each model
    prelu_case((9, 40, 500), 40, False),
]


def scale_case(shape: tuple[int, ...], factors: tuple[int, ...], last: bool) -> Case:
    """Products with factors that are 1 in some dimensions, the channels last in memory or not."""

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(5)
        rows = (shape[0], *shape[2:], shape[1]) if last else shape
        x = torch.stack([normal(generator, dtype, *rows) for _ in range(B)])
        return {"x": x.movedim(-1, 2) if last else x, "weight": normal(generator, dtype, B, *factors)}

    def call(t: Tensors) -> torch.Tensor:
        y = ops.scaled(t["x"], t["weight"])
        return t["x"] * t["weight"] if y is None else y

    name = f"scaled-{'x'.join(map(str, shape))}-{'x'.join(map(str, factors))}{'-last' * last}"
    return Case(name, "scaled", make, call, lambda t: t["x"] * t["weight"])


SCALE_CASES = [
    scale_case((3, 5, 4, 3), (3, 5, 1, 1), True),  # channels of maps
    scale_case((3, 2, 13, 11), (3, 2, 1, 1), False),
    scale_case((2, 36, 4, 3), (1, 36, 1, 1), True),  # channels
    scale_case((3, 5, 4, 3), (3, 1, 4, 3), False),  # pixels
    scale_case((3, 130, 4), (3, 1, 4), True),
    scale_case((40, 70), (1, 70), False),
    scale_case((3, 9000), (3, 1), False),  # sums in pieces
    scale_case((900, 40), (1, 40), False),  # several tasks for each model
    scale_case((40, 500), (1, 1), False),
]


def softmax_case(shape: tuple[int, ...], log: bool) -> Case:
    """Softmax along short rows, or its logarithm."""

    def make(B: int, dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(4)
        return {"x": torch.stack([normal(generator, dtype, *shape) for _ in range(B)])}

    def call(t: Tensors) -> torch.Tensor:
        return ops.short_softmax(t["x"], log)

    def truth(t: Tensors) -> torch.Tensor:
        return torch.log_softmax(t["x"], -1) if log else torch.softmax(t["x"], -1)

    return Case(f"{'log-' * log}softmax-{'x'.join(map(str, shape))}", "softmax", make, call, truth)


SOFTMAX_CASES = [
    softmax_case(shape, log)
    for log in (False, True)
    for shape in ((3, 6), (17, 2), (2, 16, 15), (2, 3, 31), (9000, 5))  # the last in several tasks for each model
]
