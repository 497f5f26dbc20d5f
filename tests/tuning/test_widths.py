# SPDX-License-Identifier: MIT
"""Number of trials at once: measured, and less where memory has run out."""

from dnnsuite.tuning.trial import Width


def widths(*step_s, small=True):
    """The width after each epoch whose steps take so many seconds per model."""
    width = Width()
    width.begin(1000 if small else 10**8)
    found = [width.now]
    for seconds in step_s:
        width.measured(width.now, width.now * seconds * 10, 10)
        found.append(width.now)
    return found


def test_it_grows_while_that_makes_a_step_faster():
    assert widths(1e-3, 5e-4, 4e-4) == [16, 64, 64, 64]
    assert widths(1e-2, 8e-3, 7.9e-3, small=False) == [8, 16, 32, 32]
    assert widths(0.05, small=False) == [8, 8]  # such models gain nothing from company


def test_one_that_was_asked_for_stays():
    width = Width(5)
    width.begin(1000)
    width.measured(5, 1e-3, 10)
    assert width.now == 5


def test_an_array_that_is_not_full_says_nothing():
    width = Width()
    width.measured(3, 1e-3, 10)
    assert width.now == 8


def test_one_without_room_does_not_make_the_others_narrow():
    width = Width(4)
    width.halve(4)
    width.halve(2)
    assert width.now == 1
    width.restore()  # one alone has no room
    assert width.now == 4
    width.halve(4)
    width.measured(2, 0.1, 1)  # two have
    width.restore()
    assert width.now == 2
