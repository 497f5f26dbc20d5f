# SPDX-License-Identifier: MIT
"""Published steps of optimizers, written for one model, and models to train: what an array's are compared with."""

import copy
import math

import torch

import dnnsuite
from dnnsuite import optim

B, STEPS = 3, 8
LR, DECAY = [0.1, 0.02, 0.01], [0.0, 0.1, 0.2]


class OneModels:
    """An optimizer of one model, whose `move` changes the parameter in place."""

    def __init__(self, params, **values):
        self.params, self.t = list(params), 0
        self.rows = [{} for _ in self.params]
        self.__dict__.update(values)

    @torch.no_grad()
    def step(self):
        self.t += 1
        self.begin()
        for p, row in zip(self.params, self.rows, strict=True):
            self.move(p, p.grad, row)
        self.end()

    def begin(self):
        """What comes before the parameters."""

    def end(self):
        """What comes after them."""


class Lamb(OneModels):
    betas, eps, always_adapt, trust_clip = (0.9, 0.999), 1e-6, False, False

    def move(self, p, g, row):
        b1, b2 = self.betas
        m = row["m"] = b1 * row.get("m", 0) + (1 - b1) * g
        v = row["v"] = b2 * row.get("v", 0) + (1 - b2) * g * g
        u = (m / (1 - b1**self.t)) / ((v / (1 - b2**self.t)).sqrt() + self.eps) + self.weight_decay * p
        ratio = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1.0
        ratio = min(ratio, 1.0) if self.trust_clip else ratio
        p.sub_(u, alpha=self.lr * float(ratio if self.weight_decay or self.always_adapt else 1.0))


class ScheduleFree(OneModels):
    """z steps, x is its average, and gradients are those of y, between the two."""

    betas, momentum, eps, r, warmup_steps, sum, largest = None, 0.9, 1e-8, 0.0, 0, 0.0, 0.0

    def begin(self):
        self.rate = self.lr * min(1.0, self.t / self.warmup_steps if self.warmup_steps else 1.0)
        self.largest = max(self.largest, self.rate)
        weight = self.t**self.r * self.largest**2
        self.sum += weight
        self.c = weight / self.sum
        self.beta = self.betas[0] if self.betas else self.momentum

    def move(self, p, g, row):
        z, x = row.setdefault("z", p.clone()), row.setdefault("x", p.clone())
        if self.betas:
            b2 = self.betas[1]
            v = row["v"] = b2 * row.get("v", 0) + (1 - b2) * g * g
            g = g / ((v / (1 - b2**self.t)).sqrt() + self.eps)
        g = g + self.weight_decay * p
        z.sub_(g, alpha=self.rate)
        x.mul_(1 - self.c).add_(z, alpha=self.c)
        p.copy_((1 - self.beta) * z + self.beta * x)


class OneProdigy(OneModels):
    betas, eps, d0, growth_rate, d_coef, slice_p = (0.9, 0.999), 1e-8, 1e-6, math.inf, 1.0, 1
    use_bias_correction, safeguard_warmup, decouple = False, False, True

    def begin(self):
        b1, b2 = self.betas
        b3, lr = math.sqrt(b2), self.lr
        if self.t == 1:
            self.d = self.most = self.d0
            self.r = 0.0
        if self.use_bias_correction:
            lr *= math.sqrt(1 - b2**self.t) / (1 - b1**self.t)
        self.rate = self.d * lr
        along = length = 0.0
        for p, row in zip(self.params, self.rows, strict=True):
            g = p.grad + (0 if self.decouple else self.weight_decay) * p
            part, now = g.flatten()[:: self.slice_p], p.flatten()[:: self.slice_p]
            p0 = row.setdefault("p0", now.clone())
            along += self.d / self.d0 * self.rate * float(part @ (p0 - now))
            row["m"] = b1 * row.get("m", 0) + self.d * (1 - b1) * g
            row["v"] = b2 * row.get("v", 0) + self.d**2 * (1 - b2) * g * g
            pace = self.d / self.d0 * (self.d if self.safeguard_warmup else self.rate)
            row["s"] = b3 * row.get("s", 0) + pace * part
            length += float(row["s"].abs().sum())
        self.r = b3 * self.r + along
        estimate = self.d_coef * self.r / length
        self.d = max(self.d, estimate) if self.d == self.d0 else self.d
        self.most = max(self.most, estimate)
        self.d = min(self.most, self.d * self.growth_rate)

    def move(self, p, g, row):
        if self.decouple:
            p.mul_(1 - self.weight_decay * self.rate)
        p.sub_(row["m"] / (row["v"].sqrt() + self.d * self.eps), alpha=self.rate)


class OneLion(OneModels):
    def move(self, p, g, row):
        m = row.get("m", torch.zeros_like(p))
        p.mul_(1 - self.lr * self.weight_decay).sub_((0.9 * m + 0.1 * g).sign(), alpha=self.lr)
        row["m"] = 0.99 * m + 0.01 * g


class PulledBack(OneModels):
    """Lookahead around AdamW."""

    def begin(self):
        if self.t == 1:
            self.inner = torch.optim.AdamW(self.params, lr=self.lr)
            self.slow = [p.clone() for p in self.params]
        self.inner.step()

    def move(self, p, g, row):
        if self.t % self.la_steps == 0:
            slow = next(s for s, q in zip(self.slow, self.params, strict=True) if q is p)
            slow.add_(p - slow, alpha=self.la_alpha)
            p.copy_(slow)


def around(params, la_steps, la_alpha, **values):
    return optim.Lookahead(optim.AdamW(params, **values), la_steps=la_steps, la_alpha=la_alpha)


def in_training(kind):
    def made(params, **values):
        optimizer = kind(params, **values)
        optimizer.train()
        return optimizer

    return made


CASES = {
    "adafactor": (
        optim.Adafactor,
        torch.optim.Adafactor,
        {"lr": LR, "weight_decay": DECAY, "d": [1.0, 2.0, 1.5], "beta2_decay": [-0.8, -0.5, -1.0]},
    ),
    "adafactor, eps": (optim.Adafactor, torch.optim.Adafactor, {"eps": ([1e-3, 0.1, 1.0], 1e-2), "maximize": True}),
    "lamb": (optim.LAMB, Lamb, {"lr": LR, "weight_decay": DECAY, "betas": ([0.9, 0.5, 0.8], 0.99)}),
    "lamb, clipped": (optim.LAMB, Lamb, {"lr": LR, "weight_decay": DECAY, "always_adapt": True, "trust_clip": True}),
    "lion": (optim.Lion, OneLion, {"lr": LR, "weight_decay": DECAY}),
    "lookahead": (around, PulledBack, {"lr": LR, "la_steps": [2, 3, 5], "la_alpha": [0.5, 0.8, 0.2]}),
    "prodigy": (optim.Prodigy, OneProdigy, {"lr": [1.0, 0.5, 0.7], "weight_decay": DECAY, "d0": [1e-6, 1e-3, 1e-4]}),
    "prodigy, options": (
        optim.Prodigy,
        OneProdigy,
        {
            **{"lr": 1.0, "weight_decay": DECAY, "d0": 1e-3, "d_coef": [1.0, 2.0, 0.5], "growth_rate": [2.0, 1.1, 1.5]},
            **{"use_bias_correction": True, "safeguard_warmup": True, "decouple": False, "slice_p": 3},
        },
    ),
    "schedule-free adamw": (
        in_training(optim.AdamWScheduleFree),
        ScheduleFree,
        {"lr": LR, "weight_decay": DECAY, "betas": ([0.9, 0.5, 0.95], 0.99), "warmup_steps": [0, 3, 20]},
    ),
    "schedule-free sgd": (
        in_training(optim.SGDScheduleFree),
        ScheduleFree,
        {"lr": LR, "weight_decay": DECAY, "momentum": [0.9, 0.5, 0.95], "r": [0.0, 0.5, 1.0]},
    ),
}


def own(values, index):
    """Model `index`'s own arguments."""

    def pick(value):
        return (
            tuple(map(pick, value)) if isinstance(value, tuple) else value[index] if isinstance(value, list) else value
        )

    return {name: pick(value) for name, value in values.items()}


def make():
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 2))


def losses(model, x):
    return model(x).square().mean((-1, -2))


def by_hand(model, optimizer, batches):
    for x in batches:
        for p in model.parameters():
            p.grad = None
        losses(model, x).sum().backward()
        optimizer.step()


def alone(models, kind, values, batches):
    """The models, each trained by its own optimizer."""
    models = copy.deepcopy(models)
    for index, model in enumerate(models):
        by_hand(model, kind(model.parameters(), **own(values, index)), batches[:, index])
    return models


def assert_same(array, models):
    for index, (back, model) in enumerate(zip(dnnsuite.unfuse(array), models, strict=True)):
        for (name, expected), actual in zip(model.named_parameters(), back.parameters(), strict=True):
            torch.testing.assert_close(
                actual, expected, rtol=1e-9, atol=1e-10, msg=lambda text, at=f"{name} of {index}": f"{at}: {text}"
            )


class Matrices(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(n, m, bias=False) for n, m in ((6, 9), (9, 4), (6, 9)))

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)) + self.third(x))
