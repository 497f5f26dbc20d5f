# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from dnnsuite._step.capture.plan import slots_of
from dnnsuite._step.capture.record import StepRecorder


def record(function, *inputs, fixed=0):
    with StepRecorder(inputs, fixed) as recorder:
        result = function(*inputs)
    return recorder.recording, recorder.slot(result).index


def names(recording):
    return [call.name for call in recording.calls]


def test_operators_in_order_with_all_their_arguments():
    x, w = torch.randn(2, 3), torch.randn(3, 4)
    recording, result = record(lambda x: torch.softmax(x @ w, dim=1), x)
    assert names(recording) == ["aten.mm", "aten._softmax"]
    assert slots_of(recording.calls[0].arguments) == {recording.inputs[0], *recording.external}
    assert next(iter(recording.external.values())) is w
    assert recording.calls[1].arguments[1:] == (1, False)
    assert recording.calls[1].outputs == [result]


def test_what_autograd_saved_is_known_again():
    """The backward of sigmoid takes its result, which autograd hands out as another object."""
    x = torch.randn(3, requires_grad=True)

    def function():
        x.sigmoid().sum().backward()
        return x.grad

    recording, _ = record(function)
    (backward,) = [call for call in recording.calls if call.name == "aten.sigmoid_backward"]
    assert recording.calls[0].outputs[0] in slots_of(backward.arguments)
    assert any(tensor is x for tensor in recording.external.values())


def test_views_and_writes():
    state = torch.zeros(4)

    def function(x):
        state[1:3].add_(x)
        return state.sum()

    recording, _ = record(function, torch.ones(2))
    view, add, _ = recording.calls
    assert view.views
    assert not view.writes
    assert add.writes
    assert add.outputs == view.outputs
    assert recording.written_externals()[0] is state


def test_an_operator_that_returns_its_argument_is_no_operator():
    recording, result = record(lambda x: x.detach().contiguous(), torch.randn(3))
    assert names(recording) == []
    assert result == recording.inputs[0]


def test_constants_are_kept():
    recording, _ = record(lambda x: x + torch.arange(3) * 2, torch.randn(3))
    kept = [call.name for call in recording.calls if call.results]
    assert kept == ["aten.arange", "aten.mul.Tensor"]
    assert torch.equal(recording.calls[1].results[0], torch.tensor([0, 2, 4]))


def refusal(function, *inputs, fixed=0):
    return record(function, *inputs, fixed=fixed)[0].refusal


def test_refusals_name_the_operator():
    x = torch.randn(4)
    assert "aten._local_scalar_dense" in refusal(lambda x: x * x.sum().item(), x)
    assert "aten.nonzero" in refusal(lambda x: x.nonzero(), x)
    assert "aten.bernoulli" in refusal(lambda x: torch.bernoulli(x.sigmoid()), x)
    assert "aten.resize_" in refusal(lambda x: x.clone().resize_(2), x)
    assert "sparse" in refusal(lambda x: x.to_sparse(), x)
    assert refusal(lambda x: torch.dropout(x, 0.0, True), x) is None


def test_a_shape_changed_in_place_is_another_view():
    def function(x):
        y = x * 2
        y.unsqueeze_(0).add_(1)
        return (y.t_() + 1).squeeze_()

    recording, _ = record(function, torch.randn(4))
    assert recording.refusal is None
    assert names(recording) == [
        "aten.mul.Tensor",
        "aten.unsqueeze",
        "aten.add_.Tensor",
        "aten.t",
        "aten.add.Tensor",
        "aten.squeeze",
    ]


def test_values_of_what_stays_may_be_read():
    flag, rate = torch.ones(()), torch.full((2,), 0.5)
    recording, _ = record(lambda x, r: x * (flag + 1).item() * r.max().item(), torch.randn(2), rate, fixed=1)
    assert recording.refusal is None
    places = {*recording.external, recording.inputs[1]}
    assert recording.read.keys() == places


def test_results_are_not_kept_alive():
    alive = []

    def function(x):
        refs = []
        for _ in range(3):
            x = x * 2
            refs.append(StorageWeakRef(x.untyped_storage()))
        alive.extend(not ref.expired() for ref in refs)
        return x

    record(function, torch.randn(8))
    assert alive == [False, False, True]


def test_lengths_that_an_operator_reads_in_cpp_are_values_that_python_reads():
    x, known = torch.randn(3, 4, 2), torch.tensor([4, 3, 1])
    pack = torch.nn.utils.rnn.pack_padded_sequence

    def recorded(lengths, *inputs):
        with StepRecorder(list(inputs)) as recorder:
            pack(x, lengths, batch_first=True)
        return recorder.recording

    assert "depends on values" in recorded(known, known).refusal
    constant = recorded(known)
    assert constant.refusal is None
    assert constant.read


@pytest.mark.parametrize(
    "function", [lambda x, token: x.prod(-1), lambda x, token: x.prod(), lambda x, token: x.masked_fill(x > 1, token)]
)
def test_a_gradient_that_torch_computes_otherwise_while_it_is_recorded_is_refused(function):
    """Replays would have other bits than steps without a recorder, which an audit takes for a stale recording."""
    x, token = torch.rand(4, 3, requires_grad=True), torch.zeros((), requires_grad=True)
    with StepRecorder([x]) as recorder:
        function(x, token)
    assert "in another way while it is recorded" in recorder.recording.refusal
    with StepRecorder([x]) as recorder, torch.no_grad():
        x.prod(-1)
        x.detach().masked_fill(x > 1, 0.5)
    assert recorder.recording.refusal is None


def test_a_step_that_cannot_be_replayed_is_not_written_down_to_its_end():
    """The operators after the one that decides are run, and nothing else."""

    def function(x):
        rows = torch.nonzero(x > 0).flatten()
        return (x[rows] * 3).sum()

    x = torch.tensor([1.0, -1.0, 2.0])
    recording, _ = record(function, x)
    assert "aten.nonzero" in recording.refusal
    assert "aten.mul" not in names(recording)
    with StepRecorder([x], 0) as recorder:
        assert function(x) == 9
    assert recorder.recording.refusal == recording.refusal
