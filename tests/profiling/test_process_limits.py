# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiling.throughput_request import check_limits


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
        check_limits(threads, timeout_s)


def test_possible_ones_are_not() -> None:
    check_limits(None, 0.5)
    check_limits(1, 3600.0)
