# SPDX-License-Identifier: MIT
import torch

from dnnsuite._step.capture.record import StepRecorder
from dnnsuite._step.capture.watched_step import refuse_writes_under_reads


def test_a_step_that_writes_into_its_batch_is_refused():
    x, y = torch.ones(2), torch.ones(2)
    with StepRecorder([x, y]) as recorder:
        x.mul_(y)
    refuse_writes_under_reads(recorder.recording, 1)
    assert recorder.recording.refusal.startswith("the step writes into its batch")
    with StepRecorder([x, y]) as recorder:
        y.mul_(x)
    refuse_writes_under_reads(recorder.recording, 1)
    assert recorder.recording.refusal is None
