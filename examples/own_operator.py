# SPDX-License-Identifier: MIT
"""Benchmark your own operator: `softmax(x @ w + b)` of 16 models, stacked or one by one. 5 seconds."""

import torch

from dnnsuite import timing

B, N, F = 16, 8, 64
x, w, b = torch.randn(B, N, F), torch.randn(B, F, F), torch.randn(B, 1, F)


def one_by_one():
    return [torch.softmax(x[i] @ w[i] + b[i], dim=-1) for i in range(B)]


def stacked():
    return torch.softmax(torch.baddbmm(b, x, w), dim=-1)


torch.testing.assert_close(stacked(), torch.stack(one_by_one()))  # equal first, fast second

# Measure one way: take samples until the mean is known to 2 %, or for a second. A sample is 20 calls.
rule = timing.measure(stacked, timing.Precision(0.02, budget_s=1.0), number=20)
interval = timing.batch_means(rule.seconds / 20)
print(f"stacked: {1e6 * interval.mean:.1f} us [{1e6 * interval.low:.1f}, {1e6 * interval.high:.1f}], {rule.status}")

# Compare two ways: alternate them, so that a change of the clock speed affects both.
slow, fast = timing.measure_pairs(one_by_one, stacked, pairs=200)
found = timing.compare(slow, fast)
print(f"stacked is {found.verdict}: {found.ratio:.2f} times as fast [{found.low:.2f}, {found.high:.2f}]")
