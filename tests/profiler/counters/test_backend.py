# SPDX-License-Identifier: MIT
"""The real backend, as far as a machine without a GPU has it: images, and what it says where there is none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counter_image import empty_image
from cupti_plans import needs_cupti
from dnnsuite import _C
from dnnsuite.errors import Error, InvalidArgument, Unavailable
from dnnsuite.profiler.counters import CountersInstrument, PmSamplingInstrument
from dnnsuite.profiler.counters.backend import CUPTI

METRICS = ["sm__cycles_active.avg", "dram__bytes_read.sum"]
pytestmark = needs_cupti


def has_gpu():
    try:
        CUPTI.device(0)
    except Unavailable:
        return False
    return True


def test_an_empty_image_has_no_ranges_and_its_values_are_nan():
    raw = empty_image("GH100", ranges=2)
    assert CUPTI.evaluate("GH100", _C.seal_counter_image(raw), METRICS) == {
        "names": [],
        "t0_ns": [],
        "t1_ns": [],
        "values": [],
    }


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=4096))
def test_garbage_is_an_error_and_not_the_end_of_the_process(garbage):
    with pytest.raises(Error, match="counter-data image"):
        CUPTI.evaluate("GH100", garbage, METRICS)


def test_a_truncated_or_damaged_image_is_an_error():
    sealed = _C.seal_counter_image(empty_image("GH100", ranges=2))
    for cut in (1, 8, len(sealed) // 2, len(sealed) - 1):
        with pytest.raises(Error, match="counter-data image"):
            CUPTI.evaluate("GH100", sealed[:-cut], METRICS)
    for at in range(0, len(sealed), 97):
        damaged = bytearray(sealed)
        damaged[at] ^= 1
        with pytest.raises(Error, match="counter-data image"):
            CUPTI.evaluate("GH100", bytes(damaged), METRICS)


@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
def test_without_a_gpu_every_session_says_so():
    for instrument in (CountersInstrument(), PmSamplingInstrument()):
        with pytest.raises(Unavailable) as caught:
            instrument.open()
        assert caught.value.remedy
        instrument.close()
    with pytest.raises(InvalidArgument, match="accepted: ranges, sampling"):
        _C.CounterHost("GH100", "colour")
