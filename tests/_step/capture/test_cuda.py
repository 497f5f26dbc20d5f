# SPDX-License-Identifier: MIT
import contextlib

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dnnsuite
from captured_layers import LAYERS
from dnnsuite import StepRunner, data, nn, optim
from dnnsuite._step.capture import CudaGraphs
from dnnsuite._step.capture.record import StepRecorder
from dnnsuite._step.deal import Deal, autocast_now
from dnnsuite._step.part import StepPart
from dnnsuite._step.shard import Shard
from graph_double import DeviceMemory, GraphDouble
from helpers import make_models


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )


def cross_entropy(array, x, y):
    return nn.functional.cross_entropy(array(x), y)


def batches(count, features=(6,)):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield torch.randn(3, 8, *features, generator=generator), torch.randint(4, (3, 8), generator=generator)


def train_on_cpu(replays, loss, make=model, features=(6,), count=8, lr=(0.1, 0.05, 0.01), given=None):
    """Train with what `replays` makes of the steps; return losses and parameters, and the mode."""
    array = dnnsuite.fuse(make_models(make, 3), seeds=range(3))
    optimizer = optim.Adam(array.parameters(), lr=list(lr))
    deal = Deal(
        [Shard(array, [StepPart(loss, optimizer)], 0, 3)], loss, replays, contextlib.nullcontext, autocast_now()
    )
    vectors = [{name: group[name].detach() for name in optimizer.per_model} for group in optimizer.param_groups]
    losses = []
    torch.manual_seed(1)
    for batch in given or batches(count, features):
        losses.append(deal.run(0, batch, (vectors, None, None)).detach().clone())
    return [torch.stack(losses), *(p.detach() for p in array.parameters())], deal.mode


def agree(loss, device, **how):
    """Check that graphs train as the step as written does; return the mode."""
    written, _ = train_on_cpu(None, loss, **how)
    replayed, mode = train_on_cpu(CudaGraphs(device), loss, **how)
    torch.testing.assert_close(replayed, written, rtol=1e-4, atol=1e-5)
    return mode


def test_a_graph_trains_as_the_step():
    device = GraphDouble()
    assert agree(cross_entropy, device) == "captured"
    assert (device.captured, device.launched) == (1, 6)  # of 8 steps the first two run as written


@pytest.mark.parametrize("name", LAYERS)
def test_each_kind_of_layer_is_captured(name):
    make, draw = LAYERS[name]
    torch.manual_seed(3)
    given = [(dnnsuite.stack(draw(), B=3), dnnsuite.stack(torch.randint(5, (12,)), B=3)) for _ in range(5)]
    assert agree(cross_entropy, GraphDouble(), make=make, given=given) == "captured"


def test_a_step_before_a_capture_runs_on_its_stream():
    """Libraries make their workspaces for the stream they are first called on, and may not while it is captured."""
    device = GraphDouble()
    assert agree(cross_entropy, device, count=4) == "captured"
    backward_too = {"dnnsuite::linear", "dnnsuite::linear_backward", "dnnsuite::optimizer_step_"}
    assert backward_too <= device.warmed


def test_every_step_that_is_no_replay_runs_on_the_stream_of_captures():
    """What a step leaves in autograd's graph remembers its stream, and no capture may wait for another one."""

    class Device(GraphDouble):
        inside = False

        @contextlib.contextmanager
        def stream(self):
            self.inside = True
            with super().stream():
                yield
            self.inside = False

    class Places(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.found = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func._schema.name == "dnnsuite::linear":
                self.found.append(device.inside)
            return func(*args, **kwargs or {})

    device, many = Device(), [next(batches(1))]
    many = [tuple(part[:, : 8 - step % 3] for part in many[0]) for step in range(15)]
    with Places() as places:
        assert train_on_cpu(CudaGraphs(device), cross_entropy, given=many)[1] == "captured"
    assert len(places.found) > 2 * 3 * 3
    assert all(places.found)


def test_a_graph_draws_from_the_generator_as_the_step_does():
    def noisy(array, x, y):
        return cross_entropy(array, x + torch.randn_like(x), y)

    device = GraphDouble()
    assert agree(noisy, device) == "captured"
    assert device.captured == 1


class Drops(torch.nn.Module):
    """Dropout by `layers` layers, one of them called twice, and by as many calls of a function."""

    def __init__(self, layers):
        super().__init__()
        self.body = model()
        self.drops = torch.nn.ModuleList(torch.nn.Dropout(0.1 * (1 + i % 5)) for i in range(layers))

    def forward(self, x):
        x = self.body(x)
        for drop in (*self.drops, self.drops[0]):
            x = torch.nn.functional.dropout(drop(x), 0.1, self.training)
        return x


def accumulated(array, x, y):
    return cross_entropy(array, x, y) + cross_entropy(array, x, y)


@pytest.mark.parametrize(
    ("layers", "loss", "kernels"), [(1, cross_entropy, 3), (9, cross_entropy, 3), (9, accumulated, 4)]
)
def test_dropout_takes_no_kernels_of_its_own_for_its_streams(layers, loss, kernels):
    """All streams of a step are read and moved on at once; they draw what they draw one by one."""
    device = GraphDouble()
    assert agree(loss, device, make=lambda: Drops(layers), count=5) == "captured"
    of_streams = [
        name
        for name, tensors in device.tape
        if name.startswith("aten::") and any(t.dtype == torch.int64 and t.shape[-2:] == (3, 2) for t in tensors)
    ]
    assert len(of_streams) == kernels


def convolution_before_a_norm():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(128, 4)
    )


def test_rounding_that_adam_blows_up_is_no_reason_to_give_a_graph_up():
    """The gradient of a bias before a batch norm is nothing but rounding errors."""
    device = GraphDouble(noise=1e-7)
    _, mode = train_on_cpu(
        CudaGraphs(device), cross_entropy, convolution_before_a_norm, (2, 6, 6), lr=(0.01, 0.01, 0.01)
    )
    assert mode == "captured"


def test_errors_beyond_rounding_are_a_reason():
    _, mode = train_on_cpu(CudaGraphs(GraphDouble(noise=0.05)), cross_entropy)
    assert mode == "eager: a replay gives other bits than the step as written"


def test_autocast_of_the_device_counts():
    before = autocast_now("cuda")
    torch.set_autocast_enabled("cuda", True)  # torch.autocast itself would leave it off where there is no GPU
    try:
        assert autocast_now("cuda")[:2] == ("cuda", True)
        assert not autocast_now("cpu")[1]
    finally:
        torch.set_autocast_enabled("cuda", False)
    assert autocast_now("cuda") == before


def test_a_comparison_leaves_the_step_as_written():
    """Also where it ran the step once more to see how far rounding goes."""
    assert agree(cross_entropy, GraphDouble(noise=0.05)).startswith("eager")


def test_a_graph_keeps_what_it_reads():
    """It knows addresses alone: another tensor in the place of one that it reads must not free that one."""
    cache, batch = [torch.tensor(3.0)], torch.ones(4)

    def step(batch, hyper):
        return batch[0] * cache[0]

    recorder = StepRecorder([batch])
    with recorder:
        step((batch,), [])
    graph = CudaGraphs(GraphDouble()).prepare(step, recorder.recording, (batch.clone(),), [])
    cache[0] = torch.tensor(5.0)
    del recorder
    assert graph([batch]).tolist() == [3.0] * 4


def test_a_tensor_of_another_device_is_refused_before_a_capture():
    class Elsewhere(GraphDouble):
        home = torch.device("meta")

    device = Elsewhere()
    _, mode = train_on_cpu(CudaGraphs(device), cross_entropy)
    assert "meets a tensor on cpu, and a graph runs on meta alone" in mode
    assert device.captured == 0


@pytest.mark.parametrize("outside", [False, True])
def test_what_the_host_computes_of_constants_is_no_part_of_a_graph(outside):
    """As transformers' caches count; but a number of the host that was there before could change."""
    count = torch.zeros((), device="cpu")
    with StepRecorder([], home=torch.device("meta")) as recorder:
        own = count if outside else torch.tensor(0.0)
        own = own + torch.tensor(3.0)
        torch.ones(2, device="meta") * own
    assert (recorder.recording.refusal is not None) == outside
    with StepRecorder([], home=torch.device("meta")) as recorder:
        torch.ones(2).to("meta")
    assert "meets a tensor on cpu" in recorder.recording.refusal


def test_a_refused_capture_names_the_reason_and_training_goes_on():
    class Refusing(GraphDouble):
        def capture(self, step):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nhints")

    reason = "eager: CUDA refuses the capture: CUDA error: operation not permitted when stream is capturing"
    assert agree(cross_entropy, Refusing()).startswith(reason)


def test_a_refused_capture_names_the_line():
    """It is the innermost line of the user's code that the error passed."""

    class Refusing(GraphDouble):
        def capture(self, step):
            waiting.append(True)
            return super().capture(step)

    def loss(array, x, y):
        if waiting:
            raise RuntimeError("operation not permitted when stream is capturing")
        return cross_entropy(array, x, y)

    waiting = []
    _, mode = train_on_cpu(CudaGraphs(Refusing()), loss, count=3)
    line = loss.__code__.co_firstlineno + 2
    assert mode.endswith(f"operation not permitted when stream is capturing at test_cuda.py:{line} in loss")


def test_a_capture_of_a_public_model_waits_for_no_value(monkeypatch):
    """transformers' code changes objects outside of the model in each call, so buffers are compared around each."""
    data.import_torchvision()  # transformers imports it
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=20, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2
    )
    capturing, equal, compared = [False], torch.equal, []

    class Device(GraphDouble):
        def capture(self, step):
            capturing[0] = True
            try:
                return super().capture(step)
            finally:
                capturing[0] = False

    def refusing(a, b):
        compared.append(capturing[0])
        if capturing[0]:
            raise RuntimeError("operation not permitted when stream is capturing")
        return equal(a, b)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", list)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    monkeypatch.setattr(torch, "equal", refusing)

    def loss(array, x, y):
        return array(input_ids=x).logits.float().square().mean((1, 2, 3))

    device, given = Device(), [(torch.randint(20, (3, 2, 5)), torch.zeros(3)) for _ in range(4)]
    _, mode = train_on_cpu(CudaGraphs(device), loss, lambda: transformers.LlamaForCausalLM(config), given=given)
    assert (mode, device.captured) == ("captured", 1)
    assert compared


def test_a_capture_knows_values_that_hold():
    """CUDA hands none over meanwhile. Of a constant of the code, and of a tensor that seldom changes."""
    doubled = torch.tensor(False)

    def loss(array, x, y):
        assert (torch.arange(3) == torch.arange(3)).all()
        return cross_entropy(array, x, y) * (2 if doubled else 1)

    def given():
        for count, batch in enumerate(batches(10)):
            doubled.fill_(count >= 6)
            yield batch

    device = GraphDouble()
    written, _ = train_on_cpu(None, loss, given=given())
    replayed, mode = train_on_cpu(CudaGraphs(device), loss, given=given())
    torch.testing.assert_close(replayed, written, rtol=1e-4, atol=1e-5)
    assert mode == "captured"
    assert device.captured >= 2


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.calls = model(), 0

    def forward(self, x):
        self.calls += 1
        return self.body(x)


def test_a_capture_leaves_no_count_of_its_own():
    """It runs the code of the step once more than there are steps."""
    array = dnnsuite.fuse(make_models(Counting, 3), seeds=range(3))
    optimizer = optim.Adam(array.parameters(), lr=0.1)
    deal = Deal(
        [Shard(array, [StepPart(cross_entropy, optimizer)], 0, 3)],
        cross_entropy,
        CudaGraphs(GraphDouble()),
        contextlib.nullcontext,
        autocast_now(),
    )
    vectors = [{name: group[name].detach() for name in optimizer.per_model} for group in optimizer.param_groups]
    for batch in batches(6):
        deal.run(0, batch, (vectors, None, None))
    assert deal.mode == "eager: a step changes the Python value calls"
    assert deal.shards[0].array.calls == 6


def wide():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 1600), torch.nn.ReLU(), torch.nn.Linear(1600, 1600), torch.nn.Linear(1600, 4)
    )


class Full(GraphDouble):
    """A device whose memory is counted in the first step that has a graph, where the two are compared."""

    def __init__(self, memory, **how):
        super().__init__(**how)
        self.memory = memory

    @contextlib.contextmanager
    def stream(self):
        with super().stream(), self.memory.counted() if self.captured else contextlib.nullcontext():
            yield


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_comparison_takes_at_most_seven_times_the_parameters(noise):
    """The step as written takes four with Adam, and its graph one more; also where it looks how far rounding goes."""
    with DeviceMemory() as memory:
        _, mode = train_on_cpu(CudaGraphs(Full(memory, noise=noise)), cross_entropy, wide, count=3)
    assert mode.startswith("eager") == (noise > 0)  # the last step is the one that compares
    parameters = 4 * 3 * sum(p.numel() for p in wide().parameters())
    assert 4.5 * parameters < memory.most <= 7 * parameters


def audited(graphs):
    """Train with an audit of the fifth step; return losses and parameters, and how many audits have compared."""
    array = dnnsuite.fuse(make_models(model, 3), seeds=range(3))
    optimizer = optim.Adam(array.parameters(), lr=0.1)
    shard = Shard(array, [StepPart(cross_entropy, optimizer)], 0, 3)
    deal = Deal([shard], cross_entropy, graphs, contextlib.nullcontext, autocast_now())
    vectors = [{name: group[name].detach() for name in optimizer.per_model} for group in optimizer.param_groups]
    losses, compared = [], 0
    for step, batch in enumerate(batches(7)):
        deal.audit_next(step == 4)
        losses.append(deal.run(0, batch, (vectors, None, None)).detach().clone())
        compared += sum(audit.compared for audit in deal.audit_next(False))
    return [torch.stack(losses), *(p.detach() for p in array.parameters())], compared, deal.mode


@pytest.mark.parametrize("spare", [0, 2**40])
def test_a_graph_is_audited(spare):
    written, none, _ = audited(None)
    replayed, compared, mode = audited(CudaGraphs(GraphDouble(spare=spare)))
    assert (none, compared, mode) == (0, 1, "captured")
    torch.testing.assert_close(replayed, written, rtol=1e-4, atol=1e-5)


def test_no_memory_to_audit_leaves_the_step_as_it_is():
    class Audited(GraphDouble):
        asked = 0  # for the generator's state, twice by the comparing step and twice by the audit

        def draws(self):
            self.asked += 1
            return super().draws()

        @contextlib.contextmanager
        def stream(self):
            with super().stream():
                if self.asked == 4:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                yield

    device = Audited()
    written, _, _ = audited(None)
    replayed, compared, mode = audited(CudaGraphs(device))
    assert (compared, mode, device.asked) == (0, "captured", 4)
    torch.testing.assert_close(replayed, written, rtol=1e-4, atol=1e-5)


NO_MEMORY = "eager: the device has no memory left to compare a replay with the step"


def test_no_memory_to_compare_is_a_reason():
    """At whatever operator of the comparing step, which then is taken as written; the graph's memory is free again."""
    written, _ = train_on_cpu(None, cross_entropy, count=5)
    modes, place = [], 1
    while not modes or modes[-1] != "captured":
        with DeviceMemory(fails_at=place) as memory:
            device = Full(memory)
            replayed, mode = train_on_cpu(CudaGraphs(device), cross_entropy, count=5)
        torch.testing.assert_close(replayed, written, rtol=1e-4, atol=1e-5)
        assert mode != NO_MEMORY or device.released
        modes.append(mode)
        place *= 4
    assert set(modes) == {NO_MEMORY, "captured"}


def train(capture, loss, count=10):
    array = dnnsuite.fuse(make_models(model, 3), seeds=range(3)).to("cuda")
    optimizer = optim.Adam(array.parameters(), lr=[0.1, 0.05, 0.01])
    schedule = optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    generator = torch.Generator().manual_seed(0)
    losses = []
    with StepRunner(array, optimizer, loss, capture=capture) as runner:
        for _ in range(count):
            x, y = torch.randn(3, 8, 6, generator=generator), torch.randint(4, (3, 8), generator=generator)
            losses.append(runner.step(x.cuda(), y.cuda()).losses())
            schedule.step()
        return torch.stack(losses).cpu(), [p.detach().cpu() for p in array.parameters()], runner.mode


@pytest.mark.gpu
def test_a_graph_trains_as_the_step_as_written():
    eager, captured = train(False, cross_entropy), train(True, cross_entropy)
    assert captured[2] == "captured"
    torch.testing.assert_close(captured[:2], eager[:2], rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_what_waits_for_the_device_runs_as_written():
    def loss(array, x, y):
        values = cross_entropy(array, x, y)
        return values * (2.0 if values.sum().item() > 4 else 1.0)

    assert train(True, loss)[2].startswith("eager: aten._local_scalar_dense")


@pytest.mark.gpu
def test_a_batch_on_the_host_runs_as_written():
    def loss(array, x, y):
        return cross_entropy(array, x.cpu().to("cuda"), y)

    assert "meets a tensor on cpu" in train(True, loss)[2]
