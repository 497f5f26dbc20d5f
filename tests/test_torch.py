# SPDX-License-Identifier: MIT
"""Private names of torch are in one place, and a torch that has lost some of them still trains right."""

import ast
import json
import operator
import os
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from pathlib import Path

import pytest
import torch
from torch.nn.init import xavier_uniform_

import parsed
import torch_names
from dnnsuite import _torch
from dnnsuite._fuse.code.own_values import INTERNAL
from dnnsuite.doctor import _machine
from dnnsuite.ops.torch_on_arrays import take_over
from torch_names import load_without, own_names, private_names

PACKAGE = Path(_torch.__file__).parents[1]
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent.name != "_torch")
ATTRIBUTES = {name for one in _torch.ATTRIBUTES for name in one.names}
PATHS = {path for name in _torch.NAMES.values() for path in name.names}
KNOWN = {part for path in PATHS for part in path.split(".") if part.startswith("_") and not part.startswith("__")}
# What torch's objects have, in a string.
HOLDERS = (torch, torch._C, torch.autograd, torch.Tensor, torch.nn.modules.module)
KNOWN |= {name for one in HOLDERS for name in dir(one) if name.startswith("_") and not name.startswith("__")}
ALSO_KNOWN = {"torch._C.parse_ir", "torch.multiprocessing.reductions.StorageWeakRef"}
NAMES = [(key, name) for key, one in _torch.NAMES.items() for name in one.names]


# In torch 2.15 an autograd.Function is called from C++, with no frame of torch's own on the stack.
GONE = {"torch.autograd.Function.apply.__func__.__code__"}
FORWARD = set(_torch.NAMES["forward gradients"].names)
LOST_HERE = {name for name, _ in _torch.lost()}


@pytest.fixture(scope="module")
def sources():
    """The package's trees, for as long as tests here need them, and its own private names."""
    trees = parsed.trees(SOURCES)
    return trees, own_names(trees.values()) | set(INTERNAL)


@pytest.fixture
def private(sources):
    """The private names of torch in a tree, by what the package's own are called."""
    own = sources[1]
    return lambda tree: list(private_names(tree, own, ATTRIBUTES, (KNOWN - own - ATTRIBUTES) | ALSO_KNOWN))


# -- one place ---------------------------------------------------------------------------------------------------------


def test_private_names_of_torch_are_in_one_place(sources, private):
    found = {path: private(tree) for path, tree in sources[0].items()}
    assert {str(path.relative_to(PACKAGE)): names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch._C.parse_ir",
        "import torch\nC = torch._C\n",
        "import torch as t\nt.utils._pytree.tree_map",
        "import torch._dynamo",
        "import torch.utils._pytree as p",
        "from torch import _C",
        "from torch._C import parse_ir",
        "from torch.utils._pytree import tree_map",
        "from torch.utils import _pytree",
        "from torch.optim import *",
        "from torch.nn.modules import module as m\nm._global_forward_hooks",
        "from torch.nn.modules import module as m\nfor n in dir(m): pass",
        "from torch.nn.modules import module as m\nvars(m)",
        "from torch.nn.modules import module as m\nm.__dict__",
        "import torch\na = torch.nn\nb = a.modules\nb._global_forward_hooks",
        "import torch\ngetattr(torch, '_C')",
        "import torch\nhasattr(torch.autograd, '_profiler_enabled')",
        "import torch\nkind = 'x'\ngetattr(torch, f'_foreach_{kind}')",
        "import torch\nkind = 'x'\ngetattr(torch, '_foreach_' + kind)",
        "name = '_current_graph_task_id'",
        "import importlib\nimportlib.import_module('torch._dynamo')",
        "import sys\n'torch._dynamo' in sys.modules",
        "import sys\nsys.modules['torch'].autograd._profiler_enabled()",
        "import importlib\nm = importlib.import_module('torch')\nm._C",
        "import operator\noperator.attrgetter('_C._current_graph_task_id')",
        "def f(tensor): return tensor._is_param",
        "def f(tensor): tensor._is_param = True",
        "def f(iterator): return getattr(iterator, '_num_workers', None)",
        "def f():\n    from torch._C._profiler import _ExperimentalConfig",
        "import torch\ntorch.ops.aten._unsafe_view.default",
        "import torch\ntorch._foreach_norm([])",
    ],
)
def test_a_private_name_is_found_wherever_it_hides(private, code):
    assert private(ast.parse(code))


def test_public_and_own_names_are_left_alone(private):
    code = """
import torch
from torch.nn.init import xavier_uniform_
from torch.nn import functional as F
from . import _C
def f(self, module):
    '''Unlike torch._C this is no name but documentation.'''
    _C.now_ns(), module._parameters, torch.__version__, getattr(torch, 'relu'), getattr(F, f"conv{2}d")
"""
    assert private(ast.parse(code)) == []


# -- lost names --------------------------------------------------------------------------------------------------------


def test_this_torch_has_all_names_but_those_that_are_known_to_be_gone():
    assert {name for name, _ in _torch.lost()} <= GONE
    assert (_torch.no_fuse, _torch.no_capture) == (None, None)


@pytest.mark.parametrize(("use", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_lost_name_fails_no_import_and_is_told(use, name):
    one = _torch.NAMES[use]
    assert one.use
    assert one.without
    hidden = one.names if one.any_of else (name,)
    if name in LOST_HERE:
        assert (name, one.without) in _torch.lost()
        return
    copy = load_without(hidden)
    assert (name, one.without) in copy.lost()
    assert ("names" if copy.no_capture else None) == ("names" if one.needed_by == "capture" else None)
    if copy.no_capture:
        assert name in copy.no_capture
    assert copy.no_fuse is None


@pytest.mark.parametrize("use", [use for use, one in _torch.NAMES.items() if one.any_of])
def test_any_one_of_several_names_serves(use):
    for name in _torch.NAMES[use].names:
        others = set(_torch.NAMES[use].names) - {name}
        copy = load_without(others)
        assert {lost for lost, _ in copy.lost()} == LOST_HERE
        assert not copy.transforming()
        assert not copy.profiler_recording()
        assert torch.vmap(lambda x, copy=copy: x + bool(copy.transforming()))(torch.zeros(2)).tolist() == [1, 1]


@pytest.mark.parametrize("one", _torch.ATTRIBUTES, ids=lambda one: f"{one.owner}.{one.names[0]}")
def test_a_lost_attribute_is_told(one):
    copy = load_without([f"{one.owner}.{one.names[0]}"])
    assert {name for name, _ in copy.lost()} == {f"{one.owner}.{one.names[0]}", *LOST_HERE}
    assert (copy.no_fuse is not None) == (one.needed_by == "fuse")
    assert (copy.no_capture is not None) == (one.needed_by in ("fuse", "capture"))


def test_fuse_names_what_it_cannot_do_without(monkeypatch):
    import dnnsuite
    from dnnsuite._fuse import build

    monkeypatch.setattr(build, "no_fuse", "torch 9.9 has no torch.nn.Module._parameters")
    with pytest.raises(dnnsuite.errors.Unavailable, match=r"torch 9\.9 has no torch\.nn\.Module\._parameters"):
        dnnsuite.fuse([torch.nn.Linear(2, 2)])


def test_a_hook_container_that_nobody_fills_any_more_is_lost(monkeypatch):
    """The old name may be left, empty, when torch keeps its hooks elsewhere."""

    class Handle:
        def remove(self):
            """Nothing was registered."""

    monkeypatch.setattr(torch.nn.modules.module, "register_module_forward_hook", lambda hook: Handle())
    copy = load_without([])
    assert copy.no_capture == f"torch {torch.__version__} has no torch.nn.modules.module._global_forward_hooks"


def test_global_hooks_of_every_kind_are_seen():
    module = torch.nn.modules.module
    for register in (
        module.register_module_forward_pre_hook,
        module.register_module_forward_hook,
        module.register_module_full_backward_pre_hook,
    ):
        handle = register(lambda *_: None)
        assert _torch.global_hooks.any()
        handle.remove()
        assert not _torch.global_hooks.any()


def test_importing_leaves_torch_as_it_is():
    """Registering a full backward hook would decide which kind of backward hooks a process may have."""
    code = "import dnnsuite._torch, torch.nn.modules.module as m; print(m._global_is_full_backward_hook)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "None"


def test_doctor_lists_what_is_lost(monkeypatch):
    assert _machine.torch_names().status == ("warning" if LOST_HERE else "ok")
    copy = load_without(["torch._C._DisableTorchDispatch"])
    monkeypatch.setattr(_torch, "lost", copy.lost)
    finding = _machine.torch_names()
    assert finding.status == "warning"
    assert "torch._C._DisableTorchDispatch is missing: steps run without capture" in finding.detail


# -- what serves in their place ----------------------------------------------------------------------------------------


def test_trees_have_the_leaves_that_torch_finds():
    pair = namedtuple("pair", "a b")
    values = torch.tensor([3.0, 1.0])
    trees = [
        ((values, 1, None), {"a": [True, "b"], "c": ()}),
        pair(1, {"z": torch.Size([4]), "y": slice(1, 2)}),
        (torch.nn.Parameter(values), values.max(0), OrderedDict(b=1, a=(2, deque([3, 4], 2)))),
        [torch.float32, torch.device("cpu"), ..., {3}, torch.nn.ReLU],
        values,
        defaultdict(list, x=[1]),
    ]
    for tree in trees:
        leaves, spec = torch.utils._pytree.tree_flatten(tree)
        assert all(map(operator.is_, _torch.tree_leaves(tree), leaves))
        assert len(_torch.tree_leaves(tree)) == len(leaves)
        mapped = torch.utils._pytree.tree_leaves(_torch.tree_map(lambda leaf: [leaf], tree))
        assert len(mapped) == len(leaves)
        assert all(map(operator.is_, mapped, leaves))
        assert _torch.tree_map(lambda leaf: 0, tree) == torch.utils._pytree.tree_unflatten([0] * len(leaves), spec)


def test_our_own_trees_do_what_torchs_do():
    copy = load_without(["torch.utils._pytree.tree_map"])
    assert copy.tree_map is not _torch.tree_map
    pair = namedtuple("pair", "a b")
    tree = {"x": [1, (2, None)], "y": pair(3, {"z": torch.Size([4])}), "e": ()}
    leaves, spec = copy.tree_flatten(tree)
    assert leaves == [1, 2, None, 3, torch.Size([4])]
    assert copy.tree_leaves(tree) == leaves
    assert copy.tree_unflatten(leaves, spec) == tree
    assert copy.tree_flatten({**tree, "e": [5]})[1] != spec
    assert copy.tree_map(str, {"x": [1, 2]}) == {"x": ["1", "2"]}
    whole = copy.tree_map(len, {"x": [1, 2]}, is_leaf=lambda value: isinstance(value, list))
    assert whole == {"x": 2}
    assert whole == _torch.tree_map(len, {"x": [1, 2]}, is_leaf=lambda value: isinstance(value, list))


def test_a_backward_pass_is_found_on_the_call_stack():
    copy = load_without(["torch._C._current_graph_task_id"])
    seen = []

    def forward(x):
        seen.append((copy.backward_pass() != -1, _torch.backward_pass() != -1))
        return x.exp()

    x = torch.ones(2, requires_grad=True)
    forward(x)
    for reentrant in (False, True):
        torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=reentrant).sum().backward()
    torch.autograd.grad(torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=False).sum(), x)
    assert [mine for mine, _ in seen] == [torchs for _, torchs in seen]
    assert [mine for mine, _ in seen] == [False, *(False, True) * 3]


def test_lists_of_tensors_without_foreach():
    copy = load_without(["torch._foreach_norm"])
    grads = [torch.randn(3, 2), torch.randn(5)]
    assert torch.allclose(torch.stack(copy.foreach_norm(grads)), torch.stack(_torch.foreach_norm(grads)))
    expected = [2 * grad for grad in grads]
    copy.foreach_mul_(grads, 2.0)
    assert all(map(torch.equal, grads, expected))


def test_what_a_compiler_made_is_known():
    assert _torch.made_by_dynamo(torch.compile(torch.nn.Linear(2, 2), backend="eager"))
    assert not _torch.made_by_dynamo(torch.nn.Linear(2, 2))
    assert load_without(["torch._dynamo"]).DYNAMO in sys.modules


# -- training without them ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    """What an array trains to with the names of each use hidden; "" is with all of them."""
    result = subprocess.run(
        [sys.executable, "-W", "error", torch_names.__file__],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    return {record["use"]: record for record in records}


@pytest.mark.parametrize("use", ["", *_torch.NAMES])
def test_an_array_trains_alike_without_the_names_of_a_use(trained, use):
    whole = trained[""]
    (found,) = [record for name, record in trained.items() if use in name.split(" and ")]
    assert "error" not in found
    lost = _torch.NAMES[use] if use else None
    assert set(found["lost"]) >= set(lost.names if lost else ()) | LOST_HERE
    assert torch.allclose(torch.tensor(found["losses"]), torch.tensor(whole["losses"]), rtol=1e-4, atol=1e-6)
    assert torch.allclose(torch.tensor(found["state"]), torch.tensor(whole["state"]), rtol=1e-3, atol=1e-5)
    if lost and lost.needed_by:
        assert found["mode"].startswith("eager: torch")
        assert lost.names[0] in found["mode"]
    else:
        assert found["mode"] == "captured"
    assert found["hooked"] == torch_names.STEPS, "a stranger's hook of every module sees every step"
    assert bool(found["per model"]) == (found["lost"].keys() >= GONE | FORWARD)
    assert "dnnsuite.nn.checkpoint" in found["backward"]


def test_initial_values_count_the_given_part():
    """xavier_uniform_ was imported before; a weight [5, 2, 600] counts as [2, 600]."""
    part = torch.empty(2, 600)
    try:
        _torch.take_over_fan_counts(lambda weight: part if weight.dim() == 3 else weight)
        found = xavier_uniform_(torch.zeros(5, 2, 600)), xavier_uniform_(torch.zeros(2, 600))
    finally:
        take_over()
    for values in found:
        assert 0.98 * (6 / 602) ** 0.5 < values.abs().max() <= (6 / 602) ** 0.5
