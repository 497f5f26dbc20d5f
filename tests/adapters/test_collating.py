# SPDX-License-Identifier: MIT
"""Batches of models of their own sizes, whole and in parts."""

import pytest
import torch

from dnnsuite import adapters
from dnnsuite.errors import InvalidArgument
from tiny_adapters import llama, lora, prepared, sequences, trained

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def test_parts_of_a_batch_add_up_to_it():
    array, _ = prepared(llama(), [lora(2, ["q_proj"]), lora(3, ["q_proj"])])
    batch = adapters.collate(sequences([[5, 4, 3, 6, 7, 2, 3, 4], [6, 3]]))
    adapters.losses.next_token(array, batch).sum().backward()
    whole = [p.grad.clone() for p in trained(array)]
    array.zero_grad()
    losses = []
    for part in adapters.micro_batches(batch, 3):
        losses.append(adapters.losses.next_token(array, part))
        losses[-1].sum().backward()
    assert len(losses) == 3
    assert not losses[2][1]  # which has no sequences any more
    torch.testing.assert_close([p.grad for p in trained(array)], whole)
    torch.testing.assert_close(sum(losses), adapters.losses.next_token(array, batch))


def test_what_the_mask_leaves_out_is_no_target():
    """Prompts padded on the left, and labels that are the padded tokens, as a tokenizer makes them."""
    array, _ = prepared(llama(), [lora(2, ["q_proj"]), lora(3, ["q_proj"])])
    own = sequences([[5, 4, 3], [6, 3]])
    wanted = adapters.losses.next_token(array, adapters.collate(own))
    ids, mask = torch.zeros(2, 3, 8, dtype=torch.int64), torch.zeros(2, 3, 8, dtype=torch.int64)
    for model, row in enumerate(own):
        for place, sequence in enumerate(row):
            ids[model, place, -len(sequence["input_ids"]) :] = sequence["input_ids"]
            mask[model, place, -len(sequence["input_ids"]) :] = 1
    batch = {"input_ids": ids, "attention_mask": mask}
    for more in ({}, {"labels": ids}):
        torch.testing.assert_close(adapters.losses.next_token(array, {**batch, **more}), wanted)
        parts = adapters.micro_batches({**batch, **more}, 2)
        torch.testing.assert_close(sum(adapters.losses.next_token(array, part) for part in parts), wanted)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([[], []], "no sequence for any model"),
        ([[{"input_ids": []}], []], "sequence 0 of model 0 has input_ids of shape"),
        ([[{"input_ids": [1, 2], "labels": [1]}]], "labels of shape"),
        ([[{"text": [1]}]], r"no input_ids, but \['text'\]"),
        ([[{"input_ids": [1], "a": [1]}], [{"input_ids": [1]}]], "sequence 0 of model 1 has"),
        ([[{"input_ids": [1, 2], "weights": [0.5, 1]}]], "weights of torch.float32"),
    ],
)
def test_sequences_that_make_no_batch_are_named(own, said):
    with pytest.raises(InvalidArgument, match=said):
        adapters.collate(own)
