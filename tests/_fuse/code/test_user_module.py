# SPDX-License-Identifier: MIT
"""A user's own code in an array."""

import copy
import io

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import Negated, assert_near, check_matches_models, make_models


class Steered(torch.nn.Module):
    """Control flow that does not depend on the data, a parameter and a buffer of its own, and a plain attribute."""

    def __init__(self, depth=2, power=2):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(depth))
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("seen", torch.zeros(()))
        self.power = power

    def forward(self, x):
        if x.dim() == 3:
            x = x.mean(1)
        for index, layer in enumerate(self.layers):
            x = layer(x) * self.scale if index % 2 else torch.tanh(layer(x))
        self.seen += self.training
        return x**self.power

    def twice(self, x):
        return 2 * self.forward(x)


def test_code_runs_once_for_all_models():
    calls = []

    class Counted(Steered):
        def forward(self, x):
            calls.append(tuple(x.shape))
            return super().forward(x)

    array = dnnsuite.fuse(make_models(Counted, 3))
    array(torch.randn(3, 5, 4))
    assert calls == [(5, 4)]
    assert array.seen.tolist() == [1, 1, 1]


def test_matches_the_models():
    check_matches_models([model.eval() for model in make_models(Steered, 3)], torch.randn(3, 5, 2, 4))


def test_a_shell_is_of_the_users_class_and_is_printed_as_it():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(Steered()), 2))
    assert isinstance(array.get_submodule("0"), Steered)
    assert "Steered(" in repr(array)


def test_a_part_may_be_called_on_its_own():
    models = make_models(lambda: torch.nn.Sequential(Steered(), torch.nn.Linear(4, 2)), 2)
    array = dnnsuite.fuse(models)
    x = torch.randn(2, 5, 4)
    assert torch.allclose(array.get_submodule("0")(x)[1], models[1][0](x[1]), atol=1e-6)


def test_other_methods_of_the_model():
    models = make_models(Steered, 2)
    x = torch.randn(2, 5, 4)
    assert torch.allclose(dnnsuite.fuse(models).twice(x)[1], models[1].twice(x[1]), atol=1e-6)


def test_copies_and_files():
    array = dnnsuite.fuse(make_models(Steered, 2))
    x = torch.randn(2, 5, 4)
    file = io.BytesIO()
    torch.save(array, file)
    file.seek(0)
    for other in (copy.deepcopy(array), torch.load(file, weights_only=False)):
        assert torch.equal(other(x), array(x))
        assert not {id(p) for p in other.parameters()} & {id(p) for p in array.parameters()}
    saved = {name: value.clone() for name, value in array.state_dict().items()}
    array.load_state_dict(saved)


class Tied(torch.nn.Module):
    """Looks into a layer, as models with tied weights do."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(7, 4)

    def forward(self, tokens):
        h = self.table(tokens)
        assert self.table.weight.shape == (7, 4)
        return torch.nn.functional.linear(h, self.table.weight) + self.table.weight.sum()


def test_code_that_looks_into_a_layer_sees_one_models_weight():
    array = check_matches_models(make_models(Tied, 3), torch.randint(7, (3, 5)))
    assert array.table.weight.shape == (3, 7, 4)
    assert not [cover for cover in array.coverage() if cover.how == "per model"]


def test_train_and_eval_reach_the_users_code():
    class Mode(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(x) if self.training else x

    array = dnnsuite.fuse(make_models(Mode, 2))
    x = torch.randn(2, 3, 2)
    assert not torch.equal(array(x), x)
    assert torch.equal(array.eval()(x), x)
    assert torch.equal(array.train(False).eval()(x), x)


def test_forward_hooks_see_what_one_model_sees():
    shapes = []
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), 2)
    for model in models:
        model[0].register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
        model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    x = torch.randn(2, 5, 4)
    output = dnnsuite.fuse(models)(x)
    assert shapes == [(5, 3)]
    assert torch.allclose(output[1], models[1](x[1]), atol=1e-6)


def test_a_users_mistake_is_the_users_error():
    class Wrong(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.inner(x) + torch.zeros(7, 7)

    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(Wrong()), 2))
    with pytest.raises(RuntimeError, match="size of tensor"):
        array(torch.randn(2, 5, 4))
    assert not [cover for cover in array.coverage() if cover.how == "per model"]


def test_a_wrong_batch_is_explained():
    with pytest.raises(InvalidArgument, match=r"B=2 models .*stack"):
        dnnsuite.fuse(make_models(Steered, 2))(torch.randn(5, 4))


def test_a_dataclass_of_results():
    import dataclasses

    @dataclasses.dataclass
    class Result:
        loss: torch.Tensor
        hidden: tuple[torch.Tensor, ...]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)

        def forward(self, x, scale=None):
            h = self.inner(x)
            return Result(h.sum() * scale, (h, torch.ones(3)))

    result = dnnsuite.fuse(make_models(Model, 2))(torch.randn(2, 5, 4), scale=torch.tensor(2.0))
    assert result.loss.shape == (2,)
    assert [h.shape for h in result.hidden] == [(2, 5, 2), (2, 3)]
    assert not any(type(h) is not torch.Tensor for h in result.hidden)


class LateFunction(torch.nn.Module):
    """Its operator with a gradient of its own comes into play after the first step."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return Negated.apply(self.inner(x)) if self.calls > 1 else self.inner(x)


def test_an_operator_of_the_users_that_is_called_later():
    models = make_models(LateFunction, 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4)
    for _ in range(3):
        array.zero_grad()
        array(x).sum().backward()
        for index, model in enumerate(models):
            model.zero_grad()
            model(x[index]).sum().backward()
            assert_near(array.inner.weight.grad[index], model.inner.weight.grad)


class LooksUp(torch.nn.Module):
    """Finds its parameters by name and by kind, and remembers one under another name."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.gain = torch.nn.Parameter(torch.randn(4))
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x):
        assert isinstance(self.gain, torch.nn.Parameter)
        assert isinstance(self.inner.weight, torch.nn.Parameter)
        assert not isinstance(self.shift, torch.nn.Parameter)
        self.kept = self.gain
        scale = self.get_parameter("inner.weight").sum() + sum(
            p.sum() for n, p in self.named_parameters() if "gain" in n
        )
        return self.inner(x) * self.get_parameter("gain") * scale + self.kept + self.get_buffer("shift")


def test_parameters_are_parameters_to_code_that_asks():
    array = check_matches_models(make_models(LooksUp, 3), torch.randn(3, 5, 4))
    assert [name for name, _ in array.named_parameters()] == ["gain", "inner.weight", "inner.bias"]


class Stopped(torch.nn.Module):
    """Ends in the middle, when asked to, by an error or by Ctrl-C."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.error = None

    def forward(self, x):
        x = self.norm(self.first(x))
        if self.error is not None:
            raise self.error
        return torch.relu(x)


@pytest.mark.parametrize(
    ("error", "before"), [(ValueError("no"), 1), (KeyboardInterrupt(), 1), (KeyboardInterrupt(), 0)]
)
def test_a_forward_that_ends_in_the_middle_has_moved_the_statistics_of_the_layers_before(error, before):
    models = make_models(Stopped, 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 8, 4)
    calls = [(array, x), *zip(models, x, strict=True)]
    for _ in range(before):
        for module, own in calls:
            module(own)
    for module, own in calls:
        module.error = error
        with pytest.raises(type(error)):
            module(own)
        module.error = None
    for index, model in enumerate(models):
        assert_near(array.norm.running_mean[index], model.norm.running_mean)
        assert array.norm.num_batches_tracked[index] == model.norm.num_batches_tracked == before + 1
    found = array(x)
    for index, model in enumerate(models):
        assert_near(found[index], model(x[index]))


class Logged(torch.nn.Module):
    """Statistics and a count, then a look at a value in every third call."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(()))
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.calls, self.seen_losses = 0, []

    def forward(self, x):
        self.calls += 1
        self.seen += x.detach().abs().mean()
        with torch.no_grad():
            self.scale.mul_(0.9)
        loss = (self.norm(self.first(x)) * self.scale).relu().mean() * self.seen
        if self.calls % 3 == 0:
            self.seen_losses.append(loss.item())
        return loss


@pytest.mark.parametrize("threads", [0, 1])
def test_a_later_look_at_a_value_begins_anew_from_the_state_before(threads):
    models = make_models(Logged, 3, torch.float64)
    array = dnnsuite.fuse(models)
    steps = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    runner = dnnsuite.StepRunner(array, steps, lambda a, x: a(x), threads=threads) if threads else None
    own = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for _ in range(7):
        x = torch.randn(3, 8, 4, dtype=torch.float64)
        if runner is None:
            steps.zero_grad()
            found = array(x)
            found.sum().backward()
            steps.step()
        else:
            found = runner.step(x).losses()
        for index, (model, opt) in enumerate(zip(models, own, strict=True)):
            opt.zero_grad()
            loss = model(x[index])
            loss.backward()
            opt.step()
            torch.testing.assert_close(found[index].detach(), loss.detach())
    if runner is not None:
        runner.close()
    for index, model in enumerate(models):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(array.state_dict()[name][index], value)
        assert array[index].seen_losses == pytest.approx(model.seen_losses)


class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_slice_of_an_arrays_layers_is_put_in_their_place():
    models = make_models(Deep, 2)
    array = dnnsuite.fuse(models)
    for one in (array, *models):
        one.layers = one.layers[1:]
    x = torch.randn(2, 5, 4)
    expected = torch.stack([model(batch) for model, batch in zip(models, x, strict=True)])
    for one in (array, copy.deepcopy(array)):
        torch.testing.assert_close(one(x), expected)
