# SPDX-License-Identifier: MIT
"""Seeds, devices, and what happens to tests that need a GPU."""

import atexit
import functools
import gc
import os
import random
import resource
import signal
import sys

import hypothesis
import pytest

# No test asserts a time, hypothesis' own included; what CI draws, everybody can draw again.
# A change's author looks through more of them with --hypothesis-profile=long.
for name, count in (("dnnsuite", 30), ("long", 500)):
    hypothesis.settings.register_profile(
        name, deadline=None, derandomize=bool(os.environ.get("CI")), max_examples=count
    )
hypothesis.settings.load_profile("dnnsuite")

# A job in the background of a shell ignores Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

REQUIRE_CUDA = os.environ.get("DNNSUITE_REQUIRE_CUDA") == "1"
_NO_GPU = "needs an NVIDIA GPU and a CUDA torch"


@functools.cache
def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Use all cores, where pytest-xdist is there and nothing else is asked for. `-s` and `--pdb` want one process."""
    option = config.option
    asked = getattr(option, "numprocesses", 0) is not None or option.usepdb or option.capture == "no"
    cores = len(os.sched_getaffinity(0))
    if not (asked or option.collectonly or "PYTEST_XDIST_WORKER" in os.environ):
        option.numprocesses = cores + 1  # tests wait for processes, files and clocks a seventh of their time
    if processes := getattr(option, "numprocesses", 0):
        # Neighbouring tests stay in one process, with their fixtures; one that is done takes from the others' ends.
        option.dist = "worksteal" if option.dist == "no" else option.dist
        # Threads of OpenMP spin while they wait for each other: more of them than cores take several times as long.
        share = cores // processes if isinstance(processes, int) else 1
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, share)))
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


_modules = [0]  # how many there were when objects were frozen last


def _freeze():
    """The tests themselves, a million objects, and modules live to the end. Code under test looks through what Python
    knows of, and collects garbage; it need not look through those each time."""
    gc.collect()
    gc.freeze()
    gc.collect()  # or what is left to do until the next full collection is counted in shares of that million
    _modules[0] = len(sys.modules)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays: looking through it for garbage again and again finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


class _FromAnotherPlace(pytest.Dir):
    """The folder of tests, from where no other process begins: each compiles a part, and finds the rest compiled."""

    def collect(self):
        found = list(super().collect())
        first = len(found) * int(os.environ["PYTEST_XDIST_WORKER"][2:]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        return found[first:] + found[:first]


class _Places:
    @staticmethod
    def pytest_collect_directory(path, parent):
        return _FromAnotherPlace.from_parent(parent, path=path) if str(path) == os.path.dirname(__file__) else None

    @staticmethod
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(items):
        items.sort(key=lambda item: item.path.parts)  # within a file they stay as they are


def pytest_configure(config):
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.pluginmanager.register(_Places())


def pytest_collection_finish():
    _freeze()
    atexit.register(gc.unfreeze)  # what ends with the process is collected as without, after pytest's own collections


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not _cuda():
        # A machine that was promised to have a GPU must not pass by skipping.
        (pytest.fail if REQUIRE_CUDA else pytest.skip)(_NO_GPU)


# CPU seconds of a folder's tests and of the processes that they wait for. Twelve minutes on two cores are about 1,200.
# A folder above its share is told with its most costly tests: make those cheaper, or take its seconds from another.
BUDGETS_S = {
    "_fuse": 45, "_step": 165, "adapters": 80, "benchmarks": 55, "cli": 80, "data": 25, "docs": 20, "fuse": 65,
    "jobs": 90, "nn": 65, "ops": 60, "optim": 20, "pin": 30, "profiler": 40, "profiling": 35, "results": 25,
    "suites": 40, "tests": 80, "training": 50, "tuning": 75, "workflow": 30,
}  # fmt: skip
_OTHERS_S = 15
_cpu_s = [0.0]  # when the phase under way began


def _cpu() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    forks = sys.modules.get("forked_program")  # whose programs are no children of this process
    return sum(each.ru_utime + each.ru_stime for each in both) + (forks.cpu_s if forks else 0.0)


def pytest_runtest_logstart():
    _cpu_s[0] = _cpu()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    report.cpu_s, _cpu_s[0] = _cpu() - _cpu_s[0], _cpu()
    return report


def seconds_by_folder(reports, root="tests"):
    """CPU seconds of the tests of each folder below `root`, the longest first."""
    return _seconds(reports, lambda name: _folder(name, root))


def _folder(name, root="tests"):
    parts = name.split("::")[0].split("/")
    return parts[1] if parts[0] == root and len(parts) > 2 else root


def _seconds(reports, key):
    seconds = {}
    for report in reports:
        seconds[key(report.nodeid)] = seconds.get(key(report.nodeid), 0.0) + report.cpu_s
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def most_costly(reports, count=3):
    """The most costly tests of each folder that is above its budget, with their seconds."""
    tests = _seconds(reports, lambda name: name)
    over = [name for name, seconds in seconds_by_folder(reports).items() if seconds > BUDGETS_S.get(name, _OTHERS_S)]
    return {folder: [(test, tests[test]) for test in tests if _folder(test) == folder][:count] for folder in over}


def pytest_terminal_summary(terminalreporter):
    reports = [each for kind in terminalreporter.stats.values() for each in kind if hasattr(each, "cpu_s")]
    told = [
        f"{folder} {seconds:.0f} of {BUDGETS_S.get(folder, _OTHERS_S)}"
        for folder, seconds in seconds_by_folder(reports).items()
        if seconds >= 1
    ]
    if told:
        total = sum(report.cpu_s for report in reports)
        terminalreporter.write_line(f"CPU seconds of those planned: {', '.join(told)}; {total:.0f} in all")
        for folder, tests in most_costly(reports).items():
            named = ", ".join(f"{test} {seconds:.1f}" for test, seconds in tests)
            terminalreporter.write_line(f"{folder} is above its seconds; most are in {named}")
    skipped = sum("gpu" in getattr(report, "keywords", ()) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.write_line(f"{skipped} GPU tests skipped ({_NO_GPU}; DNNSUITE_REQUIRE_CUDA=1 fails them)")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Each device in turn, as torch spells it."""
    return request.param


@pytest.fixture(scope="session", autouse=True)
def _cache_of_this_session(tmp_path_factory):
    """Nothing comes from, or goes to, the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNNSUITE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _workers_are_forks():
    """Workers that a test's own process starts have torch already; `real_workers` start as users' do."""
    import forked_workers

    with pytest.MonkeyPatch.context() as patch:
        forked_workers.fork_workers(patch)
        yield


@pytest.fixture
def real_workers(monkeypatch):
    """Workers are interpreters of their own, as outside of the tests."""
    import forked_workers

    monkeypatch.setattr(forked_workers, "enabled", False)


@pytest.fixture
def own_answers(tmp_path, monkeypatch):
    """The table of answers of a machine on which no way was tried yet."""
    from dnnsuite._ways import table

    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path))
    table.cache_clear()
    yield table()
    table.cache_clear()


@pytest.fixture(autouse=True)
def _nothing_leaks(request):
    """Every test starts from the same seeds, and no test changes the process for the next."""
    if len(sys.modules) >= _modules[0] + 50:  # such as the compiler's, which the first test that needs it imports
        _freeze()
    state = random.getstate()
    random.seed(0)
    restore = [lambda: random.setstate(state), *_seed_numpy(), *_seed_torch(request)]
    yield
    for put_back in restore:
        put_back()


@pytest.fixture(autouse=True)
def _float32_is_float32(request):
    """cuDNN computes convolutions of float32 in TF32, and sums in any order, unless it is told not to; bounds of tests
    are float32's, and gradients are compared with themselves."""
    if not request.node.get_closest_marker("gpu") or not _cuda():
        yield
        return
    import torch

    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.deterministic
    cudnn.allow_tf32, cudnn.deterministic = False, True
    yield
    cudnn.allow_tf32, cudnn.deterministic = before


def _seed_numpy():
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return []
    state = numpy.random.get_state()
    numpy.random.seed(0)
    return [lambda: numpy.random.set_state(state)]


def _seed_torch(request):
    torch = sys.modules.get("torch")  # a test that has not imported it by now seeds what it uses itself
    if torch is None:
        return []
    state, threads, dtype = torch.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()
    if torch.cuda.is_initialized() or request.node.get_closest_marker("gpu"):
        torch.manual_seed(0)
    else:  # the above notes its stack for each kind of device that is not in use, which takes milliseconds
        torch.default_generator.manual_seed(0)

    def put_back():
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(True)
        if torch.are_deterministic_algorithms_enabled():  # setting it imports the compiler, which takes seconds
            torch.use_deterministic_algorithms(False)
        if "torch._dynamo" in sys.modules:  # or the tests of one function run into the limit of its compilations
            torch.compiler.reset()
        torch.set_rng_state(state)

    return [put_back]
