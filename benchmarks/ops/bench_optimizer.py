# SPDX-License-Identifier: MIT
"""Optimizers of an array, hyper-parameters per model, against torch's for each model: for-loop, foreach, fused.

`copy` is what the step reaches of this machine's copy bandwidth: the bytes that it has to read and write (parameter and
states twice, gradient once), over its time, over the same of a copy of 512 MiB. `python` is a step of tiny tensors,
where nothing but calls is left, per tensor.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from dnnsuite import optim
from timing import interleaved, start

LAYER = [(384, 128), (384,), (128, 128), (128,), (512, 128), (512,), (128, 512), (128,), *[(128,)] * 4]
BERT = [(8192, 128), (32, 128), (8192, 128), (8192,), *LAYER * 8]
MLP = [(128, 64), (128,), (128, 128), (128,), (10, 128), (10,)]
LARGE = [(1024, 1024), (1024,)] * 4  # 17 MB a model: out of the caches with a few of them
MANY = [(64, 16, 3, 3), (64,)] * 79  # 158 tensors, as a mobilenet has

STATES = {"SGD": 1, "Adam": 2, "AdamW": 2, "Adadelta": 2, "Adagrad": 1, "RMSprop": 1, "NAdam": 2, "Lion": 1}
OPTIONS = {"SGD": {"momentum": 0.9}}


def copy_bandwidth():
    """Bytes per second, read and written, of a copy that no cache holds."""
    source = torch.ones(64 << 20)
    target = torch.empty_like(source)
    timing = interleaved({"copy": lambda: target.copy_(source)}, rounds=5)["copy"]
    return 2 * source.numel() * 4 / timing.min_s


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


def bench(kind, name, shapes, B, bandwidth):
    options = OPTIONS.get(kind, {})
    params = with_gradients(shapes, B)
    own = getattr(optim, kind)(params, lr=[1e-5 * (1 + i) for i in range(B)], **options)
    variants = {"own": own.step}
    if hasattr(torch.optim, kind):
        variants["loop"] = torchs(kind, shapes, B, foreach=False, **options)
        variants["foreach"] = torchs(kind, shapes, B, foreach=True, **options)
        if kind in ("SGD", "Adam", "AdamW", "Adagrad"):
            variants["fused"] = torchs(kind, shapes, B, fused=True, **options)
    timings = interleaved(variants, rounds=5)
    mine = timings["own"].min_s
    size = sum(p.numel() for p in params)
    moved = size * 4 * (3 + 2 * STATES[kind])
    ratios = "  ".join(f"vs {n} {t.min_s / mine:5.2f}x" for n, t in timings.items() if n != "own")
    print(
        f"{kind:<9} B={B} {name:<6} {size / 1e6:7.2f}M {mine * 1e6:9.1f} us  {moved / mine / 1e9:5.1f} GB/s "
        f"copy {moved / mine / bandwidth:5.0%}  {ratios}",
        flush=True,
    )


def bench_python(B):
    """Tiny tensors: what a step costs beside its arithmetic."""
    shapes = [(2,)] * 158
    own = optim.Adam(with_gradients(shapes, B))
    plain = optim.Adam(with_gradients(shapes, B), max_grad_norm=1.0)
    names = {"own": own.step, "clipped": plain.step, "fused": torchs("Adam", shapes, B, fused=True)}
    timings = interleaved(names, rounds=5)
    print(f"python    B={B} 158 tensors, ns per tensor and step: ", end="")
    print("  ".join(f"{n} {t.min_s / 158 * 1e9:.0f}" for n, t in timings.items()), flush=True)


def bench_clip(B):
    """Clipping while stepping, and before it."""
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

    timings = interleaved(
        {"own": inside.step, "clip, step": before, "torch clip, fused": torchs_own}, rounds=5
    )
    mine = timings["own"].min_s
    ratios = "  ".join(f"vs {n} {t.min_s / mine:.2f}x" for n, t in timings.items() if n != "own")
    print(f"clipping  B={B} large {mine * 1e6:9.1f} us  {ratios}", flush=True)


if __name__ == "__main__":
    sizes = start(__doc__).models
    bandwidth = copy_bandwidth()
    print(f"# copy of 512 MiB: {bandwidth / 1e9:.1f} GB/s")
    for models in sizes:
        for which in STATES:
            bench(which, "large", LARGE, models, bandwidth)
        for label, shapes in (("bert", BERT), ("many", MANY), ("mlp", MLP)):
            bench("Adam", label, shapes, models, bandwidth)
        bench_python(models)
        bench_clip(models)
