# SPDX-License-Identifier: MIT
"""Strange models and strange input: which are fused, and which error refuses the others."""

import pytest
import torch

import dnnsuite
from dnnsuite import models
from dnnsuite.errors import Error, InvalidArgument
from fuse_zoo import fuse_checked
from helpers import assert_near, make_models


def small():
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))


def test_no_models():
    with pytest.raises(Error, match="one or more models"):
        dnnsuite.fuse([])


def test_what_is_no_model():
    with pytest.raises(InvalidArgument, match="model 0 is a Tensor"):
        dnnsuite.fuse([torch.ones(3)])


def test_an_empty_batch():
    array = dnnsuite.fuse(make_models(small, 3))
    output = array(torch.zeros(3, 0, 4))
    assert output.shape == (3, 0, 3)
    output.sum().backward()
    for parameter in array.parameters():
        assert parameter.grad is None or not parameter.grad.any()


def test_input_in_another_order():
    x = torch.randn(4, 6, 3).permute(2, 1, 0)
    assert not x.is_contiguous()
    fuse_checked(small, x)


def test_an_expanded_input_that_wants_gradients():
    made = make_models(small, 3)
    array = dnnsuite.fuse(made)
    x = torch.randn(2, 4, requires_grad=True)
    array(dnnsuite.stack(x, B=3)).sum().backward()
    own = x.detach().clone().requires_grad_()
    sum(model(own).sum() for model in made).backward()
    assert_near(x.grad, own.grad)


def test_integers_where_numbers_are_expected():
    """The error is a RuntimeError, as torch's is."""
    array = dnnsuite.fuse(make_models(small, 3))
    with pytest.raises(RuntimeError, match=r"dtypes must be the same, got: .*float.*long int"):
        array(torch.ones(3, 2, 4, dtype=torch.long))


def test_the_wrong_number_of_models():
    array = dnnsuite.fuse(make_models(small, 3))
    for x in (torch.randn(2, 5, 4), torch.randn(4)):
        with pytest.raises(Error, match=r"3.*\[.*4\]"):
            array(x)


def test_models_on_different_devices():
    made = make_models(small, 2)
    made[1] = made[1].to("meta")
    with pytest.raises(InvalidArgument, match=r"models 0 and 1 differ: 0\.weight\.device is cpu and meta"):
        dnnsuite.fuse(made)


def test_models_of_different_dtypes():
    made = make_models(small, 2)
    made[1] = made[1].double()
    with pytest.raises(InvalidArgument, match=r"0\.weight\.dtype is torch\.float32 and torch\.float64"):
        dnnsuite.fuse(made)


def test_nothing_wants_gradients():
    made = make_models(small, 2)
    for model in made:
        model.requires_grad_(False)
    array = dnnsuite.fuse(made)
    assert not array(torch.randn(2, 3, 4)).requires_grad
    assert not any(p.requires_grad for p in array.parameters())
    assert not any(p.requires_grad for model in dnnsuite.unfuse(array) for p in model.parameters())


def test_frozen_layers():
    made = make_models(small, 2)
    for model in made:
        model[0].requires_grad_(False)
    array = dnnsuite.fuse(made)
    array(torch.randn(2, 3, 4)).sum().backward()
    frozen = {name: p.grad is None for name, p in array.named_parameters()}
    assert frozen == {"0.weight": True, "0.bias": True, "2.weight": False, "2.bias": False}


def test_frozen_in_one_model_only():
    """A parameter of an array wants gradients or not as a whole."""
    made = make_models(small, 2)
    made[1][0].weight.requires_grad_(False)
    with pytest.raises(InvalidArgument, match=r"0\.weight\.requires_grad is True and False"):
        dnnsuite.fuse(made)


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.again = self.first
        self.last = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.again(torch.tanh(self.first(x)))))


def test_a_shared_layer_gathers_its_gradients():
    made = make_models(Shared, 3)
    array = dnnsuite.fuse(made)
    x = torch.randn(3, 5, 4)
    array(x).sum().backward()
    gradients = {name: p.grad for name, p in array.named_parameters()}
    for index, model in enumerate(made):
        model(x[index]).sum().backward()
        for name, parameter in model.named_parameters():
            assert_near(gradients[name][index], parameter.grad, name)
    assert all(model.first is model.again for model in dnnsuite.unfuse(array))


def test_forward_hooks_run():
    def make():
        model = small()
        model[0].register_forward_hook(lambda module, args, output: 2 * output)
        return model

    fuse_checked(make, torch.randn(3, 2, 4))


def test_pre_hooks_run():
    def make():
        model = small()
        model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        return model

    fuse_checked(make, torch.randn(3, 2, 4))


def test_a_hook_on_the_model_itself():
    def make():
        model = small()
        model.register_forward_hook(lambda module, args, output: output.cos())
        return model

    fuse_checked(make, torch.randn(3, 2, 4))


def encoder():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def test_a_hook_within_layers_that_are_fused_whole():
    def make():
        model = encoder()
        model.layers[1].linear1.register_forward_hook(lambda module, args, output: output.sin())
        return model

    fuse_checked(make, torch.randn(3, 2, 5, 8))


def test_a_backward_hook_within_layers_that_are_fused_whole():
    made = make_models(encoder, 2)
    made[1].layers[0].norm2.register_full_backward_hook(lambda module, gradients, outputs: None)
    with pytest.raises(Error, match=r"model 1 has a backward hook at layers\.0\.norm2"):
        dnnsuite.fuse(made)


def normed():
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2))


def test_models_in_eval():
    array = fuse_checked(normed, torch.randn(3, 1, 4), train=False)
    assert not array.training
    assert not any(model.training for model in dnnsuite.unfuse(array))


def test_one_model_in_eval():
    made = make_models(normed, 3)
    made[1].eval()
    with pytest.raises(InvalidArgument, match="models 0 and 1 differ at the top: training is True and False"):
        dnnsuite.fuse(made)


def test_one_layer_in_eval():
    """A frozen batch norm stays in eval mode while the rest trains."""
    made = make_models(normed, 2)
    for model in made:
        model[1].eval()
    array = dnnsuite.fuse(made)
    x = torch.randn(2, 5, 4)
    output = array(x)
    for index, model in enumerate(made):
        assert_near(output[index], model(x[index]))


def test_half_the_models_dropped():
    made = make_models(normed, 6)
    array = dnnsuite.fuse(made)
    array.drop([0, 3, 5])
    x = torch.randn(3, 5, 4)
    output = array(x)
    for place, index in enumerate((1, 2, 4)):
        assert_near(output[place], made[index](x[place]))
        for name, value in made[index].state_dict().items():
            torch.testing.assert_close(array.state_dict()[name][place], value)


def test_models_that_differ_are_refused_by_name():
    made = [models.MLP((4, 5, 3)), models.MLP((4, 6, 3))]
    with pytest.raises(Error, match=r"layers\.0.*out_features is 5 and 6"):
        dnnsuite.fuse(made)


@pytest.mark.parametrize("without", [0, 1])
def test_a_bias_that_one_model_lacks(without):
    made = make_models(small, 2)
    made[without][2].bias = None
    with pytest.raises(Error, match="models 0 and 1 differ at 2: bias is None in one of them only"):
        dnnsuite.fuse(made)


def test_the_models_are_left_alone():
    made = make_models(normed, 2)
    before = [{name: value.clone() for name, value in model.state_dict().items()} for model in made]
    array = dnnsuite.fuse(made)
    array(torch.randn(2, 5, 4)).sum().backward()
    for model, state in zip(made, before, strict=True):
        assert all(p.grad is None for p in model.parameters())
        for name, value in model.state_dict().items():
            assert torch.equal(value, state[name]), name


def lazy():
    return torch.nn.Sequential(torch.nn.LazyLinear(4))


def scripted():
    return torch.nn.Sequential(small(), torch.jit.script(torch.nn.Linear(3, 3)))


def compiled():
    return torch.nn.Sequential(small(), torch.compile(torch.nn.Linear(3, 3), backend="eager"))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lazy, "weight of 0, a LazyLinear, has no shape yet: call each model once"),
        (scripted, r"1 is a \w+ of torch.jit.*give the module itself"),
        (compiled, "1 is what torch.compile made: give the module itself"),
    ],
)
def test_modules_that_are_none_of_the_users_code(make, message):
    with pytest.raises(Error, match=message):
        dnnsuite.fuse([make() for _ in range(2)])


@pytest.mark.parametrize("layer", [torch.nn.Linear, torch.nn.Conv1d])
def test_complex_parameters(layer):
    """They keep their imaginary part, and gradients are the conjugates that torch's are."""
    models = [layer(5, 3, *([1] if layer is torch.nn.Conv1d else []), dtype=torch.cfloat) for _ in range(2)]
    array, x = dnnsuite.fuse(models), torch.randn(2, 4, 5, 5, dtype=torch.cfloat)
    y = array(x)
    y.abs().square().sum().backward()
    for index, model in enumerate(models):
        expected = model(x[index])
        torch.testing.assert_close(y[index], expected)
        expected.abs().square().sum().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(array.get_parameter(name).grad[index], parameter.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(dnnsuite.unfuse(array)[index](x[index]), expected)
