# SPDX-License-Identifier: MIT
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from children import assert_ends
from dnnsuite._runs.failures import TookTooLong
from dnnsuite._runs.interrupts import Interrupted, deferred, interruptible, limited


def interrupt(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
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


HANGS = """
import os, signal, subprocess, sys, time
from dnnsuite._runs import interrupts
from dnnsuite._runs.failures import TookTooLong
from dnnsuite._runs.interrupts import Interrupted, deferred, interruptible, limited

worker = subprocess.Popen(["sleep", "600"], start_new_session=True)
interrupts.worker_started(worker.pid)
print(worker.pid, flush=True)
with interruptible():
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("cleaning", flush=True)
        HOW
"""


@pytest.mark.parametrize(
    "how",
    [
        "time.sleep(600)",
        "exec('with deferred():\\n time.sleep(600)')",
        "exec('while True:\\n try: time.sleep(600)\\n except BaseException: pass')",
        "__import__('ctypes').CDLL(None).sleep(600) or time.sleep(600)",  # where no handler in Python is reached
    ],
)
def test_a_second_signal_ends_a_clean_up_that_hangs_and_the_workers(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGS.replace("HOW", how)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "cleaning\n"
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate()
        finally:
            process.kill()
    assert process.returncode == 130
    assert "SIGINT: cleaning up; once more to end at once" in said
    assert "ended at once by SIGINT" in said
    assert_ends(worker)


def test_a_signal_that_a_wrapper_passes_on_is_the_same_press(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)  # no load lets a moment pass between the two
    cleaned = []

    def body() -> None:
        with interruptible():
            try:
                interrupt(signal.SIGINT)
            finally:
                interrupt(signal.SIGTERM)
                time.sleep(0.2)
                cleaned.append(True)

    with pytest.raises(Interrupted, match="SIGINT"):
        body()
    assert cleaned == [True]
    assert capfd.readouterr().err.count("once more") == 1


def test_one_that_a_destructor_swallowed_is_raised_by_the_next_wait() -> None:
    code = """
import os, signal
from dnnsuite._runs.interrupts import Interrupted, check, interruptible

class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

try:
    with interruptible():
        check()  # nothing has arrived
        Swallows()
        print("lost")
        check()
        print("never")
except Interrupted as interrupted:
    print(interrupted)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["lost", "SIGINT"]
    assert "Exception ignored" in done.stderr


def test_blocks_nest_and_the_outermost_puts_the_handlers_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        own = signal.getsignal(signal.SIGINT)
        with interruptible():
            assert signal.getsignal(signal.SIGINT) == own
        assert signal.getsignal(signal.SIGINT) == own
    assert signal.getsignal(signal.SIGINT) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_forked_child_is_not_this_process() -> None:
    code = """
import os, signal, time
from dnnsuite._runs.interrupts import interruptible

with interruptible():
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, lambda *_: os._exit(7))
        os.write(tell, b"ready")
        time.sleep(600)
        os._exit(0)
    os.read(told, 5)
    for _ in range(2):  # its signals are not this process's
        os.kill(child, signal.SIGINT)
        time.sleep(0.2)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_deferring_in_another_thread_holds_nothing_up() -> None:
    def body() -> None:
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with deferred():
                inside.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        with interruptible():
            thread.start()
            inside.wait()
            try:
                interrupt(signal.SIGINT)
                reached.append(True)
            finally:
                leave.set()
                thread.join()

    reached: list[bool] = []
    with pytest.raises(Interrupted):
        body()
    assert reached == []


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_was_ignored_stays_ignored(number: signal.Signals) -> None:
    """As of `nohup` and of a shell's `&`; the others are heard."""
    before = signal.signal(number, signal.SIG_IGN)
    other = next(each for each in (signal.SIGINT, signal.SIGTERM) if each is not number)

    def sent() -> None:
        with interruptible():
            for each in (number, number, other):
                os.kill(os.getpid(), each)
                time.sleep(0.06)
            time.sleep(5)

    try:
        with pytest.raises(Interrupted) as raised:
            sent()
        assert raised.value.number == other
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_code_that_takes_too_long_ends_though_it_catches_errors_and_other_timers_stay():
    rung = []

    def stubborn():
        with contextlib.suppress(TookTooLong):
            time.sleep(600)
        time.sleep(600)

    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    signal.setitimer(signal.ITIMER_REAL, 600.0)
    try:
        with pytest.raises(TookTooLong, match="late"), limited(0.01, lambda: TookTooLong("late")):
            stubborn()
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600
        with limited(600, AssertionError):
            pass
        assert not rung
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_limit_that_ends_with_its_block_leaves_neither_handler_nor_timer() -> None:
    before, (_, each_s) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    for microseconds in range(1, 300):
        with suppress(TookTooLong), limited(1e-6 * microseconds, lambda: TookTooLong("late")):
            sum(range(500))
        assert signal.getsignal(signal.SIGALRM) == before
        assert signal.getitimer(signal.ITIMER_REAL)[1] == each_s
