# SPDX-License-Identifier: MIT
"""Number of threads that torch's operators use."""

import sys
import threading
from pathlib import Path

import pytest
import torch

from dnnsuite._torch_threads import hold_to_one, let_go, threads_of_caller, torch_threads
from waiting import wait_for


def _fail(count: int) -> None:
    with torch_threads(count):
        assert torch.get_num_threads() == count
        raise ZeroDivisionError


def test_the_number_holds_within_the_block_and_is_put_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        _fail(before + 1)
    assert torch.get_num_threads() == before


class _Holder:
    pass


def test_a_thread_is_held_to_one_until_the_last_holder_lets_go():
    first, second = _Holder(), _Holder()
    with torch_threads(3):
        hold_to_one(first)
        hold_to_one(second)
        let_go(first)
        assert (torch.get_num_threads(), threads_of_caller()) == (1, 3)
        let_go(first)
        let_go(second)
        assert (torch.get_num_threads(), threads_of_caller()) == (3, 3)


def test_a_number_set_meanwhile_holds():
    holder = _Holder()
    with torch_threads(3):
        hold_to_one(holder)
        torch.set_num_threads(2)
        let_go(holder)
        assert torch.get_num_threads() == 2


def test_another_thread_is_not_held():
    holder = _Holder()
    with torch_threads(3):
        hold_to_one(holder)
        other = threading.Thread(target=let_go, args=(holder,))
        other.start()
        other.join()
        assert torch.get_num_threads() == 1
        let_go(holder)
        assert torch.get_num_threads() == 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_helpers_of_an_earlier_operator_end():
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    holder = _Holder()
    with torch_threads(3):
        torch.ones(1 << 20).mul(2.0)
        before = threads()
        hold_to_one(holder)
        wait_for(lambda: threads() <= before - 2)
        let_go(holder)
        assert torch.ones(1 << 20).mul(2.0).sum() == 2 << 20  # helpers are made again
