# SPDX-License-Identifier: MIT
"""Every class that operators and kernels are told by has a meaning."""

from dnnsuite.profiler import activity
from dnnsuite.profiler._breakdown import CLASSES, TRANSPARENT, meaning
from dnnsuite.profiler.cpu import _classes


def test_classes_of_operators_and_kernels_have_a_meaning():
    for kind in (*activity.CLASSES, *(kind for kind, _ in _classes._CLASSES), "elementwise", "other"):
        name, line = meaning(kind)
        assert CLASSES[name] == line
    assert {meaning(kind)[0] for kind in TRANSPARENT} == {"views", "frame"}


def test_a_class_of_an_instrument_of_ones_own_is_kept():
    assert meaning("sorting networks") == ("sorting networks", "work of class sorting networks")
