# SPDX-License-Identifier: MIT
"""Muon, Adafactor, LAMB, schedule-free optimizers, Prodigy, Lookahead, SAM and LBFGS: an array against B models alone.

torch has three of them; of the others the published steps are written here for one model.
"""

import copy
import io
import math

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models

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
    "adafactor, eps": (
        optim.Adafactor,
        torch.optim.Adafactor,
        {"eps": ([1e-3, 0.1, 1.0], 1e-2), "maximize": True},
    ),
    "lamb": (optim.LAMB, Lamb, {"lr": LR, "weight_decay": DECAY, "betas": ([0.9, 0.5, 0.8], 0.99)}),
    "lamb, clipped": (
        optim.LAMB,
        Lamb,
        {"lr": LR, "weight_decay": DECAY, "always_adapt": True, "trust_clip": True},
    ),
    "lion": (optim.Lion, OneLion, {"lr": LR, "weight_decay": DECAY}),
    "lookahead": (around, PulledBack, {"lr": LR, "la_steps": [2, 3, 5], "la_alpha": [0.5, 0.8, 0.2]}),
    "prodigy": (
        optim.Prodigy,
        OneProdigy,
        {"lr": [1.0, 0.5, 0.7], "weight_decay": DECAY, "d0": [1e-6, 1e-3, 1e-4]},
    ),
    "prodigy, options": (
        optim.Prodigy,
        OneProdigy,
        {
            **{
                "lr": 1.0,
                "weight_decay": DECAY,
                "d0": 1e-3,
                "d_coef": [1.0, 2.0, 0.5],
                "growth_rate": [2.0, 1.1, 1.5],
            },
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
            tuple(map(pick, value))
            if isinstance(value, tuple)
            else value[index]
            if isinstance(value, list)
            else value
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
                actual,
                expected,
                rtol=1e-9,
                atol=1e-10,
                msg=lambda text, at=f"{name} of {index}": f"{at}: {text}",
            )


@pytest.fixture
def models():
    return make_models(make, B, torch.float64)


@pytest.fixture
def batches():
    return torch.randn(STEPS, B, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("case", CASES)
def test_every_model_is_trained_as_alone(case, models, batches):
    kind, one, values = CASES[case]
    expected = alone(models, one, values, batches)
    array = dnnsuite.fuse(models)
    by_hand(array, kind(array.parameters(), **values), batches)
    assert_same(array, expected)
    array = dnnsuite.fuse(models)
    with dnnsuite.StepRunner(
        array, kind(array.parameters(), **values), losses, threads=1, width=B, audit=1
    ) as runner:
        for x in batches:
            runner.step(x).losses()
        assert runner.mode == "captured"
    assert_same(array, expected)


@pytest.mark.parametrize("case", CASES)
def test_state_survives_a_safe_file_and_a_copy(case, models, batches):
    kind, _, values = CASES[case]
    whole, halves = dnnsuite.fuse(models), dnnsuite.fuse(models)
    by_hand(whole, kind(whole.parameters(), **values), batches)
    first = kind(halves.parameters(), **values)
    by_hand(halves, first, batches[:3])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = kind(halves.parameters(), **values)
    second.load_state_dict(torch.load(file, weights_only=True))
    by_hand(halves, second, batches[3:5])
    halves, third = copy.deepcopy((halves, second))
    by_hand(halves, third, batches[5:])
    for a, b in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("by_runner", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_models_leave_and_join(case, by_runner, models, batches):
    """One is dropped after three steps and a fresh one added, which has the values of the first."""
    kind, one, values = CASES[case]
    array, new = dnnsuite.fuse(models), make_models(make, B + 1, torch.float64)[-1]
    optimizer = kind(array.parameters(), **values)
    fresh = own(values, 0)
    for pair, names in optimizer.pairs.items():
        if pair in fresh:
            fresh |= zip(names, fresh.pop(pair), strict=True)
    fresh = {name: value for name, value in fresh.items() if name in optimizer.per_model}
    for name in {"beta3", "d_coef"} & set(optimizer.per_model) - set(fresh):
        fresh[name] = float(optimizer.param_groups[0][name][0])

    def train(steps):
        if not by_runner:
            by_hand(array, optimizer, steps)
            return
        with dnnsuite.StepRunner(array, optimizer, losses, threads=1, width=B, audit=1) as runner:
            for x in steps:
                runner.step(x).losses()

    train(batches[:3])
    array.drop(1, optimizer)
    array.append(copy.deepcopy(new), optimizer, **fresh)
    order = [0, 2, 1]
    train(batches[3:][:, order])
    expected = alone(models, one, values, batches)
    (joined,) = alone([new], one, {name: own(values, 0)[name] for name in values}, batches[3:, 1:2])
    assert_same(array, [expected[0], expected[2], joined])


@pytest.mark.parametrize("case", CASES)
def test_a_frozen_model_keeps_every_bit(case, models, batches):
    kind, one, values = CASES[case]
    array = dnnsuite.fuse(models)
    optimizer = kind(array.parameters(), **values)
    by_hand(array, optimizer, batches[:2])
    optimizer.freeze(1)
    before = [p[1].clone() for p in array.parameters()]
    state = {name: value[1].clone() for row in optimizer.state.values() for name, value in row.items()}
    by_hand(array, optimizer, batches[2:5])
    assert all(torch.equal(p[1], old) for p, old in zip(array.parameters(), before, strict=True))
    after = {name: value[1] for row in optimizer.state.values() for name, value in row.items()}
    assert all(torch.equal(value, after[name]) for name, value in state.items())
    optimizer.unfreeze(1)
    by_hand(array, optimizer, batches[5:])
    expected = alone(models, one, values, batches)
    (paused,) = alone([models[1]], one, own(values, 1), torch.cat([batches[:2], batches[5:]])[:, 1:2])
    assert_same(array, [expected[0], paused, expected[2]])


@pytest.mark.parametrize("case", CASES)
def test_sixteen_bits_and_gradients_that_are_not_finite(case, models):
    kind, _, values = CASES[case]
    array = dnnsuite.fuse(models).bfloat16()
    optimizer = kind(array.parameters(), **values)
    optimizer.on_nan = "skip"
    x = torch.randn(B, 5, 6, dtype=torch.bfloat16)
    x[1, 0, 0] = math.nan
    before = [p.detach().clone() for p in array.parameters()]
    by_hand(array, optimizer, [x, x])
    assert optimizer.skipped.tolist() == [0, 2, 0]
    for p, old in zip(array.parameters(), before, strict=True):
        assert torch.equal(p[1], old[1])
        assert p.isfinite().all()
        assert case.startswith("prodigy") or not torch.equal(p[0], old[0])


class Matrices(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (
            torch.nn.Linear(n, m, bias=False) for n, m in ((6, 9), (9, 4), (6, 9))
        )

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)) + self.third(x))


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
        trained.append([optim.Muon(matrices, lr=LR), optim.AdamW(rest, lr=LR)])
    with dnnsuite.StepRunner(array, trained[0], [losses, losses], threads=1, width=B) as runner:
        for x in batches:
            runner.step(x).losses()
        assert runner.mode == "captured"
    for x in batches:
        for optimizer in trained[1]:
            by_hand(apart, optimizer, [x])
    for a, b in zip(array.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-3)  # of products in bfloat16


class Sharp(OneModels):
    def train(self, model, x):
        inner = torch.optim.SGD(self.params, lr=self.lr, momentum=0.9)
        for batch in x:
            model.zero_grad()
            losses(model, batch).backward()
            with torch.no_grad():
                scales = [p.abs() if self.adaptive else torch.ones_like(p) for p in self.params]
                length = torch.cat(
                    [(s * p.grad).flatten() for s, p in zip(scales, self.params, strict=True)]
                ).norm()
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


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_searches_for_each_model(search, models, batches):
    values = {"lr": [0.1, 0.02, 1.0], "max_iter": [20, 5, 9], "history_size": [100, 3, 5]}
    array = dnnsuite.fuse(models)
    optimizer = optim.LBFGS(array.parameters(), **values, line_search_fn=search)

    def closure_of(model, optimizer, x):
        def closure():
            optimizer.zero_grad()
            found = losses(model, x)
            found.sum().backward()
            return found

        return closure

    for place, x in enumerate(batches[:4]):
        if place == 2:
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            optimizer = optim.LBFGS(array.parameters(), **values, line_search_fn=search)
            optimizer.load_state_dict(torch.load(file, weights_only=True))
        if place == 3:
            array.drop(0, optimizer)
            x = x[1:]
        optimizer.step(closure_of(array, optimizer, x))
    for index in (1, 2):
        model = copy.deepcopy(models[index])
        each = torch.optim.LBFGS(model.parameters(), **own(values, index), line_search_fn=search)
        for x in batches[:4, index]:
            each.step(closure_of(model, each, x))
        back = array[index - 1]
        apart = optimizer.to_model(index - 1, back.parameters())
        apart.step(closure_of(back, apart, batches[4, index]))
        each.step(closure_of(model, each, batches[4, index]))
        for mine, theirs in zip(back.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_a_closure_that_fails_ends_the_searches(models, batches):
    array = dnnsuite.fuse(models)
    optimizer = optim.LBFGS(array.parameters())
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    with pytest.raises(InvalidArgument, match=r"one loss for each of 3 models"):
        optimizer.step(lambda: losses(array, batches[0]).sum())
    with pytest.raises(InvalidArgument, match="as often as its search needs"):
        dnnsuite.StepRunner(array, optimizer, losses)


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


def test_schedule_free_parameters_are_the_average_in_evaluation(models, batches):
    array = dnnsuite.fuse(models)
    optimizer = optim.AdamWScheduleFree(array.parameters(), lr=LR)
    with pytest.raises(InvalidArgument, match=r"call optimizer.train\(\) before training"):
        by_hand(array, optimizer, batches[:1])
    optimizer.train()
    by_hand(array, optimizer, batches)
    optimizer.eval()
    for index, (model, back) in enumerate(zip(models, dnnsuite.unfuse(array), strict=True)):
        one = ScheduleFree(model.parameters(), betas=(0.9, 0.999), lr=LR[index], weight_decay=0.0)
        by_hand(model, one, batches[:, index])
        for mine, row in zip(back.parameters(), one.rows, strict=True):
            torch.testing.assert_close(mine.detach(), row["x"])
    optimizer.train()
    for mine, theirs in zip(array[0].parameters(), models[0].parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_what_they_cannot_take_is_refused():
    array = dnnsuite.fuse(make_models(make, B))
    with pytest.raises(InvalidArgument, match=r"Muon takes the models' matrices.*\[3, 9\]"):
        optim.Muon(array.parameters())
    with pytest.raises(InvalidArgument, match="LAMB takes real parameters"):
        optim.LAMB([torch.nn.Parameter(torch.randn(3, 2, dtype=torch.cfloat))])
    with pytest.raises(InvalidArgument, match="takes a closure"):
        optim.SAM(array.parameters(), optim.SGD, lr=0.1).step()
    with pytest.raises(InvalidArgument, match="is around an optimizer"):
        optim.Lookahead(torch.optim.SGD(array.parameters(), lr=0.1))
    first, *rest = array.parameters()
    prodigy = optim.Prodigy([{"params": [first], "lr": 0.5}, {"params": rest}])
    with pytest.raises(InvalidArgument, match="one lr for all groups"):
        prodigy.step()
    with pytest.raises(InvalidArgument, match="momentum above 0"):
        optim.SGDScheduleFree(array.parameters(), momentum=[0.9, 0.0, 0.5])
