# SPDX-License-Identifier: MIT
"""Changes of code that decide a run's numbers in ways nobody listed: each is seen, and what only moves is not."""

import ast
import importlib
import subprocess
import sys
import textwrap

import pytest
import torch

from dnnsuite._runs.identity import Identity, identity_of
from dnnsuite._runs.identity_kinds import version_of
from dnnsuite._runs.identity_walk import Walk

HEAD = "import collections, enum, functools, math, os, sys, types\nimport torch\nimport torch.nn.functional as F\n"


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Write files of a user's, and give the identity of `given` in main_case.py."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def identity(**files):
        names = [name for name in sys.modules if name.partition(".")[0] in ("main_case", "helper")]
        for name in names:
            monkeypatch.delitem(sys.modules, name)
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/", 1)
            path = path.with_name(f"{path.name}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(HEAD + textwrap.dedent(text))
        importlib.invalidate_caches()
        return identity_of(importlib.import_module("main_case").given)

    yield identity
    for name in [name for name in sys.modules if name.partition(".")[0] in ("main_case", "helper")]:
        sys.modules.pop(name)


LOSS = "\ngiven = {'loss': loss}\n"
CHANGES = {
    "a module that a function imports": (
        "def loss(m, x):\n    import helper\n    return helper.f(x)", "S = VALUE\ndef f(x): return S * x"),
    "a name that a function imports": (
        "def loss(m, x):\n    from helper import f\n    return f(x)", "S = VALUE\ndef f(x): return S * x"),
    "a module by a constant name": (
        "import importlib\ndef loss(m, x):\n    return importlib.import_module('helper').f(x)",
        "def f(x): return VALUE * x"),
    "a function by a name that is made": (
        "import helper\ndef loss(m, x, n='a'): return getattr(helper, 'f' + n)(x)", "def fa(x): return VALUE * x"),
    "a text that is code": ("def f(x): return VALUE * x\ndef loss(m, x): return eval('f(x)')", ""),
    "a cached function": ("@functools.lru_cache\ndef f(): return VALUE\ndef loss(m, x): return f() * x", ""),
    "a method of a tuple": (
        "class P(collections.namedtuple('P', 'a')):\n    def f(self, x): return VALUE * x\n"
        "p = P(1)\ndef loss(m, x): return p.f(x)", ""),
    "a method of a list": (
        "class P(list):\n    def f(self, x): return VALUE * x\np = P([1])\ndef loss(m, x): return p.f(x)", ""),
    "a method of a number": (
        "class P(float):\n    def f(self, x): return VALUE * x\np = P(3)\ndef loss(m, x): return p.f(x)", ""),
    "an item of a dict with attributes": (
        "class P(dict):\n    __getattr__ = dict.__getitem__\np = P(a=VALUE)\ndef loss(m, x): return p.a * x", ""),
    "a default of a dict": ("d = collections.defaultdict(lambda: VALUE)\ndef loss(m, x): return d['q'] * x", ""),
    "functions in a deque": (
        "def f(x): return VALUE * x\nd = collections.deque([f])\ndef loss(m, x): return d[0](x)", ""),
    "a bound method of a dict": (
        "def f(x): return VALUE * x\nget = {'a': f}.get\ndef loss(m, x): return get('a')(x)", ""),
    "a bound method of a tensor": ("mul = torch.tensor(VALUE).mul\ndef loss(m, x): return mul(x)", ""),
    "a function in a table, by a value": (
        "def fa(x): return x\ndef fb(x): return x * VALUE\nTABLE = {'a': fa, 'b': fb}\n"
        "def loss(m, x, kind='b'): return TABLE[kind or 'a'](x)", ""),
    "a number in a table, by a key that is made": (
        "T = {'a1': VALUE, 'a': 2}\ndef loss(m, x, n=1): return T.get('a' + str(n), T['a']) * x", ""),
    "a function in a registry": (
        "class Registry:\n    def __init__(self): self.table = {}\n    def register(self, name):\n"
        "        def put(f):\n            self.table[name] = f\n            return f\n        return put\n"
        "    def get(self, name): return self.table[name]\n"
        "R = Registry()\n@R.register('b')\ndef f(x): return VALUE * x\ndef loss(m, x): return R.get('b')(x)", ""),
    "a weight that a setter may set": (
        "class Loss:\n    def __init__(self, w): self.w = w\n    def set_w(self, w): self.w = w\n"
        "    def __call__(self, m, x): return self.w * x\nloss = Loss(VALUE)", ""),
    "a name that another class changes": (
        "class Other:\n    def go(self): self.w = 1\nclass Loss:\n    def __init__(self, w): self.w = w\n"
        "    def __call__(self, m, x):\n        Other().go()\n        return self.w * x\nloss = Loss(VALUE)", ""),
    "an attribute of a function": ("def loss(m, x): return loss.k * x\nloss.k = VALUE", ""),
    "a metaclass": (
        "class Meta(type):\n    def k(cls): return VALUE\nclass C(metaclass=Meta): pass\n"
        "def loss(m, x): return C.k() * x", ""),
    "names of arguments": (
        "def f(a, b): return a - b\ndef loss(m, x): return f(a=x, b=m) if VALUE == 1.0 else f(b=x, a=m)", ""),
    "what is frozen": (
        "t = torch.nn.Linear(1, 1)\ntorch.nn.init.zeros_(t.weight)\ntorch.nn.init.zeros_(t.bias)\n"
        "t.weight.requires_grad_(VALUE == 1.0)\ndef loss(m, x): return t(x)", ""),
    "a function of Python's in place of another": (
        "math.fsum = lambda v: VALUE\ndef loss(m, x): return math.fsum(x)", ""),
    "objects in an array": (
        "import numpy as np\nclass C:\n    def f(self): return VALUE\nd = np.array([C()], dtype=object)\n"
        "def loss(m, x): return d[0].f()", ""),
    "an object that is read late": (
        "class A: pass\na = A()\na.k, a.z = VALUE, 1\nclass B:\n    def go(self): return a.k\nclass C:\n"
        "    def __init__(self): self.b = B()\nc = C()\ndef loss(m, x): return a.z + c.b.go()", ""),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(told, change, monkeypatch):
    monkeypatch.setattr("math.fsum", __import__("math").fsum)  # put back in the end
    main, helper = CHANGES[change]
    files = {"main_case": main + LOSS, **({"helper": helper} if helper else {})}
    first = told(**{name: text.replace("VALUE", "1.0") for name, text in files.items()})
    assert not first.unknown
    again = told(**{name: text.replace("VALUE", "1.0") for name, text in files.items()})
    assert not again.changes(first.to_dict())
    changes = told(**{name: text.replace("VALUE", "2.0") for name, text in files.items()}).changes(first.to_dict())
    assert changes.keys() == {"loss"}


def test_a_module_counts_also_if_it_was_asked_about_before_it_was_there(told):
    """An object may name a module that is imported later: that it was not there was kept for good."""
    main = "class F:\n    def __call__(self, x): return x\nF.__module__ = 'helper'\ndef loss(m, x): return F()(x)"
    told(main_case=main + LOSS)
    main, helper = CHANGES["a module that a function imports"]
    first, other = (told(main_case=main + LOSS, helper=helper.replace("VALUE", value)) for value in ("1.0", "2.0"))
    assert other.changes(first.to_dict()).keys() == {"loss"}


USED = {
    "a value that is computed once": (
        "class Rows:\n    @functools.cached_property\n    def table(self): return [1, 2]\n"
        "    def __getitem__(self, i): return self.table[i]\nrows = Rows()\ngiven = {'train': rows}\n"
        "def use(): rows[0]"),
    "a counter in a function": (
        "def loss(x):\n    loss.calls += 1\n    return x\nloss.calls = 0\ngiven = {'loss': loss}\ndef use(): loss(1)"),
    "an epoch that a sampler is told": (
        "class Sampler:\n    epoch = 0\n    def __init__(self): self.epoch = 0\n"
        "    def set_epoch(self, epoch): self.epoch = epoch\n    def __iter__(self): return iter([self.epoch])\n"
        "s = Sampler()\ngiven = {'train': s}\ndef use(): s.set_epoch(3)"),
    "a log": (
        "import logging\nlog = logging.getLogger('mine')\ndef loss(x):\n    log.info('x')\n    return x\n"
        "given = {'loss': loss}\ndef use(): loss(1)"),
    "generators": (
        "import random\nimport numpy as np\na, b = np.random.default_rng(3), random.Random(3)\n"
        "c = torch.Generator().manual_seed(3)\n"
        "def loss(x): return a.random() * b.random() * torch.rand(1, generator=c)\n"
        "given = {'loss': loss}\ndef use(): loss(1)"),
}  # fmt: skip


@pytest.mark.parametrize("use", USED)
def test_what_moves_as_a_run_goes_on_is_no_change(told, use):
    first = told(main_case=USED[use])
    module = sys.modules["main_case"]
    module.use()
    assert not identity_of(module.given).changes(first.to_dict())
    assert not first.unknown


def test_a_module_in_a_package_is_found_from_within(told):
    source = "def f(x):\n    from . import b\n    from .c import g\n    return b.S * x + g()\n"
    main = "from helper.a import f\ngiven = {'loss': f}\n"
    first = told(main_case=main, helper__a=source, helper__b="S = 1\n", helper__c="def g(): return 1\n")
    for other in ({"helper__b": "S = 2\n"}, {"helper__c": "def g(): return 2\n"}):
        files = {"helper__b": "S = 1\n", "helper__c": "def g(): return 1\n", **other}
        assert told(main_case=main, helper__a=source, **files).changes(first.to_dict())


def test_a_value_that_fails_to_tell_of_itself_is_named(told):
    found = told(main_case="class C:\n    def __getattr__(self, name): raise RuntimeError\nc = C()\n"
                           "def loss(x): return c.k\ngiven = {'loss': loss}\n")  # fmt: skip
    assert not found.unknown or "c" in found.unknown[0]


def test_hooks_and_modes_that_see_every_call_are_patches():
    code = {"loss": torch.relu}
    first = identity_of(code).to_dict()
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, output: 2 * output)
    try:
        assert identity_of(code).changes(first).keys() == {"patches"}
    finally:
        handle.remove()
    assert not identity_of(code).changes(first)


def test_installed_packages_count_by_their_versions():
    import attr
    import numpy as np

    walk = Walk(Identity(), {})
    walk.whole("loss", lambda x: np.sqrt(x) + torch.relu(x) + attr.asdict(x))
    assert walk.versions == {name: version_of(name) for name in ("numpy", "torch", "attr") if version_of(name)}
    assert walk.versions["torch"] == torch.__version__
    assert version_of("types") is None


APART = """
import os, runpy, sys
import torch
from dnnsuite._runs.identity import identity_of

for path in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        runpy.run_path(path, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{path} failed")
"""


def operator_identities(tmp_path, **scripts):
    """Identities of functions that call an operator that a script has made with a body, each in a process of its own.
    They are forks of one that has imported torch already."""
    for name, (body, how) in scripts.items():
        (tmp_path / f"{name}.py").write_text(operator_script(body, how))
    command = [sys.executable, "-c", APART, *(str(tmp_path / f"{name}.py") for name in scripts)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    told = [ast.literal_eval(line) for line in told]
    return list(zip(told[::2], told[1::2], strict=True))


def operator_script(body, how):
    return f"""
import torch
from dnnsuite._runs.identity import identity_of

def body(x):
    return {body}

if {how!r} == "custom":
    made = torch.library.custom_op("mine::scaled", body, mutates_args=(), schema="(Tensor x) -> Tensor")
else:
    made = torch.library.Library("mine", "DEF")
    made.define("scaled(Tensor x) -> Tensor")
    made.impl("scaled", body, "CompositeExplicitAutograd")
held, room = torch.ops.mine.scaled, torch.ops.mine
found = identity_of({{
    "by name": lambda x: torch.ops.mine.scaled(x), "by room": lambda x: room.scaled(x), "held": lambda x: held(x),
    "overload": held.default, **({{"made": lambda x: made(x)}} if {how!r} == "custom" else {{}}),
}})
print({{part: text for part, text in found.texts.items() if part != "versions"}})
print(found.unknown)
"""


def test_operators_that_a_script_makes_count_by_their_code(tmp_path):
    (before, unknown), (same, _), (after, _), (_, of_library) = operator_identities(
        tmp_path, a=("x * 2.0", "custom"), b=("x * 2.0", "custom"), c=("x * 3.0", "custom"), d=("x * 2.0", "library")
    )
    assert before == same
    assert not unknown
    assert all(before[part] != after[part] for part in before)
    assert any("torch.ops.mine.scaled" in told for told in of_library)  # whose code nobody keeps
