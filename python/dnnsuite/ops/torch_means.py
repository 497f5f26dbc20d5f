# SPDX-License-Identifier: MIT
"""Means over all models of an array, which give each of them 1/B of its own gradient.

A script can train with `torch.nn.functional.mse_loss(array(x), y)` and with `losses.mean()`: nothing in them is wrong
but the size of every gradient. Once there is a layer of an array, each pass of autograd's engine begins with a look at
the graph of a scalar, whichever function asks for it: a mean over tensors of an array in which no model was
picked out, and that nothing multiplies by B again, is refused.

`torch.nn.functional.cross_entropy(array(x), y)` fails in torch, which looks for classes in dimension 1, and so do
`losses.backward()` and `losses.item()`. If such an error ends the program, a line below it says what to write instead.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from types import SimpleNamespace, TracebackType
from typing import Any

import torch
import torch.nn.functional as F

from .._torch import backward_pass, look_at_what_is_differentiated
from ..errors import InvalidArgument
from . import array_layers

_FARTHEST = 64  # nodes between a mean and the first parameter behind it
_LONGEST_LOSS = 8  # nodes of a loss that torch composes
_ONE_NUMBER = ("only for scalar outputs", "cannot be converted to Scalar", "only one element tensors")
_PICKS_MODELS = ("Select", "Unbind", "Slice", "Split", "Index", "Narrow", "MaskedSelect")
_WHOLE_SLICE = (0, sys.maxsize, 1)
_TERMS = (
    "AddBackward0", "SubBackward0", "NegBackward0", "ToCopyBackward0", "ViewBackward0", "UnsqueezeBackward0",
    "SqueezeBackward0", "SqueezeBackward1", "ReshapeAliasBackward0", "UnsafeViewBackward0", "SqrtBackward0",
    "LogBackward0", "ExpBackward0", "PowBackward0",
)  # fmt: skip
_COMPOSED_LOSSES: dict[tuple[str, ...], str] = {
    ("Div", "Neg", "Sum", "Mul"): "cross_entropy",
    ("Div", "Sum", "Sub", "Mul"): "kl_div",
    ("Div", "Sum", "Mul", "Sub"): "kl_div",
}
_COMPOSED_MEANS: dict[tuple[str, ...], str] = {
    ("Abs", "Sub"): "l1_loss",
    ("Sub", "Mul", "LogSoftmax"): "kl_div",
    ("Mul", "Sub", "LogSoftmax"): "kl_div",
    ("Add", "Where", "ClampMin", "Sub"): "hinge_embedding_loss",
    ("Div", "Sum", "Neg", "Add", "Mul", "LogSigmoid"): "multilabel_soft_margin_loss",
}
_PRODUCTS = ("MulBackward0", "DivBackward0", "DivBackward1")
_LOSSES = {
    "MseLoss": "mse_loss", "SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss", "NllLoss": "cross_entropy",
    "NllLoss2D": "cross_entropy", "BinaryCrossEntropy": "binary_cross_entropy", "SoftMarginLoss": "soft_margin_loss",
    "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits", "MultiMarginLoss": "multi_margin_loss",
    "MultilabelMarginLoss": "multilabel_margin_loss",
}  # fmt: skip
_ENDS_OF_NAMES = ("_loss", "_entropy", "_with_logits", "kl_div")  # of torch's losses


def take_over() -> None:
    """Look at what is differentiated, and at errors that end the program, from now on."""
    look_at_what_is_differentiated(_look)
    show = sys.excepthook

    def show_with_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        if isinstance(error, (RuntimeError, ValueError)) and (line := line_to_write(trace) or _of_losses(error, trace)):
            print(line, file=sys.stderr)

    sys.excepthook = show_with_line


def _of_losses(error: BaseException, trace: TracebackType | None) -> str | None:
    """Return what to write where one number was asked of losses that are one per model; None for other errors."""
    while trace is not None and any(part in str(error) for part in _ONE_NUMBER):
        for value in trace.tb_frame.f_locals.values():
            if type(value) is torch.Tensor and value.dim() == 1 and value.grad_fn is not None:
                count = _model_count(SimpleNamespace(next_functions=((value.grad_fn, 0),)))
                if count == len(value):
                    return (
                        f"dnnsuite: these are the losses of {count} models, one each: write losses.sum().backward(), "
                        "which gives each model its own gradient, and losses.tolist() for their numbers"
                    )
        trace = trace.tb_next
    return None


def line_to_write(trace: TracebackType | None) -> str | None:
    """Return what to write for a loss on an array's outputs in which an error came up; None for other errors."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == F.__file__ and code.co_name.endswith(_ENDS_OF_NAMES):
            for outputs in trace.tb_frame.f_locals.values():
                grad_fn = getattr(outputs, "grad_fn", None) if isinstance(outputs, torch.Tensor) else None
                count = _model_count(SimpleNamespace(next_functions=((grad_fn, 0),)))
                if count is not None:
                    return (
                        f"dnnsuite: these are the outputs of {count} models, {list(outputs.shape)}: write "
                        f"dnnsuite.nn.functional.{_call(code.co_name)}.sum().backward(), one loss per model; "
                        f"targets that all models share are dnnsuite.stack(targets, B={count})"
                    )
        trace = trace.tb_next
    return None


def _call(name: str, more: str = "") -> str:
    """Return a call of torch's function of this name, with the arguments that have no default."""
    words = {"input": "outputs", "target": "targets"}
    required = [p.name for p in inspect.signature(getattr(F, name)).parameters.values() if p.default is p.empty]
    return f"{name}({', '.join(words.get(one, one) for one in required)}{more})"


def _look(outputs: Sequence[Any]) -> None:
    if torch.compiler.is_compiling() or _in_a_forward():
        return
    for tensor in outputs:
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None and tensor.numel() == 1:
            _check(tensor.grad_fn)


def _in_a_forward() -> bool:
    """Return True in the code of a model, or in a backward pass, which ask for gradients of their own."""
    return array_layers.here.forwards > 0 or backward_pass() != -1


def _check(root: Any) -> None:
    for node, factors in _means(root):
        found = _model_count(node)
        if found is None or any(_is_number(factor, found) for factor in factors):
            continue
        of_losses = list(_saved(node, "self_sym_sizes") or ()) == [found]
        if of_losses:
            raise InvalidArgument(
                f"this is the mean of the losses of {found} models, which gives each 1/{found} of its own gradient: "
                "write losses.sum().backward()"
            )
        name = _name(node)
        how = ", reduction='batchmean'" if name == "kl_div" and _composed_loss(node) else ""
        raise InvalidArgument(
            f"this loss is one mean over the outputs of {found} models, which gives each 1/{found} of its own "
            f"gradient: write dnnsuite.nn.functional.{_call(name or 'mse_loss', how)}.sum().backward(), "
            + ("which returns one loss per model" if name else "or another loss there: they return one loss per model")
        )


def _name(mean: Any) -> str | None:
    """Return torch's name of the loss that made this node; None for a formula."""
    kind, *inner = _names(_behind(mean))
    if kind.startswith("NllLoss") and inner[:1] != ["LogSoftmax"]:
        return "nll_loss"
    composed = (name for key, name in _COMPOSED_MEANS.items() if kind == "Mean" and tuple(inner[: len(key)]) == key)
    return _LOSSES.get(kind) or next(composed, None) or _composed_loss(mean)


def _behind(node: Any) -> list[Any]:
    """Return the node and the nearest ones behind it, each the first that the one before is computed from."""
    nodes: list[Any] = []
    while node is not None and len(nodes) < _LONGEST_LOSS:
        nodes.append(node)
        node = next((inner for inner, _ in node.next_functions if inner is not None), None)
    return nodes


def _names(nodes: list[Any]) -> list[str]:
    return [node.name().partition("Backward")[0] for node in nodes]


def _means(root: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the means among the terms of a scalar, with what multiplies each."""
    todo: list[tuple[Any, list[Any]]] = [(root, [])]
    for _ in range(_FARTHEST):
        if not todo:
            return
        node, factors = todo.pop()
        name = node.name()
        if name.startswith("Mean") or _saved(node, "reduction") == 1:
            yield node, factors
        elif _composed_loss(node):
            yield node, []
        elif name in _TERMS or name in _PRODUCTS:
            more = [node] if name == "MulBackward0" else []
            todo += [(inner, factors + more) for inner, _ in node.next_functions if inner is not None]


def _composed_loss(node: Any) -> str | None:
    """Name the loss of log-probabilities that divides a sum by the size of dimension 0, in an array that of the models:
    cross_entropy with probabilities, and kl_div by "batchmean"."""
    nodes = _behind(node)
    names = _names(nodes)
    if "LogSoftmax" not in names:
        return None
    last = names.index("LogSoftmax")
    name = _COMPOSED_LOSSES.get(tuple(names[:last]))
    # What other nodes have saved is not looked at: in a checkpoint that would compute its forward again.
    outputs = None if name is None else _saved(nodes[last], "result")
    if outputs is None or outputs.dim() < 3:
        return None
    right = _saved(nodes[last], "dim") == 1 if name == "cross_entropy" else _is_number(node, len(outputs))
    return name if right else None


def _is_number(product: Any, number: int) -> bool:
    """Return True if a product's other factor is `number`."""
    for factor in (_saved(product, "other"), _saved(product, "self")):
        if isinstance(factor, torch.Tensor) and factor.numel() == 1 and factor.grad_fn is None:
            return float(factor) == number
    return False


def _model_count(mean: Any) -> int | None:
    """Return B if the mean is over tensors of an array of several models; None where the parameter that is nearest to
    it is no array's, or where the graph tells models apart."""
    todo: deque[tuple[Any, bool]] = deque((inner, False) for inner, _ in mean.next_functions)
    seen: set[Any] = set()
    while todo and len(seen) < _FARTHEST:
        node, stacked = todo.popleft()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name()
        parameter = getattr(node, "variable", None)
        if parameter is not None:
            if isinstance(parameter, torch.nn.Parameter):
                return len(parameter) if array_layers.has_any([parameter]) and len(parameter) > 1 else None
            continue
        if _takes_models_apart(node, name) and not stacked:
            return None
        stacked = stacked or name == "StackBackward0"
        todo += [(inner, stacked) for inner, _ in node.next_functions]
    return None


def _takes_models_apart(node: Any, name: str) -> bool:
    dims = _saved(node, "dim")
    of_models = dims == 0 or (isinstance(dims, (tuple, list)) and 0 in dims)
    if name == "SliceBackward0":  # `x[:, 0]` has a slice of all models
        return of_models and (_saved(node, "start"), _saved(node, "end"), _saved(node, "step")) != _WHOLE_SLICE
    if name.startswith(_PICKS_MODELS):
        indices = _saved(node, "indices")
        return of_models or (dims is None and not (indices and indices[0] is None))
    return of_models and name not in ("StackBackward0", "CatBackward0")


def _saved(node: Any, name: str) -> Any:
    """Return what torch keeps for a node's gradient under the argument's name; None if that is nothing, or gone."""
    try:
        return getattr(node, f"_saved_{name}", None)
    except RuntimeError:  # after the backward pass
        return None
