# SPDX-License-Identifier: MIT
"""Text as tokens, and the part of it that is held out."""

import pytest
import torch

from dnnsuite.data import words
from dnnsuite.errors import InvalidArgument


@pytest.mark.parametrize("text", [words.pages, words.modules])
def test_what_was_held_out_is_not_trained_on(text) -> None:
    whole, record = text()
    assert record["licence"] == "PSF-2.0"
    held, after = words.held_out((whole, record), 128).batch(0)
    assert torch.equal(held[:, 1:], after[:, :-1])
    batches = words.windows((whole, record), 128, 64, seed=0)
    trained = bytes(whole[: len(whole) * 9 // 10].tolist())
    assert all(bytes(row.tolist()) in trained for i in range(8) for row in batches.batch(i)[0])
    assert not any(bytes(row.tolist()) in trained for row in held)


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="length 64: the text has 90 tokens to train on, too few"):
        words.windows((torch.zeros(100), {}), 64, 8, seed=0)


def test_shards_of_tokens_are_read_and_damaged_ones_refused(tmp_path) -> None:
    shard = tmp_path / "part.bin"
    made = torch.arange(5000) % 300
    shard.write_bytes(bytes(4 * 256) + made.to(torch.int32).numpy().astype("uint16").tobytes())
    assert torch.equal(words.load_tokens("auto", tmp_path, 300)[0], made.int())
    with pytest.raises(InvalidArgument, match="has the token 299: set vocab to 300 or more"):
        words.load_tokens("auto", tmp_path, 256)
    shard.write_bytes(b"12345")
    with pytest.raises(InvalidArgument, match=r"part.bin is not a shard of tokens"):
        words.load_tokens("auto", tmp_path, 300)
