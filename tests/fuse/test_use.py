# SPDX-License-Identifier: MIT
"""What users do with an array beside training it: edit, save, copy, move, compile, cast, checkpoint, distribute."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import models
from dnnsuite.errors import Error
from fuse_zoo import Functional, Row, rows
from helpers import assert_near, make_models
from two_processes import run_in_two


def conv_net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.0),
        torch.nn.Linear(4 * 9, 3),
    )


IMAGES = (5, 2, 3, 3)


@pytest.fixture(params=[conv_net, Functional], ids=["layers", "functions"])
def make(request):
    return request.param


def shape_of(make):
    return IMAGES if make is conv_net else (5, 2, 4, 4)


def check(array, made, x):
    """The array computes what `made` compute, and has their state."""
    assert len(dnnsuite.unfuse(array)) == len(made)
    output = array(x)
    for index, model in enumerate(made):
        assert_near(output[index], copy.deepcopy(model)(x[index]), f"model {index}")
    fresh = copy.deepcopy(array)  # the forward pass above has moved the running statistics
    assert fresh.state_dict().keys() == made[0].state_dict().keys()


def test_drop_append_replace_clone(make):
    made = [model.eval() for model in make_models(make, 4)]
    array = dnnsuite.fuse(made)
    x = torch.randn(5, *shape_of(make))
    check(array, made, x[:4])
    array.drop([2])
    made.pop(2)
    check(array, made, x[:3])
    new = make_models(make, 6)[4:]
    array.append(new[0].eval())
    made.append(new[0])
    check(array, made, x[:4])
    array.replace(1, new[1].eval())
    made[1] = new[1]
    check(array, made, x[:4])
    array.clone(0, into=3)
    made[3] = copy.deepcopy(made[0])
    check(array, made, x[:4])


def test_edits_that_make_no_sense_change_nothing(make):
    made = [model.eval() for model in make_models(make, 3)]
    array = dnnsuite.fuse(made)
    x = torch.randn(3, *shape_of(make))
    for edit in (
        lambda: array.drop([3]),
        lambda: array.drop([0, 1, 2]),
        lambda: array.replace(5, made[0]),
        lambda: array.clone(0, into=7),
        lambda: array.append(torch.nn.Linear(2, 2)),
        lambda: array.replace(0, torch.nn.Linear(2, 2)),
    ):
        with pytest.raises((Error, IndexError)):
            edit()
        check(array, made, x)


def test_one_model_of_the_array(make):
    made = [model.eval() for model in make_models(make, 3)]
    array = dnnsuite.fuse(made)
    x = torch.randn(3, *shape_of(make))
    for index in (0, 2, -1):
        one = array[index]
        assert_near(one(x[index]), made[index](x[index]))
        for name, value in made[index].state_dict().items():
            assert torch.equal(one.state_dict()[name], value), name
    with pytest.raises((Error, IndexError)):
        array[3]


def test_state_through_a_file(make):
    made = make_models(make, 3)
    array = dnnsuite.fuse(made)
    file = io.BytesIO()
    torch.save(array.state_dict(), file)
    file.seek(0)
    other = dnnsuite.fuse(make_models(make, 6)[3:])
    other.load_state_dict(torch.load(file, weights_only=True))
    check(other.eval(), [model.eval() for model in made], torch.randn(3, *shape_of(make)))


def test_deepcopy_is_apart(make):
    made = [model.eval() for model in make_models(make, 2)]
    array = dnnsuite.fuse(made)
    x = torch.randn(2, *shape_of(make))
    array(x)
    twin = copy.deepcopy(array)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    check(array, made, x)
    assert not torch.allclose(twin(x), array(x))


def test_modes(make):
    made = make_models(make, 2)
    array = dnnsuite.fuse(made)
    assert array.training
    array.eval()
    assert not any(module.training for module in array.modules())
    x = torch.randn(2, *shape_of(make))
    check(array, [model.eval() for model in made], x)
    array.train()
    check(array, [model.train() for model in made], x)


def test_another_dtype(make):
    made = [model.eval() for model in make_models(make, 2)]
    array = dnnsuite.fuse(made)
    x = torch.randn(2, *shape_of(make))
    array(x)
    array.to(torch.float64)
    assert all(p.dtype == torch.float64 for p in array.parameters())
    check(array, [model.double() for model in made], x.double())
    shapes = array.to("meta")
    assert all(p.device.type == "meta" for p in shapes.parameters())


def test_autocast(make):
    made = [model.eval() for model in make_models(make, 2)]
    array = dnnsuite.fuse(made)
    x = torch.randn(2, *shape_of(make))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = array(x)
        output.float().square().sum().backward()
        expected = [model(x[index]) for index, model in enumerate(made)]
    for index, value in enumerate(expected):
        assert output.dtype == value.dtype
        torch.testing.assert_close(output[index].float(), value.float(), rtol=5e-2, atol=5e-2)
    assert all(p.grad.dtype == torch.float32 for p in array.parameters())


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
@pytest.mark.parametrize("row", rows("mlp", "functional"))
def test_compiled(row: Row):
    """Under `torch.compile` with the eager backend, which captures as any other and needs no compiler."""
    made = row.models(2)
    array = dnnsuite.fuse(made)
    inputs = torch.stack([row.batch()[0][0] for _ in range(2)])
    compiled = torch.compile(array, backend="aot_eager")
    output = compiled(inputs)
    output.square().sum().backward()
    gradients = {name: p.grad for name, p in array.named_parameters()}
    for index, model in enumerate(made):
        expected = model(inputs[index])
        assert_near(output[index], expected)
        expected.square().sum().backward()
        for name, parameter in model.named_parameters():
            assert_near(gradients[name][index], parameter.grad, name)


class Checkpointed(torch.nn.Module):
    """Two blocks that are computed again in the backward pass."""

    def __init__(self, checkpoint):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
        self.dropout = torch.nn.Dropout(0.5)
        self.checkpoint = checkpoint

    def forward(self, x):
        hidden = self.checkpoint(lambda y: self.dropout(torch.tanh(self.first(y))), x)
        return self.second(hidden)


def test_activation_checkpointing():
    """The second pass draws the same dropout as the first, so the gradients are those without checkpoints."""
    made = make_models(lambda: Checkpointed(lambda f, x: f(x)), 3)
    plain = dnnsuite.fuse(made, seeds=[1, 2, 3])
    for model in made:
        model.checkpoint = dnnsuite.nn.checkpoint
    saving = dnnsuite.fuse(made, seeds=[1, 2, 3])
    x = torch.randn(3, 5, 4)
    outputs = [array(x) for array in (plain, saving)]
    for output in outputs:
        output.square().sum().backward()
    assert_near(outputs[1], outputs[0])
    for (name, a), b in zip(saving.named_parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, b.grad, name)


def test_coverage_lists_every_part():
    array = dnnsuite.fuse(make_models(conv_net, 2))
    cover = array.coverage()
    assert {entry.name for entry in cover} >= {"0", "1", "5"}
    assert all(entry.how != "mapped" for entry in cover)


def test_step_runner_trains_a_fused_model():
    made = make_models(lambda: models.MLP((6, 8, 3)), 3)
    array = dnnsuite.fuse(made)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=[0.1, 0.2, 0.3])
    own = [torch.optim.SGD(model.parameters(), lr=0.1 * (1 + i)) for i, model in enumerate(made)]
    loss = dnnsuite.nn.functional.cross_entropy
    with dnnsuite.StepRunner(array, optimizer, lambda module, x, y: loss(module(x), y), threads=2) as runner:
        for _ in range(4):
            x, y = torch.randn(3, 5, 6), torch.randint(3, (3, 5))
            losses = runner.step(x, y).losses()
            for index, model in enumerate(made):
                expected = F.cross_entropy(model(x[index]), y[index])
                own[index].zero_grad()
                expected.backward()
                own[index].step()
                assert_near(losses[index], expected.detach())


WORKER = """
import os, torch, torch.distributed as dist
import dnnsuite
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
made = [torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)) for _ in range(3)]
array = dnnsuite.fuse(made)
x = torch.randn(3, 8, 4)
parallel = torch.nn.parallel.DistributedDataParallel(array)
parallel(x[:, 4 * rank : 4 * rank + 4]).square().mean((1, 2)).sum().backward()
for index, model in enumerate(made):
    model(x[index]).square().mean().backward()
    for (name, a), b in zip(array.named_parameters(), model.parameters()):
        torch.testing.assert_close(a.grad[index], b.grad, rtol=1e-4, atol=1e-6, msg=name)
dist.barrier()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_data_parallel_over_two_processes(tmp_path):
    """DistributedDataParallel over gloo: the mean of the halves' gradients is that of the whole batch."""
    run_in_two(WORKER, tmp_path)


def test_transforms_of_torch_func_see_the_models():
    """Gradients of every sample of an array: those of the models' samples."""

    def make():
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1),
            torch.nn.GroupNorm(2, 4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(16, 2),
        )

    models = make_models(make, 2)
    array, samples = dnnsuite.fuse(models), torch.randn(5, 2, 1, 3, 2, 2)

    def of(module):
        parameters = dict(module.named_parameters())

        def loss(given, x):
            return torch.func.functional_call(module, given, (x,)).square().sum()

        return lambda xs: torch.vmap(torch.func.grad(loss), (None, 0))(parameters, xs)

    found = of(array)(samples)
    for index, model in enumerate(models):
        for name, expected in of(model)(samples[:, index]).items():
            assert_near(found[name][:, index], expected, name)


def test_layers_of_images_are_one_graph():
    layers = (torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.GroupNorm(2, 4), torch.nn.Conv2d(4, 4, 3, groups=4))
    made = make_models(lambda: torch.nn.Sequential(*copy.deepcopy(layers)), 2)
    images = torch.randn(2, 2, 3, 6, 6)
    compiled = torch.compile(dnnsuite.fuse(made), fullgraph=True, backend="aot_eager")
    output = compiled(images)
    for index, model in enumerate(made):
        assert_near(output[index], model(images[index]))
