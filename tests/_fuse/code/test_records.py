# SPDX-License-Identifier: MIT
"""Records are told from other objects."""

from dataclasses import dataclass
from types import SimpleNamespace

from dnnsuite._fuse.code.call_user_code import is_record, names_of_record


@dataclass
class Point:
    x: int
    y: int = 0


def test_dataclasses_and_namespaces_are_records():
    assert names_of_record(Point(1)) == ("x", "y")
    assert names_of_record(SimpleNamespace(b=1, a=2)) == ("b", "a")
    assert all(map(is_record, [Point(1), SimpleNamespace()]))


def test_other_objects_and_classes_are_not():
    assert not any(map(is_record, [Point, 3, {"x": 1}, object()]))
