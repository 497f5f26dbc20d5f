# SPDX-License-Identifier: MIT
"""How a StepRunner ends: closed, forgotten, after an error, by Ctrl-C."""

import contextlib
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import pytest
import torch

from dnnsuite import StepRunner
from dnnsuite.errors import InvalidArgument
from small_steps import batches, by_hand, loss, make
from waiting import wait_for


def test_an_error_in_a_step_reaches_the_caller_and_close_ends_the_threads():
    array, optimizer = make(3)

    def broken(part, x, y):
        raise RuntimeError("broken on purpose")

    runner = StepRunner(array, optimizer, broken, threads=2, width=1)
    step = runner.step(*batches(3, 1)[0])
    with pytest.raises(RuntimeError, match="on purpose"):
        step.losses()
    runner.step(*batches(3, 1)[0])
    with pytest.raises(RuntimeError, match="on purpose"):
        runner.synchronize()
    runner.step(*batches(3, 1)[0])
    with pytest.raises(RuntimeError, match="on purpose"):
        runner.close()
    runner.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("dnnsuite-step")]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("leave", ["close", "error"])
def test_steps_asked_for_are_done_before_the_runner_ends(threads, leave):
    array, optimizer = make(3)
    runner = StepRunner(array, optimizer, loss, threads=threads, width=1)
    if leave == "close":
        steps = [runner.step(*batch) for batch in batches(3, 2)]
        runner.close()
    else:
        with pytest.raises(KeyError), runner:  # noqa: PT012
            steps = [runner.step(*batch) for batch in batches(3, 2)]
            raise KeyError
    expected, losses = by_hand(3, 2)
    for step, values in zip(steps, losses, strict=True):
        torch.testing.assert_close(step.losses(), values, rtol=1e-4, atol=1e-6)
    for mine, other in zip(array.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
    with pytest.raises(InvalidArgument, match="closed"):
        runner.step(*batches(3, 1)[0])
    with pytest.raises(InvalidArgument, match="closed"):
        runner.refresh()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_runner_that_nobody_holds_lets_its_array_and_its_threads_go(threads):
    array, optimizer = make(3)
    runner = StepRunner(array, optimizer, loss, threads=threads, width=1)
    for batch in batches(3, 5):
        step = runner.step(*batch)
    step.losses()
    names = [t for t in threading.enumerate() if t.name.startswith("dnnsuite-step")]
    assert len(names) == (2 if threads == 2 else 0)
    held = [weakref.ref(array), weakref.ref(next(array.parameters())), weakref.ref(runner)]
    del array, optimizer, runner, step

    def gone():
        gc.collect()
        return not any(ref() is not None for ref in held) and not any(t.is_alive() for t in names)

    wait_for(gone, every_s=0.05)


SUPPORT = Path(__file__).parents[1] / "support"
SCRIPT = textwrap.dedent("""
    import sys
    sys.path.insert(0, {support!r})
    from dnnsuite import StepRunner
    from small_steps import batches, loss, make
    runner = StepRunner(*make(3), loss, threads=2, width=1)
    print("up", flush=True)
    while {forever}:
        runner.step(*batches(3, 1)[0])
    runner.step(*batches(3, 1)[0])
""")


@contextlib.contextmanager
def program(forever):
    """The script above as a process of its own, ended when the test is."""
    code = SCRIPT.format(support=str(SUPPORT), forever=forever)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_program_that_forgets_to_close_ends():
    with program(False) as process:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_ctrl_c_ends_a_program_in_the_middle_of_its_steps():
    with program(True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert "KeyboardInterrupt" in errors
        assert process.returncode == -signal.SIGINT


def test_a_thread_that_frees_a_runner_is_waited_for_at_the_end():
    """It was the last to hold what it worked for, and nobody else knows it: the interpreter would end it half-way."""
    script = """
        import time
        import torch
        from dnnsuite._step.threads import ShardThreads

        threads = ShardThreads(2, 2)
        held = [torch.zeros(()) for _ in range(300_000)]
        threads.deal(2, lambda *_, held=held: None)
        threads.start(2)
        del held
        threads.stop()
        del threads
        time.sleep(0.02)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
