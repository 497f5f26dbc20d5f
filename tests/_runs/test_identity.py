# SPDX-License-Identifier: MIT
"""Identity by what code does: written as a user writes it, changed as a user changes it."""

import subprocess
import sys
import types

import pytest
import torch

from dnnsuite._runs.identity import check_same, identity_of
from dnnsuite.errors import InvalidArgument

SOURCE = """
import argparse, functools, torch
from dataclasses import dataclass
WIDTH = 8
args = argparse.Namespace(depth=2, resume=False, out="a")
settings = {"bias": True, "folder": "a"}
calls = []
count = 0

def block(n):
    return torch.nn.Linear(n, WIDTH, bias=settings["bias"])

class Net(torch.nn.Module):
    scale = 2.0
    def __init__(self):
        super().__init__()
        self.block = block(4)
    def forward(self, x):
        return self.block(x) * self.scale

@dataclass
class Task:
    weight: float = 1.0
    name: str = "a"
    def loss(self, m, x, y):
        return self.weight * (m(x) - y).square().mean()

def model(config):
    global count
    count += 1
    calls.append(config)
    return torch.nn.Sequential(*[Net() for _ in range(args.depth)])

loss = Task().loss
half = functools.partial(model, {"k": float("inf")})
kinds = {"a", "b", "c"}
given = {"model": model, "loss": loss, "half": half, "kinds": lambda x: x in {"a", "b", "c"}}
given["space"] = {"lr": (0.1, 0.2)}
"""


def identity(source=SOURCE, data=None, **changes):
    module = types.ModuleType("mine")
    module.__file__ = "/home/user/mine.py"
    sys.modules["mine"] = module
    exec(compile(source, "/home/user/mine.py", "exec"), module.__dict__)
    vars(module).update(changes)
    return identity_of({**module.given, **({} if data is None else {"data": data})})


def names_of(*arguments, **changes):
    return set(identity(*arguments, **changes).changes(identity().to_dict()))


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("WIDTH = 8", "WIDTH = 9", {"model", "half"}),
        ("depth=2", "depth=3", {"model", "half"}),
        ('"bias": True', '"bias": False', {"model", "half"}),
        ("scale = 2.0", "scale = 3.0", {"model", "half"}),
        ("* self.scale", "/ self.scale", {"model", "half"}),
        ("torch.nn.Linear(n,", "torch.nn.LazyLinear(", {"model", "half"}),
        ("weight: float = 1.0", "weight: float = 2.0", {"loss"}),
        (".square()", ".abs()", {"loss"}),
        ('float("inf")', 'float("nan")', {"half"}),
        ('x in {"a", "b", "c"}', 'x in {"a", "b", "d"}', {"kinds"}),
        ("(0.1, 0.2)", "[0.1, 0.2]", {"space"}),
        ("(0.1, 0.2)", "(0.1, 0.2000001)", {"space"}),
    ],
)
def test_a_change_of_what_is_done_is_seen_wherever_it_is(old, new, parts):
    assert old in SOURCE
    found = names_of(SOURCE.replace(old, new))
    assert found & parts, found
    assert found <= parts


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def block(n):", "# a comment\n\n\ndef block(n):"),
        ("def block(n):\n", 'def block(n):\n    "What it does."\n'),
        ("resume=False", "resume=True"),
        ('out="a"', 'out="b"'),
        ('"folder": "a"', '"folder": "b"'),
        ("calls = []", "calls = [1, 2, 3]"),
        ("count = 0", "count = 7"),
        ('name: str = "a"', 'name: str = "a"  # of the task'),
    ],
)
def test_what_changes_no_number_is_no_change(old, new):
    assert old in SOURCE
    assert names_of(SOURCE.replace(old, new)) == set()


def test_it_is_the_same_in_another_process():
    code = f"""
import sys, types
from dnnsuite._runs.identity import identity_of
module = sys.modules["mine"] = types.ModuleType("mine")
module.__file__ = "/home/user/mine.py"
exec(compile({SOURCE!r}, module.__file__, "exec"), vars(module))
print(identity_of(module.given).to_dict())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(identity().to_dict())


def test_data_count_by_their_numbers():
    x = torch.arange(12.0).view(3, 4)
    other = x.clone()
    other[2, 3] += 1e-3

    def told(data):
        return identity(data=data).texts["data"]

    loader = torch.utils.data.DataLoader
    assert told((x, x)) == told((x.clone(), x.clone())) != told((x, other))
    data = torch.utils.data.TensorDataset(x)
    assert told(loader(data, 2)) == told(loader(data, 2, num_workers=1)) != told(loader(data, 3))
    assert told(loader(data, 2)) != told(loader(torch.utils.data.TensorDataset(other), 2))
    assert told(x) != told(x.double()) != told(x.view(4, 3))
    assert told(x.bfloat16()) == told(x.bfloat16()) != told(other.bfloat16() + 1)
    assert told(x.numpy()) == told(x.numpy().copy()) != told(other.numpy())
    assert told(x.t()) == told(x.t().contiguous())


def test_what_cannot_be_compared_is_named(tmp_path):
    with open(tmp_path / "data", "w") as file:
        found = identity(data=[file])
    assert [each.startswith("data[0]") for each in found.unknown] == [True]


def test_a_refusal_names_part_place_and_way_out(tmp_path):
    then = identity().to_dict()
    now = identity(SOURCE.replace("* self.scale", "/ self.scale"))
    with pytest.raises(InvalidArgument, match=r"Net\.forward \(/home/user/mine.py:\d+\).*--allow-changed model"):
        check_same(tmp_path, then, now)
    with pytest.raises(InvalidArgument, match=r"no such part.*'model'"):
        check_same(tmp_path, then, now, ["modle"])
    allowed = list(now.changes(then))
    assert set(check_same(tmp_path, then, now, allowed)) == set(allowed)


DATA = """
CACHE, SEEN = {}, {"train": [], "valid": []}

class Rows:
    def __init__(self, count):
        self.rows, self.table = [], {}
        for index in range(count):
            self.rows.append(index)
        self._fill()
    def _fill(self):
        self.table["last"] = self.rows[-1]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        SEEN["train"].append(index)
        if index not in CACHE:
            CACHE[index] = self.rows[index] + self.table["last"]
        return CACHE[index]
"""


def rows(count):
    module = types.ModuleType("mine")
    module.__file__ = "/home/user/mine.py"
    sys.modules["mine"] = module
    exec(compile(DATA, "/home/user/mine.py", "exec"), module.__dict__)
    return module.Rows(count)


def test_what_data_remember_as_they_are_read_is_no_part_of_what_they_are():
    data = rows(5)
    before = identity_of({"data": data}).to_dict()
    assert [data[index] for index in (3, 1, 3)] == [7, 5, 7]
    assert not identity_of({"data": data}).changes(before)


def test_what_data_were_filled_with_when_they_were_made_is():
    before = identity_of({"data": rows(5)}).to_dict()
    told = identity_of({"data": rows(6)}).changes(before)["data"]
    assert "rows" in told or "Rows" in told


def test_parts_that_share_code_change_by_themselves():
    def helper(x):
        return x + 1

    def one(x):
        return helper(x)

    def other(x):
        return 2 * helper(x)

    def without(x):
        return x + 1

    then = identity_of({"model": one, "loss": other}).to_dict()
    changed = identity_of({"model": without, "loss": other}).changes(then)
    assert list(changed) == ["model"]


def test_what_a_script_puts_into_torch_is_seen_also_where_only_layers_call_it(monkeypatch):
    def relu(x, inplace=False):
        return 2 * torch.clamp(x, min=0)

    layer = torch.nn.ReLU()
    before = identity_of({"model": layer})
    assert not identity_of({"model": layer}).changes(before.to_dict())
    monkeypatch.setattr(torch.nn.functional, "relu", relu)
    (told,) = identity_of({"model": layer}).changes(before.to_dict()).values()
    assert "torch.nn.functional.relu" in told
    patched = identity_of({"model": layer})
    monkeypatch.setattr(torch.nn.functional, "relu", lambda x, inplace=False: 3 * torch.clamp(x, min=0))
    assert list(identity_of({"model": layer}).changes(patched.to_dict())) == ["patches"]
    monkeypatch.undo()
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: torch.nn.functional.linear(x, self.weight))
    assert identity_of({"model": layer}).changes(before.to_dict()).keys() == {"patches"}
