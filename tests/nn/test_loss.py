# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument
from helpers import assert_near


def separate(logits, target, **arguments):
    logits = logits.detach().clone().requires_grad_()
    losses = [torch.nn.CrossEntropyLoss(**arguments)(x, y) for x, y in zip(logits, target, strict=True)]
    torch.stack([loss.sum() for loss in losses]).nansum().backward()
    return torch.stack(losses), logits.grad


ARGUMENTS = [
    {},
    {"label_smoothing": 0.1},
    {"ignore_index": 2},
    {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0])},
    {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0]), "ignore_index": 2, "label_smoothing": 0.2},
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_matches_models(arguments, reduction, device):
    logits = torch.randn(3, 8, 5, device=device, requires_grad=True)
    target = torch.randint(5, (3, 8), device=device)
    target[:, 0] = 2
    arguments = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    loss = nn.CrossEntropyLoss(**arguments, reduction=reduction, B=3).to(device)(logits, target)
    loss.sum().backward()
    expected, gradient = separate(logits, target, **arguments, reduction=reduction)
    assert_near(loss, expected, "loss")
    assert_near(logits.grad, gradient, "gradient")


def test_models_may_count_different_numbers_of_samples():
    """HFTA's B · mean(all) is wrong here."""
    logits = torch.randn(2, 4, 5)
    target = torch.randint(5, (2, 4))
    target[0, 1:] = -100
    expected, _ = separate(logits, target)
    assert_near(nn.CrossEntropyLoss(B=2)(logits, target), expected)


def test_a_model_with_nothing_to_count_is_nan_and_stays_alone():
    logits = torch.randn(2, 4, 5, requires_grad=True)
    target = torch.randint(5, (2, 4))
    target[0] = -100
    loss = nn.CrossEntropyLoss(B=2)(logits, target)
    assert loss[0].isnan()
    assert loss[1].isfinite()
    loss[1].backward()
    assert logits.grad[1].any()


def test_more_dimensions_follow_the_class():
    logits, target = torch.randn(2, 3, 5, 4, 6), torch.randint(5, (2, 3, 4, 6))
    for reduction in ("mean", "none"):
        expected, _ = separate(logits, target, reduction=reduction)
        assert_near(nn.functional.cross_entropy(logits, target, reduction=reduction), expected)


@pytest.mark.parametrize(
    ("arguments", "message"), [({"reduction": "max"}, "reduction"), ({"label_smoothing": 2.0}, "label_smoothing")]
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        nn.CrossEntropyLoss(**arguments, B=2)


def test_refuses_targets_of_another_shape():
    with pytest.raises(InvalidArgument, match=r"\[2, 4\].*\[2, 5\]"):
        nn.CrossEntropyLoss(B=2)(torch.randn(2, 4, 5), torch.zeros(2, 5, dtype=torch.long))


MODULES = sorted(
    name for name in dir(nn) if name.endswith(("Loss", "Loss2d")) and issubclass(getattr(nn, name), nn.ArrayModule)
)


@pytest.mark.filterwarnings("ignore:`NLLLoss2d` has been deprecated")
@pytest.mark.parametrize("name", MODULES)
def test_has_torchs_arguments_and_defaults(name):
    """B=0 is torch's own; an array reads its arguments back from one."""
    cls = getattr(nn, name)
    arguments = (3, 4) if name == "LinearCrossEntropyLoss" else ()
    plain = cls(*arguments)
    assert type(plain) is cls.torch_class
    array = cls.from_models([plain, cls(*arguments) if arguments else plain])
    assert type(array.to_model(1)) is cls.torch_class
    assert array.B == 2
    assert "B=2" in repr(array)


def test_class_weights_of_each_model():
    logits, target = torch.randn(3, 8, 5), torch.randint(5, (3, 8))
    weight = torch.rand(3, 5)
    for loss in (
        nn.CrossEntropyLoss(weight, B=3),
        nn.CrossEntropyLoss(list(weight), B=3),
        nn.CrossEntropyLoss.from_models([torch.nn.CrossEntropyLoss(w) for w in weight]),
    ):
        assert loss.state_dict()["weight"].shape == (3, 5)
        for index in range(3):
            expected = torch.nn.CrossEntropyLoss(weight[index])(logits[index], target[index])
            assert_near(loss(logits, target)[index], expected)
            back = loss.to_model(index)
            assert torch.equal(back.weight, weight[index])


def test_some_models_without_weights():
    weight = torch.rand(5)
    loss = nn.NLLLoss.from_models([torch.nn.NLLLoss(), torch.nn.NLLLoss(weight)])
    log_p, target = torch.randn(2, 8, 5).log_softmax(-1), torch.randint(5, (2, 8))
    assert_near(loss(log_p, target)[0], torch.nn.NLLLoss()(log_p[0], target[0]))
    assert_near(loss(log_p, target)[1], torch.nn.NLLLoss(weight)(log_p[1], target[1]))


@pytest.mark.parametrize(
    ("name", "argument"), [("CrossEntropyLoss", "label_smoothing"), ("SmoothL1Loss", "beta"), ("HuberLoss", "delta")]
)
def test_a_number_for_each_model(name, argument):
    values = [0.1, 0.5, 0.9]
    x = torch.randn(3, 8, 5)
    target = torch.randint(5, (3, 8)) if name == "CrossEntropyLoss" else torch.randn(3, 8, 5)
    models = [getattr(torch.nn, name)(**{argument: value}) for value in values]
    array = getattr(nn, name).from_models(models)
    assert getattr(array, argument) == values
    got = array(x, target)
    for index, model in enumerate(models):
        assert_near(got[index], model(x[index], target[index]))
        alone = getattr(nn, name)(**{argument: values[index]}, B=1)
        assert torch.equal(alone(x[index : index + 1], target[index : index + 1])[0], got[index])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("arguments", [{}, {"label_smoothing": 0.2}, {"weight": torch.rand(5)}])
def test_class_probabilities(arguments, reduction):
    logits, target = torch.randn(3, 4, 5, 2), torch.randn(3, 4, 5, 2).softmax(2)
    loss = nn.CrossEntropyLoss(**arguments, reduction=reduction, B=3)(logits, target)
    plain = torch.nn.CrossEntropyLoss(**arguments, reduction=reduction)
    for index in range(3):
        assert_near(loss[index], plain(logits[index], target[index]))


def test_a_shared_target():
    from dnnsuite import stack

    logits, target = torch.randn(3, 8, 5), torch.randint(5, (8,))
    expected = nn.CrossEntropyLoss(B=3)(logits, torch.stack([target] * 3))
    assert torch.equal(nn.CrossEntropyLoss(B=3)(logits, stack(target, B=3)), expected)
    number = torch.randn(8, 5)
    assert torch.equal(nn.MSELoss(B=3)(logits, stack(number, B=3)), nn.MSELoss(B=3)(logits, torch.stack([number] * 3)))


def test_refuses_an_input_without_the_models():
    with pytest.raises(InvalidArgument, match=r"MSELoss holds B=3.*\[5, 6\].*stack"):
        nn.MSELoss(B=3)(torch.randn(5, 6), torch.randn(5, 6))


def test_old_arguments_mean_what_they_did():
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.MSELoss(size_average=False, B=2).reduction == "sum"


def test_ctc():
    log_p = torch.randn(2, 6, 3, 5).log_softmax(-1)
    targets = torch.randint(1, 5, (2, 3, 4))
    input_lengths, target_lengths = torch.full((2, 3), 6), torch.tensor([[2, 3, 4], [1, 4, 2]])
    got = nn.CTCLoss(B=2)(log_p, targets, input_lengths, target_lengths)
    for index in range(2):
        expected = torch.nn.CTCLoss()(log_p[index], targets[index], input_lengths[index], target_lengths[index])
        assert_near(got[index], expected)


def test_ctc_takes_lengths_that_are_lists():
    log_p, targets = torch.randn(2, 9, 3, 5).log_softmax(3), torch.randint(1, 5, (2, 3, 4))
    loss, lengths = nn.CTCLoss(B=2), torch.tensor([[9, 8, 7], [9, 8, 7]])
    expected = loss(log_p, targets, lengths, torch.full((2, 3), 4))
    assert torch.equal(loss(log_p, targets, [9, 8, 7], (4, 4, 4)), expected)
    assert torch.equal(loss(log_p, targets, [[9, 8, 7], [9, 8, 7]], torch.full((2, 3), 4)), expected)


def test_triplets_with_a_distance_of_ones_own():
    x = torch.randn(3, 2, 4, 5)
    distance = torch.nn.PairwiseDistance(p=1)
    got = nn.TripletMarginWithDistanceLoss(distance_function=distance, margin=[1.0, 2.0], B=2)(*x)
    for index, margin in enumerate((1.0, 2.0)):
        plain = torch.nn.TripletMarginWithDistanceLoss(distance_function=distance, margin=margin)
        assert_near(got[index], plain(*x[:, index]))


def test_values_and_weights_of_a_loss_may_be_set_at_any_time():
    x, y = torch.randn(2, 5, 4), torch.randint(0, 4, (2, 5))
    loss = nn.CrossEntropyLoss(B=2)
    for value, each in ((0.1, [0.1, 0.1]), ([0.0, 0.3], [0.0, 0.3]), (torch.tensor([0.25, 0.5]), [0.25, 0.5])):
        loss.label_smoothing = value
        loss.weight = torch.arange(1.0, 5.0)
        for index, smoothing in enumerate(each):
            own = torch.nn.CrossEntropyLoss(torch.arange(1.0, 5.0), label_smoothing=smoothing)
            torch.testing.assert_close(loss(x, y)[index], own(x[index], y[index]))
    with pytest.raises(InvalidArgument, match="label_smoothing has 3 values for 2 models"):
        loss.label_smoothing = [0.1, 0.2, 0.3]
