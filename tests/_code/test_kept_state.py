# SPDX-License-Identifier: MIT
"""Functions of models that remember earlier calls."""

import pytest

from dnnsuite._code import keeps_state
from dnnsuite._fuse.comparison import same


def counter():
    count = 0

    def grow(x):
        nonlocal count
        count += 1
        return x * count

    return grow


def collector():
    seen = []
    return lambda x: seen.append(1) or x


def writer(x, box=[0]):  # noqa: B006
    box[0] += 1
    return x


def reader():
    sizes = [1, 2]
    return lambda x: x * sizes[0]


def local(x):
    box = [0]
    box[0] = 1
    return x


@pytest.mark.parametrize(
    ("function", "remembers"),
    [(counter(), True), (collector(), True), (writer, True), (reader(), False), (local, False)],
)
def test_what_remembers(function, remembers):
    assert keeps_state(function) is remembers


def test_two_that_remember_are_different():
    assert not same(counter(), counter())
    assert same(reader(), reader())
    one = counter()
    assert same(one, one)
    seen = []
    first, second = (lambda x: seen.append(x) for _ in range(2))
    assert same(first, second)  # in one list
