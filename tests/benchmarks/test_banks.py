# SPDX-License-Identifier: MIT
"""What is made of counted accesses to shared memory. To count them takes minutes, which nothing here does."""

import banks

FRAMES = """float dnnsuite::fused::kernels::(anonymous namespace)::channel_sum<float>(bool, float)
/src/cpp/fused/kernels/batch_norm.cu:74 (discriminator 2)
void dnnsuite::fused::kernels::(anonymous namespace)::sums_kernel<float>(dnnsuite::fused::BatchNormArguments, bool)
/src/cpp/fused/kernels/batch_norm.cu:246
"""
IN_A_HEADER = """dnnsuite::fused::kernels::Kept<float>::put(long, dnnsuite::fused::kernels::Values<float> const&) const
/src/cpp/fused/kernels/row.cuh:57
void dnnsuite::fused::kernels::(anonymous namespace)::forward_kernel<float>(dnnsuite::fused::RmsNormArguments, bool)
/src/cpp/fused/kernels/rms_norm.cu:40
"""
OF_A_TEST = "main\n/src/tests/cpp/fused/kernels/rms_norm_test.cpp:40\n"


def test_a_place_is_a_line_of_a_kernel():
    assert banks.placed(FRAMES, 4, 2, 1.5) == ("batch_norm", "sums", 74, 4, 2, 1.5)
    assert banks.placed(IN_A_HEADER, 4, 1, 1.0) == ("rms_norm", "forward", 57, 4, 1, 1.0)
    assert banks.placed(OF_A_TEST, 4, 1, 1.0) is None


def test_a_kernel_has_its_worst_place():
    accesses = [banks.placed(FRAMES, 4, 2, 1.5), banks.placed(FRAMES.replace(":74", ":75"), 8, 4, 1.2)]
    table = banks.worst([*accesses, banks.placed(IN_A_HEADER, 4, 1, 1.0)])
    assert "| batch_norm | sums | 2 | 4 | 1.50 |" in banks.text(table)
    assert "| rms_norm | forward | 1 | 1 | 1.00 |" in banks.text(table)


def test_what_is_compiled_is_there():
    found = [path for path, _ in banks.sources()]
    assert all(path.is_file() for path in found)
    assert {"attention.cu", "attention_test.cpp", "attention_kernel.cpp", "banks.cpp"} <= {p.name for p in found}


def test_a_function_of_several_kernels_has_its_bare_name():
    assert banks.function("float a::(anonymous namespace)::channel_sum<float>(bool, float)") == "channel_sum"
    assert banks.function("a::X<b<c> >::type a::score_row<d<e> >(a::Head<e> const&, int)") == "score_row"
