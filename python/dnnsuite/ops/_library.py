# SPDX-License-Identifier: MIT
"""Opens the operator library and joins an operator to autograd.

`libdnnsuite_ops.so` registers `torch.ops.dnnsuite.*` for the CPU when it is opened, `libdnnsuite_cuda.so` the same
names for CUDA. Both lie beside the package's compiled module. `DNNSUITE_LIBRARY_DIR` names another folder.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..errors import Unavailable

__all__ = ["differentiable", "instruction_set", "library", "library_folder", "tracing"]


def library_folder() -> Path:
    """The folder of the operator library. Raises `Unavailable` where there is none."""
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


def _open() -> Any:
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
    return torch.ops.dnnsuite


library = _open()
"""`torch.ops.dnnsuite`, loaded."""

_below_autograd = torch._C._AutoDispatchBelowAutograd


def instruction_set() -> str:
    """What the CPU kernels run with: 'avx512', 'avx2' or 'generic'.

    It is the widest that the machine has; the environment variable DNNSUITE_ISA, read once, asks for less.
    """
    name: str = library.instruction_set()
    return name


tracing = torch.compiler.is_compiling
"""Whether torch.compile is looking: then the registered operator is called itself."""


def differentiable(
    op: Any, setup_context: Callable[[Any, tuple[Any, ...], Any], None], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """Registers an operator's gradient with torch and returns a quicker way to call it in eager mode.

    torch.library's own autograd costs about 14 µs a call in Python; a hand-made Function around the operator below
    autograd does the same for 6 µs.
    """
    torch.library.register_autograd(op.name(), backward, setup_context=setup_context)

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with _below_autograd():
                output = op(*args)
            setup_context(ctx, args, output)
            return output

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(ctx, *grads)

    apply: Callable[..., Any] = Eager.apply
    return apply
