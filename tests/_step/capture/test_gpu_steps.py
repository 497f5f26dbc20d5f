# SPDX-License-Identifier: MIT
"""Steps as CUDA graphs on a GPU: each kind of layer is captured, and trains as the eager step does."""

import contextlib

import pytest
import torch

import dnnsuite
from captured_layers import LAYERS, Checkpointed, convnet, images, mlp, reentrant, vectors
from dnnsuite import StepRunner, nn, optim
from helpers import make_models

pytestmark = pytest.mark.gpu

B = 3


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


def test_comparing_a_graph_with_its_step_holds_at_most_seven_times_the_parameters():
    def wide():
        return torch.nn.Sequential(torch.nn.Linear(20, 4096), torch.nn.Linear(4096, 4096), torch.nn.Linear(4096, 5))

    parameters = 4 * B * sum(p.numel() for p in wide().parameters())
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert train(wide, vectors, True)[2] == "captured"
    assert torch.cuda.max_memory_allocated() - before <= 7 * parameters


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
