# SPDX-License-Identifier: MIT
"""Operations and bytes of a step's operators, as torch dispatches them."""

import torch
from step_work import operations

import dnnsuite.ops  # noqa: F401  (its operators)


def seen(call):
    return [(op.name, *op.work) for op in operations(call)]


def test_a_product_has_its_flops_and_each_tensor_once():
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert seen(lambda: a @ b) == [("aten::mm", 2 * 3 * 5 * 7, 4 * (15 + 35 + 21))]


def test_a_view_moves_nothing_and_an_expanded_tensor_what_it_stores():
    a = torch.randn(4, 1)
    assert seen(lambda: a.view(2, 2).t()) == []
    assert seen(lambda: a.expand(4, 8) + 1.0) == [("aten::add", 0, 4 * (4 + 32))]


def test_what_is_changed_in_place_is_read_and_written_and_what_is_only_filled_is_not_read():
    a, b = torch.zeros(6), torch.ones(6)
    assert seen(lambda: a.add_(b)) == [("aten::add_", 0, 4 * (6 + 6 + 6))]
    assert seen(lambda: a.zero_()) == [("aten::zero_", 0, 4 * 6)]
    assert seen(lambda: a.copy_(b)) == [("aten::copy_", 0, 4 * (6 + 6))]
    assert seen(lambda: torch.empty(6)) == [("aten::empty", 0, 0)]


def test_an_embedding_reads_rows_not_the_table():
    table, index = torch.randn(100, 3), torch.tensor([5, 7])
    read = seen(lambda: torch.nn.functional.embedding(index, table))
    assert read == [("aten::embedding", 0, 4 * (6 + 6) + 8 * 2)]


def test_the_backward_pass_and_the_optimizer_are_seen():
    weight = torch.randn(4, 5, requires_grad=True)
    adam = torch.optim.Adam([weight], fused=True)
    (torch.randn(3, 5) @ weight.t()).sum().backward()
    adam.step()  # makes the states
    x = torch.randn(3, 5)

    def step():
        (x @ weight.t()).sum().backward()
        adam.step()

    found = operations(step)
    assert sum(op.work.flops for op in found) == 2 * 2 * 3 * 5 * 4  # forward, and the gradient of the weight
    (update,) = [op for op in found if op.name == "aten::_fused_adam_"]
    assert 4 * 20 * 7 <= update.work.bytes <= 4 * 20 * 8 + 100  # and a few numbers: steps, a gradient in place


def test_dtypes_are_those_of_the_first_tensor():
    a = torch.ones(2, 2, dtype=torch.bfloat16)
    (product,) = operations(lambda: a @ a)
    assert product.dtype == torch.bfloat16
    assert product.work.bytes == 2 * 12


def test_a_time_step_moves_its_share_of_all_steps():
    gates, y, state = torch.zeros(2, 5, 3, 16), torch.zeros(2, 5, 3, 4), torch.zeros(2, 3, 4)
    step = torch.ops.dnnsuite.recurrence_step_
    found = seen(lambda: step(gates, None, None, None, state, state.clone(), y, None, None, 0, "lstm"))
    in_place = 24 + 24 + 24  # read, and written
    assert found[-1][2] == 4 * (gates.numel() // 5 + 2 * in_place)
