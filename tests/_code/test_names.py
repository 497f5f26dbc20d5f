# SPDX-License-Identifier: MIT
"""What code names, sets and decides, read from its instructions."""

import functools
import importlib

from dnnsuite._code import (
    branches,
    content_of,
    functions_in,
    imports_of,
    line_of,
    loops_in,
    names_of,
    stored_attributes,
    texts_of,
)  # fmt: skip


def example(model, flag):
    model.total = 0
    for part in model.parts:
        model.total += getattr(part, "size")  # noqa: B009
    inner = lambda value: value.scale  # noqa: E731
    return model.helper(inner) if flag else {"first": len(part.name)}


def straight(x):
    del x.cache
    return x.value


def test_names_and_texts_include_those_of_functions_inside():
    assert {"total", "parts", "scale", "helper", "getattr"} <= names_of(example.__code__)
    assert "size" in texts_of(example.__code__)
    assert "x" not in names_of(straight.__code__)


def test_attributes_that_are_set_or_deleted():
    assert stored_attributes(example.__code__) == {"total"}
    assert stored_attributes(straight.__code__) == {"cache"}


def test_branches_loops_and_lines():
    assert branches(example.__code__)
    assert not branches(straight.__code__)
    assert len(loops_in(example.__code__)) == 1
    assert not loops_in(straight.__code__)
    assert line_of(straight.__code__, "value") == straight.__code__.co_firstlineno + 2
    assert line_of(straight.__code__, "nothing") is None


class Holder:
    @property
    def read(self):
        return 1

    @functools.cached_property
    def kept(self):
        return 2

    @staticmethod
    def fixed():
        return 3


def wrapping(function):
    return functools.wraps(function)(lambda *args: function(*args))


def test_functions_in_what_binds_or_wraps_them():
    assert [f.__name__ for f in functions_in(Holder.__dict__["read"])] == ["read"]
    assert [f.__name__ for f in functions_in(Holder.__dict__["kept"])] == ["kept"]
    assert [f.__name__ for f in functions_in(Holder.__dict__["fixed"])] == ["fixed"]
    assert list(functions_in(wrapping(straight)))[-1] is straight
    assert list(functions_in(functools.partial(straight, 1))) == [straight]
    assert not list(functions_in(3))


def test_what_a_variable_of_an_enclosing_function_holds():
    def around(assigned):
        def inside():
            return value

        if assigned:
            value = 3
        return inside

    full, empty = (around(assigned).__closure__[0] for assigned in (True, False))
    assert (content_of(full), content_of(empty), content_of(empty, "none")) == (3, None, "none")


def test_modules_that_code_imports_as_it_runs():
    def importing():
        import os.path
        from math import sqrt

        return os.path, sqrt

    code = compile("def inner():\n    from . import near\n    from ..far import away\n", "<code>", "exec")

    def by_name(kind):
        return importlib.import_module("json.decoder")

    assert imports_of(importing.__code__, "") == {"os.path", "math", "math.sqrt"}
    assert imports_of(code, "a.b") == {"a.b", "a.b.near", "a.far", "a.far.away"}
    assert imports_of(code, "") == set()
    assert imports_of(by_name.__code__, "") == {"json.decoder"}
