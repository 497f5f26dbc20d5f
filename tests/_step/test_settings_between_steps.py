# SPDX-License-Identifier: MIT
"""Settings of torch, of packages and of tables that change between two steps: as B separate models, or a reason."""

import contextlib
import copy
import importlib
import sys

import pandas
import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument

WAYS = [{"threads": 1}, {"threads": 1, "width": 1}, {"threads": 2, "width": 2}]


class Net(torch.nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.b(self.a(x).relu())


class Asks(Net):
    """Decides by settings, and makes a tensor of the default dtype."""

    def forward(self, x):
        factor = 3 if torch.are_deterministic_algorithms_enabled() else 1
        factor *= 5 if torch.is_autocast_enabled("cpu") else 1
        return super().forward(x) * factor + (torch.zeros(2) + 0.1).to(x.dtype) ** 2


def losses(array, x, y):
    return (array(x) - y).square().flatten(1).mean(1)


def train(
    models, around=lambda number: contextlib.nullcontext(), between=lambda number, modules: None, far=1e-6, **options
):
    """Train an array and separate models side by side; return the runner's modes."""
    models = [model.double() for model in models]
    array, modes = dnnsuite.fuse(copy.deepcopy(models)), []
    own = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
    torch.manual_seed(0)
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.05), losses, **options) as runner:
        for number in range(12):
            x, y = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
            between(number, [array, *models])
            errors = []
            with around(number):
                try:
                    runner.step(dnnsuite.stack(x, len(models)), dnnsuite.stack(y, len(models))).losses()
                except RuntimeError as error:
                    errors.append(error)
            for model, optimizer in zip(models, own, strict=True):
                with around(number), contextlib.suppress(RuntimeError):
                    optimizer.zero_grad()
                    (model(x) - y).square().mean().backward()
                    optimizer.step()
                    assert not errors
            for mine, model in zip(array, models, strict=True):
                torch.testing.assert_close(mine.state_dict(), model.state_dict(), rtol=1e-5, atol=far)
            modes.append(runner.mode)
    return modes


@contextlib.contextmanager
def set_to(read, write, value):
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


AROUND = {
    "autocast": lambda number: torch.autocast("cpu", torch.bfloat16, enabled=number % 3 == 1),
    "deterministic": lambda number: set_to(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, number % 3 == 1
    ),
    "default dtype": lambda number: set_to(
        torch.get_default_dtype, torch.set_default_dtype, torch.float64 if number % 4 == 3 else torch.float32
    ),
    "threads": lambda number: set_to(torch.get_num_threads, torch.set_num_threads, 1 + number % 2),
    "gradients": lambda number: torch.set_grad_enabled(number % 4 != 3),
}


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("name", AROUND)
def test_settings_of_torch(name, options):
    far = 0.1 if name == "autocast" else 1e-6  # sums of 8 bits round in another order
    train([Asks(seed) for seed in range(3)], AROUND[name], far=far, **options)


@pytest.mark.parametrize("options", [*WAYS, {"capture": False}], ids=str)
@pytest.mark.parametrize(
    ("place", "name", "another"),
    [
        (torch.nn.Linear, "forward", lambda self, x: x @ self.weight.T),
        (torch.nn.functional, "linear", lambda x, weight, bias: x @ weight.T),
    ],
    ids=["forward", "function"],
)
def test_another_forward_of_torchs_layer_is_refused_until_it_is_put_back(options, place, name, another, monkeypatch):
    array = dnnsuite.fuse([Net(seed) for seed in range(3)])
    x, y = torch.randn(3, 5, 4), torch.randn(3, 5, 2)
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.05), losses, **options) as runner:
        for _ in range(4):
            runner.step(x, y).losses()
        before = copy.deepcopy(array.state_dict())
        with monkeypatch.context() as patch:
            patch.setattr(place, name, another)
            with pytest.raises(InvalidArgument, match=rf"{place.__name__}\.{name} was replaced after"):
                runner.step(x, y).losses()
            with pytest.raises(InvalidArgument, match="put torch's back"):
                array(x)
            torch.testing.assert_close(array.state_dict(), before, rtol=0, atol=0)
        runner.step(x, y).losses()
    assert not torch.equal(array.state_dict()["a.weight"], before["a.weight"])


@pytest.mark.parametrize("name", ["softmax", "scaled_dot_product_attention", "linear"])
def test_a_function_that_torchs_own_functions_call_may_not_be_replaced_either(name, monkeypatch):
    array = dnnsuite.fuse([torch.nn.MultiheadAttention(4, 2, batch_first=True) for _ in range(2)])
    x = torch.randn(2, 3, 5, 4)
    before = array(x, x, x)[0]
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.functional, name, lambda *args, **options: 1 / 0)
        with pytest.raises(InvalidArgument, match=rf"torch\.nn\.functional\.{name} was replaced after"):
            array(x, x, x)
    assert torch.equal(array(x, x, x)[0], before)


PACKAGE = {
    "__init__.py": "from . import config, net\nfrom .inner import deep\n",
    "config.py": "x = 1.0\nmode = 'a'\ntable = {'k': 1.0}\n",
    "inner/__init__.py": "from . import deep\n",
    "inner/deep.py": "y = 1.0\n",
    "net.py": """
import importlib
import {0}
from {0} import config

def by_package(h):
    return h * {0}.config.x

def by_module(h):
    return h * config.table["k"] if config.mode == "a" else h * 3

def by_inner(h):
    return h * {0}.inner.deep.y

def by_made_name(h):
    return h * getattr(config, f"{{'x' * 1}}")

def of(settings):
    return settings.x

def by_helper(h):
    return h * of(config)

def by_import(h):
    return h * getattr(importlib.import_module("{0}.config"), "x")
""",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package of a user's with a module of settings."""
    folder = tmp_path_factory.mktemp("packages")
    for name, text in PACKAGE.items():
        path = folder / "users_settings" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format("users_settings") if name == "net.py" else text)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("users_settings")
    sys.path.remove(str(folder))


def x_of(package, number):
    package.config.x = 1 + 0.1 * (number // 3)


def another_module(package, number):
    if number == 6:
        other = type(sys)("users_settings.config")
        vars(other).update(x=0.3, mode="a", table={"k": 2.0})
        package.config = sys.modules["users_settings.config"] = other


def mode_and_table(package, number):
    package.config.mode, package.config.table["k"] = "ab"[number // 4 % 2], 1 + 0.2 * (number // 2)


def inner(package, number):
    package.inner.deep.y = 1.0 if number < 6 else 0.3


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, x_of) for name in ("by_package", "by_import", "by_helper", "by_made_name")),
        *(("by_package", another_module), ("by_module", mode_and_table), ("by_inner", inner)),
    ],
)
def test_settings_in_a_users_package(package, name, change, options, monkeypatch):
    for module in (package.config, package.inner.deep):
        for key, value in list(vars(module).items()):
            monkeypatch.setitem(vars(module), key, copy.deepcopy(value) if key == "table" else value)
    monkeypatch.setattr(package, "config", package.config)
    monkeypatch.setitem(sys.modules, "users_settings.config", package.config)
    scale = getattr(package.net, name)

    class Scaled(Net):
        def forward(self, x):
            return scale(super().forward(x))

    train([Scaled(seed) for seed in range(3)], between=lambda number, _: change(package, number), **options)


@pytest.mark.parametrize(("differ", "options"), [(0, WAYS[0]), *((1, way) for way in WAYS)], ids=str)
def test_a_series_of_pandas_that_a_forward_reads_and_writes_is_each_models_own(differ, options):
    class Weighted(Net):
        def __init__(self, seed):
            super().__init__(seed)
            self.series = pandas.Series([1.0 + differ * seed, 2.0])

        def forward(self, x):
            self.series.iloc[1] *= 0.9
            return super().forward(x) * float(self.series.iloc[0]) * float(self.series.iloc[1])

    modes = train([Weighted(seed) for seed in range(3)], **options)
    assert modes[-1].startswith("eager: the step can read ")
