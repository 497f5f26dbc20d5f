# SPDX-License-Identifier: MIT
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.profiler.nvml import decode_reasons
from dnnsuite.profiler.nvml._gpu_state import REASONS, SLOWED


def test_the_documented_bits():
    assert decode_reasons(0) == []
    assert decode_reasons(0x1) == ["idle"]
    assert decode_reasons(0x44) == ["power cap", "thermal slowdown by the hardware"]
    assert decode_reasons(0x80 | 0x4000) == ["power brake", "unknown reason 0x4000"]


@given(st.integers(0, 2**64 - 1))
def test_every_bit_has_a_word_of_its_own(bits):
    words = decode_reasons(bits)
    assert len(words) == len(set(words)) == bits.bit_count()


def test_idle_and_settings_are_no_slowdown():
    assert not SLOWED & (0x1 | 0x2 | 0x10 | 0x100)
    assert SLOWED & ~sum(REASONS) == 0
