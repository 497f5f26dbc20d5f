# SPDX-License-Identifier: MIT
"""Steps as CUDA graphs on a GPU: each kind of layer is captured, and trains as the eager step does."""

import contextlib

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from dnnsuite.nn import checkpoint as own_checkpoint
from helpers import make_models

pytestmark = pytest.mark.gpu

B = 3


def mlp():
    layers = [torch.nn.Linear(20, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Dropout(0.2)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(32, 5))


def convnet():
    return torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()),
        *(torch.nn.Conv2d(8, 8, 3, 2, 1, groups=8), torch.nn.Conv2d(8, 12, 1), torch.nn.GroupNorm(4, 12)),
        *(torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(48, 5)),
    )


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = torch.nn.Embedding(30, 12)
        self.rnn = getattr(torch.nn, kind)(12, 16, 2, batch_first=True, dropout=0.1)
        self.out = torch.nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0][:, -1])


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(30, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.out = torch.nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.layer(self.embed(x)).mean(1))


class Keeps(torch.nn.Module):
    """The autograd graph of a step lives on in `last`, and with it nodes that know the stream of their birth."""

    def __init__(self):
        super().__init__()
        self.body, self.last = mlp(), None

    def forward(self, x):
        self.last = self.body(x)
        return self.last


class Checkpointed(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.first, self.second, self.how = torch.nn.Conv2d(3, 6, 3), torch.nn.Conv2d(6, 5, 3), how

    def forward(self, x):
        return self.how(lambda x: self.second(x.relu()), self.first(x)).mean((2, 3))


def reentrant(*args):
    return torch.utils.checkpoint.checkpoint(*args, use_reentrant=True)


def vectors(rows=12):
    return torch.randn(rows, 20)


def images(rows=12):
    return torch.randn(rows, 3, 8, 8)


def tokens(rows=12):
    return torch.randint(30, (rows, 7))


def loss(array, x, y):
    return nn.functional.cross_entropy(array(x), y)


def adam(parameters):
    return optim.Adam(parameters, lr=[1e-3, 2e-3, 3e-3])


def train(make, draw, capture, optimizer=adam, loss=loss, rows=(12,) * 7, amp=None, edit=False, **how):
    """Train an array; return losses, parameters and the mode."""
    array = dnnsuite.fuse(make_models(make, B), seeds=range(B)).to("cuda")
    opt = optimizer(array.parameters())
    torch.manual_seed(5)
    losses, count = [], B
    with (
        torch.autocast("cuda", dtype=amp) if amp else contextlib.nullcontext(),
        StepRunner(array, opt, loss, capture=capture, **how) as runner,
    ):
        for step, size in enumerate(rows):
            if edit and step == len(rows) // 2:
                array.drop(1, opt)
                count -= 1
            x, y = draw(size).cuda(), torch.randint(5, (size,)).cuda()
            batch = dnnsuite.stack(x, B=count), dnnsuite.stack(y, B=count)
            losses.append(runner.step(*batch).losses().sum().float())
        mode = runner.mode
    return torch.stack(losses), [p.detach().float() for p in array.parameters()], mode


LAYERS = {
    "mlp": (mlp, vectors),
    "convolutions": (convnet, images),
    "lstm": (lambda: Recurrent("LSTM"), tokens),
    "gru": (lambda: Recurrent("GRU"), tokens),
    "attention": (Attention, tokens),
    "a kept output": (Keeps, vectors),
    "dnnsuite's checkpoint": (lambda: Checkpointed(own_checkpoint), images),
}
WAYS = {
    "clipping": {"optimizer": lambda p: optim.AdamW(p, lr=1e-3, max_grad_norm=1.0)},
    "no step on NaN": {"optimizer": lambda p: optim.SGD(p, lr=1e-2, momentum=[0.9, 0.0, 0.5], on_nan="skip")},
    "accumulation": {"accumulate": 3},
    "two layouts": {"rows": (12, 7) * 5},
    "an edit": {"rows": (12,) * 10, "edit": True},
    "autocast": {"amp": torch.bfloat16},
    "torch's generator": {"loss": lambda a, x, y: loss(a, x + 0.01 * torch.randn_like(x), y)},
}


def agree(*model, bound=1e-3, **how):
    eager, captured = train(*model, False, **how), train(*model, True, **how)
    assert captured[2] == "captured"
    torch.testing.assert_close(captured[:2], eager[:2], rtol=bound, atol=bound / 10)


@pytest.mark.parametrize("name", LAYERS)
def test_each_kind_of_layer_is_captured(name):
    agree(*LAYERS[name])


@pytest.mark.parametrize("name", WAYS)
def test_each_way_to_train_is_captured(name):
    agree(mlp, vectors, bound=2e-2 if name == "autocast" else 1e-3, **WAYS[name])


def test_a_scaler_is_captured():
    scaled = train(convnet, images, True, amp=torch.float16, scaler=optim.GradScaler("cuda", B=B))
    assert scaled[2] == "captured"
    assert scaled[0].isfinite().all()


def test_a_reentrant_checkpoint_trains():
    """It runs its forward in the backward pass, where no way may be measured: the measurement would wait for ever."""
    eager = train(lambda: Checkpointed(reentrant), images, False)
    captured = train(lambda: Checkpointed(reentrant), images, True)
    torch.testing.assert_close(captured[:2], eager[:2], rtol=1e-3, atol=1e-4)


def test_a_refused_capture_leaves_the_process_as_it_was():
    """CUDA refuses to wait for a stream that is captured, and no operator tells of it before."""

    def waits(array, x, y):
        if torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()
        return loss(array, x, y)

    stream, draws = torch.cuda.current_stream(), torch.cuda.get_rng_state()
    assert train(mlp, vectors, True, loss=waits)[2].startswith("eager: CUDA refuses the capture: ")
    assert torch.cuda.current_stream() == stream
    torch.cuda.set_rng_state(draws)
    assert torch.rand(3, device="cuda").isfinite().all()
    assert torch.empty(2**20, device="cuda").fill_(1).sum().item() == 2**20
    assert train(mlp, vectors, True)[2] == "captured"


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.calls = torch.nn.Linear(20, 5), 0

    def forward(self, x):
        self.calls += 1
        return self.body(x)


def test_a_capture_leaves_no_count_of_its_own():
    """It runs the step's code once more than there are steps."""
    array = dnnsuite.fuse(make_models(Counts, B)).to("cuda")
    opt = adam(array.parameters())
    with StepRunner(array, opt, loss) as runner:
        for _ in range(6):
            x, y = vectors().cuda(), torch.randint(5, (12,)).cuda()
            runner.step(dnnsuite.stack(x, B=B), dnnsuite.stack(y, B=B))
        runner.synchronize()
    assert [model.calls for model in dnnsuite.unfuse(array)] == [6] * B


@pytest.mark.parametrize("make", [mlp, convnet])
def test_audits_of_graphs_pass(make):
    array = dnnsuite.fuse(make_models(make, B), seeds=range(B)).to("cuda")
    draw = LAYERS["mlp" if make is mlp else "convolutions"][1]
    with StepRunner(array, adam(array.parameters()), loss, audit=7) as runner:
        for _ in range(40):
            x, y = draw().cuda(), torch.randint(5, (12,)).cuda()
            runner.step(dnnsuite.stack(x, B=B), dnnsuite.stack(y, B=B))
        assert runner.mode == "captured"
        assert runner.audits_passed >= 4


def test_synchronize_waits_for_the_device():
    array = dnnsuite.fuse(make_models(mlp, B)).to("cuda")
    with StepRunner(array, adam(array.parameters()), loss) as runner:
        runner.step(torch.randn(B, 4096, 20, device="cuda"), torch.randint(5, (B, 4096), device="cuda"))
        wide = torch.ones(4096, 4096, device="cuda")
        for _ in range(100):
            torch.mm(wide, wide)
        runner.synchronize()
        assert torch.cuda.current_stream().query()
