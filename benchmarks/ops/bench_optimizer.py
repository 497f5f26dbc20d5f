# SPDX-License-Identifier: MIT
"""adadelta_, adam_, sgd_ with per-model hyper-parameters, against the best of torch.optim for each model."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from dnnsuite import ops
from timing import report, start

LAYER = [(384, 128), (384,), (128, 128), (128,), (512, 128), (512,), (128, 512), (128,), *[(128,)] * 4]
BERT = [(8192, 128), (32, 128), (8192, 128), (8192,), *LAYER * 8]
MLP = [(128, 64), (128,), (128, 128), (128,), (10, 128), (10,)]


def bench(B, name, shapes):
    params = [torch.randn(B, *shape) for shape in shapes]
    grads, first, second = ([torch.rand_like(p) for p in params] for _ in range(3))
    alone = [[p[i].clone().requires_grad_() for p in params] for i in range(B)]
    for own, i in zip(alone, range(B), strict=True):
        for p, g in zip(own, grads, strict=True):
            p.grad = g[i].clone()

    def c(value):
        return torch.full((B,), value, dtype=torch.float64)

    def loop(make):
        optimizers = [make(own) for own in alone]

        def run():
            for optimizer in optimizers:
                optimizer.step()

        return run

    count = sum(p.numel() for p in params)
    hyper = {value: c(value) for value in (0.0, 1e-3, 0.9, 0.999, 1e-8, 1e-6, 1.0)}
    h = hyper.__getitem__
    report(
        f"adadelta_ B={B} {name} {count / 1e6:.2f}M",
        {
            "own": lambda: ops.adadelta_(params, grads, first, second, h(1e-3), h(0.9), h(1e-6), h(0.0)),
            "torch": loop(lambda own: torch.optim.Adadelta(own, 1e-3, foreach=False)),
            "torch foreach": loop(lambda own: torch.optim.Adadelta(own, 1e-3, foreach=True)),
        },
    )
    betas = h(0.9), h(0.999), h(1e-8), h(0.0)
    report(
        f"adam_ B={B} {name} {count / 1e6:.2f}M",
        {
            "own": lambda: ops.adam_(params, grads, first, second, [], h(1.0), h(1e-3), *betas, False),
            "torch": loop(lambda own: torch.optim.Adam(own, foreach=False)),
            "torch fused": loop(lambda own: torch.optim.Adam(own, fused=True)),
        },
    )
    report(
        f"sgd_ momentum B={B} {name} {count / 1e6:.2f}M",
        {
            "own": lambda: ops.sgd_(params, grads, first, h(1e-3), h(0.9), h(0.0), h(0.0), False, False),
            "torch": loop(lambda own: torch.optim.SGD(own, 1e-3, 0.9, foreach=False)),
            "torch fused": loop(lambda own: torch.optim.SGD(own, 1e-3, 0.9, fused=True)),
        },
    )


if __name__ == "__main__":
    for models in start(__doc__).models:
        bench(models, "bert", BERT)
        bench(models, "mlp", MLP)
