# SPDX-License-Identifier: MIT
"""Table of the private names of torch that are used: each with its use, and with what is done where it is lost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Name:
    """One private name of torch, or a group that is of use only as a whole.

    Attributes:
        names: dotted, from `torch`. Any one of them serves where `any_of`, otherwise all are needed.
        use: the reason why no public name serves.
        without: behaviour without it.
        since: the oldest torch that is known to have it.
        needed_by: `capture` or `fuse` if that is refused without it.
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
        needed_by: see `Name`.
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
    "engine": Name(
        ("torch.autograd._engine_run_backward",),
        "shows what is differentiated by torch.autograd.backward and grad, also to code that imported them before",
        "a mean over the models of an array is not refused: each model gets 1/B of its own gradient",
    ),
    "below autograd": Name(
        ("torch._C._AutoDispatchBelowAutograd",),
        "calls an operator without the 8 µs of its registered gradient, inside an autograd.Function that has its own",
        "torch.no_grad: slower calls, same results",
    ),
    "end of backward": Name(
        ("torch.autograd.Variable._execution_engine.queue_callback",),
        "times the backward pass of an array's first steps, to choose the faster way for its models",
        "an array stepped by hand runs all its models at once wherever it can",
    ),
    "parametrizations": Name(
        ("torch.nn.utils.parametrize._cache", "torch.nn.utils.parametrize._cache_enabled"),
        "keeps apart what copies of one module have cached under torch.nn.utils.parametrize.cached",
        "the first copy's weights are used for all: leave parametrize.cached away around models that run one by one",
    ),
    "asked gradients": Name(
        ("torch._C._will_engine_execute_node",),
        "tells a gradient which gradients are asked for: a gradient penalty needs none of weights",
        "all are computed: slower gradients of gradients, same results",
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
    "graph pools": Name(
        ("torch._C._cuda_endAllocateToPool", "torch._C._cuda_releasePool"),
        "ends the allocator's part in a CUDA graph's capture that has failed",
        "after a capture that CUDA refuses, later graphs of the array may be refused too",
    ),
    "hidden from modes": Name(
        ("torch._C._DisableTorchDispatch",),
        "reads the random generators' state out of sight of a step that is recorded",
        "steps run without capture",
        needed_by="capture",
    ),
    "function modes": Name(
        ("torch._C.DisableTorchFunction",),
        "keeps the modes that see torch's functions from seeing what the recorder of a step asks its tensors",
        "steps are recorded more slowly",
    ),
    "function mode on top": Name(
        ("torch.overrides._get_current_function_mode",),
        "puts the mode aside that looks for random numbers in a model's code, while a layer of an array runs",
        "models that draw random numbers run more slowly",
    ),
    "dispatch mode on top": Name(
        ("torch.utils._python_dispatch._get_current_dispatch_mode",),
        "ends a recording that nobody will replay in the middle of its step",
        "first steps take longer if they cannot be captured",
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
    "operators": Name(
        ("torch._library.custom_ops.OPDEFS", "torch.library._impls"),
        "code names an operator that a script has made by its name alone; a resumed run compares its functions",
        "such an operator may have other code when a run is resumed",
    ),
    "optimizer hooks": Name(
        ("torch.optim.optimizer._global_optimizer_pre_hooks", "torch.optim.optimizer._global_optimizer_post_hooks"),
        "StepRunner calls what waits for the step of every optimizer",
        "StepRunner calls the hooks of its optimizer alone",
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
    "weight norm": Name(
        ("torch._weight_norm",),
        "is called by torch.nn.utils.weight_norm and its parametrization; its rule is for all models at once",
        "torch.vmap in its place: slower, same results",
    ),
    "checkpoint": Name(
        ("torch.utils.checkpoint._checkpoint_without_reentrant_generator", "torch.utils.checkpoint.CheckpointFunction"),
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
        ("torch._foreach_norm", "torch._foreach_mul_", "torch._foreach_copy_"),
        "norms, products and copies of many tensors in one call",
        "one call for each tensor",
    ),
    "unsafe view": Name(
        ("torch.ops.aten._unsafe_view.default",),
        "gives a fresh result another shape that autograd does not take for a view",
        "Tensor.reshape: the same numbers",
    ),
    "copy of another dtype": Name(
        ("torch.ops.aten._to_copy.default",),
        "widens a float that Python has read while recording, as Python does, for a replay to decide by it",
        "steps whose code decides by floats run eagerly",
    ),
    "assertion": Name(
        ("torch.ops.aten._assert_async.msg",),
        "looks in a replay whether a value that Python has read while recording is still the same",
        "steps whose code reads values of the batch run eagerly",
    ),
    "gamma draws": Name(
        ("torch._standard_gamma", "torch._standard_gamma_grad"),
        "draws for torch.distributions.Gamma and what is made of it, from each model's stream",
        "models that draw such numbers run one by one, and without capture",
    ),
    "dirichlet draws": Name(
        ("torch._sample_dirichlet",),
        "draws for torch.distributions.Beta and Dirichlet of numbers that all models share, from each model's stream",
        "models that draw such numbers run one by one, and without capture",
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
    "fan counts": Name(
        ("torch.nn.init._calculate_fan_in_and_fan_out",),
        "counts the numbers that go in and out of a weight for xavier_uniform_ and its kind: it is changed when the "
        "first layer of an array is made, for parameters of arrays alone, and code that has imported them sees it",
        "such functions that code has imported by name before the first array is made count B for a dimension",
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
        ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook"),
        "in every pickled module",
        needed_by="fuse",
    ),
    Attribute("torch.nn.Module", ("_apply",), "overridden by layers of many libraries, torch's own RNNs among them"),
    Attribute(
        "torch.optim.Optimizer",
        ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"),
        "made anew when an optimizer is unpickled without them",
    ),
    Attribute("torch.Tensor", ("_version",), "in torch's notes on autograd", needed_by="fuse"),
    Attribute("torch.Tensor", ("_indices",), "the way to a sparse tensor's numbers before they are summed"),
    Attribute("torch.Tensor", ("_backward_hooks",), "in every pickled tensor", needed_by="fuse"),
    Attribute("torch.UntypedStorage", ("_cdata",), "the key under which torch.save finds shared storages", "capture"),
    Attribute("torch.ops.aten.add.Tensor", ("_schema",), "in torch's manual of custom operators", "fuse"),
    Attribute("torch.distributions.Distribution", ("_batch_shape",), "set by every distribution that expands itself"),
)
