# SPDX-License-Identifier: MIT
"""Attributes in which models differ and which their code does not read: models run at once, and each keeps its own."""

import copy
import dataclasses
import io
import types

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from helpers import assert_near, check_matches_models, make_models


@dataclasses.dataclass
class Config:
    width: int = 4
    dropout: float = 0.0
    gain: float = 2.0


class Configured(torch.nn.Module):
    """A model that keeps its configuration, a rate for its optimizer, and the settings of its run."""

    def __init__(self, number, read=()):
        super().__init__()
        self.config = Config(dropout=0.1 * number)
        self.rate = 0.01 * number
        self.settings = {"rate": self.rate, "tags": ["a", number]}
        self.read = read  # by names that no code has
        self.first = Part(self.config)
        self.last = torch.nn.Linear(4, 3)

    def forward(self, x):
        x = self.last(self.first(x)) * self.config.gain
        for name in self.read if x.size(0) > 2 else ():
            x = x * getattr(self.config, "".join(name))
        return x


class Part(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.inner = torch.nn.Linear(config.width, config.width)

    def forward(self, x):
        return torch.tanh(self.inner(x)) if isinstance(self.config, Config) else x


def numbered(count=3, **kwargs):
    numbers = iter(range(1, count + 1))
    return make_models(lambda: Configured(next(numbers), **kwargs), count)


def one_by_one(array):
    return {cover.name: cover.reason for cover in array.coverage() if cover.how == "per model"}


def assert_own(models, numbers, apart=False):
    """Each model has the attributes of its number, and one configuration in both places unless they ran apart."""
    for model, number in zip(models, numbers, strict=True):
        assert model.config == Config(dropout=0.1 * number)
        assert type(model.config) is Config
        assert model.first.config == model.config
        assert apart or model.first.config is model.config
        assert (model.rate, model.settings["tags"]) == (0.01 * number, ["a", number])


def test_what_is_not_read_does_not_keep_models_apart():
    models = numbered()
    array = check_matches_models(models, torch.randn(3, 5, 4))
    assert not one_by_one(array)
    assert_own(array, (1, 2, 3))
    assert_own(dnnsuite.unfuse(array), (1, 2, 3))
    assert_own(copy.deepcopy(array), (1, 2, 3))
    assert array.config.gain == 2.0
    with pytest.raises(AttributeError, match="rate of Configured differs from model to model"):
        array.rate  # noqa: B018
    assert "differs" in repr(array.settings["rate"])
    with pytest.raises(AttributeError, match="dropout of a Config differs from model to model"):
        array.config.dropout  # noqa: B018


def test_edits_and_slices_carry_it_along():
    array = dnnsuite.fuse(numbered(4))
    array.drop(1)
    array.append(Configured(7))
    array.replace([0, 1], [Configured(8), Configured(9)])
    array.clone(2, into=0)
    assert_own(array, (4, 9, 4, 7))
    assert_own(array.narrow(1, 2), (9, 4))
    array(torch.randn(4, 5, 4))
    assert not one_by_one(array)
    array.drop([1, 2, 3])
    assert_own(array, (4,))
    alike = dnnsuite.fuse(make_models(lambda: Configured(1), 2))
    alike.append(Configured(2))
    alike(torch.randn(3, 5, 4))
    assert_own(alike, (1, 1, 2))
    assert not one_by_one(alike)


def test_it_survives_a_file():
    array = dnnsuite.fuse(numbered())
    file = io.BytesIO()
    torch.save(array, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert_own(again, (1, 2, 3))
    x = torch.randn(3, 5, 4)
    assert_near(again(x), array(x))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_what_is_read_after_all_is_each_models_own(width):
    models = numbered(read=[("drop", "out")])
    array = dnnsuite.fuse(models)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    losses = torch.zeros(3)
    few, many = torch.randn(3, 2, 4), torch.randn(3, 5, 4)
    with dnnsuite.StepRunner(
        array, optimizer, lambda part, x: part(x).square().mean((1, 2)), threads=1, width=width
    ) as runner:
        for x in (few, many, few, many):  # the second is the first to read it
            losses = runner.step(x).losses()
            for index, model in enumerate(models):
                assert_near(losses[index], model(x[index]).square().mean())
    assert "dropout of a Config differs" in one_by_one(array)[""]
    assert_own(array, (1, 2, 3), apart=True)
    array.drop(0)
    array.append(Configured(5, read=models[0].read))
    for index, model in enumerate(array):
        assert_near(array(many)[index], model(many[index]))
    assert_own(array, (2, 3, 5), apart=True)


def test_what_is_set_in_the_array_is_set_in_all():
    array = dnnsuite.fuse(numbered())
    array.rate = 5.0
    array.config.gain = 3.0
    x = torch.randn(3, 5, 4)
    for index, model in enumerate(array):
        assert (model.rate, model.config.gain, model.config.dropout) == (5.0, 3.0, 0.1 * (index + 1))
        assert_near(array(x)[index], model(x[index]))
    array.config = Config(gain=1.0)
    assert [model.config.dropout for model in array] == [0.0] * 3
    assert_near(array(x)[1], array[1](x[1]))


class Sets(Configured):
    """Its code sets what differs."""

    def forward(self, x):
        self.rate = self.rate + 1
        return super().forward(x)


class Holds(Configured):
    """Its class has an attribute of the name of what differs."""

    rate = 3.0

    def forward(self, x):
        return super().forward(x) * getattr(self, "rat" + "e")


class Looks(Configured):
    """Its code looks past attributes."""

    def forward(self, x):
        return super().forward(x) * self.__dict__.get("rat" + "e", 3.0) * vars(self.config)["drop" + "out"]


@pytest.mark.parametrize("kind", [Sets, Holds, Looks])
def test_code_that_gets_at_it_in_other_ways(kind):
    numbers = iter((1, 2, 3))
    models = make_models(lambda: kind(next(numbers)), 3)
    array = dnnsuite.fuse(copy.deepcopy(models))
    x = torch.randn(3, 5, 4)
    for _ in range(2):
        output = array(x)
        for index, model in enumerate(models):
            assert_near(output[index], model(x[index]))
    assert [model.rate for model in array] == [model.rate for model in models]


def hugging_face(kind, dropout):
    pytest.importorskip("transformers")
    dnnsuite.data.import_torchvision()
    import transformers as hf

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11}
    if kind == "gpt2":
        return hf.GPT2LMHeadModel(
            hf.GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=2, n_positions=8, resid_pdrop=dropout,
                          embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=1, eos_token_id=2))  # fmt: skip
    if kind == "llama":
        return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes, intermediate_size=12, initializer_range=dropout))
    return hf.BertForSequenceClassification(
        hf.BertConfig(**sizes, intermediate_size=12, hidden_dropout_prob=dropout,
                      attention_probs_dropout_prob=dropout / 2))  # fmt: skip


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_configurations_of_hugging_face(kind):
    rates = [0.1, 0.2, 0.4]
    models = [hugging_face(kind, rate).eval() for rate in rates]
    tokens = torch.randint(1, 11, (3, 2, 6))
    array = dnnsuite.fuse(models)
    logits = array(input_ids=tokens).logits
    logits.square().sum().backward()
    for index, model in enumerate(models):
        mine = model(input_ids=tokens[index]).logits
        mine.square().sum().backward()
        assert_near(logits[index], mine)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert_near(array.get_parameter(name).grad[index], parameter.grad, name)
    array.train()
    array(input_ids=tokens).logits.sum().backward()
    assert not one_by_one(array)
    for model, own in zip(models, array, strict=True):
        assert own.config.to_dict() == model.config.to_dict()
    array.replace(0, hugging_face(kind, 0.3).eval())
    assert array[0].config.to_dict() == hugging_face(kind, 0.3).config.to_dict()


class Numbers(torch.nn.Module):
    """A model whose code reads numbers of its own: of a class's attribute, by a name, in a helper."""

    def __init__(self, number, use):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.rate, self.scale, self.use = 0.1 * (number - 1), 0.5 * number, use

    def forward(self, x):
        return self.use(self, torch.tanh(self.inner(x)))


AT_ONCE = {
    "factor": lambda self, x: x * self.scale,
    "factor before": lambda self, x: self.scale * x,
    "terms": lambda self, x: (1 - self.scale) * x + self.scale * x.square() - self.scale,
    "temperature": lambda self, x: F.softmax(x / self.scale, -1),
    "of one number": lambda self, x: x.sum() * -self.scale + 2 / self.scale,
    "alike after all": lambda self, x: x * self.scale if self.scale > 0 else x,
    "not dropped": lambda self, x: F.dropout(x, self.rate, self.training and x.numel() < 0),
    "in place": lambda self, x: scaled_in_place(x, self.scale),
    "slope": lambda self, x: F.leaky_relu(x, self.scale),
    "half": lambda self, x: (x.bfloat16() * self.scale).float(),
}
APART = {
    "branch": lambda self, x: x * self.scale if self.scale > 0.7 else x,
    "power": lambda self, x: x ** self.scale.__int__(),
    "number": lambda self, x: x * float(self.scale),
    "kind": lambda self, x: x * self.scale if isinstance(self.scale, float) else x,
}


def scaled_in_place(x, by):
    kept = x = x + 0
    x *= by
    return kept + x


@pytest.mark.parametrize("use", [*AT_ONCE, *APART])
def test_numbers_that_code_reads(use):
    numbers = iter((1, 2, 3))
    models = make_models(lambda: Numbers(next(numbers), {**AT_ONCE, **APART}[use]), 3)
    array = check_matches_models(models, torch.randn(3, 5, 4))
    assert bool(one_by_one(array)) == (use in APART)
    x = torch.randn(3, 5, 4)
    array.replace(1, Numbers(5, models[0].use))
    array.drop(0)
    for index, model in enumerate(array):
        assert model.scale == (2.5, 1.5)[index]
        assert_near(array(x[:2])[index], model(x[index]))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_numbers_in_recorded_steps(width):
    numbers = iter((1, 2, 3))
    models = make_models(lambda: Numbers(next(numbers), AT_ONCE["terms"]), 3)
    array = dnnsuite.fuse(models)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    x = torch.randn(3, 5, 4)

    def check(models):
        for _ in range(6):
            losses = runner.step(x).losses()
        for index, model in enumerate(models):
            assert_near(losses[index], model(x[index]).square().mean())

    with dnnsuite.StepRunner(
        array, optimizer, lambda part, x: part(x).square().mean((1, 2)), threads=1, width=width
    ) as runner:
        check(models)
        models[1] = Numbers(7, models[0].use)
        array.replace(1, models[1], optimizer)
        check(models)
        array.scale = 0.3
        for model in models:
            model.scale = 0.3
        check(models)


def test_rates_of_functional_dropout_are_each_models_own():
    numbers = iter((1, 4, 11))
    dropped = make_models(lambda: Numbers(next(numbers), lambda self, x: F.dropout(x, self.rate, self.training)), 3)
    array = dnnsuite.fuse(dropped, seeds=[1, 2, 3])
    kept = array(torch.randn(3, 200, 4)).ne(0).float().mean((1, 2))
    assert not one_by_one(array)
    assert (kept[0], kept[2]) == (1.0, 0.0)
    assert 0.6 < kept[1] < 0.8
    alone = dnnsuite.fuse([dropped[1]], seeds=[2])
    x = torch.randn(5, 4)
    assert torch.equal(dnnsuite.fuse(dropped, seeds=[1, 2, 3])(dnnsuite.stack(x, B=3))[1], alone(x[None])[0])


class Keeps(torch.nn.Module):
    """A model that keeps its settings in a dictionary or a namespace, of which its code reads a part."""

    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        held = self.settings if isinstance(self.settings, dict) else vars_of(self.settings)
        return self.inner(x) * held["gain"] + len(held)


def vars_of(held):
    return {"gain": held.gain, "shape": held.shape}


@pytest.mark.parametrize("kind", [dict, lambda **held: types.SimpleNamespace(**held)])
def test_settings_of_which_code_reads_what_is_alike(kind):
    rates = iter((0.1, 0.2, 0.3))
    models = make_models(lambda: Keeps(kind(gain=2.0, lr=next(rates), shape={"of": [4, 4]})), 3)
    array = check_matches_models(models, torch.randn(3, 5, 4))
    assert not one_by_one(array)
    assert [model.settings for model in array] == [model.settings for model in models]
    assert [type(model.settings) for model in array] == [type(model.settings) for model in models]
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    x = torch.randn(3, 5, 4)
    with dnnsuite.StepRunner(array, optimizer, lambda part, x: part(x).square().mean((1, 2)), threads=1) as runner:
        for gain in (2.0, 5.0):
            for held in (array.settings, *(model.settings for model in models)):
                if kind is dict:
                    held["gain"] = gain
                else:
                    held.gain = gain
            for _ in range(12):
                losses = runner.step(x).losses()
            for index, model in enumerate(models):
                assert_near(losses[index], model(x[index]).square().mean())
    assert runner.mode == "captured"


@pytest.mark.parametrize(
    "use",
    [
        lambda held: held["l" + "r"],
        lambda held: held.get("l" + "r"),
        lambda held: sum(value for value in held.values()),
        lambda held: dict(held.items())["l" + "r"],
        lambda held: {**held}["l" + "r"] + 0,
        lambda held: 1.0 if held == {"lr": 0.2, "gain": 2.0} else 3.0,
        lambda held: (held | {"x": 1})["l" + "r"],
        lambda held: float("{lr}".format_map(held)),
    ],
)
def test_a_dictionary_that_code_reads_in_any_way(use):
    rates = iter((0.1, 0.2, 0.3))
    models = make_models(lambda: Reads({"lr": next(rates), "gain": 2.0}, use), 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4)
    for index, model in enumerate(models):
        assert_near(array(x)[index], model(x[index]))
    assert one_by_one(array)


class Reads(Keeps):
    def __init__(self, settings, use):
        super().__init__(settings)
        self.use = use

    def forward(self, x):
        return self.inner(x) * self.use(self.settings)
