# SPDX-License-Identifier: MIT
"""The memory pool, in processes of its own: it serves a whole process."""

import subprocess
import sys
import textwrap

import pytest

import forked_program
from dnnsuite import _memory as memory


def run(program):
    """What a process that has done nothing yet prints."""
    done = forked_program.run(
        "import os, resource, torch\nfrom dnnsuite import _memory as memory\n" + textwrap.dedent(program)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_is_built_for_this_torch():
    assert memory.usage() is not None


def test_the_next_tensor_takes_the_last_ones_pages():
    again, faults, aligned = run("""
        memory.hold()
        assert memory.holding()
        x = torch.ones(1 << 21)
        place = x.data_ptr()
        del x
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        y = torch.zeros(1 << 21)
        print(y.data_ptr() == place, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, y.data_ptr() % 64)
    """)
    assert (again, aligned) == ("True", "0")
    assert int(faults) < 500  # of 2048 pages


RUNNER = """
    import gc, dnnsuite
    def make(threads=1):
        array = dnnsuite.fuse([torch.nn.Linear(64, 64) for _ in range(3)])
        optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
        x = dnnsuite.stack(torch.randn(4096, 64), 3)
        loss = lambda a, x: a(x).square().mean((1, 2))
        runner = dnnsuite.StepRunner(array, optimizer, loss, threads=threads, width=1)
        for _ in range(6):
            losses = runner.step(x).losses()
        return runner, losses
    def from_pool():
        before = memory.usage().used_bytes
        stranger = torch.empty(16 << 20)
        return memory.usage().used_bytes > before
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_strangers_tensor_comes_from_the_pool_only_while_a_runner_is_open(threads):
    assert run(
        RUNNER
        + f"""
    print(from_pool())
    first, _ = make({threads})
    second, losses = make({threads})
    print(from_pool())
    first.close()
    print(from_pool())
    second.close()
    print(from_pool(), memory.holding(), memory.usage().kept_bytes)
    again, _ = make()
    print(from_pool())
    """
    ) == ["False", "True", "True", "False", "False", "0", "True"]


@pytest.mark.parametrize("threads", [1, 2])
def test_torchs_allocator_is_back_when_the_last_runner_is_collected(threads):
    assert run(
        RUNNER
        + f"""
    runner, _ = make({threads})
    print(from_pool())
    del runner
    gc.collect()
    print(from_pool())
    """
    ) == ["True", "False"]


def test_an_array_that_is_trained_by_hand_holds_the_pool_until_it_is_collected():
    assert run(
        RUNNER
        + """
    import copy
    array = dnnsuite.fuse([torch.nn.Linear(4, 4) for _ in range(3)])
    with torch.no_grad():
        array(torch.randn(3, 2, 4))
    print(from_pool())
    array(torch.randn(3, 2, 4)).sum().backward()
    print(from_pool())
    other = copy.deepcopy(array)
    make()[0].close()
    print(from_pool())
    del array
    gc.collect()
    print(from_pool(), other.B)
    """
    ) == ["False", "True", "True", "False", "3"]


@pytest.mark.parametrize("call", ["array.judged(x)", "array.judge(x)"])
def test_an_array_whose_forward_is_not_called_holds_the_pool_too(call):
    assert run(
        RUNNER
        + f"""
    class Critic(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.judge = torch.nn.Linear(4, 4)
        def judged(self, x):
            return self.judge(x)
    array = dnnsuite.fuse([Critic() for _ in range(3)])
    x = torch.randn(3, 2, 4)
    with torch.no_grad():
        {call}
    print(from_pool())
    {call}.sum().backward()
    print(from_pool())
    del array
    gc.collect()
    print(from_pool())
    """
    ) == ["False", "True", "False"]


def test_another_shape_of_batch_takes_the_memory_of_the_last_one():
    before, after, again = run(
        textwrap.dedent(RUNNER)
        + textwrap.dedent("""
            runner, losses = make()
            def taken():
                usage = memory.usage()
                return usage.used_bytes + usage.kept_bytes
            halves = dnnsuite.stack(torch.randn(1500, 64), 3)
            before = taken()
            losses = runner.step(halves).losses()
            after = taken()
            losses = runner.step(halves).losses()
            print(before, after, taken())
        """)
    )
    assert before == after == again


def test_tensors_of_the_pool_outlive_it():
    assert run("""
        release = memory.hold()
        x, y = torch.ones(1 << 20), torch.ones(1 << 20)
        release(), release()
        x += 1
        y.resize_(1 << 22)
        used = memory.usage().used_bytes
        print(x.sum().item() == 2 << 20, y[: 1 << 20].sum().item() == 1 << 20, used >= 20 << 20)
        del x, y
        print(memory.usage().used_bytes, memory.usage().kept_bytes)
    """) == ["True", "True", "True", "0", "0"]


def test_counts_and_gives_back():
    used, kept, left = run("""
        old = torch.ones(1 << 20)
        memory.hold(), memory.hold()
        x = torch.ones(1 << 20)
        used = memory.usage().used_bytes
        del x, old
        kept = memory.usage().kept_bytes
        memory.trim()
        print(used, kept, memory.usage().kept_bytes)
    """)
    assert int(used) == int(kept) >= 4 << 20
    assert left == "0"


def test_storages_grow_and_are_copied_pickled_and_shared():
    assert run("""
        import copy, io
        memory.hold()
        x = torch.arange(100_000.0)
        x.resize_(300_000)
        assert torch.equal(x[:100_000], torch.arange(100_000.0))
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        assert torch.load(file).nbytes == copy.deepcopy(x).nbytes == x.clone().share_memory_().nbytes
        assert torch.from_numpy(x.numpy()).data_ptr() == x.data_ptr()
        print("whole")
    """) == ["whole"]


def test_a_forked_child_allocates():
    assert run("""
        memory.hold()
        torch.set_num_threads(1)  # OpenMP's threads do not live on in a child
        x = torch.ones(1 << 20)
        child = os.fork()
        if child == 0:
            os._exit(int((x + torch.ones(1 << 20)).sum().item() != 2 << 20))
        print(os.waitpid(child, 0)[1], x.sum().item() == 1 << 20)
    """) == ["0", "True"]


def test_no_memory_is_an_error_that_says_how_much():
    assert run("""
        from dnnsuite._runs import failures
        memory.hold()
        try:
            torch.empty(1 << 58)
        except torch.OutOfMemoryError as error:
            assert "can't allocate memory: a tensor of 1152921504606846976 bytes" in str(error)
            print(torch.ones(1 << 20).sum().item())
    """) == ["1048576.0"]


def test_torchs_profiler_sees_the_memory():
    (seen,) = run("""
        memory.hold()
        from torch.profiler import profile
        with profile(profile_memory=True) as found:
            x = torch.ones(1 << 20)
        print(max(event.self_cpu_memory_usage for event in found.key_averages()))
    """)
    assert int(seen) == 4 << 20


def test_under_another_torch_malloc_serves_and_the_log_says_so_once():
    text = """
        import logging
        torch.__version__ = "9.9.9"
        assert memory.usage() is None and not memory.holding()
        for _ in range(2):
            release = memory.hold()
            assert not memory.holding()
            memory.trim()
            release()
        print(memory.refusal())
    """
    text = "import torch\nfrom dnnsuite import _memory as memory\n" + textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "was built for torch" in done.stdout
    assert done.stderr.count("come from malloc, not from dnnsuite's memory pool") == 1
    assert "this is 9.9.9" in done.stderr


@pytest.mark.parametrize("capture", [False, True])
def test_steps_do_not_grow(capture):
    """Layers whose tensors are of many sizes, for a while."""
    first, last = map(
        int,
        run(f"""
        import dnnsuite
        torch.manual_seed(0)
        models = [torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 48, 3),
                  torch.nn.Flatten(), torch.nn.Linear(48 * 144, 10)) for _ in range(3)]
        array = dnnsuite.fuse(models)
        optimizer = dnnsuite.optim.Adam(array.parameters())
        x = dnnsuite.stack(torch.randn(16, 3, 16, 16), 3)
        resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
        with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x).square().mean((1, 2)), threads=1,
                                 capture={capture}) as runner:
            for _ in range(12):
                runner.step(x)
            first = resident()
            for _ in range(60):
                runner.step(x)
            print(first, resident())
    """),
    )
    assert last < first * 1.05
