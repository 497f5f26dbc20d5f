# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.workflow import MODES, modes


@pytest.mark.parametrize(
    ("name", "processes", "width"),
    [("serial", 1, 0), ("concurrent", 5, 0), ("mps", 5, 0), ("mig", 5, 0), ("hfta", 1, 5)],
)
def test_rows(name: str, processes: int, width: int) -> None:
    mode = MODES[name]
    assert (mode.processes(5), mode.width(5)) == (processes, width)


def test_a_cpu_needs_no_preparation() -> None:
    for mode in MODES.values():
        if mode.unavailable("cpu") is None:
            with mode.place["cpu"](3) as environments:
                assert environments == [{}, {}, {}]


def test_which_modes_a_cpu_has() -> None:
    assert [name for name, mode in MODES.items() if mode.unavailable("cpu") is None] == ["serial", "concurrent", "hfta"]


def test_unknown_mode_lists_them() -> None:
    with pytest.raises(InvalidArgument, match=r"'vertical'.*serial, concurrent, mps, mig, hfta"):
        modes.get("vertical")
