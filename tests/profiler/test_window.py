# SPDX-License-Identifier: MIT
"""A window that external tools honour: opened once at a time, always closed, never by a forked child."""

import threading

import pytest

from dnnsuite import profiler
from dnnsuite.errors import Error
from dnnsuite.profiler import window
from profiler.nvtx_tool import compile_tool, seen_by
from profiler_loops import loop


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    return compile_tool(tmp_path_factory.mktemp("tool"))


@pytest.fixture
def closing():
    yield
    window.close_at_exit()


class Cuda:
    """Stands in for CUDA's runtime, which this machine need not have."""

    def __init__(self, monkeypatch, error=None):
        self.calls = []

        def call(name):
            def cuda_profiler():
                self.calls.append(name)
                if error is not None:
                    raise error

            return cuda_profiler

        monkeypatch.setattr(window._C, "cuda_profiler_start", call("start"))
        monkeypatch.setattr(window._C, "cuda_profiler_stop", call("stop"))


@pytest.mark.usefixtures("closing")
def test_a_window_drives_the_profiler_of_cuda(monkeypatch):
    cuda = Cuda(monkeypatch)
    with window.Window() as opened:
        assert opened.is_open
        assert cuda.calls == ["start"]
    assert cuda.calls == ["start", "stop"]
    opened.close()
    assert cuda.calls == ["start", "stop"]
    opened.open()
    opened.close()
    assert (cuda.calls, opened.count) == (["start", "stop"] * 2, 2)


@pytest.mark.usefixtures("closing")
def test_without_cuda_it_opens_and_says_so(monkeypatch):
    cuda = Cuda(monkeypatch, Error("status 999"))
    with window.Window() as opened:
        assert [note for note in opened.notes if "status 999" in note]
    assert cuda.calls == ["start"]  # what was not begun is not ended


@pytest.mark.usefixtures("closing")
def test_there_is_one_at_a_time():
    first = window.Window()
    with first:
        with pytest.raises(Error, match="another window is open"):
            window.Window().open()
        with pytest.raises(Error, match="this window is open"):
            first.open()
        window.Window().close()
        assert first.is_open
    with window.Window():
        assert not first.is_open


@pytest.mark.usefixtures("closing")
def test_it_is_closed_by_an_interrupt(monkeypatch):
    cuda = Cuda(monkeypatch)
    with pytest.raises(KeyboardInterrupt), window.Window():
        raise KeyboardInterrupt
    assert cuda.calls == ["start", "stop"]


@pytest.mark.usefixtures("closing")
def test_another_thread_may_close_it(monkeypatch):
    cuda = Cuda(monkeypatch)
    opened = window.Window()
    opened.open()
    thread = threading.Thread(target=opened.close)
    thread.start()
    thread.join()
    assert (opened.is_open, cuda.calls) == (False, ["start", "stop"])


def test_a_tool_sees_the_windows_with_their_numbers(tool, tmp_path):
    calls = seen_by(
        tool,
        tmp_path,
        """
        from dnnsuite.profiler.window import Window
        window = Window()
        for _ in range(2):
            with window: pass
        """,
    )
    assert [(call.what, call.domain, call.name, call.payload) for call in calls] == [
        *[("start", "dnnsuite", "window", "0"), ("end", "dnnsuite", "-", "-")],
        *[("start", "dnnsuite", "window", "1"), ("end", "dnnsuite", "-", "-")],
    ]
    assert [call.range for call in calls[::2]] == [call.range for call in calls[1::2]]


@pytest.mark.parametrize(
    ("last", "returncode"), [("pass", 0), ("raise SystemExit(3)", 3), ("os.kill(os.getpid(), signal.SIGINT)", -2)]
)
def test_one_that_is_left_open_is_closed_at_exit(tool, tmp_path, last, returncode):
    calls = seen_by(
        tool,
        tmp_path,
        f"""
        import os, signal
        from dnnsuite.profiler.window import Window
        Window().open()
        {last}
        """,
        returncode=returncode,
    )
    assert [call.what for call in calls] == ["start", "end"]


def test_a_forked_child_leaves_it_alone(tool, tmp_path):
    calls = seen_by(
        tool,
        tmp_path,
        """
        import os, sys
        from dnnsuite.profiler.window import Window
        window = Window()
        with window:
            child = os.fork()
            if child == 0:
                assert not window.is_open
                window.close()
                with Window(): pass  # its own
                sys.exit(0)  # not _exit: handlers run, and `with` ends
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert window.is_open
        """,
    )
    parents = [call.what for call in calls if call.process == calls[0].process]
    childs = [call.what for call in calls if call.process != calls[0].process]
    assert (parents, childs) == (["start", "end"], ["start", "end"])


def test_the_tools_window_is_open_while_a_window_is():
    seen = []

    class Watching:
        def step(self):
            seen.append(window._opened is not None)
            p.step()

    with profiler.profile(schedule=profiler.schedule(wait=1, active=2, repeat=2)) as p:
        loop(Watching(), 7, 0)
    assert seen == [False, True, True, False, True, True, False]
