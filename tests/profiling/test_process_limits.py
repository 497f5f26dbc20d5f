# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiling.throughput_request import JobRequest


@pytest.mark.parametrize(
    ("threads", "timeout_s", "said"),
    [
        (0, 1.0, "--threads 0: must be at least 1"),
        (-1, 1.0, "--threads -1"),
        (None, 0.0, "--timeout 0.0: must be a positive number of seconds"),
        (None, -1.0, "--timeout -1.0"),
        (None, float("nan"), "--timeout nan"),
    ],
)
def test_impossible_limits_are_refused(threads: int | None, timeout_s: float, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        JobRequest("toy_reg", threads=threads, timeout_s=timeout_s).check_limits()


def test_possible_ones_are_not() -> None:
    JobRequest("toy_reg", timeout_s=0.5).check_limits()
    JobRequest("toy_reg", (1, 2), threads=1).check_limits()


def test_a_size_twice() -> None:
    with pytest.raises(InvalidArgument, match="1,2,1 names one twice"):
        JobRequest("toy_reg", (1, 2, 1)).check_limits()
