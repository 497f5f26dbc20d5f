# SPDX-License-Identifier: MIT
"""Steps of an array that is edited between them: as separate models train, and with the recordings of before."""

import copy
import random

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from dnnsuite._step.capture import library

WIDTH_OF_INPUT = 6
EPS = 1e-3  # Adam divides rounding by it where a gradient is zero


def model(seed, dropout):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH_OF_INPUT, 8, bias=False),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(8, 3),
    ).double()


class Losses:
    """Cross entropy with weights of the classes, which counts the steps that Python runs, unseen by its guards: they
    do not look into installed packages."""

    def __init__(self):
        self._key = f"calls {id(self)}"
        self.weight = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)

    def __call__(self, array, x, y):
        torch.counted_by_tests = {**vars(torch).get("counted_by_tests", {}), self._key: self.calls + 1}
        return nn.functional.cross_entropy(array(x), y, weight=self.weight)

    @property
    def calls(self):
        return vars(torch).get("counted_by_tests", {}).get(self._key, 0)


class Trained:
    """An array under a StepRunner; edits as of `Separate`."""

    def __init__(self, dropout, **options):
        self.dropout = dropout
        torch.manual_seed(0)
        self.array = dnnsuite.fuse([model(seed, dropout) for seed in range(3)], seeds=range(3))
        self.opt = optim.AdamW(self.array.parameters(), lr=[1e-2, 2e-2, 3e-2], eps=EPS)
        self.losses = Losses()
        self.runner = StepRunner(self.array, self.opt, self.losses, audit=0, **options)  # it counts calls

    def step(self, x, y):
        B = self.array.B
        return self.runner.step(dnnsuite.stack(x, B), dnnsuite.stack(y, B)).losses()

    def drop(self, slot):
        self.array.drop(slot, self.opt)

    def append(self, seed, lr):
        self.array.append(model(seed, self.dropout), self.opt, lr=lr)

    def replace(self, slot, seed, lr):
        self.array.replace(slot, model(seed, self.dropout), self.opt, lr=lr)

    def clone(self, slot, into):
        self.array.clone(slot, self.opt, into=into)

    def reload(self):
        self.array.load_state_dict(copy.deepcopy(self.array.state_dict()))
        self.opt.load_state_dict(copy.deepcopy(self.opt.state_dict()))

    def train(self, mode):
        self.array.train(mode)

    def slow_down(self):
        for group in self.opt.param_groups:
            group["lr"] = group["lr"] * 0.5

    def state(self):
        return {name: value.clone() for name, value in self.array.state_dict().items()}


class Separate:
    """Plain models, each with its optimizer."""

    def __init__(self):
        self.held = [self._made(seed, (seed + 1) * 1e-2) for seed in range(3)]
        self.mode = True
        self.weight = Losses().weight

    def _made(self, seed, lr):
        made = model(seed, 0.0)
        return made, torch.optim.AdamW(made.parameters(), lr=lr, eps=EPS)

    def step(self, x, y):
        found = []
        for one, opt in self.held:
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(one(x), y, weight=self.weight)
            loss.backward()
            opt.step()
            found.append(loss.detach())
        return torch.stack(found)

    def drop(self, slot):
        del self.held[slot]

    def append(self, seed, lr):
        self.held.append(self._made(seed, lr))
        self.train(self.mode)

    def replace(self, slot, seed, lr):
        self.held[slot] = self._made(seed, lr)
        self.train(self.mode)

    def clone(self, slot, into):
        made = copy.deepcopy(self.held[slot])
        self.held[into : len(self.held) if into is None else into + 1] = [made]

    def reload(self):
        pass

    def train(self, mode):
        self.mode = mode
        for one, _ in self.held:
            one.train(mode)

    def slow_down(self):
        for _, opt in self.held:
            opt.param_groups[0]["lr"] *= 0.5

    def state(self):
        states = [one.state_dict() for one, _ in self.held]
        return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def clone_to_the_end(one, slot):
    if isinstance(one, Separate):
        one.held.append(copy.deepcopy(one.held[slot]))
    else:
        one.clone(slot, None)


def edit(choice, one, B):
    """Carry out one edit of an array of B models; return how many there are then."""
    kind = choice.choice(["drop", "append", "replace", "clone", "clone into", "reload", "train", "lr", "none"])
    slot, seed = choice.randrange(B), choice.randrange(100)
    torch.manual_seed(seed)
    if kind == "drop" and B > 1:
        one.drop(slot)
        return B - 1
    if kind == "append" and B < 5:
        one.append(seed, 1e-2)
        return B + 1
    if kind == "clone" and B < 5:
        clone_to_the_end(one, slot)
        return B + 1
    if kind == "clone into":
        one.clone(slot, (slot + 1) % B)
    elif kind == "replace":
        one.replace(slot, seed, 2e-2)
    elif kind == "reload":
        one.reload()
    elif kind == "train":
        one.train(choice.random() < 0.5)
    elif kind == "lr":
        one.slow_down()
    return B


def history(one, seed, rounds=9):
    """Train between random edits; return the losses of all steps and the last state."""
    choice, B, found = random.Random(seed), 3, []
    data = torch.Generator().manual_seed(seed)
    for _ in range(rounds):
        B = edit(choice, one, B)
        for _ in range(choice.randrange(1, 5)):
            N = choice.choice([8, 8, 5])
            x = torch.randn(N, WIDTH_OF_INPUT, generator=data, dtype=torch.float64)
            found.append(one.step(x, torch.randint(3, (N,), generator=data)))
    return found, one.state()


def close(a, b):
    assert len(a[0]) == len(b[0])
    for mine, theirs in zip(a[0], b[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)
    for name in b[1]:
        torch.testing.assert_close(a[1][name], b[1][name], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("seed", "width", "threads"), [(0, 1, 1), (4, 8, 1), (2, 2, 1), (3, 1, 2), (5, 2, 2), (7, 8, 2)]
)
def test_any_edits_train_as_separate_models(seed, width, threads):
    array = Trained(0.0, width=width, threads=threads)
    close(history(array, seed), history(Separate(), seed))


@pytest.mark.parametrize(("seed", "width"), [(10, 1), (11, 8), (12, 2)])
def test_any_edits_give_the_same_bits_with_and_without_capture(seed, width):
    captured, written = (
        history(Trained(0.3, width=width, threads=1, capture=capture), seed) for capture in (True, False)
    )
    for mine, theirs in zip(captured[0], written[0], strict=True):
        assert torch.equal(mine, theirs)
    for name, value in written[1].items():
        assert torch.equal(captured[1][name], value)


def batch(N=8):
    return torch.randn(N, WIDTH_OF_INPUT, dtype=torch.float64), torch.randint(3, (N,))


def python_steps(one, count=3, N=8):
    """How many of the next steps of shards Python runs."""
    before = one.losses.calls
    for _ in range(count):
        one.step(*batch(N))
    return one.losses.calls - before


@pytest.mark.parametrize("width", [1, 8])
def test_edits_of_equal_shapes_record_nothing(width):
    one = Trained(0.2, width=width, threads=1)
    python_steps(one, 4)
    one.replace(1, 50, 1e-3)
    assert python_steps(one) == 0
    one.replace(0, 51, 1e-3)
    assert python_steps(one) == 0
    one.clone(0, 2)
    assert python_steps(one) == 0
    one.reload()  # other tensors of the optimizer: where models are all in one shard, it is compared once more
    assert python_steps(one) == (width == 8)
    assert one.runner.mode == "captured"


@pytest.mark.parametrize("width", [1, 8])
def test_a_scaler_that_follows_an_edit_goes_on_in_the_runner(width):
    """It gets tensors of its own for that."""
    one = Trained(0.0, width=8, threads=1)
    one.runner.close()
    scaler = optim.GradScaler("cpu", init_scale=2.0, growth_interval=1, B=3)
    batch = dnnsuite.stack(torch.ones(8, WIDTH_OF_INPUT, dtype=torch.float64), 3)

    def losses(part, x):
        return part(x).square().mean((1, 2))

    with StepRunner(one.array, one.opt, losses, threads=1, width=width, scaler=scaler) as runner:
        for step in range(6):
            if step == 4:
                one.array.replace(2, model(9, 0.0), one.opt, scaler, lr=1e-2, init_scale=4.0)
            runner.step(batch)
    assert scaler.get_scale().tolist() == [128.0, 128.0, 16.0]


def test_shards_of_one_width_share_a_recording():
    one = Trained(0.2, width=1, threads=1)
    one.losses.weight = None
    python_steps(one, 3)
    assert python_steps(one) == 0
    one.append(60, 1e-2)
    one.drop(0)
    assert python_steps(one) == 0
    one.drop(0)
    assert python_steps(one) == 0


def test_another_layout_of_batch_is_recorded_in_one_step_and_no_more():
    one = Trained(0.2, width=8, threads=1)
    assert python_steps(one, 4) == 2
    assert python_steps(one, 4, N=5) == 1
    assert python_steps(one, 4, N=8) == 0
    assert python_steps(one, 4, N=5) == 0


def test_another_runner_of_equal_models_records_nothing(monkeypatch):
    monkeypatch.setattr(library, "SHARED", [])

    def modes(slope):
        array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LeakyReLU(slope)) for _ in range(2)])
        opt, x = optim.SGD(array.parameters(), lr=0.1), torch.randn(2, 4, 5)
        with StepRunner(array, opt, lambda part, x: part(x).square().mean((1, 2)), threads=1) as runner:
            found = []
            for _ in range(4):
                runner.step(x)
                found.append(runner.mode)
            return found

    assert modes(0.1).index("captured") == 2
    assert modes(0.1).index("captured") == 0
    assert modes(0.2).index("captured") == 2  # it is other code


def test_another_number_of_models_is_recorded_once():
    one = Trained(0.2, width=8, threads=1)
    one.losses.weight = None
    python_steps(one, 4)
    one.drop(0)
    assert python_steps(one) == 1
    one.append(70, 1e-2)
    assert python_steps(one) <= 1
    one.drop(1)
    assert python_steps(one) == 0
    one.append(71, 1e-2)
    assert python_steps(one) == 0


def picture_model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3))


def test_edits_keep_layouts_so_that_recordings_serve_on():
    """The filters of one input channel may lie in either order: an edit keeps the one they have."""
    array = dnnsuite.fuse([picture_model(seed) for seed in range(2)])
    opt = optim.AdamW(array.parameters(), lr=1e-2)
    losses = Losses()
    losses.weight = None
    x, y = torch.randn(5, 1, 6, 6), torch.randint(3, (5,))
    with StepRunner(array, opt, losses, threads=1, width=1) as runner:
        for step in range(6):
            if step == 3:
                before = losses.calls
                array.replace(0, picture_model(7), opt, lr=1e-3)
            if step == 5:
                array.append(picture_model(8), opt, lr=1e-3)
            runner.step(dnnsuite.stack(x, array.B), dnnsuite.stack(y, array.B))
        assert runner.mode == "captured"
    assert losses.calls == before
