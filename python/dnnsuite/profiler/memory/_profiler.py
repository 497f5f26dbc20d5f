# SPDX-License-Identifier: MIT
"""Memory profiler of TBD's tools, for one model in the user's loop: a table and a CSV line per iteration."""

from __future__ import annotations

import csv as csv_format
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from ..._files import OutputError
from ...errors import InvalidArgument, reason
from ._by_class import FeatureMaps, begin_peak, check_storages, level, state_tensors, stored_bytes

if TYPE_CHECKING:
    import torch

_MB = 1e6
_FOLDER = "memory_csv_data"


class Profiler:
    """Weights, gradients, feature maps and optimizer state of `model`, per iteration.

    As the PyTorch memory profiler of TBD's tools (https://github.com/tbd-ai/tbd-tools): `record_stats()` after each
    iteration, `epoch_end()` after each epoch; the CSV begins with its columns, in MB of 10^6 bytes, and adds the
    optimizer's state and the rest. Unlike there an iteration is measured alone, not the sum since the epoch began, and
    works without a GPU: `peak_cached` and `current_cached` are then those of the resident set.

    Args:
        model: the model, or a fused array: divide by its `B` for one model, as in `last["per_model"]`.
        optimizer: its state is measured.
        print_period: iterations between two tables on standard output; 0 prints none.
        csv: True for `memory_csv_data/TIME.csv`, or a path.

    Raises:
        InvalidArgument: a negative `print_period`.
        OutputError: the CSV cannot be made.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any = None,
        print_period: int = 1,
        csv: bool | str | Path = False,
        models: int = 1,
    ) -> None:
        if print_period < 0:
            raise InvalidArgument(f"print_period must be 0 or more, got {print_period}")
        self.epoch, self.iteration = 1, 0
        self.last: dict[str, Any] = {}
        """Sizes of the last iteration, in bytes: peak, current, feature_maps, weights, gradients, optimizer_state,
        intermediate_gradients, other; `per_model`: the classes over `models`.
        """
        self.path = _csv_path(csv)
        self._model, self._optimizer, self._period, self._models = (model, optimizer, print_period, max(1, models))
        self._names = [name for name, _ in model.named_parameters()]
        check_storages()
        self._maps = FeatureMaps()
        self._maps.exclude([*model.parameters(), *model.buffers()])
        self._gradients = dict.fromkeys(self._names, 0)
        self._intermediate = 0
        self._device = next((str(p.device) for p in model.parameters()), "cpu")
        self._file = _opened(self.path)
        self._handles = self._hooks()
        self._write(self._columns())
        begin_peak(self._device)

    def _hooks(self) -> list[Any]:
        handles = [
            self._model.register_forward_pre_hook(lambda *_: _nothing(self._maps.enter())),
            self._model.register_forward_hook(lambda *_: self._maps.leave(), always_call=True),
        ]
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad:
                handles.append(parameter.register_post_accumulate_grad_hook(self._noting(name)))
        leaves = [module for module in self._model.modules() if not any(module.children())]
        return handles + [module.register_forward_hook(self._watch_output) for module in leaves]

    def _noting(self, name: str) -> Any:
        def note(parameter: torch.Tensor) -> None:
            self._gradients[name] = stored_bytes([parameter.grad])

        return note

    def _watch_output(self, module: Any, inputs: Any, output: Any) -> None:
        for tensor in output if isinstance(output, (tuple, list)) else [output]:
            if getattr(tensor, "requires_grad", False):
                tensor.register_hook(self._note_gradient)

    def _note_gradient(self, gradient: torch.Tensor) -> None:
        self._intermediate += gradient.untyped_storage().nbytes()

    def record_stats(self) -> dict[str, Any]:
        """End an iteration; return its figures, also in :attr:`last`."""
        self.iteration += 1
        found = level(self._device)
        seen: set[int] = set()
        weights = {name: stored_bytes([p], seen) for name, p in self._model.named_parameters()}
        buffers = stored_bytes(self._model.buffers(), seen)
        state = stored_bytes(state_tensors(self._optimizer), seen) if self._optimizer is not None else 0
        figures = {
            "weights": sum(weights.values()) + buffers,
            "gradients": sum(self._gradients.values()),
            "feature_maps": self._maps.peak_bytes,
            "optimizer_state": state,
        }
        rest = max(0, found.peak - sum(figures.values()))
        self.last = {
            **figures,
            "intermediate_gradients": self._intermediate,
            "other": rest,
            "peak": found.peak,
            "current": found.current,
            "per_model": {name: value / self._models for name, value in figures.items()},
        }
        self._write([self.epoch, self.iteration, *(value / _MB for value in [
            found.peak_cached, found.current_cached, figures["feature_maps"], figures["weights"], *weights.values(),
            figures["gradients"], *(self._gradients[name] for name in self._names), self._intermediate, state, rest,
        ])])  # fmt: skip
        if self._period and self.iteration % self._period == 0:
            print(self.table(weights), file=sys.stdout)
        self._gradients = dict.fromkeys(self._names, 0)
        self._intermediate = 0
        self._maps.reset()
        begin_peak(self._device)
        return self.last

    def epoch_end(self) -> None:
        """End an epoch: iterations count from 1 again."""
        self.epoch += 1
        self.iteration = 0

    def table(self, weights: dict[str, int]) -> str:
        """Format the last iteration as text, with the bytes of each parameter."""
        last = self.last
        lines = [f"memory of iteration {self.iteration} of epoch {self.epoch}, MB"]
        for name in ("peak", "current", "feature_maps", "optimizer_state", "weights"):
            lines.append(f"  {name.replace('_', ' '):<40}{last[name] / _MB:12.3f}")
        lines += [f"    {name:<38}{size / _MB:12.3f}" for name, size in weights.items()]
        lines.append(f"  {'gradients':<40}{last['gradients'] / _MB:12.3f}")
        lines += [f"    {name:<38}{size / _MB:12.3f}" for name, size in self._gradients.items()]
        lines.append(f"  {'intermediate gradients':<40}{last['intermediate_gradients'] / _MB:12.3f}")
        return "\n".join([*lines, f"  {'workspace and other':<40}{last['other'] / _MB:12.3f}"])

    def close(self) -> None:
        """Remove the hooks and close the CSV. Idempotent."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Profiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _columns(self) -> list[str]:
        return [
            "epoch", "iteration", "peak_cached", "current_cached", "total_feature_map_usage", "total_weight_usage",
            *self._names, "total_layer_weight_gradient_usage", *(f"{name}_grad" for name in self._names),
            "intermediate_gradients", "optimizer_state", "workspace_and_other",
        ]  # fmt: skip

    def _write(self, row: Iterable[Any]) -> None:
        if self._file is not None:  # line by line: what was measured stays if the training is killed
            csv_format.writer(self._file, lineterminator="\n").writerow(row)
            self._file.flush()


def _nothing(value: object) -> None:
    """Return None: a forward pre-hook that returns a value would replace the input."""


def _csv_path(asked: bool | str | Path) -> Path | None:
    if asked is False:
        return None
    return Path(_FOLDER) / time.strftime("%Y%m%d%H%M%S.csv") if asked is True else Path(asked)


def _opened(path: Path | None) -> TextIO | None:
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "w", encoding="utf-8", newline="")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason(error)}") from error
