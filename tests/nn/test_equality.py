# SPDX-License-Identifier: MIT
"""Every layer against B separate torch layers: each row of `cases` × dtype × B, on shapes that hypothesis draws."""

import copy
import functools

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map

import dnnsuite
from dnnsuite import _fuse
from helpers import TOLERANCE, check_state, make_models
from nn.cases import all_cases

WIDTHS = (1, 3, 8)
SEVERAL = 3  # one and the many are in test_values and test_bits
# Pairs instead of products: float32 meets every width, the others one model or several.
VALUES = {torch.float32: (1, 3), torch.float64: (3,), torch.bfloat16: (8,)}
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
SECOND_ORDER = {torch.float32: {"rtol": 2e-3, "atol": 5e-4}, torch.float64: {"rtol": 1e-8, "atol": 1e-9}}


def examples(count):
    """The same few examples everywhere: a failure is seen by everybody, and the table stays quick."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )


few = examples(2)


def rows(check, dtypes=("fp32",), only=lambda case: True):
    """The table as parameters (case, dtype) of the test `check`."""
    chosen = []
    for case in all_cases():
        for name in dtypes:
            if not only(case) or (name == "bf16" and not case.bf16):
                continue
            reason = case.known_failures.get(f"{check}-{name}") or case.known_failures.get(check)
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            chosen.append(pytest.param(case, DTYPES[name], id=f"{case.name}-{name}", marks=marks))
    return pytest.mark.parametrize(("case", "dtype"), chosen)


def tensors(tree):
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def prepared(example, B, dtype):
    """B models, and a list with the inputs of each."""
    models = make_models(example.make, B, dtype)
    for model in models:
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.add_(torch.rand_like(buffer))
    each = [tree_map(lambda x: x.to(dtype) if x.is_floating_point() else x, example.inputs()) for _ in range(B)]
    return models, each


def stacked(each):
    return tree_map(lambda *parts: torch.stack(parts), *each)


def leaves(inputs):
    """The inputs as fresh leaves that want gradients."""
    return tree_map(lambda x: x.detach().requires_grad_(x.is_floating_point()), inputs)


def weights_of(outputs):
    """A random weight for every element of every floating output."""
    return [torch.randn_like(y) for y in outputs if y.is_floating_point()]


def run(module, inputs, keywords, weights=None):
    """Outputs, gradients of inputs and of parameters, and buffers, by name."""
    inputs = leaves(inputs)
    outputs = tensors(module(*inputs, **keywords))
    found = {f"output {place}": y.detach() for place, y in enumerate(outputs)}
    floating = [y for y in outputs if y.is_floating_point()]
    weights = weights_of(outputs) if weights is None else weights
    module.zero_grad()
    if any(y.requires_grad for y in floating):
        sum((y * w).sum() for y, w in zip(floating, weights, strict=True)).backward()
    for place, x in enumerate(tensors(inputs)):
        if x.grad is not None:
            found[f"gradient of input {place}"] = x.grad
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            found[f"gradient of {name}"] = parameter.grad
    found |= {f"buffer {name}": value.clone() for name, value in state_buffers(module).items()}
    return found, weights


def state_buffers(module):
    persistent = module.state_dict()
    return {name: value for name, value in module.named_buffers() if name in persistent}


def assert_norm_near(actual, truth, tolerance, what, rounded):
    """Small error as a whole: one activation that rounds to the other side of a kink is not an error.

    Where terms cancel, torch's own model in the same precision is as far off: `rounded` gives what it has.
    """
    error = (actual.double() - truth).norm()
    allowed = tolerance * (truth.norm() + 0.6 * truth.numel() ** 0.5)
    if error > allowed:
        allowed += 1.5 * (rounded().double() - truth).norm()
    assert error <= allowed, f"{what}: error {error:.3g}, allowed {allowed:.3g}"


def no_farther_than_torch(actual, truth, exact):
    """True if an ill-conditioned result (of a group whose values are nearly equal) has torch's own error or less."""
    return (actual.double() - exact).norm() <= 1.5 * (truth.double() - exact).norm()


def compare(found, expected, case, dtype, index, rounded=None, exact=None):
    for name in expected.keys() - found.keys():
        assert not expected[name].any(), f"{name} is missing"
    for name, value in found.items():
        actual, truth = value[index], expected.get(name)
        if truth is None:
            assert not actual.any(), f"{name}, model {index}: torch has none"
        elif dtype == torch.bfloat16 and truth.is_floating_point():
            what = f"{name}, model {index}"
            assert_norm_near(actual, truth, case.bf16_tolerance, what, lambda name=name: rounded()[name])
        else:
            try:
                torch.testing.assert_close(
                    actual,
                    truth,
                    **TOLERANCE.get(dtype, {}),
                    check_stride=False,
                    msg=lambda text, what=name: f"{what}, model {index}: {text}",
                )
            except AssertionError:
                if exact is None or not no_farther_than_torch(actual, truth, exact()[name]):
                    raise


@rows("values", DTYPES)
@few
@given(data=st.data())
def test_values(case, dtype, data):
    """Forward, gradients of inputs and parameters, and buffers; a bf16 array against the exact result."""
    example = data.draw(case.examples)
    for B in VALUES[dtype]:
        models, each = prepared(example, B, dtype)
        array = dnnsuite.fuse(models)
        assert all(cover.how != "mapped" for cover in dnnsuite.coverage(array))
        found, weights = run(array, stacked(each), example.keywords)
        for index, model in enumerate(models):
            own = [w[index] for w in weights]
            alone, inputs = copy.deepcopy(model), each[index]
            rounded = functools.partial(in_torch, model, inputs, example.keywords, own)
            exact = functools.partial(in_torch, *in_double(model, inputs), example.keywords, [w.double() for w in own])
            if dtype == torch.bfloat16:
                assert found["output 0"].dtype == tensors(alone(*inputs, **example.keywords))[0].dtype
                (alone, inputs), own = in_double(model, inputs), [w.double() for w in own]
            compare(found, run(alone, inputs, example.keywords, own)[0], case, dtype, index, rounded, exact)


def in_double(model, inputs):
    """A copy of a model, and its inputs, in float64."""
    return copy.deepcopy(model).double(), tree_map(lambda x: x.double() if x.is_floating_point() else x, inputs)


def in_torch(model, inputs, keywords, weights):
    """What a copy of torch's model gives, in the model's own precision."""
    return run(copy.deepcopy(model), inputs, keywords, weights)[0]


def second_order(module, inputs, keywords, weights, mixers):
    """Gradients of a random combination of the gradients; None where something does not matter."""
    inputs = leaves(inputs)
    wanted = [x for x in tensors(inputs) if x.requires_grad] + list(module.parameters())
    outputs = [y for y in tensors(module(*inputs, **keywords)) if y.is_floating_point()]
    loss = sum((y**2 * w).sum() for y, w in zip(outputs, weights, strict=True))
    first = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
    again = sum((g * m).sum() for g, m in zip(first, mixers, strict=True) if g is not None)
    return torch.autograd.grad(again, wanted, allow_unused=True)


@rows("double_backward", ("fp32", "fp64"), only=lambda case: case.double_backward)
@few
@given(data=st.data())
def test_double_backward(case, dtype, data):
    example = data.draw(case.examples)
    models, each = prepared(example, SEVERAL, dtype)
    array, inputs = dnnsuite.fuse(models), stacked(each)
    weights = weights_of(tensors(copy.deepcopy(array)(*inputs, **example.keywords)))
    wanted = [x for x in tensors(inputs) if x.is_floating_point()] + list(array.parameters())
    if not wanted:
        return
    mixers = [torch.randn_like(x) for x in wanted]
    with sdpa_kernel(SDPBackend.MATH):  # torch's fused attention has no second derivative
        found = second_order(array, inputs, example.keywords, weights, mixers)
    for index, model in enumerate(models):
        own = [w[index] for w in weights], [m[index] for m in mixers]
        with sdpa_kernel(SDPBackend.MATH):
            expected = second_order(copy.deepcopy(model), each[index], example.keywords, *own)
        for place, (a, b) in enumerate(zip(found, expected, strict=True)):
            a = torch.zeros_like(wanted[place]) if a is None else a
            b = torch.zeros_like(wanted[place][index]) if b is None else b
            torch.testing.assert_close(
                a[index],
                b,
                **SECOND_ORDER[dtype],
                check_stride=False,
                msg=lambda text, i=index, p=place: f"tensor {p}, model {i}: {text}",
            )


@rows("state")
@few
@given(data=st.data())
def test_state(case, dtype, data):
    """The layout is that of `torch.func.stack_module_state`, and unfuse gives back what fuse took."""
    example = data.draw(case.examples)
    models, _ = prepared(example, SEVERAL, dtype)
    check_state(dnnsuite.fuse(models), models)


@rows("shared")
@few
@given(data=st.data())
def test_shared(case, dtype, data):
    """An input that all models share (stride 0) gives what copies of it give, and collects their gradients."""
    example = data.draw(case.examples)
    models, each = prepared(example, SEVERAL, dtype)
    array = dnnsuite.fuse(models)
    expected, weights = run(copy.deepcopy(array), stacked([each[0]] * SEVERAL), example.keywords)
    inputs = leaves(each[0])
    outputs = tensors(array(*tree_map(functools.partial(dnnsuite.stack, B=SEVERAL), inputs), **example.keywords))
    floating = [y for y in outputs if y.is_floating_point()]
    if any(y.requires_grad for y in floating):
        sum((y * w).sum() for y, w in zip(floating, weights, strict=True)).backward()
    for place, y in enumerate(outputs):
        torch.testing.assert_close(y, expected[f"output {place}"], **TOLERANCE[dtype], check_stride=False)
    for place, x in enumerate(tensors(inputs)):
        if x.grad is not None:
            total = expected[f"gradient of input {place}"].sum(0)
            torch.testing.assert_close(x.grad, total, **TOLERANCE[dtype], check_stride=False)


@rows("strides", ("fp32",))
@few
@given(data=st.data())
def test_strides(case, dtype, data):
    """Inputs that lie in memory in another order are the same inputs."""
    example = data.draw(case.examples)

    def turned(x):
        return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x

    models, each = prepared(example, SEVERAL, dtype)
    array, inputs = dnnsuite.fuse(models), stacked(each)
    expected, weights = run(copy.deepcopy(array), inputs, example.keywords)
    found, _ = run(array, tree_map(turned, inputs), example.keywords, weights)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], **TOLERANCE[dtype], check_stride=False)


@rows("narrowed")
@few
@given(data=st.data())
def test_narrowed(case, dtype, data):
    """A part of an array computes what the array computes for these models, and shares its tensors."""
    example = data.draw(case.examples)
    models, each = prepared(example, 3, dtype)
    array, inputs = dnnsuite.fuse(models), stacked(each)
    expected, weights = run(copy.deepcopy(array), inputs, example.keywords)
    for start, length in ((0, 1), (1, 2)):
        part = _fuse.narrow(array, start, length)
        cut = tree_map(lambda x, s=start, n=length: x.narrow(0, s, n), (inputs, weights))
        found, _ = run(part, cut[0], example.keywords, cut[1])
        assert found.keys() == expected.keys()
        for name, value in found.items():
            near = TOLERANCE.get(dtype, {"rtol": case.bf16_tolerance, "atol": case.bf16_tolerance})
            torch.testing.assert_close(value, expected[name].narrow(0, start, length), **near, check_stride=False)
        owner = dict(array.named_parameters())
        for name, parameter in part.named_parameters():
            assert parameter.data_ptr() == owner[name][start].data_ptr()


@rows("bits", only=lambda case: case.exact)
@few
@given(data=st.data())
def test_bits(case, dtype, data):
    """Model i has the same bits alone, among three or eight, and in another slot."""
    example = data.draw(case.examples)
    models, each = prepared(example, max(WIDTHS), dtype)
    inputs = stacked(each)
    expected, weights = run(dnnsuite.fuse(models), inputs, example.keywords)
    for order in ([5], [2, 7, 0], [*reversed(range(max(WIDTHS)))]):
        taken = tree_map(lambda x, o=order: x[o], (inputs, weights))
        array = dnnsuite.fuse([models[index] for index in order])
        found, _ = run(array, taken[0], example.keywords, taken[1])
        assert found.keys() == expected.keys()
        for name, value in found.items():
            assert torch.equal(value, expected[name][order]), f"{name} of models {order}"
