# SPDX-License-Identifier: MIT
"""Where the operator library is found, and what happens where it is not."""

import os
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from dnnsuite import ops
from dnnsuite.errors import Unavailable
from dnnsuite.ops.library import gradients_through, library, library_folder, remember, without_operators


def test_folder_has_the_library():
    assert (library_folder() / "libdnnsuite_ops.so").is_file()


def test_missing_library_says_where_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("DNNSUITE_LIBRARY_DIR", str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        library_folder()
    assert str(tmp_path) in str(caught.value)
    assert "pip install" in str(caught.value)


def test_broken_library_is_unavailable(tmp_path):
    (tmp_path / "libdnnsuite_ops.so").write_bytes(b"not an object")
    program = "import dnnsuite.errors as e\ntry:\n    import dnnsuite.ops\nexcept e.Unavailable as x:\n    print(x)"
    environment = os.environ | {"DNNSUITE_LIBRARY_DIR": str(tmp_path)}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "does not load under torch" in out.stdout


def test_a_gpu_without_operators_is_told_of(tmp_path, monkeypatch):
    driver = tmp_path / "version"
    (tmp_path / "libdnnsuite_ops.so").touch()
    monkeypatch.setenv("DNNSUITE_LIBRARY_DIR", str(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert without_operators(driver) == ""  # no GPU, and nothing is slower
    driver.touch()
    line = without_operators(driver)
    assert "several launches of torch's" in line
    assert "pip install" in line
    assert "\n" not in line
    (tmp_path / "libdnnsuite_cuda.so").touch()
    assert without_operators(driver) == ""
    monkeypatch.setattr(torch.version, "cuda", None)
    (tmp_path / "libdnnsuite_cuda.so").unlink()
    assert without_operators(driver) == ""


def test_no_python_inside():
    """The library needs LibTorch and no Python, so that one build serves every Python."""
    tool = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library_folder() / "libdnnsuite_ops.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not [line for line in tool.stdout.splitlines() if " Py" in line or " _Py" in line]


class _Product(torch.autograd.Function):
    """x * y + z with what `keep` says of (x, y, x * y) saved; z never is."""

    @staticmethod
    def forward(ctx, x, y, z, keep):
        tensors = {"x": x, "y": y, "product": x * y}
        ctx.save_for_backward(*(tensors[name] for name in keep))
        remember(ctx, (x, y, z, keep))
        return x * y + z

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            return gradients_through(lambda x, y, z, keep: x * y + z, ctx, (grad,))


@pytest.mark.parametrize("keep", [("x", "y"), ("y", "x"), ("x", "product")])
def test_gradients_of_gradients(keep):
    """Whatever a function saved, and with the same tensor in two places."""
    x, y, z = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    call = _Product.apply
    assert torch.autograd.gradgradcheck(lambda x, y, z: call(x, y, z, keep) ** 2, (x, y, z))
    assert torch.autograd.gradgradcheck(lambda x: call(x, x, x, keep) ** 2, (x,))


def test_what_has_no_influence_is_not_kept():
    x, y, z = (torch.randn(3, requires_grad=True) for _ in range(3))
    inputs = _Product.apply(x, y, z, ("x", "y"))  # kept: some torch frees what was saved with the result
    assert len(inputs.grad_fn.saved_tensors) == 2
    derived = _Product.apply(x, y, z, ("x", "product"))
    assert len(derived.grad_fn.saved_tensors) == 4


def test_a_hessian_through_several_operators():
    """Linear, norm, activation, loss: the second derivative is that of torch's own."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    bias = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    target = torch.randint(4, (2, 3))

    def loss(bias):
        y = ops.layer_norm(ops.bias_act_dropout(x, bias, "gelu"), bias, None)
        return ops.cross_entropy(y, target).sum()

    def plain(bias):
        y = torch.nn.functional.gelu(x + bias[:, None])
        y = torch.nn.functional.layer_norm(y, (4,)) * bias[:, None]
        return torch.nn.functional.cross_entropy(y.movedim(-1, 1), target, reduction="none").mean(1).sum()

    got, want = (torch.autograd.functional.hessian(f, bias) for f in (loss, plain))
    torch.testing.assert_close(got, want)


CALLS = {
    "linear": lambda v: ops.linear(v, v[:, :4], v[:, 0], "gelu"),
    "layer_norm": lambda v: ops.layer_norm(v, v[:, 0], v[:, 1]),
    "rms_norm": lambda v: ops.rms_norm(v, v[:, 0]),
    "group_norm": lambda v: ops.group_norm(v, 1, None, None),
    "batch_norm": lambda v: ops.batch_norm_act(v)[0],
    "max_over": lambda v: ops.max_over(v, 1)[0],
    "recurrence": lambda v: ops.recurrence(v[:, None], v[:, :4, :1], kind="lstm")[0],
    "attention": lambda v: ops.attention(torch.cat([v, v, v], 2)[:, None], 2),
    "embedding": lambda v: ops.embedding(v, torch.tensor([[0, 3], [2, 2]])),
    "linear_cross_entropy": lambda v: ops.linear_cross_entropy(v, v, torch.tensor([[0, 3, 1, 1, 4]] * 2)),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, of its jvp
@pytest.mark.parametrize("name", CALLS)
def test_transforms_of_torch_func(name):
    """Gradient, Hessian times a vector and one call for many inputs."""
    torch.manual_seed(0)
    call, x, direction = CALLS[name], torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    loss = lambda v: call(v).square().sum()  # noqa: E731
    own = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(own), own, create_graph=True)
    (times,) = torch.autograd.grad(gradient, own, direction)
    torch.testing.assert_close(torch.func.grad(loss)(x), gradient.detach())
    torch.testing.assert_close(
        torch.func.jvp(torch.func.grad(loss), (x,), (direction,))[1], times, rtol=1e-3, atol=1e-4
    )
    torch.testing.assert_close(torch.vmap(call)(torch.stack([x, direction])), torch.stack([call(x), call(direction)]))


def test_tensors_that_left_a_transform():
    """An operator and its gradient take what code under `torch.func.grad` has kept, as torch's functions do."""
    kept = []

    def keep(x):
        kept.append(x)
        return x.sum()

    values = torch.randn(2, 3, 4)
    torch.func.grad(keep)(values)
    weight = torch.rand(2, 4, requires_grad=True)
    grad = torch.randn(2, 3, 4)
    found = torch.autograd.grad(ops.layer_norm(kept[0], weight), weight, grad)[0]
    truth = torch.autograd.grad(ops.layer_norm(values, weight), weight, grad)[0]
    assert torch.equal(found, truth)


def _gradients():
    """Operators that gradients call in some cases only, with arguments."""
    r = torch.randn
    images, rows, weight, steps = r(2, 3, 5, 4, 4), r(2, 3, 5), r(2, 6, 5, 3, 3), ([1, 1], [1, 1], [1, 1])
    statistics = library.batch_norm_act(images, None, None, None, None, None, 1e-5, "relu", 0.0)[1]
    return {
        "batch_norm_act_backward_parameters": (images, images, None, None, statistics, "relu", 0.0),
        "batch_norm_act_backward": (images, images, None, None, images, statistics, True, "relu", 0.0),
        "layer_norm_backward_parameters": (rows, rows, 1e-5),
        "layer_norm_backward": (rows, rows, r(2, 5), 1e-5),
        "rms_norm_backward_weight": (rows, rows, 1e-5),
        "rms_norm_backward": (rows, rows, r(2, 5), 1e-5),
        "group_norm_backward": (images, images, 5, r(2, 5), 1e-5),
        "embedding_backward": (rows, torch.zeros(2, 3, dtype=torch.long), 7, -1),
        "depthwise_backward_weight": (r(2, 3, 4, 4, 5), r(2, 3, 4, 4, 5), 3, 3, *[1] * 6),
        "depthwise_backward_input": (r(2, 3, 4, 4, 5), r(2, 3, 3, 5), 4, 4, *[1] * 6),
        "avg_pool_backward": (r(2, 3, 2, 2, 5), 4, 4, 2, 2, 2, 2, 0, 0, True, 0),
        "convolve_models_backward": (r(2, 3, 6, 4, 4), images, weight, *steps, False, [0, 0], 1, True, True, False),
        "window_convolution_backward": (r(2, 3, 6, 4, 4), images, weight, *steps, 1, True, False, True),
        "linear_backward": (r(2, 3, 4), rows, r(2, 4, 5), None, True, False, True),
        "bias_act_dropout_backward": (rows, rows, r(2, 5), "relu", None, None),
    }


@pytest.mark.parametrize("name", _gradients())
def test_a_tracer_sees_gradients_as_they_are(name):
    arguments, mode = _gradients()[name], FakeTensorMode()
    operator = getattr(library, name)
    fakes = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in arguments]
    with mode:
        seen = operator(*fakes)
    for real, fake in zip(*(tree_leaves(found) for found in (operator(*arguments), seen)), strict=True):
        assert (real.shape, real.stride(), real.dtype) == (fake.shape, fake.stride(), fake.dtype)
