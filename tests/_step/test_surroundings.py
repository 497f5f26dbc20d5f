# SPDX-License-Identifier: MIT
import threading

import pytest
import torch

from dnnsuite._step.surroundings import Flushed, flushing

SMALL = 1e-30


def product():
    return (torch.full((4,), SMALL) * 1e-10).tolist()


@pytest.fixture(autouse=True)
def _as_torch_starts():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(False)


def test_they_are_zero_inside_and_numbers_outside():
    before = product()
    assert before[0] == pytest.approx(1e-40, rel=1e-3)
    with Flushed():
        assert flushing()
        assert product() == [0.0] * 4
    assert not flushing()
    assert product() == before


def test_who_asked_torch_for_it_keeps_it():
    torch.set_flush_denormal(True)
    with Flushed():
        pass
    assert flushing()


def test_an_error_ends_it_too():
    with pytest.raises(ValueError, match="broken"), Flushed():
        raise ValueError("broken")
    assert not flushing()


def test_another_thread_goes_on_as_before():
    seen, go = [], threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(), seen.append(flushing())))
    thread.start()  # a thread begins as its starter is
    with Flushed():
        go.set()
        thread.join()
        assert flushing()
    assert seen == [False]
