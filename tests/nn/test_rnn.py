# SPDX-License-Identifier: MIT
import itertools

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from dnnsuite import fuse, nn, stack, unfuse
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models

LAYERS = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_projections_match_models(bidirectional):
    models = make_models(lambda: torch.nn.LSTM(3, 6, 2, proj_size=4, bidirectional=bidirectional), 3)
    check_matches_models(models, torch.randn(3, 5, 2, 3))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_one_sequence_without_a_batch(layer, batch_first):
    models = make_models(lambda: layer(3, 4, 2, batch_first=batch_first), 2)
    check_matches_models(models, torch.randn(2, 5, 3))


@pytest.mark.parametrize("layer", LAYERS)
def test_states_in_and_out(layer):
    models = make_models(lambda: layer(3, 4, 2, bidirectional=True), 2)
    array, x = fuse(models), torch.randn(2, 5, 6, 3)
    state = tuple(torch.randn(2, 4, 6, 4) for _ in range(2))
    state = state if layer is torch.nn.LSTM else state[0]
    _, after = array(x, state)
    for index, model in enumerate(models):
        own = tuple(part[index] for part in state) if isinstance(state, tuple) else state[index]
        _, expected = model(x[index], own)
        pairs = zip(after, expected, strict=True) if isinstance(after, tuple) else [(after, expected)]
        for mine, theirs in pairs:
            assert_near(mine[index], theirs)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_match_models(layer, given, bidirectional):
    """Lengths in no order; the gradients of data and parameters too."""
    models = make_models(lambda: layer(3, 4, 2, bidirectional=bidirectional), 2)
    array, lengths = fuse(models), torch.tensor([2, 5, 1, 4])
    padded, count = torch.randn(2, 5, 4, 3), 4 if bidirectional else 2
    each = [pack_padded_sequence(x, lengths, enforce_sorted=False) for x in padded]
    data = torch.stack([p.data for p in each]).requires_grad_()
    packed = PackedSequence(data, each[0].batch_sizes, each[0].sorted_indices, each[0].unsorted_indices)
    state = tuple(torch.randn(2, count, 4, 4) for _ in range(2)) if given else None
    if given and layer is not torch.nn.LSTM:
        state = state[0]
    y, after = array(packed, state)
    after = after if isinstance(after, tuple) else (after,)
    weights = torch.randn_like(y.data)
    ((y.data * weights).sum() + sum(part.sin().sum() for part in after)).backward()
    for index, model in enumerate(models):
        own = data.detach()[index].requires_grad_()
        alone = PackedSequence(own, *each[index][1:])
        hx = None if not given else state[index] if layer is not torch.nn.LSTM else tuple(s[index] for s in state)
        expected, then = model(alone, hx)
        then = then if isinstance(then, tuple) else (then,)
        ((expected.data * weights[index]).sum() + sum(part.sin().sum() for part in then)).backward()
        assert_near(y.data[index], expected.data, "output")
        for mine, theirs in zip(after, then, strict=True):
            assert_near(mine[index], theirs, "state")
        assert_near(data.grad[index], own.grad, "gradient of data")
        parameters = dict(array.named_parameters())
        for name, parameter in model.named_parameters():
            assert_near(parameters[name].grad[index], parameter.grad, f"gradient of {name}")


def test_dropout_is_between_the_layers_and_at_each_models_rate():
    array = nn.LSTM(3, 50, 2, dropout=[0.0, 1.0], B=2)
    x = torch.randn(2, 4, 6, 3)
    y, _ = array(x)
    y[1].sum().backward()
    assert not array.weight_ih_l1.grad[1].any()  # all its inputs are dropped
    alone, _ = array.to_model(0).eval()(x[0])
    assert_near(y[0], alone)
    assert array.eval()(x)[0][1].ne(y[1]).any()


def test_dropout_depends_on_neither_width_nor_slot():
    models = make_models(lambda: torch.nn.GRU(3, 8, 3, dropout=0.5), 3)
    x = torch.randn(3, 4, 2, 3)
    wide, narrow = fuse(models, seeds=[1, 2, 3]), fuse(models[2:], seeds=[3])
    for _ in range(2):
        assert_near(wide(x)[0][2], narrow(x[2:])[0][0])
    assert [model.dropout for model in unfuse(wide)] == [0.5] * 3


def test_a_shared_input_and_a_frozen_layer():
    array = nn.GRU(3, 4, B=3).requires_grad_(False)
    x = torch.randn(5, 2, 3)
    y, h = array(stack(x, B=3))
    assert not y.requires_grad
    for index in range(3):
        expected, last = array.to_model(index)(x)
        assert_near(y[index], expected)
        assert_near(h[index], last)


def test_initial_parameters_lie_where_torchs_do():
    array = nn.LSTM(3, 16, bidirectional=True, B=2)
    names = [name for name, _ in torch.nn.LSTM(3, 16, bidirectional=True).named_parameters()]
    assert [name for name, _ in array.named_parameters()] == names
    for parameter in array.parameters():
        assert parameter.abs().max() <= 0.25
        assert not torch.equal(parameter[0], parameter[1])
    array.flatten_parameters()  # what models call for cuDNN


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.LSTM(3, 4, proj_size=4, B=2), "proj_size has to be smaller"),
        (lambda: nn.GRU(3, 0, B=2), "hidden_size must be greater"),
        (lambda: nn.RNN(3, 4, nonlinearity="gelu", B=2), "'tanh' or 'relu'"),
        (lambda: nn.RNN(3, 4, dropout=1.5, B=2), "between 0 and 1"),
        (lambda: nn.LSTM(3, 4, B=2)(torch.randn(2, 5, 1, 7)), "I = 3"),
        (lambda: nn.LSTM(3, 4, B=2)(torch.randn(2, 0, 1, 3)), "one or more time steps"),
        (lambda: nn.LSTM(3, 4, B=2)(torch.randn(3, 5, 1, 3)), "B=2 models"),
        (lambda: nn.LSTM(3, 4, B=2)(torch.randn(2, 5, 1, 3), torch.randn(2, 1, 1, 4)), "pair"),
        (lambda: nn.GRU(3, 4, B=2)(torch.randn(2, 5, 1, 3), torch.randn(2, 1, 7, 4)), r"hx must be \[2, 1, 1, 4\]"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(InvalidArgument, match=message):
        call()


def test_an_empty_batch():
    for layer, first in itertools.product((nn.LSTM, nn.GRU, nn.RNN), (False, True)):
        array = layer(3, 4, batch_first=first, B=2)
        y, _ = array(torch.randn(2, 0, 5, 3) if first else torch.randn(2, 5, 0, 3))
        assert y.shape == ((2, 0, 5, 4) if first else (2, 5, 0, 4))


@pytest.mark.parametrize(("name", "value"), [("bias", False), ("num_layers", 2), ("hidden_size", 3)])
def test_sizes_that_the_weights_have_cannot_be_set(name, value):
    layer = nn.LSTM(4, 5, B=2)
    with pytest.raises(InvalidArgument, match=f"{name}="):
        setattr(layer, name, value)
    setattr(layer, name, getattr(layer, name))
    layer.batch_first = True


class _Adapted(torch.nn.Module):
    """A frozen layer on inputs of each model's own."""

    def __init__(self, layer):
        super().__init__()
        self.under, self.layer = torch.nn.Linear(3, 3), layer

    def forward(self, x, state=None):
        return self.layer(torch.tanh(self.under(x)), state)[0]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("rows", [4, 3])
def test_weights_that_all_share(layer, rows):
    torch.manual_seed(0)
    shared = layer(3, 4, 2, bidirectional=True, batch_first=True).double().requires_grad_(False)
    models = [_Adapted(shared).double() for _ in range(3)]
    x, hx = torch.randn(3, rows, 5, 3).double(), torch.randn(3, 4, rows, 4).double()
    state = (hx, hx.sin()) if layer is torch.nn.LSTM else hx
    array = fuse(models)
    with torch.profiler.profile(record_shapes=True) as seen:
        y = array(x, state)
    calls = [event.input_shapes[0] for event in seen.events() if event.name == "dnnsuite::recurrence"]
    assert {tuple(shape[:3]) for shape in calls} == {(1, 5, 12) if rows == 4 else (3, 5, 3)}
    y.square().sum().backward()
    for index, model in enumerate(models):
        own = tuple(part[index] for part in state) if isinstance(state, tuple) else state[index]
        expected = model(x[index], own)
        expected.square().sum().backward()
        assert_near(y[index], expected)
        assert_near(array.under.weight.grad[index], model.under.weight.grad)


@pytest.mark.parametrize("rows", [6, 7, 33, 34])
def test_shared_weights_give_a_model_the_bits_that_it_has_alone(rows):
    shared = torch.nn.LSTM(16, 24).requires_grad_(False)
    x = torch.randn(5, 7, rows, 16)
    together = fuse([shared] * 5)(x)[0]
    for index in range(5):
        assert torch.equal(fuse([shared])(x[index : index + 1])[0][0], together[index])
