# SPDX-License-Identifier: MIT
"""What holds for every operator: it is what B torch modules compute, whatever B, the place, the threads."""

import threading

import pytest
import torch

from dnnsuite import ops
from operator_cases import CASES, SMALL, run

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
small = pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def _there_is_a_kernel(request):
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    on_gpu = parameters.get("device") == "cuda" or request.node.get_closest_marker("gpu")
    if on_gpu and "case" in parameters and not parameters["case"].runs_on("cuda"):
        pytest.skip("an operator for CPUs alone")


def to(tensors, device):
    return {name: tensor.to(device) for name, tensor in tensors.items()}


@every
def test_equals_separate_models(case, device):
    tensors = to(case.make(3, torch.float32), device)
    got = run(case, tensors)
    for model in range(3):
        own = {
            n: t[model].double() if t.is_floating_point() and n != "p" else t[model]
            for n, t in to(tensors, "cpu").items()
        }
        leaves = {name: own[name].requires_grad_() for name in case.differentiable(own)}
        y = case.one(own | leaves)
        weights = torch.cos(torch.arange(y.numel(), dtype=torch.float32)).view_as(y).double()
        grads = torch.autograd.grad(y, list(leaves.values()), weights)
        expected = {"y": y.detach()} | dict(zip(leaves, grads, strict=True))
        for name, value in expected.items():
            scale = max(1.0, float(value.abs().max()))
            error = float((got[name][model].cpu() - value).abs().max()) / scale
            assert error < 2e-5, f"{name} of model {model}: relative error {error}"


@small
def test_gradients(case, device):
    tensors = to(case.make(2, torch.float64), device)
    names = case.differentiable(tensors)
    leaves = [tensors[name].requires_grad_() for name in names]
    assert torch.autograd.gradcheck(
        lambda *values: case.call(tensors | dict(zip(names, values, strict=True))), leaves, fast_mode=True
    )


@small
def test_gradients_of_gradients(case, device):
    tensors = to(case.make(2, torch.float64), device)
    names = case.differentiable(tensors)
    leaves = [tensors[name].requires_grad_() for name in names]
    weights = torch.cos(case.call(tensors))
    assert torch.autograd.gradgradcheck(
        lambda *values: case.call(tensors | dict(zip(names, values, strict=True))).sin(),
        leaves,
        weights.detach(),
        fast_mode=True,
        atol=1e-4,
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.exact], ids=lambda case: case.name)
def test_a_model_does_not_feel_the_others(case, device):
    """To the bit where the kernels are ours: alone, among five, in another place, with one thread or two."""
    bound = {"rtol": 0.0, "atol": 0.0} if case.exact_on(device) else {"rtol": 1e-5, "atol": 5e-5}
    tensors = to(case.make(5, torch.float32), device)
    torch.set_num_threads(2)
    together = run(case, tensors)
    torch.set_num_threads(1)
    backwards = run(case, {name: tensor.flip(0) for name, tensor in tensors.items()})
    for model in (0, 3):
        alone = run(case, {name: tensor[model : model + 1] for name, tensor in tensors.items()})
        for name, value in alone.items():
            for place, others in ((model, together), (4 - model, backwards)):
                torch.testing.assert_close(value[0], others[name][place], **bound)


def test_python_threads_at_once():
    """Each thread runs its own models; nothing is shared behind their backs."""
    tensors = [(case, case.make(1, torch.float32)) for case in SMALL if case.exact]
    expected = [run(*pair) for pair in tensors]
    wrong = []

    def work():
        torch.set_num_threads(1)
        for _ in range(5):
            for (case, inputs), want in zip(tensors, expected, strict=True):
                if any(not torch.equal(value, want[name]) for name, value in run(case, inputs).items()):
                    wrong.append(case.name)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@small
def test_not_contiguous(case, device):
    tensors = to(case.make(2, torch.float32), device)
    expected = run(case, tensors)
    strided = {}
    for name, tensor in tensors.items():
        strided[name] = tensor
        if name != "indices":  # a view with every other element of the last dimension
            strided[name] = torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2]
            assert tensor.shape[-1] == 1 or not strided[name].is_contiguous()
    got = run(case, strided)
    exact = case.exact_on(device) and not case.name.startswith(
        ("batch-norm", "prelu", "scaled")
    )  # sums in memory order
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=0.0 if exact else 1e-5, atol=0.0 if exact else 1e-5)


@pytest.mark.parametrize("B", [0, 2])
@small
def test_empty(case, B):
    """No models, or models with nothing to do."""
    if B and case.family == "matmul":
        return  # test_matmul.py: dimension 1 may be what is summed over
    tensors = case.make(2, torch.float32)
    if B == 0:
        tensors = {name: tensor[:0] for name, tensor in tensors.items()}
    else:
        empty = {
            "attention": ("x", "ignored"),
            "embedding": ("indices",),
            "cross_entropy": ("x", "target"),
            "scaled": ("x", "weight"),
        }
        tensors |= {n: tensors[n][:, :0] for n in empty.get(case.family, ("x", "residual")) if n in tensors}
    leaves = {name: tensors[name].requires_grad_() for name in case.differentiable(tensors)}
    y = case.call(tensors | leaves)
    y.sum().backward()
    assert len(y) == B
    for name, leaf in leaves.items():
        assert leaf.grad is not None, name
        assert leaf.grad.shape == leaf.shape
        if case.family != "cross_entropy":  # a mean of nothing is NaN, as in torch
            assert torch.equal(leaf.grad, torch.zeros_like(leaf)), name


@pytest.mark.parametrize("case", [c for c in SMALL if "drop" in c.name or "loss" in c.name][::4], ids=lambda c: c.name)
def test_compiles(case):
    tensors = case.make(2, torch.float32)
    names = case.differentiable(tensors)

    def step(*values):
        return case.call(tensors | dict(zip(names, values, strict=True))).sin()

    leaves = [tensors[name].requires_grad_() for name in names]
    expected = step(*leaves)
    got = torch.compile(step, fullgraph=True, backend="aot_eager")(*leaves)
    assert torch.equal(got, expected)
    for a, b in zip(torch.autograd.grad(got.sum(), leaves), torch.autograd.grad(expected.sum(), leaves), strict=True):
        assert torch.equal(a, b)


def step_arguments(state, vectors):
    """What optimizer_step_ takes: the tensors that it writes are known to it by their addresses in the plan."""
    step = torch.zeros(2, dtype=torch.float64, device=state[0][0].device)
    written = [*state[0], *state[1], *state[2], step]
    plan = ops.optimizer_plan("adam", state[0], [*state[1], *state[2]], [step])
    tickets = torch.zeros(2, dtype=torch.int32, device=step.device) if step.is_cuda else None
    return (plan, written, state[3], [vectors[i] for i in (0, 1, 2, 3, 4)], None, None, tickets, False, True, False)


def opcheck_samples(device):
    library = torch.ops.dnnsuite
    gen = torch.Generator().manual_seed(0)

    def r(*shape):
        return torch.randn(*shape, generator=gen).to(device).requires_grad_()

    p, rng = torch.tensor([0.1, 0.5], device=device), torch.tensor([[1, 2], [3, 4]], device=device)
    target = torch.tensor([[0, 1, -100], [4, 2, 0]], device=device)
    x, bias = r(2, 3, 5), r(2, 5)
    c = [torch.full((2,), v, dtype=torch.float64, device=device) for v in (0.1, 0.9, 0.99, 1e-6, 0.01)]
    state = [[r(2, 3).detach().abs()] for _ in range(4)]
    return [
        (library.dropout, (x, p, rng)),
        (library.bias_dropout_add, (x, bias, r(2, 3, 5), p, rng)),
        (library.bias_act_dropout, (x, bias, "gelu", p, rng)),
        (library.batch_norm_act, (r(2, 3, 5, 4), bias, bias, r(2, 3, 5, 4), None, None, 1e-5, "relu", 0.1)),
        (library.rms_norm, (x, bias, 1e-5)),
        (library.group_norm, (r(2, 3, 4, 17), 2, r(2, 4), r(2, 4), 1e-5)),
        (library.max_over, (r(2, 3, 5), 1)),
        (library.signed_max_over, (r(2, 3, 5, 4).detach(), r(2, 4).detach().sign())),
        (library.batch_norm_statistics, (r(2, 3, 5, 4).detach(), 1e-5)),
        (library.layer_norm, (x, bias, bias, 1e-5)),
        (library.bias_dropout_add_layer_norm, (x, bias, r(2, 3, 5), p, rng, bias, bias, 1e-5)),
        (library.attention, (r(2, 2, 4, 12), 2, p, rng, True, None)),
        (library.depthwise, (r(2, 2, 4, 4, 5), r(2, 3, 3, 5), bias, 1, 1, 1, 1, 1, 1)),
        (library.max_pool, (r(2, 2, 4, 5, 3), 2, 3, 2, 1, 1, 1, 1, 1, True, True)),
        (library.avg_pool, (r(2, 2, 4, 5, 3), 2, 3, 2, 1, 1, 1, True, False, 0)),
        (library.embedding, (r(2, 9, 5), target.clamp(min=0), -1)),
        (library.linear, (x, r(2, 4, 5), r(2, 4), True)),
        (library.matmul, (x, r(2, 5, 4))),
        (library.pixel_products, (r(2, 3, 5, 6), r(2, 4, 5), r(2, 4))),
        (library.sum_of_products, (r(2, 3, 4, 5).detach(), r(2, 3, 5, 6).detach())),
        (library.patches, (r(2, 2, 5, 6, 3), 3, 2, 2, 1, 1, 1)),
        (library.glu, (r(2, 3, 6, 4), 2)),
        (library.prelu, (r(2, 3, 5, 4), r(2, 5), 4)),
        (library.scaled, (r(2, 3, 5), r(2, 5), False)),
        (library.short_softmax, (r(2, 3, 5), True)),
        (library.rearranged, (r(2, 3, 5, 4), [0, 1, 3, 2])),
        (library.resample, (r(2, 2, 5, 6, 3), "linear", 7, 4, 0.7, 1.5, 0, 0)),
        (library.add_patches, (r(2, 2, 3, 7, 18), 5, 6, 3, 2, 2, 1, 1, 1)),
        (
            library.convolve_models,
            (r(2, 3, 4, 5, 5), r(2, 6, 4, 3, 3), r(2, 6), [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
        ),
        (library.window_convolution, (r(2, 3, 4, 5, 5), r(2, 6, 2, 3, 3), r(2, 6), [2, 2], [1, 1], [1, 1], 2)),
        (library.cross_entropy, (x, target, -100, 0.1, "mean")),
        (library.gradient_norms, (state[0], 2.0)),
        (library.optimizer_step_, step_arguments(state, c)),
    ]


@pytest.mark.parametrize("index", range(len(opcheck_samples("cpu"))))
def test_opcheck(index, device):
    op, arguments = opcheck_samples(device)[index]
    if device == "cuda" and op.__name__.split(".")[-1] in (
        *("linear", "matmul", "pixel_products", "sum_of_products", "convolve_models"),
        *(
            "patches",
            "max_pool",
            "avg_pool",
            "add_patches",
            "window_convolution",
            "rearranged",
            "resample",
            "prelu",
            "glu",
            "scaled",
            "short_softmax",
        ),
    ):
        pytest.skip("on a GPU torch's own operators stand for it")
    torch.library.opcheck(op.default, arguments)


def test_every_operator_has_a_sample():
    names = {op.__name__.split(".")[-1] for op, _ in opcheck_samples("cpu")}
    registered = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if "dnnsuite::" in name}
    public = set(ops.__all__) & registered - {
        "instruction_set",
        "optimizer_plan",
        "recurrence",
        "low_rank",
        "low_rank_update",
    }  # the last three in tests of their own
    # Parts of batch_norm_max and pixel_products:
    parts = {"signed_max_over", "batch_norm_statistics", "sum_of_products"}
    assert names == public | parts


@pytest.mark.gpu
@small
def test_can_be_captured(case):
    """In a CUDA graph, where nothing may wait for the device or read from it."""
    tensors = to(case.make(2, torch.float32), "cuda")
    expected = run(case, tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = run(case, tensors)
    graph.replay()
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every
def test_sixteen_bits(case, dtype):
    """Arithmetic and sums are in float32: results are near those of float32 rounded at the end."""
    exact = case.make(2, torch.float32)
    cast = {n: t.to("cuda", dtype if t.is_floating_point() and n != "p" else t.dtype) for n, t in exact.items()}
    wide = {n: t.float() if t.dtype == dtype else t for n, t in cast.items()}
    got, want = run(case, cast), run(case, wide, dtype)
    unit = torch.finfo(dtype).eps
    for name, value in want.items():
        scale = max(1.0, float(value.abs().max()))
        units = (got[name].float() - value).abs() / (unit * scale)
        # Where a rectifier's input is all but zero, rounding turns its gradient on or off.
        assert float((units > 8).float().mean()) < 0.05, name
        assert float(units.max()) < 64, name
