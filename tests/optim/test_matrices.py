# SPDX-License-Identifier: MIT
"""Muon and Adafactor against torch's."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from helpers import make_models
from one_models import DECAY, LR, B, Matrices, by_hand, losses, own


@pytest.mark.parametrize("more", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 4}])
def test_muon_makes_each_models_momentum_orthogonal(more):
    """Of the same gradients, to the bit: in bfloat16 a last bit of the gradient may be seen in the third figure."""
    values = {"lr": LR, "weight_decay": DECAY, "momentum": [0.95, 0.9, 0.5]}
    array = dnnsuite.fuse(make_models(Matrices, B))
    models = dnnsuite.unfuse(array)
    ours = optim.Muon(array.parameters(), **values, **more)
    each = [torch.optim.Muon(m.parameters(), **own(values, i), **more) for i, m in enumerate(models)]
    for _ in range(4):
        for together, *parts in zip(array.parameters(), *(m.parameters() for m in models), strict=True):
            together.grad = torch.randn_like(together)
            for index, part in enumerate(parts):
                part.grad = together.grad[index].clone()
        for one in (ours, *each):
            one.step()
    for together, *parts in zip(array.parameters(), *(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(together, torch.stack(parts), rtol=1e-5, atol=1e-6)


def test_muon_is_captured_beside_another_optimizer(models, batches):
    array, apart = dnnsuite.fuse(models), dnnsuite.fuse(models)
    trained = []
    for one in (array, apart):
        matrices = [p for p in one.parameters() if p.dim() == 3]
        rest = [p for p in one.parameters() if p.dim() < 3]
        trained.append(optim.ChainedOptimizer([optim.Muon(matrices, lr=LR), optim.AdamW(rest, lr=LR)]))
    with dnnsuite.StepRunner(array, trained[0], losses, threads=1, width=B) as runner:
        for x in batches:
            runner.step(x).losses()
        assert runner.mode == "captured"
    by_hand(apart, trained[1], batches)
    for a, b in zip(array.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-3)  # of products in bfloat16


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_torchs_optimizers_become_an_arrays_and_back(name, batches):
    models = make_models(Matrices, B, torch.float64)
    kind = getattr(torch.optim, name)
    each = [kind(model.parameters(), lr=lr) for model, lr in zip(models, LR, strict=True)]
    for index, model in enumerate(models):
        by_hand(model, each[index], batches[:3, index])
    array = dnnsuite.fuse(models)
    together = optim.ArrayOptimizer.from_models(each, array.parameters())
    assert type(together) is getattr(optim, name)
    by_hand(array, together, batches[3:6])
    for index, (model, back) in enumerate(zip(models, dnnsuite.unfuse(array), strict=True)):
        by_hand(model, each[index], batches[3:, index])
        by_hand(back, together.to_model(index, back.parameters()), batches[6:, index])
        near = {"rtol": 2e-2, "atol": 2e-3} if name == "Muon" else {}
        for mine, theirs in zip(back.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, **near)
