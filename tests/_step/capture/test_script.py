# SPDX-License-Identifier: MIT
import math
import re
import threading

import pytest
import torch

from dnnsuite import ops
from dnnsuite._step.capture import script as capture_script
from dnnsuite._step.capture.plan import make_plan
from dnnsuite._step.capture.record import StepRecorder
from dnnsuite._step.capture.script import NotScriptable, Script, Scripts


def script(function, *inputs):
    with StepRecorder(inputs) as recorder, torch.no_grad():
        result = function(*inputs)
    assert recorder.recording.refusal is None
    recorder.recording.losses = recorder.slot(result).index
    return Script(make_plan(recorder.recording))


FUNCTIONS = {
    "numbers": lambda x: x * 2 + 1 - x / 3.0,
    "infinity": lambda x: x.masked_fill(x > 0, -math.inf).clamp(min=-1e30, max=0.1),
    "lists": lambda x: torch.cat(x.chunk(2, dim=1)).sum([0, 1], keepdim=True).expand(3, -1),
    "empty list": lambda x: x.new_zeros([]).add(x.sum()),
    "several results": lambda x: torch.var_mean(x, dim=1, correction=0)[0] + x.topk(2)[0].sum(1),
    "index": lambda x: x[:, torch.tensor([1, 0])].float(),
    "dtypes": lambda x: x.to(torch.float64).to(torch.bfloat16).to(torch.float32),
    "text": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "out": lambda x: torch.mm(x, x.t(), out=x.new_empty(4, 4)),
    "layout": lambda x: x.view(1, 2, 2, 4).contiguous(memory_format=torch.channels_last).clone(),
    "convolution": lambda x: torch.nn.functional.conv1d(x.view(1, 2, 8), x.view(2, 2, 4)[:, :, :3], stride=2),
    "shape in place": lambda x: (x * 2).unsqueeze_(0).add_(1).transpose_(1, 2).squeeze_(0).sum(0),
    "own": lambda x: ops.layer_norm(x.view(2, 2, 4), torch.ones(2, 4), None, 1e-5),
    "truth in place": lambda x: (x > 0).fill_(True),
    "complex": lambda x: ((x * 1j).conj() * (2 - 1j)).imag,
    "truth as a number": lambda x: torch.ops.aten.add.Scalar(x, True),
    "truth": lambda x: torch.where(x > 0, True, False).any(dim=0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_replays_what_was_recorded(name):
    function = FUNCTIONS[name]
    made = script(function, torch.randn(4, 4))
    x = torch.randn(4, 4)
    expected = function(x)
    for _ in range(3):
        result = made([x])
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride()


def test_writes_into_what_stays_and_into_lists_of_it():
    state, other = torch.zeros(2, 3), torch.zeros(2, 3)

    def function(x):
        state.add_(x)
        torch._foreach_mul_([state, other], 2.0)
        torch._foreach_add_([other], [x])
        return state.sum()

    made = script(function, torch.ones(2, 3))
    state.zero_()
    other.zero_()
    made([torch.ones(2, 3)])
    made([torch.ones(2, 3)])
    assert state.eq(6).all()
    assert other.eq(3).all()


def test_runs_in_threads():
    made = script(lambda x: (x @ x).sum(), torch.randn(32, 32))
    x = torch.randn(32, 32)
    expected, results = (x @ x).sum(), []
    threads = [threading.Thread(target=lambda: results.append(made([x]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(result, expected) for result in results)


def test_an_error_names_the_operator():
    made = script(lambda x, i: x[i] + 1, torch.randn(3), torch.tensor([0, 1]))
    with pytest.raises((RuntimeError, IndexError), match=r"aten\.index in a captured step: .*7"):
        made([torch.randn(3), torch.tensor([0, 7])])


def test_a_torch_that_no_library_was_built_for_is_named(monkeypatch):
    reason = "this build replays steps on a CPU under torch 2.13, and this is torch 9.9.0"
    monkeypatch.setattr(capture_script, "REPLAY", None)
    monkeypatch.setattr(capture_script, "no_replay", reason)
    with StepRecorder([]) as recorder:
        pass
    with pytest.raises(NotScriptable, match=f"^{re.escape(reason)}$"):
        Scripts().prepare(None, recorder.recording, (), [])
