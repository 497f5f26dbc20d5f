# SPDX-License-Identifier: MIT
"""Private names of torch: each with its use, and with what is done if torch no longer has it.

A name of torch is private if a part of it begins with an underscore, or if it stands in a module that torch does not
document. The other packages take such a name from here and from nowhere else. Importing it never fails
for the lack of one. What is lost costs speed, or makes steps run without capture (`no_capture`), or makes
modules run model by model; `lost()` lists it, and `dnnsuite doctor` prints that list.

Private attributes of torch's *objects* are used where they stand if they are in `ATTRIBUTES`: names that torch's users
are told of, or that lie in pickled modules and tensors, so that torch cannot rename them without breaking every file.

Names are looked up once, when the package is imported: on a hot path they cost what torch's own cost.

`names` is the table, `lookup` finds what stands in it; every other module holds what belongs to one subject.
"""

from __future__ import annotations

from .autograd import (
    HOOKS_OF_GRADIENTS,
    at_end_of_backward,
    backward_pass,
    below_autograd,
    forward_gradients,
    function_apply_code,
    gradient_asked,
    has_gradient_hook,
    look_at_what_is_differentiated,
    transforming,
)
from .compiler import (
    DYNAMO,
    UncompiledOptimizer,
    code_of_operator,
    compiled_from,
    is_operator,
    made_by_dynamo,
    not_compiled,
    uncompiled,
    uncompiled_class,
)
from .devices import (
    abandon_loader,
    all_threads_config,
    capture_stream,
    end_failed_capture,
    first_cause,
    loader_iterator,
    loader_workers,
    profiler_recording,
)
from .lookup import lost, reason_against
from .names import ATTRIBUTES, NAMES, Attribute, Name
from .taken_over import (
    Checkpoints,
    GlobalHooks,
    before_each_step,
    caches_parametrizations,
    containers_of_step_hooks,
    global_hooks,
    hooks_of_all,
    mark_stepped,
    methods_of_tensors,
    own_parametrizations,
    step_hooks,
    take_over_clipping,
    take_over_fan_counts,
)
from .tensors import (
    StorageWeakRef,
    TorchDispatchMode,
    assert_true,
    dispatch_modes,
    foreach_copy_,
    foreach_mul_,
    foreach_norm,
    hidden_from_function_modes,
    hidden_from_modes,
    innermost_dispatch_mode,
    innermost_function_mode,
    mark_parameter,
    sample_dirichlet,
    standard_gamma,
    standard_gamma_grad,
    to_copy,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
    unsafe_view,
    weight_norm,
    wrapper_subclass,
)

__all__ = [
    "ATTRIBUTES", "DYNAMO", "HOOKS_OF_GRADIENTS", "NAMES", "Attribute", "Checkpoints", "GlobalHooks", "Name",
    "StorageWeakRef", "TorchDispatchMode", "UncompiledOptimizer", "abandon_loader", "all_threads_config", "assert_true",
    "at_end_of_backward", "backward_pass", "before_each_step", "below_autograd", "caches_parametrizations",
    "capture_stream", "code_of_operator", "compiled_from", "containers_of_step_hooks", "dispatch_modes",
    "end_failed_capture", "first_cause", "foreach_copy_", "foreach_mul_", "foreach_norm", "forward_gradients",
    "function_apply_code", "global_hooks", "gradient_asked", "has_gradient_hook", "hidden_from_function_modes",
    "hidden_from_modes", "hooks_of_all", "innermost_dispatch_mode", "innermost_function_mode", "is_operator",
    "loader_iterator", "loader_workers",
    "look_at_what_is_differentiated", "lost", "made_by_dynamo", "mark_parameter", "mark_stepped", "methods_of_tensors",
    "no_capture", "no_fuse", "not_compiled", "own_parametrizations", "profiler_recording", "sample_dirichlet",
    "standard_gamma", "standard_gamma_grad", "step_hooks", "take_over_clipping", "take_over_fan_counts", "to_copy",
    "transforming", "tree_flatten", "tree_leaves", "tree_map", "tree_unflatten", "uncompiled", "uncompiled_class",
    "unsafe_view", "weight_norm", "wrapper_subclass",
]  # fmt: skip

no_fuse: str | None = reason_against("fuse")
"""Why models cannot be fused under this torch; None if they can."""
no_capture: str | None = reason_against("capture", "fuse")
"""Why no step can be captured under this torch; None if it can."""
