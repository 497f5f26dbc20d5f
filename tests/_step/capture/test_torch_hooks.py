# SPDX-License-Identifier: MIT
"""Hooks that `torch.nn.utils` sets on layers: they only compute tensors, so that a step with them is captured."""

import copy
import pickle
import warnings

import pytest
import torch
from torch.nn.utils import prune

import dnnsuite
from dnnsuite import optim
from dnnsuite._step.capture import guards
from dnnsuite._step.capture.guards import module_facts
from helpers import make_models

B = 3
LAYERS = {
    "linear": lambda: torch.nn.Linear(6, 4),
    "convolution": lambda: torch.nn.Sequential(torch.nn.Unflatten(1, (2, 3)), torch.nn.Conv1d(2, 4, 3)),
}
HOOKS = {
    "weight_norm": torch.nn.utils.weight_norm,
    "spectral_norm": torch.nn.utils.spectral_norm,
    "two iterations": lambda layer: torch.nn.utils.spectral_norm(layer, n_power_iterations=2),
    "prune": lambda layer: prune.l1_unstructured(layer, "weight", amount=0.4),
    "pruned twice": lambda layer: prune.ln_structured(prune.random_unstructured(layer, "weight", 2), "weight", 1, 2, 0),
}


def hooked(layer, hook):
    made = LAYERS[layer]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # weight_norm is old
        HOOKS[hook](made[-1] if layer == "convolution" else made)
    return torch.nn.Sequential(made, torch.nn.Flatten(), torch.nn.Linear(4, 1))


def separate(models, data, iterations=0):
    """Losses of steps of plain models; from the fifth on with other `iterations` of spectral_norm."""
    losses = []
    for number, model in enumerate(models):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        losses.append([])
        for step, batch in enumerate(data):
            if iterations and step == 4:
                iterate(model, iterations)
            loss = model(batch[number]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.detach())
    return torch.tensor(losses, dtype=torch.float64).t()


def check_equal(array, models, x):
    y = array(dnnsuite.stack(x, B=len(models)))
    torch.testing.assert_close(y, torch.stack([model(x) for model in models]))


def iterate(module, iterations):
    for part in module.modules():
        for one in guards.hooks_of(part):
            one.n_power_iterations = iterations


def runner_of(array, **options):
    optimizer = optim.Adam(array.parameters(), lr=0.1)
    return dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x).square().mean((1, 2)), **options)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_step_with_them_is_captured_and_each_models_own(layer, hook):
    models = make_models(lambda: hooked(layer, hook), B, torch.float64)
    data = torch.randn(6, B, 5, 6, dtype=torch.float64)
    expected = separate(make_models(lambda: hooked(layer, hook), B, torch.float64), data)
    with runner_of(dnnsuite.fuse(models), threads=1, width=B) as runner:
        losses = torch.stack([runner.step(x).losses() for x in data])
        assert runner.mode == "captured"
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_another_setting_of_one_is_seen(threads):
    data = torch.randn(8, B, 5, 6, dtype=torch.float64)
    made = [make_models(lambda: hooked("linear", "spectral_norm"), B, torch.float64) for _ in range(2)]
    array = dnnsuite.fuse(made[0])
    with runner_of(array, threads=threads, width=B if threads == 1 else 1) as runner:
        losses = [runner.step(x).losses().clone() for x in data[:4]]
        assert runner.mode == "captured"
        iterate(array, 5)
        losses += [runner.step(x).losses().clone() for x in data[4:]]
    torch.testing.assert_close(torch.stack(losses), separate(made[1], data, 5))


def test_settings_of_hooks_are_facts():
    one, two = (
        module_facts(dnnsuite.fuse(make_models(lambda name=name: hooked("linear", name), B)), "era")
        for name in ("spectral_norm", "two iterations")
    )
    assert one != two
    assert one == module_facts(dnnsuite.fuse(make_models(lambda: hooked("linear", "spectral_norm"), B)), "era")


def test_hooks_of_others_are_refused():
    layer = torch.nn.utils.spectral_norm(torch.nn.Linear(2, 2))
    assert guards.hook(layer) is None
    layer.register_forward_pre_hook(lambda *args: None)
    assert guards.hook(layer) == "the array itself"


@pytest.mark.parametrize("hook", HOOKS)
def test_arrays_of_such_models_are_edited_copied_and_saved(hook):
    models, same = (make_models(lambda: hooked("linear", hook), B, torch.float64) for _ in range(2))
    x = torch.randn(5, 6, dtype=torch.float64)
    array = dnnsuite.fuse(models)
    check_equal(array, same, x)
    one = array[1]
    torch.testing.assert_close(one[0].weight, same[1][0].weight.detach())
    check_equal(copy.deepcopy(array).eval(), [model.eval() for model in same], x)
    check_equal(pickle.loads(pickle.dumps(array)).eval(), same, x)
    array.drop(0)
    array.append(dnnsuite.unfuse(array)[1])
    check_equal(array.eval(), [same[1], same[2], same[2]], x)
    for model, other in zip(dnnsuite.unfuse(array), same[1:], strict=False):
        torch.testing.assert_close(model(x), other(x))


def test_outputs_that_transformers_collects_by_hooks_are_those_of_each_step():
    dnnsuite.data.import_torchvision()
    transformers = pytest.importorskip("transformers")
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 16}
    config = transformers.LlamaConfig(vocab_size=20, max_position_embeddings=16, **sizes)

    class Collected(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = transformers.LlamaModel(config)

        def forward(self, x):
            found = self.model(input_ids=x, output_hidden_states=True, use_cache=False)
            return found.last_hidden_state.mean() + sum(state.square().mean() for state in found.hidden_states)

    models = make_models(Collected, B)
    array, alone = dnnsuite.fuse(copy.deepcopy(models)), [torch.optim.SGD(m.parameters(), lr=0.01) for m in models]
    batches = torch.randint(20, (12, B, 2, 5))
    optimizer = optim.SGD(array.parameters(), lr=0.01)
    with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x), threads=1, width=B, audit=2) as runner:
        for batch in batches:
            losses = runner.step(batch).losses()
            for model, own, x, loss in zip(models, alone, batch, losses, strict=True):
                own.zero_grad()
                expected = model(x)
                expected.backward()
                own.step()
                torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-4)
        assert "hook" not in runner.mode
        assert runner.audits_passed > 1
