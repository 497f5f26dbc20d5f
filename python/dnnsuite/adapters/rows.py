# SPDX-License-Identifier: MIT
"""The sequences of all models in one row of tokens, over the base once.

A padded batch `[B, N, T]` costs what its longest sequence costs, B times. Here the tokens that the mask keeps stand one
after the other in one sequence `[1, L]`, ordered by model: the base's layers, which see a token at a time, run once
over them; an adapter runs on the tokens of its model; attention runs on each sequence alone. The base is the user's
code on torch's modules, in which the adapted layers, dropout and transformers' attention function are replaced.

Whether that is right is not assumed: the first batch is preceded by an audit (`_audited`), and a base that fails it
says why and gets padded batches.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from .. import nn
from .._fuse.layer_table import RULES
from ..errors import Error
from .base import is_quantized
from .head import log_probs_of
from .lora import LoraLinear

_NAME = "dnnsuite_rows"  # of the attention function in transformers' table
_SEQUENCES, _MODELS = [5, 3, 7], [8, 7]  # tokens of the sequences of an audit, and of its models
_PREFIX = "base_model.model."  # of the base's modules in one of PEFT's models


class NotInRows(Error):
    """The sequences of this base cannot stand in one row; the message says why."""


@dataclass(frozen=True)
class Layout:
    """Owners of the tokens of a row.

    Attributes:
        layers: the array's own layers by their path in the base; none for the base alone.
        models: number of tokens of each model.
        sequences: number of tokens of each sequence.
        device: device of the row.
    """

    layers: Mapping[str, Any]
    models: list[int]
    sequences: list[int]
    device: torch.device

    @functools.cached_property
    def offsets(self) -> torch.Tensor:
        """Beginnings of each model's tokens, and the end of the last one's: `[B + 1]`, on the device."""
        return torch.tensor([0, *itertools.accumulate(self.models)], device=self.device)


class _Now(threading.local):
    layout: Layout | None = None
    attentions = 0


_now = _Now()


@contextlib.contextmanager
def _laid_out(layout: Layout) -> Iterator[None]:
    before, _now.layout = _now.layout, layout
    try:
        yield
    finally:
        _now.layout = before


def _layout() -> Layout:
    if _now.layout is None:
        raise NotInRows("the base's code runs a part of it later than its forward")
    return _now.layout


class _Place(torch.nn.Module):
    """A module of the base, and on the tokens of each model what the array has in its place."""

    def __init__(self, path: str, base_layer: torch.nn.Module) -> None:
        super().__init__()
        self.path, self.base_layer = path, base_layer

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base_layer"), name)  # the base's code may look at its weight

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        layout = _layout()
        layer = layout.layers.get(self.path)
        if layer is None:
            return self.base_layer(*args, **kwargs)
        x, total = args[0] if args else None, sum(layout.models)
        if x is not None and x.dim() == 2 and len(x) == total > 1:  # as of code that has no use for the batch
            return self.forward(x.unsqueeze(0)).squeeze(0)
        if x is None or args[1:] or kwargs or x.shape[:2] != (1, total):
            raise NotInRows(f"{self.path} is not called with the tokens of a row alone")
        if isinstance(layer, LoraLinear) and len(layer.factors) == 2:
            return layer.updated(self.base_layer(x), x, layout.models, lambda: layout.offsets)
        if isinstance(layer, nn.Dropout) and not (layer.training and any(layer.rates)):
            layer.draw()  # which counts the call
            return x
        return _of_each_model(layer, x, layout.models)


def _of_each_model(layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Apply a layer of B models `[B, *, ...]` to the tokens `[1, L, ...]` of each, padded to the longest."""
    parts = x.squeeze(0).split(tokens)
    padded = layer(torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True))
    return torch.cat([row[:count] for row, count in zip(padded, tokens, strict=True)]).unsqueeze(0)


def _attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> tuple[torch.Tensor, None]:
    """Attention of each sequence in a row `[1, H, L, D]`, by the function that the base has; to `[1, L, H, D]`."""
    if options.get("dropout") and module.training:
        raise NotInRows("its attention drops weights, and in a row the draws of one model would be another's")
    if query.shape[2] != key.shape[2] or len(query) != 1 or mask is not None:
        raise NotInRows(f"{type(module).__name__} attends to other tokens than those of its row")
    _now.attentions += 1
    name = vars(vars(module)["config"])["_rows_base"]
    runs = _runs(_layout().sequences)
    tokens = [count * length for count, length in runs]
    whole = _interface(module, name)
    outputs = []
    for (count, length), *parts in zip(runs, *(t.split(tokens, 2) for t in (query, key, value)), strict=True):
        own = [part.unflatten(2, (count, length)).squeeze(0).transpose(0, 1) for part in parts]
        causal = options.get("is_causal", getattr(module, "is_causal", True))
        seen = None if name == "sdpa" or not causal else _causal(length, query)
        outputs.append(whole(module, *own, seen, **options)[0].flatten(0, 1))
    return torch.cat(outputs).unsqueeze(0), None


def _runs(sequences: list[int]) -> list[tuple[int, int]]:
    """Join neighbours of one length: (number, length)."""
    runs: list[tuple[int, int]] = []
    for length in sequences:
        if runs and runs[-1][1] == length:
            runs[-1] = runs[-1][0] + 1, length
        else:
            runs.append((1, length))
    return runs


def _interface(module: torch.nn.Module, name: str) -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    return ALL_ATTENTION_FUNCTIONS.get(name, eager)


def _causal(length: int, like: torch.Tensor) -> torch.Tensor:
    least = torch.finfo(like.dtype).min
    return torch.full((1, 1, length, length), least, dtype=like.dtype, device=like.device).triu(1)


def _checkpointed(call: Callable[..., Any], *args: Any) -> Any:
    """Stand in for transformers' checkpoint function: a part that runs again does so with the layout it first had."""
    layout = _layout()

    def run(*inner: Any) -> Any:
        with _laid_out(layout):
            return call(*inner)

    return checkpoint(run, *args, use_reentrant=False)


class RowsModel:
    """A causal language model of transformers' whose batches are rows; made of the modules of one base.

    Raises:
        NotInRows: by the constructor and the methods, for a base or a batch that must be padded.
    """

    def __init__(self, shared: Any) -> None:
        self._tree = shared.model(_prepared)
        self._paths: dict[str, str] = {}  # why no array may have a layer of its own there, or ""
        self._in_parts = False
        self._training: bool | None = None
        config = vars(self._tree.config)
        windows = [config.get(name) for name in ("sliding_window", "attention_chunk_size")]
        rope = config.get("rope_parameters") or {}
        if rope.get("rope_type") in ("dynamic", "longrope"):  # longer sequences turn the others in another way, too
            windows.append(rope.get("original_max_position_embeddings") or config.get("max_position_embeddings"))
        self._longest = min((one for one in windows if isinstance(one, int)), default=sys.maxsize)
        self._audited()

    def have_places(self, paths: frozenset[str]) -> None:
        """Let arrays have layers of their own at these paths, too; where one has none, the base's computes."""
        new = sorted(paths - self._paths.keys())
        try:
            places = {path: self._tree.get_submodule(path) for path in new}
        except AttributeError as error:  # as of replicated layers
            raise NotInRows(f"the base has other modules than its models: {error}") from error
        for path, module in places.items():
            above, _, name = path.rpartition(".")
            parent = self._tree.get_submodule(above)
            while isinstance(parent, _Place):
                parent = parent.base_layer
            parent._modules[name] = _Place(path, module).train(bool(self._training))
        if new:
            self._paths.update(dict.fromkeys(new, self._apart(places)))
        for path in sorted(paths):
            if self._paths[path]:
                raise NotInRows(self._paths[path])

    def log_probs(
        self, layers: Mapping[str, Any], training: bool, batch: Mapping[str, torch.Tensor], labels: torch.Tensor
    ) -> torch.Tensor:
        """Compute the log-probability of each label `[B, N, T - 1]`; 0 where it is -100.

        Args:
            layers: the array's modules by their path in the base; none to have the base's numbers.
            training: the mode of the array.
            batch: `input_ids`, `attention_mask` and perhaps `position_ids` `[B, N, T]`.
            labels: `[B, N, T - 1]`, for the token after each.
        """
        mask = batch["attention_mask"].bool()
        if torch.is_autocast_enabled(mask.device.type):
            raise NotInRows("autocast is on")
        lengths = mask.sum(2).tolist()
        if max(map(max, lengths)) > self._longest:
            raise NotInRows(f"a sequence is longer than the base's window of {self._longest}")
        B, N, T = mask.shape
        positions = batch.get("position_ids")
        if positions is None:
            positions = torch.arange(T, device=mask.device).expand(mask.shape)
        wanted = torch.nn.functional.pad(labels, (0, 1), value=-100)[mask]
        layout = Layout(layers, [sum(row) for row in lengths], [n for row in lengths for n in row if n], mask.device)
        self._train(training)
        with _laid_out(layout):
            chosen = wanted != -100
            hidden = self._hidden(batch["input_ids"][mask], positions[mask])
            counts = [int(part.sum()) for part in chosen.split(layout.models)]
            with _laid_out(replace(layout, models=counts)):
                found = self._of_head(hidden[0, chosen], wanted[chosen])
        at = torch.arange(B * N * T, device=mask.device).view(B, N, T)[mask][chosen]
        flat = torch.zeros(B * N * T, dtype=found.dtype, device=found.device)
        return flat.index_copy(0, at, found).view(B, N, T)[..., :-1]

    def _hidden(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Compute the last hidden state `[1, L, D]`, or the logits where the head cannot be run by itself."""
        part = self._tree.base_model if self._in_parts else self._tree
        output = part(input_ids=ids.unsqueeze(0), position_ids=positions.unsqueeze(0), use_cache=False)
        found: torch.Tensor = output.last_hidden_state if self._in_parts else output.logits
        return found

    def _of_head(self, hidden: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        if not self._in_parts:
            return _chosen(hidden, wanted)
        head = self._tree.get_output_embeddings()
        if isinstance(head, _Place) and head.path not in _layout().layers:
            head = head.base_layer
        if type(head) is torch.nn.Linear:
            return log_probs_of(hidden, head.weight, head.bias, wanted)
        return _chosen(head(hidden.unsqueeze(0)).squeeze(0), wanted)

    def _train(self, mode: bool) -> None:
        if self._training != mode:
            self._tree.train(mode)
            self._training = mode

    @torch.no_grad()
    def _audited(self) -> None:
        """Compare three short sequences in a row with each alone, by the base's own attention.

        Raises:
            NotInRows: they differ, or an attention of the base is not by transformers' table of functions.
        """
        tree, config = self._tree, self._tree.config
        _now.attentions = 0
        row = self._audited_row({})
        if _now.attentions != config.num_hidden_layers:
            raise NotInRows("not every layer of it attends by transformers' table of attention functions")
        ids, positions = self._audit()
        with _laid_out(Layout({}, _MODELS, _SEQUENCES, ids.device)):
            _attend_by(tree, None)
            alone = [tree(input_ids=part[None], use_cache=False).logits for part in ids.split(_SEQUENCES)]
            _attend_by(tree, _NAME)
            if not _close(row, torch.cat(alone, 1)):
                raise NotInRows("its results for a sequence depend on what comes before it in the row")
            self._in_parts = True
            try:
                state = self._hidden(ids, positions)
                self._in_parts = torch.equal(tree.get_output_embeddings()(state), row)  # small logits hide a softcap
            except (AttributeError, TypeError):
                self._in_parts = False

    def _audit(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens `[15]` of three short sequences, and their positions."""
        device = next(self._tree.parameters()).device
        ids = (torch.arange(1, 16, device=device) * 7919) % self._tree.config.vocab_size
        return ids, torch.cat([torch.arange(n, device=device) for n in _SEQUENCES])

    def _audited_row(self, layers: Mapping[str, Any]) -> torch.Tensor:
        """Logits of the audit's row, with `layers` in their places."""
        self._train(False)
        ids, positions = self._audit()
        with _laid_out(Layout(layers, _MODELS, _SEQUENCES, ids.device)):
            try:
                found: torch.Tensor = self._tree(
                    input_ids=ids[None], position_ids=positions[None], use_cache=False
                ).logits
            except Exception as error:  # of the user's code, which a row is strange to
                raise NotInRows(f"its forward of a row raises {type(error).__name__}: {error}") from error
        return found

    @torch.no_grad()
    def _apart(self, places: Mapping[str, Any]) -> str:
        """Say why the base's modules at these paths cannot run on the tokens of each model apart; "" if they can."""
        try:
            if _close(self._audited_row(places), self._audited_row({})):
                return ""
        except NotInRows as reason:
            return str(reason)
        return "what an adapter trains sees more than a token at a time"


def _chosen(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Log-probabilities `[R]` of the classes `wanted` by logits `[R, V]`."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return logits.log_softmax(-1, dtype=wide).gather(1, wanted[:, None]).squeeze(1)


def _close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4}.get(wanted.dtype, 3e-2)
    return found.shape == wanted.shape and bool(
        (found - wanted).abs().max() <= tolerance * wanted.abs().max().clamp(min=1e-6)
    )


def _own_places(array: Any, base: frozenset[int]) -> frozenset[str]:
    """Find the paths in the base at which the array has layers of each model's own.

    Args:
        base: addresses of the base's parameters.

    Raises:
        NotInRows: if models have something of their own outside of such layers.
    """
    paths: list[str] = []
    for path, module in array.named_modules():
        if any(path.startswith(f"{one}.") for one in paths[-1:]):
            if not path.startswith(f"{paths[-1]}.base_layer"):
                continue
        elif hasattr(module, "enabled") or "modules_to_save" in module._modules or isinstance(module, nn.Dropout):
            paths.append(path)
            continue
        for name, held in module._parameters.items():
            if held is not None and (held.requires_grad or held.data_ptr() not in base):
                raise NotInRows(f"each model has a {name} of its own in {path or 'the model'}")
    outside = [path for path in paths if not path.startswith(_PREFIX)]
    if outside:
        raise NotInRows(f"each model has {outside[0]} of its own beside the base")
    return frozenset(path.removeprefix(_PREFIX) for path in paths)


def _layers_at(array: Any, paths: frozenset[str]) -> dict[str, Any]:
    """Find an array's own layers by their path in the base."""
    found = {}
    for path in paths:
        module = array.get_submodule(_PREFIX + path)
        if "modules_to_save" not in module._modules:
            found[path] = module
        elif not module.disable_adapters:
            (found[path],) = module.modules_to_save.values()
    return found


def _prepared(own: torch.nn.Module) -> torch.nn.Module:
    """Put the attention function into the config of a copy of the base's modules."""
    from transformers import PreTrainedModel
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if not isinstance(own, PreTrainedModel) or own.config.is_encoder_decoder or own.get_output_embeddings() is None:
        raise NotInRows("the base is not a causal language model of transformers")
    if not hasattr(own.config, "num_hidden_layers") or not hasattr(own.config, "vocab_size"):
        raise NotInRows("the base's config does not say how many layers and words it has")
    ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention)
    for path, module in list(own.named_modules()):
        if is_quantized(module):  # which computes as in an array: its own forward may repack what all models hold
            if getattr(getattr(module, "state", None), "threshold", 0.0):
                raise NotInRows(f"{path}, of int8, chooses columns by all rows of a call")
            above, _, name = path.rpartition(".")
            own.get_submodule(above)._modules[name] = RULES[type(module)].from_models([module])
        if vars(module).get("_gradient_checkpointing_func") is not None:
            vars(module)["_gradient_checkpointing_func"] = _checkpointed
    for config in _configs(own):
        vars(config)["_rows_base"] = vars(config)["_attn_implementation_internal"]
    _attend_by(own, _NAME)
    return own.requires_grad_(False)


def _configs(tree: torch.nn.Module) -> list[Any]:
    return list({id(held): held for part in tree.modules() if (held := vars(part).get("config")) is not None}.values())


def _attend_by(tree: torch.nn.Module, name: str | None) -> None:
    """Let the modules attend by a function of transformers' table; None for the base's own."""
    for config in _configs(tree):
        held = vars(config)
        held["_attn_implementation_internal"] = held["_rows_base"] if name is None else name


_lock = threading.Lock()


def rows_of(array: Any) -> tuple[RowsModel, dict[str, Any]]:
    """Return the model in rows of an array's base, and the array's own layers by their path in it.

    Raises:
        NotInRows: if its batches must be padded.
    """
    builder = array._builder
    if builder is None:
        raise NotInRows("the array was unpickled, without the base that it was made of")
    paths = _own_places(array, builder.shared.addresses())
    with _lock:
        if builder.rows is None:
            try:
                builder.rows = RowsModel(builder.shared)
            except NotInRows as refusal:
                builder.rows = refusal
        if isinstance(builder.rows, NotInRows):
            raise builder.rows
        builder.rows.have_places(paths)
    return builder.rows, _layers_at(array, paths)
