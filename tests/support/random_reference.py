# SPDX-License-Identifier: MIT
"""Dropout mask and random numbers in plain NumPy: the definitions that the compiled operators are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

ROUNDS = 7
"""Least rounds with which Philox4x32 passes TestU01's BigCrush (Salmon et al., SC'11)."""
BLOCK = 128
"""Elements that share 16 calls of the generator: each call gives 8 numbers of 16 bits."""

Words = tuple[Any, Any, Any, Any]


def philox4x32(counter: Words, key: tuple[int, int], rounds: int = ROUNDS) -> Words:
    """Compute Philox4x32 of four arrays of 32-bit counter words (in uint64 arrays) under one key of two words."""
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in counter)
    k0, k1 = key
    low = np.uint64(0xFFFFFFFF)
    for _ in range(rounds):
        product0 = c0 * np.uint64(0xD2511F53)
        product1 = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (product1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            product1 & low,
            (product0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            product0 & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def dropout_threshold(p: float) -> int:
    """Return t of 65536: an element is dropped if its 16 random bits are below t."""
    return int(np.rint(np.float32(p) * np.float32(65536)))


def _model_mask(p: float, key: int, step: int, elements: int) -> np.ndarray[Any, Any]:
    element = np.arange(elements, dtype=np.uint64)
    c = element // np.uint64(BLOCK) * np.uint64(16) + element % np.uint64(16)
    key, step = key % 2**64, step % 2**64
    low = np.uint64(0xFFFFFFFF)
    step_low, step_high = (np.full_like(c, word) for word in (step & 0xFFFFFFFF, step >> 32))
    counter = (c & low, c >> np.uint64(32), step_low, step_high)
    words = np.stack(philox4x32(counter, (key & 0xFFFFFFFF, key >> 32)))
    lane = element % np.uint64(BLOCK) // np.uint64(16)
    word = words[(lane // np.uint64(2)).astype(np.intp), np.arange(elements)]
    bits = np.where(lane % np.uint64(2) == 0, word & np.uint64(0xFFFF), word >> np.uint64(16))
    threshold = dropout_threshold(p)
    scale = np.float32(65536) / np.float32(65536 - threshold) if threshold < 65536 else np.float32(0)
    return np.where(bits < np.uint64(threshold), np.float32(0), scale)


def dropout_mask(p: torch.Tensor, rng: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return the factors, 0 or 1 / (1 - p), that `dnnsuite.ops.dropout` multiplies by: float32 of `shape` [B, ...].

    Element e of a model's tensor (row-major, the model dimension left out) uses 16 of the 128 bits of
    Philox4x32-7 with the model's 64-bit key and the counter (c_lo, c_hi, step_lo, step_hi),
    c = (e // 128) * 16 + e % 16: the k-th 16 bits (low halves first), k = (e % 128) // 16. It is dropped when they
    are below t = round(p * 65536); the others are scaled by 1 / (1 - t / 65536).

    Args:
        p: rates, float32 [B].
        rng: (key, step) of each model, int64 [B, 2].
    """
    elements = int(np.prod(shape[1:], dtype=np.int64))
    masks = [
        _model_mask(float(rate), key, step, elements)
        for rate, (key, step) in zip(p.tolist(), rng.tolist(), strict=True)
    ]
    mask = np.stack(masks) if masks else np.zeros((0, elements), np.float32)
    return torch.from_numpy(mask.reshape(tuple(shape))).to(p.device)


ROW = 64
"""Random numbers of float32 that 16 calls of the generator make; of float64 half as many."""


def _call_words(key: int, step: int, calls: int) -> np.ndarray[Any, Any]:
    """Compute Philox4x32-10 of the first `calls` counters: words [4, calls]."""
    c = np.arange(calls, dtype=np.uint64)
    key, step = key % 2**64, step % 2**64
    step_low, step_high = (np.full_like(c, word) for word in (step & 0xFFFFFFFF, step >> 32))
    counter = (c & np.uint64(0xFFFFFFFF), c >> np.uint64(32), step_low, step_high)
    return np.stack(philox4x32(counter, (key & 0xFFFFFFFF, key >> 32), rounds=10))


def _in_elements(parts: Sequence[Any], elements: int) -> Any:
    """Order numbers that each call makes, [calls] of each kind, as elements: 16 calls' first ones, their second, ..."""
    return np.stack([part.reshape(-1, 16) for part in parts], 1).reshape(-1)[:elements]


def _narrow_numbers(words: Any, distribution: str, first: float, second: float, elements: int) -> Any:
    """Compute what float32 numbers are rounded from."""
    units = [(word >> np.uint64(8)) * 2.0**-24 for word in words]
    positive = [(word >> np.uint64(1)) * 2.0**-31 + 2.0**-32 for word in words]
    if distribution == "uniform":
        return first + (second - first) * _in_elements(units, elements)
    if distribution == "bernoulli":
        return (_in_elements(units, elements) < np.float32(first)) * 1.0
    if distribution == "exponential":
        return -np.log(_in_elements(positive, elements)) / first
    turns = [2 * np.pi * word * 2.0**-32 for word in words]
    radii = [np.sqrt(-2 * np.log(u)) for u in positive]
    pairs = [r * f(t) for r, t in ((radii[0], turns[1]), (radii[2], turns[3])) for f in (np.cos, np.sin)]
    return first + second * _in_elements(pairs, elements)


def _wide_numbers(words: Any, distribution: str, first: float, second: float, elements: int) -> Any:
    """Compute float64 numbers."""
    u, v = (((words[i] >> np.uint64(5)) * 2.0**26 + (words[i + 1] >> np.uint64(6))) * 2.0**-53 for i in (0, 2))
    if distribution == "uniform":
        return first + (second - first) * _in_elements([u, v], elements)
    if distribution == "bernoulli":
        return (_in_elements([u, v], elements) < first) * 1.0
    if distribution == "exponential":
        return -np.log1p(-_in_elements([u, v], elements)) / first
    radius = np.sqrt(-2 * np.log1p(-u))
    pairs = [radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)]
    return first + second * _in_elements(pairs, elements)


def random_numbers(
    rng: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, distribution: str, first: float, second: float = 0.0
) -> torch.Tensor:
    """Return the numbers of `dnnsuite.ops.random_numbers` for `shape` [B, ...].

    Calls Philox4x32-10(counter = (c_lo, c_hi, step_lo, step_hi), the model's 64-bit key) are taken 16 at a time, c from
    0 on. Of float32 each gives four numbers: element 64 * row + 16 * j + lane of a model's tensor (row-major) is of
    word j of call 16 * row + lane. A uniform one is its upper 24 bits; a normal one takes words 0 and 1, or 2 and 3,
    for radius and angle (Box and Muller), the logarithm being of its upper 31 bits and a half. Of float64 each call
    gives two numbers.

    Args:
        rng: (key, step) of each model, int64 [B, 2].
    """
    elements = int(np.prod(shape[1:], dtype=np.int64))
    numbers, per_call = (_wide_numbers, 2) if dtype == torch.float64 else (_narrow_numbers, 4)
    calls = -(-elements // (16 * per_call)) * 16
    made = [numbers(_call_words(key, step, calls), distribution, first, second, elements) for key, step in rng.tolist()]
    return torch.from_numpy(np.stack(made).reshape(tuple(shape))).to(dtype)
