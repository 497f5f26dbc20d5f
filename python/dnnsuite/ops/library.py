# SPDX-License-Identifier: MIT
"""Operator library: loading it, and registering operators with autograd.

`libdnnsuite_ops.so` registers `torch.ops.dnnsuite.*` for the CPU when it is opened, `libdnnsuite_cuda.so` the same
names for CUDA. Both lie beside the package's compiled module. `DNNSUITE_LIBRARY_DIR` names another folder.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._torch import below_autograd, gradient_asked, transforming
from ..errors import Unavailable

__all__ = [
    "applied", "below_autograd", "cuda_kernels", "differentiable", "eager", "fake", "fakes_like", "in_gradient",
    "instruction_set", "library", "library_folder", "of_inputs", "saves", "tracing", "transforming",
    "without_operators",
]  # fmt: skip


def library_folder() -> Path:
    """Find the folder of the operator library. Raises `Unavailable` if there is none."""
    asked = os.environ.get("DNNSUITE_LIBRARY_DIR")
    folders = [Path(asked)] if asked else []
    if not asked:
        compiled = importlib.util.find_spec("dnnsuite._C")
        if compiled is not None and compiled.origin is not None:
            folders.append(Path(compiled.origin).parent)
        folders.append(Path(__file__).parent.parent)
    for folder in folders:
        if (folder / "libdnnsuite_ops.so").is_file():
            return folder
    raise Unavailable(
        "the operator library libdnnsuite_ops.so was not found",
        ", ".join(map(str, folders)),
        "reinstall the package (`pip install .`), or set DNNSUITE_LIBRARY_DIR to the folder that has it",
    )


def _open() -> tuple[Any, bool]:
    """Open the libraries: (namespace of the operators, True if those for CUDA are in it)."""
    folder = library_folder()
    names = ["libdnnsuite_ops.so"]
    if torch.version.cuda and (folder / "libdnnsuite_cuda.so").is_file():
        names.append("libdnnsuite_cuda.so")
    for name in names:
        try:
            torch.ops.load_library(str(folder / name))
        except OSError as error:
            raise Unavailable(
                f"{folder / name} does not load under torch {torch.__version__}: {error.__cause__ or error}",
                remedy="reinstall the package for this torch",
            ) from error
    return torch.ops.dnnsuite, len(names) > 1


library, cuda_kernels = _open()
"""`torch.ops.dnnsuite`, loaded; and True if there are operators for CUDA, else compositions of torch's are used."""

SLOWER = "on a GPU norms, dropout, losses, optimizers and recurrent layers are several launches of torch's each"
GET_OPERATORS = "install a released wheel, or put nvcc on PATH and `pip install .` again"


def without_operators(driver: Path = Path("/proc/driver/nvidia/version")) -> str:
    """Return a line on what this build lacks for the machine's GPU; empty if it lacks nothing.

    Args:
        driver: a file that is there with NVIDIA's driver.
    """
    if torch.version.cuda is None or not driver.exists() or (library_folder() / "libdnnsuite_cuda.so").is_file():
        return ""
    return f"dnnsuite was built without CUDA operators: {SLOWER}; {GET_OPERATORS}"


if _line := without_operators():  # pip shows nothing of a build that went well
    logging.getLogger("dnnsuite").warning(_line)


def instruction_set() -> str:
    """Return the instruction set of the CPU kernels: 'avx512', 'avx2', 'generic', or 'neon' on Arm.

    It is the widest that the machine has, unless the environment variable DNNSUITE_ISA (read once) asks for less.
    """
    return library.instruction_set()


def fake(operator: str, results: Callable[..., Any]) -> None:
    """Register what a tracer takes for the results of an operator: what `results` makes of the arguments of the
    operator that it names, or of all in order if it takes any number of them."""
    wanted = inspect.signature(results).parameters
    if any(one.kind is one.VAR_POSITIONAL for one in wanted.values()):
        _fake(operator, lambda given: results(*given.values()))
    else:
        _fake(operator, lambda given: results(**{name: given[name] for name in wanted}))


def fakes_like(argument: str | tuple[str, ...] | None, *operators: str) -> None:
    """Register what a tracer takes for results of operators: one like the `argument` of this name, or one like each of
    several; None: nothing, for they write in place."""
    names = (argument,) if isinstance(argument, str) else argument or ()

    def like(given: dict[str, Any]) -> Any:
        made = tuple(given[name].new_empty(given[name].shape) for name in names)
        return made[0] if len(made) == 1 else made or None

    for one in operators:
        _fake(one, like)


def _fake(operator: str, results: Callable[[dict[str, Any]], Any]) -> None:
    names = [one.name for one in getattr(library, operator).default._schema.arguments]

    @torch.library.register_fake(f"dnnsuite::{operator}")
    def _(*args: Any, **kwargs: Any) -> Any:
        return results(dict(zip(names, args, strict=False)) | kwargs)


tracing = torch.compiler.is_compiling
"""True while torch.compile is tracing; the registered operator is then called directly."""


def differentiable(
    op: Any,
    setup_context: Callable[[Any, tuple[Any, ...], Any], None],
    backward: Callable[..., Any],
    composition: Callable[..., Any],
) -> Callable[..., Any]:
    """Register an operator's gradient with torch; return a function that calls it, faster in eager mode.

    torch.library's autograd costs about 14 µs a call in Python, a Function around the operator below autograd 6 µs.

    Args:
        op: the operator, an overload of `torch.ops`.
        setup_context: saves what the gradient needs, as `torch.library.register_autograd` calls it.
        backward: the gradient, called likewise.
        composition: the operator again, same inputs, in differentiable torch. Gradients of gradients
            (`create_graph=True`) and transforms of `torch.func` use it.
    """
    torch.library.register_autograd(op.name(), backward, setup_context=setup_context)
    return eager(op, setup_context, backward, composition, len(op._schema.returns) > 1, registered=True)


def eager(
    op: Callable[..., Any],
    setup_context: Callable[[Any, tuple[Any, ...], Any], None],
    backward: Callable[..., Any],
    composition: Callable[..., Any],
    many: bool = False,
    registered: bool = False,
) -> Callable[..., Any]:
    """Return the function of `differentiable` for any function of operators.

    Args:
        many: True if it returns a tuple.
        registered: True if all of its operators have registered gradients: torch.compile sees them then, and must not
            meet this function otherwise.
    """

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with below_autograd():
                output = op(*args)
            setup_context(ctx, args, output)
            remember(ctx, args)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if torch.is_grad_enabled():
                return gradients_through(composition, ctx, grads)
            return backward(_WithoutExtra(ctx) if ctx.extra else ctx, *grads)

    apply = applied(Again)

    def call(*args: Any) -> Any:
        if registered and tracing():
            return op(*args)
        if transforming():
            found = composition(*args)
            return (found,) if many and not isinstance(found, tuple) else found
        if torch.is_grad_enabled():
            return apply(*args)
        with below_autograd():
            return op(*args)

    return call


def saves(*places: int, **kept: Any) -> Callable[[Any, tuple[Any, ...], Any], None]:
    """Return what saves the inputs at these places, and keeps others, `kept` by their place or slice, by name."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*[inputs[place] for place in places])
        for name, place in kept.items():
            setattr(ctx, name, inputs[place])

    return setup


def of_inputs(
    backward: Callable[..., Any], count: int = 1
) -> tuple[Callable[[Any, tuple[Any, ...], Any], None], Callable[..., Any]]:
    """Return what an operator saves, its first `count` inputs, and its gradient: `backward(grad, *saved, *others)`
    gives those of the saved ones."""

    def gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        found = backward(grad, *ctx.saved_tensors, *ctx.rest)
        return *((found,) if count == 1 else found), *(None for _ in ctx.rest)

    return saves(*range(count), rest=slice(count, None)), gradient


def in_gradient(op: Callable[..., Any]) -> Callable[..., Any]:
    """Return `op`, which has a registered gradient, for use in the gradient of another: where that is not to be
    differentiated again, below autograd, which takes 12 µs less.

    A whole gradient may not run there: reading saved tensors may run a checkpointed forward again.
    """

    def call(*args: Any) -> Any:
        if torch.is_grad_enabled():
            return op(*args)
        with below_autograd():
            return op(*args)

    return call


def applied(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return `function.apply` without what it does for transforms of `torch.func`, which callers ask for themselves
    (`transforming`): 2 to 5 µs less."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def is_read_by_backward(result: Tensor) -> bool:
    """Return True for what an operator has returned, or a view of it, if its gradient reads it again: unlike results of
    torch's layers of that name, nobody may write into it."""
    whole = result if result._base is None else result._base
    return getattr(whole.grad_fn, "reads_result", False)


def remember(ctx: Any, args: tuple[Any, ...]) -> None:
    """Note, after `save_for_backward`, how to find a Function's inputs again, for `gradients_through`.

    Saved tensors are kept once. If only inputs were saved, the others do not influence the gradient, and their shapes
    are enough. Else they are saved too, as `ctx.extra` tensors at the end.
    """
    saved = getattr(ctx, "to_save", None) or ()
    missing = False
    found: list[Any] = []
    for a in args:  # by identity, and in few steps: it runs in every call of an operator
        if not isinstance(a, Tensor):
            found.append((None, a))
            continue
        for index, tensor in enumerate(saved):
            if tensor is a:
                found.append((index, None))
                break
        else:
            missing = True
            found.append(a)
    ctx.inputs, ctx.extra = found, 0
    if missing:
        _remember_others(ctx, saved, args)


def _remember_others(ctx: Any, saved: Sequence[Tensor | None], args: tuple[Any, ...]) -> None:
    """Note the inputs that were not saved, which stand in `ctx.inputs` as tensors: by saving them too, or by shape."""
    derived = not set(map(id, saved)) <= set(map(id, args)) | {id(None)}
    extra: list[Tensor] = []
    for place, a in enumerate(ctx.inputs):
        if isinstance(a, Tensor) and derived:
            ctx.inputs[place] = (len(saved) + len(extra), None)
            extra.append(a)
        elif isinstance(a, Tensor):
            ctx.inputs[place] = (None, (a.shape, a.dtype, a.device))
    ctx.extra = len(extra)
    if extra:
        ctx.save_for_backward(*saved, *extra)


def _is_tensor(entry: tuple[Any, Any]) -> bool:
    """Return True for what `remember` notes of a tensor."""
    index, other = entry
    described = isinstance(other, tuple) and len(other) == 3 and isinstance(other[0], torch.Size)
    return index is not None or described


def gradients_through(composition: Any, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Compute differentiable gradients of a Function's inputs, through its composition of torch's operators."""
    saved = ctx.saved_tensors
    inputs: list[Any] = []
    for index, other in ctx.inputs:
        if index is not None:  # a view, so that a tensor that came in twice has two gradients
            tensor = saved[index]
            inputs.append(tensor.view_as(tensor) if tensor.is_floating_point() else tensor)
        elif _is_tensor((index, other)):
            shape, dtype, device = other
            stand_in = torch.zeros((), dtype=dtype, device=device).expand(shape)
            inputs.append(stand_in.requires_grad_(dtype.is_floating_point))
        else:
            inputs.append(other)
    outputs = composition(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    pairs = [
        (y, g) for y, g in zip(outputs, grads, strict=False) if g is not None and y is not None and y.requires_grad
    ]
    nodes = (node for node, _ in ctx.next_functions)  # one for each tensor
    asked = [_is_tensor(entry) and gradient_asked(next(nodes)) for entry in ctx.inputs]
    wanted = [i for i, needed in enumerate(ctx.needs_input_grad) if needed and asked[i]]
    result: list[Any] = [None] * len(inputs)
    if pairs and wanted:
        ys, gs = zip(*pairs, strict=True)
        got = torch.autograd.grad(ys, [inputs[i] for i in wanted], gs, create_graph=True, allow_unused=True)
        for i, gradient in zip(wanted, got, strict=True):
            result[i] = gradient
    return tuple(result)


class _WithoutExtra:
    """Context of a Function, as its `setup_context` left it."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        saved: tuple[Any, ...] = self._ctx.saved_tensors
        return saved[: -self._ctx.extra]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)
