# SPDX-License-Identifier: MIT
"""One model with its loss and its measures as a forward, so that an array of them returns `[B]` of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..errors import InvalidArgument, some_of

Loss = Callable[..., torch.Tensor]
Measure = Callable[..., Mapping[str, torch.Tensor]]


class Trainee(torch.nn.Module):
    """A model in training: its forward is the loss `[]` while it trains, and measures by name while it is validated."""

    def __init__(self, model: torch.nn.Module, loss: Loss, measure: Measure) -> None:
        super().__init__()
        self.model, self._loss, self._measure = model, loss, measure
        self.train(True)

    def forward(self, *batch: Any) -> Any:
        if not self.training:
            return self._measure(self.model, *batch)
        loss = self._loss(self.model, *batch)
        _check_loss(loss)
        return loss


def _check_loss(loss: Any) -> None:
    """Refuse what is not one number, of which gradients can be taken."""
    if not isinstance(loss, torch.Tensor):
        raise InvalidArgument(
            f"the loss of one model is a {loss.__class__.__name__}: return a tensor, without .item() or float()"
        )
    if loss.dim():
        raise InvalidArgument(
            f"the loss of one model has the shape {list(loss.shape)}: return one number, for example its mean()"
        )


def is_lightning(model: Any) -> bool:
    """True for a LightningModule, which brings its own loss and optimizer."""
    return callable(getattr(model, "training_step", None)) and callable(getattr(model, "configure_optimizers", None))


#: Methods with which a LightningModule takes the step itself: without them it would train in another way, unseen.
_OWN_STEPS = (
    "optimizer_step", "optimizer_zero_grad", "lr_scheduler_step", "configure_gradient_clipping", "backward",
    "training_step_end", "on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad",
    "on_train_batch_start", "on_train_batch_end",
)  # fmt: skip


def check_lightning(model: Any) -> None:
    """Refuse a LightningModule that takes the step itself; warn of what only a Trainer calls.

    Raises:
        InvalidArgument: optimization is manual, or a method that changes the step is the module's own.
    """
    kind = type(model)
    own = [name for name in dir(kind) if not _is_of_lightning(getattr(kind, name, None))]
    steps = ["automatic_optimization=False"] if not getattr(model, "automatic_optimization", True) else []
    steps += [name for name in _OWN_STEPS if name in own]
    if steps:
        raise InvalidArgument(
            f"{kind.__name__} has {some_of(steps)}, which a sweep does not carry out: train it with its Trainer, or "
            "give dnnsuite.sweep a module without"
        )
    hooks = [name for name in own if name.startswith("on_") or name == "configure_callbacks"]
    if hooks:
        text = f"{kind.__name__} has {some_of(hooks)}, which a sweep does not call: only a Trainer does"
        warnings.warn(text, stacklevel=2)
    # It logs in its training step, where a sweep has no use for it and no Trainer to take it.
    warnings.filterwarnings("ignore", message=r"You are trying to `self\.log\(\)`")


def _is_of_lightning(method: Any) -> bool:
    module = getattr(method, "__module__", None) or ""
    return not callable(method) or module.partition(".")[0] in ("lightning", "pytorch_lightning", "torch")


def default_loss(model: Any, *batch: Any) -> torch.Tensor:
    """Return the loss of common models: a LightningModule's step, a Hugging Face model's own, cross-entropy, squared
    error."""
    if is_lightning(model):
        return _loss_in(model.training_step(batch if len(batch) > 1 else batch[0], 0), "training_step")
    if len(batch) == 1 and isinstance(batch[0], Mapping):
        return _loss_in(_called_by_name(model, batch[0]), "the model")
    x, y = _pair(batch)
    return _criterion(model(x), y)


def default_measure(model: Any, *batch: Any) -> dict[str, torch.Tensor]:
    """`loss`, and `acc`, the share of right answers, where targets are classes."""
    if is_lightning(model):
        return _lightning_measure(model, batch)
    if len(batch) == 1 and isinstance(batch[0], Mapping):
        output = _called_by_name(model, batch[0])
        loss, logits = _loss_in(output, "the model"), _part(output, "logits")
        labels = batch[0].get("labels")
        return {"loss": loss, **_accuracy(logits, labels)}
    x, y = _pair(batch)
    output = model(x)
    return {"loss": _criterion(output, y), **_accuracy(output, y)}


def _called_by_name(model: Any, batch: Mapping[str, Any]) -> Any:
    try:
        return model(**batch)
    except TypeError as error:
        if "keyword argument" not in str(error):
            raise
        raise InvalidArgument(
            f"{error}: the parts of a batch that is a dict are the model's arguments by name, as of Hugging Face's; "
            "for other models give loss=function(model, batch) and measure=function(model, batch)"
        ) from error


def _pair(batch: tuple[Any, ...]) -> tuple[Any, Any]:
    if len(batch) != 2:
        raise InvalidArgument(
            f"a batch has {len(batch)} parts: the loss of (inputs, targets) or of a dict is known; for others give "
            "loss=function(model, *batch)"
        )
    return batch[0], batch[1]


def _criterion(output: Any, y: Any) -> torch.Tensor:
    if y.is_floating_point():
        if output.shape != y.shape:
            raise InvalidArgument(
                f"targets that are no whole numbers are compared by mse_loss, and {list(y.shape)} do not have the "
                f"shape of the outputs, {list(output.shape)}: for classes give targets.long(), else "
                "loss=function(model, x, y)"
            )
        return torch.nn.functional.mse_loss(output, y)
    return torch.nn.functional.cross_entropy(output, y)


def _accuracy(output: Any, y: Any) -> dict[str, Any]:
    if output is None or y is None or y.is_floating_point() or output.dim() != y.dim() + 1 or y.dim() != 1:
        return {}
    return {"acc": (output.argmax(1) == y).float().mean()}


def _part(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _loss_in(output: Any, where: str) -> torch.Tensor:
    loss = output if hasattr(output, "backward") else _part(output, "loss")
    if loss is None:
        raise InvalidArgument(f"{where} returned no loss: give loss=function(model, *batch), which returns one number")
    return loss


def _lightning_measure(model: Any, batch: tuple[Any, ...]) -> dict[str, Any]:
    """Values that `validation_step` logs and returns."""
    if not callable(getattr(model, "validation_step", None)):
        raise InvalidArgument(f"{type(model).__name__} has no validation_step: give measure=function(model, *batch)")
    found: dict[str, Any] = {}

    def log(name: str, value: Any, *_: Any, **__: Any) -> None:
        found[name] = value

    def log_dict(values: Mapping[str, Any], *_: Any, **__: Any) -> None:
        found.update(values)

    model.__dict__.update(log=log, log_dict=log_dict)
    try:
        returned = model.validation_step(batch if len(batch) > 1 else batch[0], 0)
    finally:
        for name in ("log", "log_dict"):
            model.__dict__.pop(name, None)
    if hasattr(returned, "backward"):
        found.setdefault("loss", returned)
    elif isinstance(returned, Mapping):
        found = {**returned, **found}
    return found


def size_of(batch: Any) -> int:
    """Samples in a batch: the first dimension of its first tensor."""
    if isinstance(batch, torch.Tensor):
        return int(batch.size(0)) if batch.dim() else 1
    parts = batch.values() if isinstance(batch, Mapping) else batch
    for part in parts:
        if isinstance(part, (torch.Tensor, Mapping, list, tuple)):
            return size_of(part)
    return 1
