# SPDX-License-Identifier: MIT
"""Classes of kernels by names as torch, cuDNN, cuBLAS, NCCL and Triton give them."""

import pandas as pd
import pytest

from dnnsuite.profiler.activity import CLASSES, classify, classify_names

NAMES = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)": "attention",
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)": "attention",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>>": (
        "optimizer"
    ),
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw": "conv",
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>": "conv",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "gemm",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT": "gemm",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_nn_align8>": "gemm",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>": "gemm",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>": "gemm",
    "ampere_sgemm_128x64_tn": "gemm",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>": "norm",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>": "norm",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>": "softmax",
    "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float>": "loss",
    "void at::native::(anonymous namespace)::max_pool_forward_nchw<float>": "pooling",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2>": "embedding",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t>>": (
        "reduction"
    ),
    "triton_red_fused_add_sum_3": "reduction",
    "triton_poi_fused_gelu_1": "elementwise",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>": "elementwise",
    "void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>": (
        "copy"
    ),
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>": "copy",
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float>": "random",
    "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<long>": "reduction",
    "void at::native::(anonymous namespace)::_thnn_fused_lstm_cell<float>": "recurrence",
    "saxpy(int, float*)": "other",
}


@pytest.mark.parametrize("name", NAMES)
def test_class_of(name):
    assert classify(name) == NAMES[name]


def test_every_class_of_operators_has_a_kernel_here():
    assert {*NAMES.values()} == {*CLASSES}


def test_a_column_with_missing_names():
    found = classify_names(pd.Series(["ampere_sgemm", None, "ampere_sgemm", "x"]))
    assert list(found) == ["gemm", "other", "gemm", "other"]
    assert list(classify_names(pd.Series([], dtype=object))) == []
