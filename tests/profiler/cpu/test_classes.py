# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.profiler.cpu._classes import CLOSURE, class_of, inner_phase, phase_of, replayed_phases


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "gemm"), ("aten::addmm", "gemm"), ("aten::baddbmm", "gemm"), ("dnnsuite::linear_backward", "gemm"),
        ("dnnsuite::matmul", "gemm"), ("dnnsuite::sum_of_products", "gemm"),
        ("dnnsuite::pixel_products", "gemm"),
        ("aten::convolution", "conv"), ("aten::mkldnn_convolution", "conv"), ("dnnsuite::depthwise", "conv"),
        ("aten::native_layer_norm", "norm"), ("dnnsuite::batch_norm_act", "norm"),
        ("dnnsuite::bias_dropout_add_layer_norm", "norm"), ("aten::_softmax", "softmax"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"), ("dnnsuite::attention", "attention"),
        ("aten::lstm", "recurrence"), ("dnnsuite::recurrence", "recurrence"), ("aten::relu", "elementwise"),
        ("aten::add_", "elementwise"), ("aten::addcmul_", "elementwise"), ("aten::sum", "reduction"),
        ("aten::max_pool2d", "pooling"), ("aten::copy_", "copy"), ("aten::cat", "copy"), ("aten::view", "view"),
        ("aten::t", "view"), ("aten::tanh", "elementwise"), ("aten::empty", "alloc"), ("aten::embedding", "embedding"),
        ("dnnsuite::optimizer_step_", "optimizer"), ("aten::_fused_adamw_", "optimizer"),
        ("dnnsuite::cross_entropy", "loss"), ("aten::bernoulli_", "random"), ("AddmmBackward0", "frame"),
        ("Optimizer.step#Adam.step", "frame"), ("aten::maximum", "elementwise"), ("aten::select_backward", "copy"),
        # random numbers, and what sounds like normalisation
        ("aten::normal_", "random"), ("aten::log_normal_", "random"), ("aten::exponential_", "random"),
        ("aten::randn", "random"), ("aten::poisson", "random"), ("aten::uniform_", "random"),
        ("aten::linalg_vector_norm", "reduction"), ("aten::_foreach_norm", "reduction"), ("aten::norm", "reduction"),
        ("aten::native_group_norm_backward", "norm"), ("aten::_fused_rms_norm", "norm"),
        # resampling, conversions, what lists of tensors do
        ("aten::upsample_bilinear2d", "pooling"), ("aten::_upsample_nearest_exact2d_backward", "pooling"),
        ("aten::grid_sampler_2d", "pooling"), ("aten::_convert_indices_from_coo_to_csr", "copy"),
        ("aten::_to_copy", "copy"), ("aten::_foreach_add_", "elementwise"), ("aten::_foreach_zero_", "alloc"),
        ("aten::_foreach_copy_", "copy"), ("aten::reflection_pad2d", "copy"), ("aten::nll_loss2d_forward", "loss"),
        ("aten::_linalg_svd", "linalg"), ("aten::erfinv", "elementwise"), ("aten::_fft_r2c", "fft"),
        ("aten::_scaled_mm", "gemm"), ("aten::max", "reduction"), ("aten::max_pool2d_with_indices", "pooling"),
        ("aten::leaky_relu_backward", "elementwise"), ("aten::topk", "reduction"),
        # of other namespaces, and of none
        ("aten::an_operator_of_the_future", "other"), ("mylib::heavy", "custom"), ("xformers::attention", "custom"),
        ("MyFunction", "custom"), ("MyFunctionBackward", "custom"), ("CompiledFunctionBackward", "frame"),
        ("CheckpointFunctionBackward", "frame"), ("torch::autograd::AccumulateGrad", "frame"),
        ("autograd::engine::evaluate_function: MyFunctionBackward", "frame"), ("detach", "frame"),
        ("Torch-Compiled Region: 0/0", "frame"), ("## Call CompiledFxGraph fabc ##", "compiled"),
        ("gloo:all_reduce", "communication"), ("nccl:all_gather", "communication"),
        ("c10d::allreduce_", "communication"), ("_c10d_functional::wait_tensor", "communication"),
        ("record_param_comms", "communication"), ("torch::distributed::reducer::mul_out", "copy"),
    ],
)  # fmt: skip
def test_class(name, kind):
    assert class_of(name) == kind


def test_an_annotation_is_work_only_where_it_is_a_collective_or_a_compiled_graph():
    names = ["my_part", "mylib::heavy", "aten::mm", "gloo:all_reduce", "## Call CompiledFxGraph fabc ##"]
    assert [class_of(name, annotation=True) for name in names] == ["frame"] * 3 + ["communication", "compiled"]


def test_torchs_operators_that_compute_element_by_element_are_known():
    """Of the operators that torch itself tags as pointwise, all but those that copy or have a class of their own."""
    import torch

    pointwise = set()
    for schema in torch._C._jit_get_all_schemas():
        home, _, name = schema.name.partition("::")
        packet = getattr(torch.ops.aten, name, None) if home == "aten" else None
        overload = getattr(packet, schema.overload_name or "default", None)
        if torch.Tag.pointwise in getattr(overload, "tags", ()):
            pointwise.add(schema.name)
    assert len(pointwise) > 200
    odd = {name for name in pointwise if class_of(name) != "elementwise"}
    assert {class_of(name) for name in odd} <= {"copy", "random", "reduction"}
    assert len(odd) < 10


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("autograd::engine::evaluate_function: MmBackward0", "backward"),
        ("MmBackward0", "backward"),
        ("dnnsuite::linear_backward", "backward"),
        ("Optimizer.step#Adam.step", "optimizer"),
        ("dnnsuite::optimizer_step_", "optimizer"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter", "data"),
        (CLOSURE, "forward"),
        ("aten::_foreach_norm", None),
        ("aten::mm", None),
    ],
)
def test_phase(name, phase):
    assert phase_of(name) == phase


@pytest.mark.parametrize(
    ("outer", "own", "counts"),
    [
        (None, "backward", "backward"), ("data", "optimizer", "data"), ("backward", None, "backward"),
        ("optimizer", "forward", "forward"), ("forward", "backward", "backward"),
        ("backward", "optimizer", "optimizer"), ("backward", "forward", "backward"),
    ],
)  # fmt: skip
def test_a_phase_inside_of_another(outer, own, counts):
    assert inner_phase(outer, own) == counts


def test_a_replayed_step_is_backward_from_its_first_gradient_to_the_optimizer():
    names = ["aten::mm", "dnnsuite::linear_backward", "aten::mm", "dnnsuite::optimizer_step_", "aten::mm"]
    own = [phase_of(name) for name in names]
    assert replayed_phases(names, own) == [None, "backward", "backward", "optimizer", None]
    assert replayed_phases(names * 2, own * 2)[5:8] == [None, "backward", "backward"]


def test_where_autograd_was_recorded_it_knows():
    names = ["autograd::engine::evaluate_function: MmBackward0", "aten::mm"]  # the second: clipping, say
    assert replayed_phases(names, ["backward", None]) == ["backward", None]
