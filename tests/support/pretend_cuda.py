# SPDX-License-Identifier: MIT
"""A CUDA of streams and captures alone, which fails as the real one does: the end of an invalid capture raises, and
what torch would do after it does not happen."""

import contextlib
import itertools

import torch


class PretendStream:
    def __init__(self, device=None, priority=0):
        self.priority, self.waits_for = priority, []

    def wait_stream(self, other):
        self.waits_for.append(other)


class PretendCuda:
    """Stands in for `torch.cuda` where a test installs it.

    Attributes:
        current: the thread's stream.
        generator_captured: draws raise while it is true, as torch's generator then does.
        invalid: something has invalidated the capture under way.
        recording: memory pools of captures that have not ended well; none of them takes another.
    """

    def __init__(self, monkeypatch):
        self.current, self.generator_captured, self.invalid = PretendStream(), False, False
        self.recording, pools = set(), itertools.count()
        cuda = self

        class Graph:
            def capture_begin(self, pool=None, capture_error_mode="global", **options):
                if pool in cuda.recording:
                    raise RuntimeError(f"already recording to mempool_id {pool}")
                cuda.recording |= {pool} - {None}
                cuda.generator_captured, cuda.invalid, self.pool = True, False, pool

            def capture_end(self):
                if cuda.invalid:
                    raise RuntimeError("operation failed due to a previous error during capture")
                cuda.generator_captured = False
                cuda.recording -= {self.pool}

            def replay(self):
                assert not cuda.generator_captured

        for name, stand_in in {
            "CUDAGraph": Graph,
            "graph": self._graph,
            "Stream": PretendStream,
            "stream": self._stream,
            "device": contextlib.nullcontext,
            "current_stream": lambda device=None: self.current,
            "set_stream": lambda stream: setattr(self, "current", stream),
            "synchronize": lambda device=None: None,
            "empty_cache": lambda: None,
            "graph_pool_handle": lambda: (0, next(pools)),
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        zeros = torch.zeros
        monkeypatch.setattr(torch, "zeros", lambda *sizes, device=None, **how: zeros(*sizes, **how))

    def draw(self):
        """Draw a number on the device."""
        if self.generator_captured:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly")
        return 0.5

    def refuse(self):
        """Do what no capture may."""
        self.invalid = True
        raise RuntimeError("operation not permitted when stream is capturing")

    @contextlib.contextmanager
    def _graph(self, graph, pool=None, stream=None, capture_error_mode="global"):
        before, self.current = self.current, stream
        graph.capture_begin(pool, capture_error_mode)
        try:
            yield
        finally:
            graph.capture_end()
            self.current = before  # torch too ends the capture first, and gives the stream back if that did not raise

    @contextlib.contextmanager
    def _stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before
