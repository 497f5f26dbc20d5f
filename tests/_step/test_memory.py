# SPDX-License-Identifier: MIT
"""The allocator, in processes of its own: it stays for the life of one."""

import subprocess
import sys
import textwrap

import pytest
import torch

from dnnsuite._step import memory


def run(program):
    """What a fresh Python prints."""
    text = "import os, resource, torch\nfrom dnnsuite._step import memory\n" + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_is_built_for_this_torch():
    assert memory.usage() is not None


def test_the_next_tensor_takes_the_last_ones_pages():
    again, faults, aligned = run("""
        assert memory.keep()
        x = torch.ones(1 << 21)
        place = x.data_ptr()
        del x
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        y = torch.zeros(1 << 21)
        print(y.data_ptr() == place, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, y.data_ptr() % 64)
    """)
    assert (again, aligned) == ("True", "0")
    assert int(faults) < 500  # of 2048 pages


def test_counts_and_gives_back():
    used, kept, left = run("""
        old = torch.ones(1 << 20)
        memory.keep(), memory.keep()
        x = torch.ones(1 << 20)
        used = memory.usage().used_bytes
        del x, old
        kept = memory.usage().kept_bytes
        memory.release()
        print(used, kept, memory.usage().kept_bytes)
    """)
    assert int(used) == int(kept) >= 4 << 20
    assert left == "0"


def test_storages_grow_and_are_copied_pickled_and_shared():
    assert run("""
        import copy, io
        memory.keep()
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
        memory.keep()
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
        memory.keep()
        try:
            torch.empty(1 << 58)
        except torch.OutOfMemoryError as error:
            assert "can't allocate memory: a tensor of 1152921504606846976 bytes" in str(error)
            print(torch.ones(1 << 20).sum().item())
    """) == ["1048576.0"]


def test_torchs_profiler_sees_the_memory():
    (seen,) = run("""
        memory.keep()
        from torch.profiler import profile
        with profile(profile_memory=True) as found:
            x = torch.ones(1 << 20)
        print(max(event.self_cpu_memory_usage for event in found.key_averages()))
    """)
    assert int(seen) == 4 << 20


def test_under_another_torch_malloc_serves(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    memory._library.cache_clear()
    try:
        assert memory.usage() is None
        memory.release()
    finally:
        monkeypatch.undo()
        memory._library.cache_clear()


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
