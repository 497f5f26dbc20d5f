# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite._step.capture.plan import operator_of

aten = torch.ops.aten


def test_arguments_are_in_the_schemas_order_with_defaults():
    found = operator_of(aten.add.Tensor).arguments((1, 2), {})
    assert found == [1, 2, 1]
    assert operator_of(aten.add.Tensor).arguments((1,), {"alpha": 3, "other": 2}) == [1, 2, 3]
    assert operator_of(lambda x: x) is None


@pytest.mark.parametrize(
    ("op", "written"),
    [
        (aten.add.Tensor, ()),
        (aten.add_.Tensor, (0,)),
        (aten.native_batch_norm.default, (3, 4)),  # of which its schema says nothing
        (aten.add.out, (3,)),
        (aten.record_stream.default, ()),  # it tells the allocator who reads, and its schema says that it writes
    ],
)
def test_what_an_operator_writes(op, written):
    assert operator_of(op).written == written


def test_kinds_of_operators():
    assert operator_of(aten.zeros.default).by_shape
    assert operator_of(aten._local_scalar_dense.default).scalar
    assert operator_of(aten.nonzero.default).sized_by_values
    assert operator_of(aten.bernoulli_.float).draws
    assert operator_of(aten.unsqueeze_.default).view is aten.unsqueeze.default
    assert operator_of(aten.resize_.default).view is None
    assert operator_of(aten.unbind.int).returns_list
    assert operator_of(aten._assert_async.msg).only_acts
