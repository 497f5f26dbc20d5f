# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models


@pytest.mark.parametrize("cell", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell])
def test_a_loop_of_steps_matches_models(cell):
    """The state goes from step to step, and the gradient back through all of them."""
    models = make_models(lambda: cell(3, 5), 2)
    array, x = fuse(models), torch.randn(2, 4, 6, 3)

    def run(module, steps):
        state = None
        for t in range(4):
            state = module(steps[t], state)
        return state[0] if isinstance(state, tuple) else state

    y = run(array, x.unbind(1))
    y.square().sum().backward()
    for index, model in enumerate(models):
        expected = run(model, x[index].unbind(0))
        expected.square().sum().backward()
        assert_near(y[index], expected)
        for name, parameter in model.named_parameters():
            assert_near(array.get_parameter(name).grad[index], parameter.grad, name)


def test_refuses_the_wrong_state_and_nonlinearity():
    with pytest.raises(InvalidArgument, match="the state must be"):
        nn.GRUCell(3, 5, B=2)(torch.randn(2, 6, 3), torch.randn(2, 6, 4))
    with pytest.raises(InvalidArgument, match="GRUCell takes"):
        nn.GRUCell(3, 5, B=2)(torch.randn(2, 6, 4))
    with pytest.raises(InvalidArgument, match="'tanh' or 'relu'"):
        nn.RNNCell(3, 5, nonlinearity="gelu", B=2)
