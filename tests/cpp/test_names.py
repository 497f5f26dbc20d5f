# SPDX-License-Identifier: MIT
"""Names in C++ sources: an installation compiles several files as one, in which a name stands once."""

import re
from collections import Counter
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "cpp" / "fused" / "cpu"


def test_each_operator_has_a_function_of_a_name_of_its_own():
    names = [
        (name, source.name)
        for source in sorted(SOURCES.glob("*.cpp"))
        for name in set(re.findall(r"TORCH_BOX\(&(\w+)\)", source.read_text(encoding="utf-8")))
    ]
    count = Counter(name for name, _ in names)
    assert len(count) > 10
    assert [pair for pair in names if count[pair[0]] > 1] == []
