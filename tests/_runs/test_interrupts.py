# SPDX-License-Identifier: MIT
import os
import signal
import threading

import pytest

from dnnsuite._runs.interrupts import Interrupted, deferred, interruptible


def interrupt(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_is_an_exception_with_the_shells_status(number: signal.Signals, status: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=number.name) as raised, interruptible():
        interrupt(number)
    assert raised.value.exit_code == status
    assert signal.getsignal(number) == before


def test_a_deferred_signal_waits_for_the_outermost_block() -> None:
    reached = []

    def body() -> None:
        with interruptible():
            with deferred():
                with deferred():
                    interrupt()
                    reached.append("inner")
                reached.append("outer")
            reached.append("never")

    with pytest.raises(Interrupted):
        body()
    assert reached == ["inner", "outer"]


def test_a_second_signal_does_not_cut_the_cleaning_up() -> None:
    cleaned = []

    def body() -> None:
        with interruptible():
            try:
                interrupt()
            finally:
                interrupt(signal.SIGINT)
                cleaned.append(True)

    with pytest.raises(Interrupted):
        body()
    assert cleaned == [True]


def test_no_one_swallows_it_by_accident() -> None:
    assert not issubclass(Interrupted, Exception)


def test_other_threads_are_left_alone() -> None:
    done = []

    def work() -> None:
        with interruptible():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
