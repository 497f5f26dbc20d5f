# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.importers._units import to_base


@pytest.mark.parametrize(
    ("unit", "factor", "base"),
    [
        ("%", 1, "%"), ("", 1, ""), ("cycle", 1, "cycle"), ("Kcycle", 1e3, "cycle"),
        ("nsecond", 1, "ns"), ("usecond", 1e3, "ns"), ("msecond", 1e6, "ns"), ("second", 1e9, "ns"),
        ("us", 1e3, "ns"), ("ms", 1e6, "ns"), ("s", 1e9, "ns"),
        ("byte", 1, "byte"), ("Kbyte", 1e3, "byte"), ("Gbyte", 1e9, "byte"), ("KB", 1e3, "byte"), ("B", 1, "byte"),
        ("MiB", 2**20, "byte"), ("Gbyte/second", 1e9, "byte/s"), ("Mbyte/s", 1e6, "byte/s"),
        ("byte/nsecond", 1e9, "byte/s"), ("GB/s", 1e9, "byte/s"), ("Kbyte/block", 1e3, "byte/block"),
        ("cycle/nsecond", 1e9, "Hz"), ("cycle/usecond", 1e6, "Hz"), ("Ghz", 1e9, "Hz"), ("MHz", 1e6, "Hz"),
        ("register/thread", 1, "register/thread"), ("inst/cycle", 1, "inst/cycle"), ("Msector", 1e6, "sector"),
        ("furlong", 1, "furlong"),
    ],
)  # fmt: skip
def test_base_units(unit, factor, base):
    found, name = to_base(unit)
    assert found == pytest.approx(factor)
    assert name == base
