# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from dnnsuite.errors import InvalidArgument
from dnnsuite.nn._rnn import Packing


def packed(x, lengths):
    """x [B, T, N, I] as one PackedSequence of the array."""
    each = [pack_padded_sequence(own, lengths, enforce_sorted=False) for own in x]
    return PackedSequence(torch.stack([p.data for p in each]), *each[0][1:]), each


def test_pad_is_what_torch_packed_and_pack_is_its_inverse():
    lengths = torch.tensor([3, 1, 4])
    sequence, each = packed(torch.randn(2, 4, 3, 5), lengths)
    packing = Packing(sequence, 2)
    padded = packing.pad()
    assert packing.lengths.tolist() == [[4, 3, 1]] * 2
    for index, own in enumerate(each):
        in_order = PackedSequence(own.data, own.batch_sizes)
        assert torch.equal(padded[index], pad_packed_sequence(in_order)[0])
    back = packing.pack(padded)
    assert torch.equal(back.data, sequence.data)
    assert torch.equal(back.unsorted_indices, sequence.unsorted_indices)


def test_states_are_sorted_and_sorted_back():
    sequence, _ = packed(torch.randn(2, 4, 3, 5), torch.tensor([3, 1, 4]))
    packing, state = Packing(sequence, 2), (torch.randn(2, 1, 3, 6),)
    (ordered,) = packing.sort(state)
    assert torch.equal(ordered[:, :, 0], state[0][:, :, 2])
    assert torch.equal(packing.unsort((ordered,))[0], state[0])


def test_refuses_one_models_data():
    one = pack_padded_sequence(torch.randn(4, 3, 5), torch.tensor([4, 3, 1]))
    with pytest.raises(InvalidArgument, match="same lengths"):
        Packing(one, 2)
