# SPDX-License-Identifier: MIT
"""What a capture that CUDA refuses leaves behind."""

import pytest
import torch

from dnnsuite._step.capture import CudaDevice
from dnnsuite._torch import capture_stream, first_cause
from pretend_cuda import PretendCuda

HOME = torch.device("cuda", 0)


@pytest.fixture
def cuda(monkeypatch):
    return PretendCuda(monkeypatch)


def test_a_refused_capture_gives_stream_and_generator_back(cuda):
    device, caller = CudaDevice(HOME), cuda.current
    with pytest.raises(RuntimeError), device.stream():
        device.capture(cuda.refuse)
    assert cuda.current is caller
    assert cuda.draw() == 0.5


def test_the_next_capture_after_a_refused_one_is_made(cuda):
    device = CudaDevice(HOME)
    with device.stream():
        device.capture(lambda: torch.ones(2))
    with pytest.raises(RuntimeError), device.stream():
        device.capture(cuda.refuse)
    with device.stream():
        launch, losses = device.capture(lambda: torch.ones(2))
    launch()
    assert losses.tolist() == [1.0, 1.0]


def test_the_callers_stream_waits_for_that_of_captures_after_an_error_too(cuda):
    device, caller = CudaDevice(HOME), cuda.current
    with device.stream():
        side = cuda.current
    caller.waits_for.clear()
    with pytest.raises(RuntimeError), device.stream():
        cuda.refuse()
    assert caller.waits_for == [side]


def test_captures_have_streams_that_no_other_code_is_given(cuda):
    """torch's streams of one priority come round after 32: a loader's copies would land in a graph."""
    with CudaDevice(HOME).stream():
        assert cuda.current.priority == capture_stream(HOME).priority < torch.cuda.Stream().priority


def test_the_first_of_a_chain_of_errors_is_the_cause(cuda):
    with pytest.raises(RuntimeError, match="previous error") as caught:
        CudaDevice(HOME).capture(cuda.refuse)
    assert str(first_cause(caught.value)) == "operation not permitted when stream is capturing"
