# SPDX-License-Identifier: MIT
"""Losses of torch that refuse an array's outputs by a shape, where classes are in dimension 1.

The error is torch's, raised where no layer of an array has a say. If it ends the program, a line below it says what to
write instead. Programs without an error pay nothing.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace, TracebackType

import torch.nn.functional as F

from .torch_means import model_count

_LOSSES = (
    "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "multi_margin_loss",
    "mse_loss",
)  # fmt: skip


def take_over() -> None:
    """From now on, print what to write instead below an error that ends the program."""
    show = sys.excepthook

    def show_with_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        line = line_to_write(trace) if isinstance(error, (RuntimeError, ValueError)) else None
        if line is not None:
            print(line, file=sys.stderr)

    sys.excepthook = show_with_line


def line_to_write(trace: TracebackType | None) -> str | None:
    """Return what to write for a loss on an array's outputs in which an error came up; None for other errors."""
    while trace is not None:
        code, values = trace.tb_frame.f_code, trace.tb_frame.f_locals
        outputs = values.get("input")
        if code.co_filename == F.__file__ and code.co_name in _LOSSES and outputs is not None:
            count = model_count(SimpleNamespace(next_functions=((getattr(outputs, "grad_fn", None), 0),)))
            if count is not None:
                return (
                    f"dnnsuite: these are the outputs of {count} models, {list(outputs.shape)}: write "
                    f"dnnsuite.nn.functional.{code.co_name}(outputs, targets).sum().backward(), one loss per model; "
                    f"targets that all models share are dnnsuite.stack(targets, B={count})"
                )
        trace = trace.tb_next
    return None
