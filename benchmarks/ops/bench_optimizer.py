# SPDX-License-Identifier: MIT
"""Optimizers of an array, hyper-parameters per model, against torch's for each model: for-loop, foreach, fused.

`copy` copies as many bytes as the step has to read and write (parameter and states twice, gradient once): out of the
caches it is the roof that a step can have. The case of tiny tensors is one where nothing but calls is left.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import optim
from timing import Case, main

LAYER = [(384, 128), (384,), (128, 128), (128,), (512, 128), (512,), (128, 512), (128,), *[(128,)] * 4]
BERT = [(8192, 128), (32, 128), (8192, 128), (8192,), *LAYER * 8]
MLP = [(128, 64), (128,), (128, 128), (128,), (10, 128), (10,)]
LARGE = [(1024, 1024), (1024,)] * 4  # 17 MB a model: out of the caches with a few of them
MANY = [(64, 16, 3, 3), (64,)] * 79  # 158 tensors, as a mobilenet has
TINY = [(2,)] * 158

KINDS = ("SGD", "Adam", "AdamW", "Adadelta", "Adagrad", "RMSprop", "NAdam", "Lion")
OPTIONS = {"SGD": {"momentum": 0.9}}


def with_gradients(shapes, B=None):
    params = [torch.nn.Parameter(torch.randn(*(s if B is None else (B, *s)))) for s in shapes]
    for p in params:
        p.grad = 0.01 * torch.randn_like(p)
    return params


def torchs(kind, shapes, B, **how):
    optimizers = [getattr(torch.optim, kind)(with_gradients(shapes), **how) for _ in range(B)]

    def run():
        for one in optimizers:
            one.step()

    return run


def copy_of(size):
    """A copy that reads and writes `size` bytes in all."""
    source = torch.ones(round(size / 8))
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def bench(kind, name, shapes, B):
    options = OPTIONS.get(kind, {})
    params = with_gradients(shapes, B)
    does = work.optimizer(kind, sum(p.numel() for p in params))
    own = getattr(optim, kind)(params, lr=[1e-5 * (1 + i) for i in range(B)], **options)
    variants = {"own": own.step}
    if hasattr(torch.optim, kind):
        variants["loop"] = torchs(kind, shapes, B, foreach=False, **options)
        variants["foreach"] = torchs(kind, shapes, B, foreach=True, **options)
        if kind in ("SGD", "Adam", "AdamW", "Adagrad"):
            variants["fused"] = torchs(kind, shapes, B, fused=True, **options)
    variants["copy"] = copy_of(does.bytes)
    return Case(kind, f"B={B} {name}, {len(params)} tensors", variants, does)


def bench_clip(B):
    """Clipping while stepping, and before it; the norm reads the gradient once more."""
    params, others, alone = (
        with_gradients(LARGE, B),
        with_gradients(LARGE, B),
        [with_gradients(LARGE) for _ in range(B)],
    )
    inside = optim.Adam(params, lr=1e-5, max_grad_norm=1.0)
    beside = optim.Adam(others, lr=1e-5)
    fused = [torch.optim.Adam(p, lr=1e-5, fused=True) for p in alone]

    def before():
        optim.clip_grad_norm_(others, 1.0)
        beside.step()

    def torchs_own():
        for own, one in zip(alone, fused, strict=True):
            torch.nn.utils.clip_grad_norm_(own, 1.0)
            one.step()

    size = sum(p.numel() for p in params)
    return Case(
        "Adam, clipped",
        f"B={B} large",
        {"own": inside.step, "clip, step": before, "torch clip, fused": torchs_own},
        work.optimizer("Adam", size).plus(flops=3 * size, bytes=4 * size),
    )


def cases(B):
    for kind in KINDS:
        yield bench(kind, "large", LARGE, B)
    for name, shapes in (("bert", BERT), ("many", MANY), ("mlp", MLP), ("tiny", TINY)):
        yield bench("Adam", name, shapes, B)
    yield bench_clip(B)


if __name__ == "__main__":
    main(__doc__, cases)
