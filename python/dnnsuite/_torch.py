# SPDX-License-Identifier: MIT
"""Private names of torch: each with its use, and with what is done where torch has it no more.

A name of torch is private if a part of it begins with an underscore, or if it stands in a module that torch does not
document. The rest of this package takes such a name from here and from nowhere else. Importing this module never fails
for the lack of one. What is lost costs speed, or makes steps run without capture (`no_capture`, `no_script`), or makes
modules run model by model; `lost()` lists it, and `dnnsuite doctor` prints that list.

Private attributes of torch's *objects* are used where they stand if they are in `ATTRIBUTES`: names that torch's users
are told of, or that lie in pickled modules and tensors, so that torch cannot rename them without breaking every file.

Names are looked up once, when this module is imported: on a hot path they cost what torch's own cost.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils.checkpoint

__all__ = [
    "ATTRIBUTES",
    "DYNAMO",
    "NAMES",
    "Attribute",
    "GlobalHooks",
    "Name",
    "StorageWeakRef",
    "TorchDispatchMode",
    "abandon_loader",
    "all_threads_config",
    "assert_true",
    "at_end_of_backward",
    "backward_pass",
    "below_autograd",
    "create_function",
    "dispatch_modes",
    "foreach_mul_",
    "foreach_norm",
    "forward_gradients",
    "function_apply_code",
    "get_graph_optimize",
    "global_hooks",
    "has_gradient_hook",
    "hidden_from_modes",
    "loader_iterator",
    "loader_workers",
    "lost",
    "made_by_dynamo",
    "mark_parameter",
    "mark_stepped",
    "no_capture",
    "no_fuse",
    "no_script",
    "not_compiled",
    "parse_ir",
    "profiler_recording",
    "set_graph_optimize",
    "step_hooks",
    "take_over_clipping",
    "transforming",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_unflatten",
    "unsafe_view",
    "wrapper_subclass",
]


@dataclass(frozen=True)
class Name:
    """One private name of torch, or a group that is of use only as a whole.

    Attributes:
        names: dotted, from `torch`. Any one of them serves where `any_of`, otherwise all are needed.
        use: the reason why a public name does not do.
        without: what happens where it is missing.
        since: the oldest torch that is known to have it.
        needed_by: `capture`, `script` or `fuse` if that is refused without it.
    """

    names: tuple[str, ...]
    use: str
    without: str
    since: str = "2.10"
    any_of: bool = False
    needed_by: str = ""


@dataclass(frozen=True)
class Attribute:
    """Private attributes of one class of torch's objects, used where they stand.

    Attributes:
        owner: the class, dotted from `torch`.
        names: the attributes.
        reason: why they are not expected to change.
        needed_by: as in `Name`.
    """

    owner: str
    names: tuple[str, ...]
    reason: str
    needed_by: str = ""


NAMES: dict[str, Name] = {
    "backward": Name(
        ("torch._C._current_graph_task_id",),
        "tells a forward that a checkpoint runs again in a backward pass, where parameters and random numbers of an "
        "array must not be taken anew",
        "the call stack is searched for torch.autograd.backward: slower, same answers",
    ),
    "below autograd": Name(
        ("torch._C._AutoDispatchBelowAutograd",),
        "calls an operator without the 8 µs of its registered gradient, inside an autograd.Function that has its own",
        "torch.no_grad: slower calls, same results; captured steps on a CPU run as written",
        needed_by="script",
    ),
    "end of backward": Name(
        ("torch.autograd.Variable._execution_engine.queue_callback",),
        "times the backward pass of an array's first steps, to choose the faster way for its models",
        "an array stepped by hand runs all its models at once wherever it can",
    ),
    "transforms": Name(
        ("torch._C._are_functorch_transforms_active", "torch._C._functorch.maybe_current_level"),
        "sends transforms of torch.func (grad, vmap, jvp) through compositions of torch's own operators",
        "torch.func over layers of this package raises torch's own error",
        any_of=True,
    ),
    "dispatch modes": Name(
        ("torch._C._len_torch_dispatch_stack",),
        "names the tensors that an optimizer's step writes only while somebody looks",
        "they are named always: a longer call, same results",
    ),
    "hidden from modes": Name(
        ("torch._C._DisableTorchDispatch",),
        "reads the random generators' state out of sight of a step that is recorded",
        "steps run without capture",
        needed_by="capture",
    ),
    "recorder": Name(
        ("torch.utils._python_dispatch.TorchDispatchMode",),
        "sees the operators of a step below autograd, to record them",
        "steps run without capture",
        needed_by="capture",
    ),
    "storages": Name(
        ("torch.multiprocessing.reductions.StorageWeakRef",),
        "watches a storage without keeping its memory",
        "steps run without capture; profiles have no feature maps",
        needed_by="capture",
    ),
    "global hooks": Name(
        (
            "torch.nn.modules.module._global_forward_pre_hooks",
            "torch.nn.modules.module._global_forward_hooks",
            "torch.nn.modules.module._global_backward_pre_hooks",
            "torch.nn.modules.module._global_backward_hooks",
        ),
        "a replay would skip hooks that were registered for every module",
        "steps run without capture, for a hook might be there unseen",
        needed_by="capture",
    ),
    "optimizer hooks": Name(
        (
            "torch.optim.optimizer._global_optimizer_pre_hooks",
            "torch.optim.optimizer._global_optimizer_post_hooks",
        ),
        "StepRunner calls what waits for the step of every optimizer",
        "StepRunner calls the hooks of its optimizer alone",
    ),
    "interpreter": Name(
        (
            "torch._C.parse_ir",
            "torch._C._create_function_from_graph",
            "torch._C._get_graph_executor_optimize",
            "torch._C._set_graph_executor_optimize",
            "torch._C.Graph.nodes",
            "torch._C.Graph.inputs",
            "torch._C.Graph.setInsertPoint",
            "torch._C.Graph.insertConstant",
            "torch._C.Graph.eraseInput",
            "torch._C.Node.kind",
            "torch._C.Node.schema",
            "torch._C.Value.replaceAllUsesWith",
        ),
        "runs the operators of a captured step on a CPU without Python",
        "steps on a CPU run without capture",
        needed_by="script",
    ),
    "trees": Name(
        (
            "torch.utils._pytree.tree_flatten",
            "torch.utils._pytree.tree_leaves",
            "torch.utils._pytree.tree_map",
            "torch.utils._pytree.tree_unflatten",
        ),
        "finds tensors in nested arguments and results, among them classes that other libraries have registered",
        "tuples, lists and dictionaries only",
    ),
    "checkpoint": Name(
        (
            "torch.utils.checkpoint._checkpoint_without_reentrant_generator",
            "torch.utils.checkpoint.CheckpointFunction",
        ),
        "tells where a checkpoint in a model's forward begins and ends, and lets what it runs again find the state of "
        "the first run",
        "torch's checkpoint in a model's forward raises an error, or its models run one by one; so does nn.checkpoint",
    ),
    "forward gradients": Name(
        ("torch._C._is_fwd_grad_enabled",),
        "tells a block of torch.no_grad, which leaves forward-mode gradients on, from the forward of an "
        "autograd.Function, which does not",
        "in both the call stack is searched for every torch function: slower, same answers",
    ),
    "function": Name(
        ("torch.autograd.Function.apply.__func__.__code__",),
        "recognizes the forward of a user's autograd.Function, whose backward knows nothing of B",
        "a module whose forward enters inference mode runs model by model, for it may be such a Function (so in torch "
        "2.15, which calls a Function from C++)",
    ),
    "wrapper": Name(
        ("torch.Tensor._make_wrapper_subclass",),
        "makes a tensor without storage that shows one model's shape",
        "Tensor.as_subclass of a meta tensor: slower, same results",
    ),
    "parameter mark": Name(
        ("torch.nn.Parameter._is_param",),
        "isinstance(self.weight, Parameter) is true in a model's code when its models run at once",
        "it is false there",
    ),
    "gradient hooks": Name(
        ("torch.Tensor._post_accumulate_grad_hooks",),
        "a replay would skip a hook that waits for a parameter's gradient",
        "steps run without capture; fuse does not see such hooks",
        needed_by="capture",
    ),
    "compiler": Name(
        ("torch._dynamo",),
        "is told to leave alone code that runs for B models, once torch.compile is in use",
        "torch.compiler.disable from the first call on, which imports the compiler; compiled models are not "
        "recognized when they are fused",
    ),
    "foreach": Name(
        ("torch._foreach_norm", "torch._foreach_mul_"),
        "norms and products of many gradients in one call",
        "one call for each gradient",
    ),
    "unsafe view": Name(
        ("torch.ops.aten._unsafe_view.default",),
        "gives a fresh result another shape that autograd does not take for a view",
        "Tensor.reshape: the same numbers",
    ),
    "assertion": Name(
        ("torch.ops.aten._assert_async.msg",),
        "looks in a replay whether a value that Python has read while recording is still the same",
        "steps whose code reads values of the batch run as written",
    ),
    "profiler": Name(
        ("torch._C._autograd._profiler_enabled", "torch.autograd._profiler_enabled"),
        "refuses to profile while torch.profiler records",
        "two recorders may measure each other unnoticed",
        any_of=True,
    ),
    "profiler threads": Name(
        ("torch._C._profiler._ExperimentalConfig",),
        "records the operators of all threads (profile_all_threads)",
        "profiles of operators have those of the calling thread only, and say so",
    ),
    "clip": Name(
        ("torch.nn.utils.clip_grad._get_total_norm", "torch.nn.utils.clip_grad._clip_grads_with_norm_"),
        "torch's clip_grad_norm_ clips each model of an array by itself: the two functions that it consists of are "
        "changed when the first layer of an array is made, for tensors of arrays alone",
        "torch's clip_grad_norm_ clips the models of an array together; dnnsuite.optim's does not",
    ),
    "data loader": Name(
        ("torch.utils.data.dataloader._BaseDataLoaderIter",),
        "measures the wait for a batch",
        "profiles have no phase `data`",
    ),
}
"""Every private name of torch by what it is for."""

ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute(
        "torch.nn.Module",
        ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"),
        "in every pickled module",
        needed_by="fuse",
    ),
    Attribute(
        "torch.nn.Module",
        ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
        "in every pickled module",
        needed_by="fuse",
    ),
    Attribute(
        "torch.nn.Module", ("_apply",), "overridden by layers of many libraries, torch's own RNNs among them"
    ),
    Attribute(
        "torch.optim.Optimizer",
        ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"),
        "made anew when an optimizer is unpickled without them",
    ),
    Attribute("torch.Tensor", ("_version",), "in torch's notes on autograd", needed_by="fuse"),
    Attribute("torch.Tensor", ("_backward_hooks",), "in every pickled tensor", needed_by="fuse"),
    Attribute(
        "torch.UntypedStorage", ("_cdata",), "the key under which torch.save finds shared storages", "capture"
    ),
    Attribute("torch.ops.aten.add.Tensor", ("_schema",), "in torch's manual of custom operators", "fuse"),
    Attribute(
        "torch.distributions.Distribution", ("_batch_shape",), "set by every distribution that expands itself"
    ),
)
"""Private attributes of torch's objects that are used where they stand."""


def _find(dotted: str) -> Any:
    """The object behind a dotted name of torch; None where there is none."""
    found: Any = torch
    path = "torch"
    for part in dotted.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except (
            AttributeError,
            RuntimeError,
        ):  # an operator that is not there is a RuntimeError in some versions
            found = sys.modules.get(path)  # torch.optim hides its module `optimizer`
            if found is None:
                return None
    return found


_missing: dict[str, list[str]] = {}  # what a name is for → which of its names are not there


def _get(key: str) -> list[Any]:
    """The objects of `NAMES[key]` in order; if any one serves, the first that is there. Empty where it is lost."""
    names = NAMES[key].names
    found = {name: _find(name) for name in names}
    there = [value for value in found.values() if value is not None]
    absent = [name for name, value in found.items() if value is None]
    if not absent or (NAMES[key].any_of and there):
        return there[:1] if NAMES[key].any_of else there
    _missing[key] = absent
    return []


def _one(key: str, instead: Any) -> Any:
    return (_get(key) or [instead])[0]


# -- autograd and the dispatcher -------------------------------------------------------------------------------------


def _search_for_backward() -> int:
    """0 in a backward pass of this thread, by its call stack; -1 outside, as torch's own."""
    frame: Any = sys._getframe(1)
    again = False
    while frame is not None:
        module, name = frame.f_globals.get("__name__"), frame.f_code.co_name
        if module == "torch.autograd" and name in ("backward", "grad"):
            return 0
        if module == "torch.utils.checkpoint":
            again = (
                name != "checkpoint"
            )  # in a thread of autograd's own only what runs the forward again is below us
        frame = frame.f_back
    return 0 if again else -1


backward_pass: Callable[[], int] = _one("backward", _search_for_backward)
"""The number of the backward pass that this thread is in; -1 outside of one."""

at_end_of_backward: Callable[[Callable[[], None]], None] | None = _one("end of backward", None)
"""Calls a function once the backward pass that this thread is in has ended; None where that cannot be."""

below_autograd: Any = _one("below autograd", torch.no_grad)
"""Context manager: operators skip their gradient, recorded or registered."""


def _transforms() -> Callable[[], Any]:
    active, level = map(_find, NAMES["transforms"].names)
    if active is not None:
        return active
    _get("transforms")
    return (lambda: False) if level is None else (lambda: level() is not None)


transforming: Callable[[], Any] = _transforms()
"""True inside a transform of `torch.func` (grad, vmap, jvp)."""

dispatch_modes: Callable[[], int] = _one("dispatch modes", lambda: 1)
"""The number of `TorchDispatchMode`s that look at the operators of this thread; 1 where that cannot be known."""

hidden_from_modes: Any = _one("hidden from modes", contextlib.nullcontext)
"""Context manager: no `TorchDispatchMode` sees what runs inside."""


class _NoDispatchMode:
    """In place of `TorchDispatchMode`; never entered, for `no_capture` says why."""


TorchDispatchMode: Any = _one("recorder", _NoDispatchMode)
StorageWeakRef: Any = _one("storages", None)

wrapper_subclass: Callable[..., Any]


def _meta_subclass(kind: Any, shape: Sequence[int], *, dtype: Any, device: Any) -> Any:
    """A tensor of class `kind` on the meta device; the class says itself which device it shows."""
    return torch.empty(tuple(shape), dtype=dtype, device="meta").as_subclass(kind)


wrapper_subclass = _one("wrapper", _meta_subclass)
"""`wrapper_subclass(kind, shape, dtype=, device=)` makes a tensor of class `kind` without storage."""


def mark_parameter(tensor: Any) -> None:
    """Makes `isinstance(tensor, torch.nn.Parameter)` true."""
    tensor._is_param = True


def _probe_parameter_mark() -> None:
    tensor = torch.empty(0, device="cpu")
    mark_parameter(tensor)
    if not isinstance(tensor, torch.nn.Parameter):
        _missing["parameter mark"] = list(NAMES["parameter mark"].names)


_probe_parameter_mark()
_get("gradient hooks")


def _apply_code() -> Any:
    """The code object that every call of an `autograd.Function` runs through; None where there is no such thing."""
    code = _one("function", None)
    seen: list[bool] = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            frame: Any = sys._getframe(1)
            while frame is not None and frame.f_code is not code:
                frame = frame.f_back
            seen.append(frame is not None)
            return x

    Probe.apply(torch.empty(0, device="cpu"))
    if code is None or seen != [True]:
        _missing["function"] = list(NAMES["function"].names)
        return None
    return code


function_apply_code: Any = _apply_code()
"""The code of `torch.autograd.Function.apply`, on the call stack of every user's Function; None where it is lost."""


def _forward_gradients() -> Callable[[], bool]:
    """True outside of every autograd.Function; False always where torch does not tell them apart so."""
    enabled: Callable[[], bool] = _one("forward gradients", lambda: False)
    seen: list[bool] = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            seen.append(enabled())
            return x

    Probe.apply(torch.empty(0, device="cpu"))
    if seen == [False]:
        return enabled
    _missing["forward gradients"] = list(NAMES["forward gradients"].names)
    return lambda: False


forward_gradients: Callable[[], bool] = _forward_gradients()
"""True where forward-mode gradients are on: not in the forward of an autograd.Function, nor in inference mode."""

_foreach = _get("foreach")


def _norms(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return [torch.linalg.vector_norm(tensor) for tensor in tensors]


def _scale_(tensors: Sequence[torch.Tensor], factor: float) -> None:
    for tensor in tensors:
        tensor.mul_(factor)


foreach_norm: Callable[..., Any] = _foreach[0] if _foreach else _norms
"""The 2-norm of each tensor in a list."""
foreach_mul_: Callable[..., Any] = _foreach[1] if _foreach else _scale_
"""Multiplies each tensor in a list by one number, in place."""

assert_true: Any = _one("assertion", None)
"""The operator `assert_true(truth, message)`, which fails unless `truth` is true; None where there is none."""

unsafe_view: Callable[..., Any] = _one("unsafe view", torch.reshape)
"""`unsafe_view(x, shape)` of a fresh result that nothing else looks at."""


def has_gradient_hook(tensor: Any) -> bool:
    """True if something waits for the tensor's gradient."""
    return bool(tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None))


# -- checkpoints -----------------------------------------------------------------------------------------------------


_checkpoint = _get("checkpoint")


class Checkpoints:
    """Context manager: inside, torch's checkpoints (of all threads) are made by `without_reentrant` and `reentrant`.

    Both take what torch's own take and get it as their first argument: the generator function
    `(function, *options, *args)`, and `apply(function, preserve_rng_state, *args)` of the autograd.Function. torch's
    own are back in place when the last such block has ended.
    """

    def __init__(self, without_reentrant: Callable[..., Any], reentrant: Callable[..., Any]) -> None:
        self._lock, self._users = threading.Lock(), 0
        found, self._own = _checkpoint, dict[str, Any]()
        if found:
            generator, function = (name.rpartition(".")[2] for name in NAMES["checkpoint"].names)
            self._own = {generator: found[0], function: found[1]}
            self._ours = {
                generator: partial(without_reentrant, found[0]),
                function: SimpleNamespace(apply=partial(reentrant, found[1].apply)),
            }

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1 and self._own:
                vars(torch.utils.checkpoint).update(self._ours)

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                vars(torch.utils.checkpoint).update(self._own)


# -- hooks of every module -------------------------------------------------------------------------------------------


class GlobalHooks:
    """The containers of hooks that are registered for every module."""

    def __init__(self) -> None:
        modules: Any = torch.nn.modules.module
        self.containers = _get("global hooks")
        # Not that of backward hooks: registering one decides which kind of them this process may have.
        registers = {
            "_global_forward_pre_hooks": "register_module_forward_pre_hook",
            "_global_forward_hooks": "register_module_forward_hook",
            "_global_backward_pre_hooks": "register_module_full_backward_pre_hook",
        }
        for name, hooks in zip(NAMES["global hooks"].names, self.containers, strict=False):
            register = registers.get(name.rpartition(".")[2])
            if not isinstance(hooks, dict) or (
                register and not _holds(hooks, getattr(modules, register, None))
            ):
                _missing.setdefault("global hooks", []).append(name)
        # Kinds of hooks that a later torch may have beside those.
        known = set(map(id, self.containers))
        others = [value for name, value in vars(modules).items() if re.fullmatch(r"_global_\w*hooks", name)]
        self.containers += [hooks for hooks in others if isinstance(hooks, dict) and id(hooks) not in known]

    def any(self) -> bool:
        """True if there is a hook. Without meaning where `no_capture` names the containers as lost."""
        return any(self.containers)


def _holds(hooks: Any, register: Any) -> bool:
    """True if `register`, torch's public way in, puts its hook into `hooks`."""
    if register is None:
        return False
    before = len(hooks)
    handle = register(lambda *_: None)
    try:
        return len(hooks) == before + 1
    finally:
        handle.remove()


global_hooks = GlobalHooks()


# -- torch's interpreter of scripts ----------------------------------------------------------------------------------

_interpreter = (_get("interpreter") or [None] * 4)[:4]
parse_ir: Any = _interpreter[0]
"""A graph from its text."""
create_function: Any = _interpreter[1]
"""A callable from a name and a graph."""
get_graph_optimize: Any = _interpreter[2]
"""True if this thread's interpreter optimizes what it runs."""
set_graph_optimize: Any = _interpreter[3]


# -- trees of arguments ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tree:
    """The structure of nested tuples, lists and dictionaries; `kind` is None for a leaf."""

    kind: Any
    keys: tuple[Any, ...] = ()
    inner: tuple[_Tree, ...] = ()


def _parts(value: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
    if type(value) in (dict, OrderedDict):
        return tuple(value), list(value.values())
    if type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return (), list(value)
    return None


def _own_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], _Tree]:
    parts = None if is_leaf is not None and is_leaf(tree) else _parts(tree)
    if parts is None:
        return [tree], _Tree(None)
    below = [_own_flatten(value, is_leaf) for value in parts[1]]
    leaves = [leaf for found, _ in below for leaf in found]
    return leaves, _Tree(type(tree), parts[0], tuple(inner for _, inner in below))


def _own_unflatten(leaves: Any, spec: _Tree) -> Any:
    return _built(iter(leaves), spec)


def _built(leaves: Any, spec: _Tree) -> Any:
    if spec.kind is None:
        return next(leaves)
    values = [_built(leaves, inner) for inner in spec.inner]
    if spec.kind in (dict, OrderedDict):
        return spec.kind(zip(spec.keys, values, strict=True))
    return spec.kind(*values) if hasattr(spec.kind, "_fields") else spec.kind(values)


def _own_leaves(tree: Any) -> list[Any]:
    return _own_flatten(tree)[0]


def _own_map(function: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    leaves, spec = _own_flatten(tree, is_leaf)
    return _own_unflatten(map(function, leaves), spec)


_trees = _get("trees") or [_own_flatten, _own_leaves, _own_map, _own_unflatten]
tree_flatten: Callable[..., Any] = _trees[0]
tree_leaves: Callable[..., list[Any]] = _trees[1]
tree_map: Callable[..., Any] = _trees[2]
tree_unflatten: Callable[..., Any] = _trees[3]


# -- optimizers ------------------------------------------------------------------------------------------------------


_clip_functions: list[Any] = _get("clip")


def take_over_clipping(total_norm: Callable[..., Any], clip: Callable[..., Any]) -> None:
    """Let calls of torch's `get_total_norm` and `clip_grads_with_norm_` go to these functions, which get torch's own as
    their first argument. The change is inside of torch's functions: whoever has imported them sees it."""
    for function, own in zip(_clip_functions, (total_norm, clip), strict=False):
        cell = _wrapped(function)
        if not isinstance(cell.cell_contents, functools.partial):
            cell.cell_contents = functools.partial(own, cell.cell_contents)


def _wrapped(function: Any) -> Any:
    """The cell in which torch's `_no_grad` keeps the function that it wraps."""
    return function.__closure__[function.__code__.co_freevars.index("func")]


try:
    for _clip_function in _clip_functions:
        _wrapped(_clip_function)
except (AttributeError, TypeError, ValueError):  # wrapped in another way
    _clip_functions = []
    _missing["clip"] = list(NAMES["clip"].names)


def _no_hooks() -> list[dict[int, Any]]:
    return _get("optimizer hooks") or [{}, {}]


_global_step_hooks = _no_hooks()


def step_hooks(optimizer: torch.optim.Optimizer) -> tuple[list[Any], list[Any]]:
    """The hooks that torch calls before a step of this optimizer, and those after it."""
    before, after = _global_step_hooks
    own: Any = optimizer
    return (
        [*before.values(), *own._optimizer_step_pre_hooks.values()],
        [*own._optimizer_step_post_hooks.values(), *after.values()],
    )


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """Tell torch's schedulers that the optimizer takes steps, though nobody calls its `step`: they would warn."""
    vars(optimizer)["_opt_called"] = True


# -- torch.compile ---------------------------------------------------------------------------------------------------

try:
    _has_dynamo = importlib.util.find_spec("torch._dynamo") is not None
except (ImportError, ValueError):
    _has_dynamo = False
if not _has_dynamo:
    _missing["compiler"] = list(NAMES["compiler"].names)

DYNAMO = "torch._dynamo" if _has_dynamo else "torch"
"""The module that is loaded once torch.compile is in use; one that is always loaded where that cannot be known."""


def not_compiled(function: Any) -> Any:
    """Marks a function that torch.compile leaves as it is, without importing the compiler."""
    function._torchdynamo_disable = True
    return function


def made_by_dynamo(module: Any) -> bool:
    """True if `module` is what `torch.compile` makes of a module."""
    return any(kind.__module__.startswith("torch._dynamo") for kind in type(module).__mro__)


# -- profilers -------------------------------------------------------------------------------------------------------

profiler_recording: Callable[[], bool] = _one("profiler", lambda: False)
"""True while torch.profiler records in this process."""

_experimental = _one("profiler threads", None)


def all_threads_config() -> Any:
    """torch.profiler's configuration that records every thread, and which overload an operator is where it can; None
    where it has none."""
    if _experimental is None:
        return None
    for wanted in ({"capture_overload_names": True}, {}):
        with contextlib.suppress(TypeError):
            return _experimental(profile_all_threads=True, **wanted)
    return None


if all_threads_config() is None:
    _missing["profiler threads"] = list(NAMES["profiler threads"].names)

loader_iterator: Any = _one("data loader", None)
"""The class of a DataLoader's iterators; None where it is lost."""


def loader_workers(iterator: Any) -> int | None:
    """The number of worker processes of a DataLoader's iterator; None where it does not say."""
    return getattr(iterator, "_num_workers", None)


def abandon_loader(iterator: Any) -> None:
    """Keep a DataLoader's iterator, whose workers are dead, from taking leave of them.

    It would wait for locks that a worker may have held when it was killed, here or when the process ends.
    """
    iterator._shutdown = True
    thread_done = getattr(iterator, "_pin_memory_thread_done_event", None)
    if thread_done is not None:
        thread_done.set()
    for queue in [*getattr(iterator, "_index_queues", ()), getattr(iterator, "_worker_result_queue", None)]:
        if hasattr(queue, "cancel_join_thread"):
            queue.cancel_join_thread()


# -- what is lost ----------------------------------------------------------------------------------------------------


def _bare_optimizer() -> torch.optim.Optimizer:
    """An optimizer without parameters, made as unpickling makes it: giving one parameters imports torch's compiler,
    which takes longer than importing torch."""
    optimizer = torch.optim.Optimizer.__new__(torch.optim.SGD)
    torch.optim.Optimizer.__setstate__(optimizer, {"defaults": {}})
    return optimizer


def _lost_attributes() -> dict[str, list[str]]:
    """Attributes of `ATTRIBUTES` that are not there, by what needs them."""
    samples: dict[str, Any] = {"torch.nn.Module": torch.nn.Module()}
    with contextlib.suppress(Exception):
        samples["torch.distributions.Distribution"] = torch.distributions.Distribution(validate_args=False)
        samples["torch.optim.Optimizer"] = _bare_optimizer()
    found: dict[str, list[str]] = {}
    for one in ATTRIBUTES:
        owner = samples.get(one.owner) or _find(one.owner)
        for name in one.names:
            try:
                getattr(owner, name)
            except AttributeError:
                found.setdefault(one.needed_by, []).append(f"{one.owner}.{name}")
    return found


_attributes = _lost_attributes()


def _reason(*needed_by: str) -> str | None:
    """The sentence that names what is lost of all that something needs; None where all is there."""
    names = [name for key, absent in _missing.items() if NAMES[key].needed_by in needed_by for name in absent]
    names += [name for key in needed_by for name in _attributes.get(key, ())]
    return f"torch {torch.__version__} has no {', '.join(names)}" if names else None


no_fuse: str | None = _reason("fuse")
"""Why models cannot be fused under this torch; None if they can."""
no_capture: str | None = _reason("capture", "fuse")
"""Why no step can be captured under this torch; None if it can."""
no_script: str | None = _reason("script", "capture", "fuse")
"""Why no step can be captured on a CPU under this torch; None if it can."""


def lost() -> list[tuple[str, str]]:
    """(name, what is done without it) for every private name that this torch does not have."""
    found = [(name, NAMES[key].without) for key, absent in _missing.items() for name in absent]
    consequence = {
        "fuse": "fuse refuses models",
        "capture": "steps run without capture",
        "": "an error where it is used",
    }
    return found + [(name, consequence[key]) for key, names in _attributes.items() for name in names]
