# SPDX-License-Identifier: MIT
"""The reader of imports finds what it has to, tried on small packages."""

import pytest

from import_graph import Import, private_imports
from room_ranks import unplaced, upward
from small_package import tree

APART = {("training", "observing"), ("observing", "training")}


def where(steps: list[Import]) -> list[tuple[str, str, str]]:
    return [(step.source, step.target, step.name) for step in steps]


@pytest.mark.parametrize(
    "statement",
    [
        "from .low import thing",
        "from . import low",
        "import house.low",
        "import house\nhouse.low.thing()",
        "def f():\n    from house import low",
        "def f():\n    from .low import *",
        "import importlib\nimportlib.import_module('house.low')",
        "import importlib\nimportlib.import_module('.low', __package__)",
        "from importlib import import_module\ndef f():\n    import_module('house.low')",
        "__import__('house.low')",
        "import importlib\nHOMES = {'thing': '.low'}\ndef f(name):\n    importlib.import_module(HOMES[name], __name__)",
        "import importlib\nNAMES = ('low',)\ndef f(name):\n    importlib.import_module(f'.{name}', __name__)",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .low import thing",
        "try:\n    from .low import thing\nexcept ImportError:\n    thing = None",
    ],
)
def test_every_way_to_import_is_seen(tmp_path, statement):
    graph = tree(tmp_path, low="", high=statement)
    assert "house.low" in {step.target for step in graph.imports("house.high")}
    assert not list(upward(graph, {"low": 0, "high": 1}, {"both": {"low", "high"}}, APART))
    assert len(list(upward(graph, {"low": 1, "high": 0}, {"both": {"low", "high"}}, APART))) > 0
    assert len(list(upward(graph, {"low": 0, "high": 1}, {"training": {"low"}, "observing": {"high"}}, APART))) > 0


def test_a_name_of_the_root_hides_where_it_is_from(tmp_path):
    high = "import house\nfrom house import thing\nhouse.other()\n"
    graph = tree(tmp_path, low="from . import __version__", high=high)
    assert list(upward(graph, {"low": 0, "high": 1}, {"both": {"low", "high"}}, APART)) == [
        "house.high:2 imports house.thing: import it from its own module, not from the root",
        "house.high:3 imports house.other: import it from its own module, not from the root",
    ]


def test_a_room_without_a_rank_or_a_side_is_told(tmp_path):
    graph = tree(tmp_path, old="", new="# package", new__part="")
    assert list(unplaced(graph, {"old": 0}, {"left": {"old", "new"}, "right": {"new"}})) == [
        "new has no rank",
        "new is on 2 sides",
    ]
    assert list(unplaced(graph, {"old": 0, "new": 1}, {"left": {"old"}})) == ["new is on 0 sides"]
    assert list(unplaced(graph, {"old": 0, "new": 1, "gone": 0}, {"left": {"old", "new", "lost"}})) == [
        "gone is no room any more",
        "lost is no room any more",
    ]


@pytest.mark.parametrize(
    ("statement", "target", "name"),
    [
        ("from ..nn._base import Layer", "house.nn._base", "Layer"),
        ("from ..nn import _base", "house.nn._base", ""),
        ("from ..nn import _hidden", "house.nn", "_hidden"),
        ("from ..nn.conv import _hidden", "house.nn.conv", "_hidden"),
        ("from .. import nn\nx = nn._hidden", "house.nn", "_hidden"),
        ("from .. import nn\ndef f(): return nn._base.Layer", "house.nn._base", ""),
        ("def f():\n    import importlib\n    importlib.import_module('house.nn._base')", "house.nn._base", ""),
        ("from ..nn.inner._deep import x", "house.nn.inner._deep", "x"),
    ],
)
def test_a_private_import_is_found(tmp_path, statement, target, name):
    rooms = {"nn": "# package", "nn___base": "", "nn__conv": "", "nn__inner": "# package", "nn__inner___deep": ""}
    graph = tree(tmp_path, _fuse="# package", _fuse__build=statement, **rooms)
    assert where(private_imports(graph)) == [("house._fuse.build", target, name)]


def test_what_is_private_in_a_package_is_for_all_inside_of_it(tmp_path):
    graph = tree(
        tmp_path,
        _files="",
        _fuse="# package",
        _fuse__code="# package",
        _fuse__build="from .code import walk\nfrom .._files import write\nfrom . import _state",
        _fuse__code__walk="from .._state import held, _held\nfrom ..build import __doc__",
        _fuse___state="",
        step="from ._fuse.build import fuse\nfrom . import _files",
        outer="from ._fuse.code import walk",
    )
    assert not private_imports(graph)
    graph = tree(tmp_path, _fuse__build="from .code.walk import _x")  # a package does not see into those inside of it
    assert where(private_imports(graph)) == [("house._fuse.build", "house._fuse.code.walk", "_x")]


def test_a_circle_is_found_and_its_way_told(tmp_path):
    graph = tree(tmp_path, a="from .b import x", b="from . import c", c="def f():\n    from house.a import y")
    (circle,) = graph.circles()
    assert " → ".join(map(str, circle)) == (
        "house.a:1 imports house.b.x → house.b:1 imports house.c → house.c:2 imports house.a.y"
    )


@pytest.mark.parametrize(
    "sources",
    [
        {"nn": "# package\nfrom .layer import Layer", "nn__layer": "def f():\n    from . import Layer"},
        {"nn": "# package\nfrom .layer import Layer", "nn__layer": "def f():\n    from .. import nn"},
        {"a": "import importlib\nimportlib.import_module('.b', __package__)", "b": "from .a import x"},
        {"a": "from .b import x\nfrom .c import x", "b": "", "c": "from .d import x", "d": "from .c import x"},
        {  # by way of a lazy package
            "lazy": "# package\nimport importlib\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    from .part import Part\nHOMES = {'Part': '.part'}\n"
            "def __getattr__(name): return importlib.import_module(HOMES[name], __name__)",
            "lazy__part": "from .other import x",
            "lazy__other": "def f():\n    from . import Part",
        },
    ],
)
def test_circles_of_every_kind(tmp_path, sources):
    assert len(tree(tmp_path, **sources).circles()) == 1


def test_no_circle(tmp_path):
    registry = "import importlib\nJOBS = {'x': '.x'}\ndef get(name): importlib.import_module(JOBS[name], __package__)"
    graph = tree(
        tmp_path,
        a="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B",
        b="from .a import x",
        jobs="# package\nfrom .registry import get",
        jobs__registry=registry,
        jobs__x="from .registry import get",
        nn="# package\nfrom .layer import Layer",
        nn__layer="from . import base",
        nn__base="",
    )
    assert graph.circles() == []


@pytest.mark.parametrize(
    ("middle", "way"),
    [
        ("import torch.nn", "house.top:1 imports house.middle → house.middle:1 imports torch.nn"),
        (
            "if True:\n    from torchvision import ops",
            "house.top:1 imports house.middle → house.middle:2 imports torchvision.ops",
        ),
        ("def f():\n    import torch", ""),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", ""),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import torch",
            "house.top:1 imports house.middle → house.middle:5 imports torch",
        ),
        (
            "from .heavy.light import x",
            "house.top:1 imports house.middle → house.middle:1 imports house.heavy → house.heavy:2 imports torch",
        ),
    ],
)
def test_a_way_to_torch_is_found(tmp_path, middle, way):
    rooms = {"heavy": "# package\nimport torch", "heavy__light": ""}
    graph = tree(tmp_path, top="from . import middle", middle=middle, **rooms)
    assert " → ".join(map(str, graph.way_to(frozenset({"torch", "torchvision"}), "house.top"))) == way
