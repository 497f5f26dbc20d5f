# SPDX-License-Identifier: MIT
"""SAM against its step of one model."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from one_models import LR, B, OneModels, assert_same, losses, own


class Sharp(OneModels):
    def train(self, model, x):
        inner = torch.optim.SGD(self.params, lr=self.lr, momentum=0.9)
        for batch in x:
            model.zero_grad()
            losses(model, batch).backward()
            with torch.no_grad():
                scales = [p.abs() if self.adaptive else torch.ones_like(p) for p in self.params]
                length = torch.cat([(s * p.grad).flatten() for s, p in zip(scales, self.params, strict=True)]).norm()
                before = [p.clone() for p in self.params]
                for p, s in zip(self.params, scales, strict=True):
                    p.add_(s * s * p.grad, alpha=self.rho / float(length + 1e-12))
            model.zero_grad()
            losses(model, batch).backward()
            with torch.no_grad():
                for p, old in zip(self.params, before, strict=True):
                    p.copy_(old)
            inner.step()


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("how", ["closure", "steps", "runner"])
def test_sam_takes_each_models_second_gradient(how, adaptive, models, batches):
    values = {"lr": LR, "rho": [0.05, 0.1, 0.5]}
    array = dnnsuite.fuse(models)
    optimizer = optim.SAM(array.parameters(), optim.SGD, adaptive=adaptive, momentum=0.9, **values)
    first = []
    if how == "runner":
        with dnnsuite.StepRunner(array, optimizer, losses, threads=1, width=B, audit=1) as runner:
            first = [runner.step(x).losses() for x in batches]
            assert runner.mode == "captured"
    for x in batches if how != "runner" else ():

        def closure(x=x):
            found = losses(array, x)
            found.sum().backward()
            return found

        if how == "closure":
            first.append(optimizer.step(closure))
        else:
            optimizer.zero_grad()
            first.append(closure())
            optimizer.first_step(zero_grad=True)
            closure()
            optimizer.second_step()
    expected = copy.deepcopy(models)
    for index, model in enumerate(expected):
        torch.testing.assert_close(first[0][index], losses(models[index], batches[0, index]))
        Sharp(model.parameters(), adaptive=adaptive, **own(values, index)).train(model, batches[:, index])
    assert_same(array, expected)
