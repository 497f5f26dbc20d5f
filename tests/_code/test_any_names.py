# SPDX-License-Identifier: MIT
import dataclasses

import pytest

from dnnsuite._code import any_names


def constant(config):
    return getattr(config, "scale") + getattr(config.inner, "rate", None) + config.a  # noqa: B009


def made(config, number):
    return getattr(config, f"layer{number}")


def with_default(config, number, other=None):
    return getattr(config, f"layer{number}", other)


def variable(config, name):
    return getattr(config, name)


def dictionary(config):
    return sum(vars(config).values())


def of_dataclass(config):
    return dataclasses.asdict(config)


def inside(config):
    return [getattr(config, name) for name in ("a", "b")]


@pytest.mark.parametrize(
    ("function", "layer", "other"),
    [
        (constant, False, False),
        (made, True, False),
        (with_default, True, False),
        (variable, True, True),
        (dictionary, True, True),
        (of_dataclass, True, True),
        (inside, True, True),
    ],
)
def test_names_that_code_makes(function, layer, other):
    found = any_names(function.__code__)
    assert bool(found) == layer
    assert found.has("layer3") == layer
    assert found.has("loader") == other
