"""
The instruments of dnnsuite: clock, timers, statistics.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
import typing_extensions
__all__: list[str] = ['ActivitySession', 'Bandwidth', 'Bootstrap', 'Cgroup', 'Comparison', 'CounterDevice', 'CounterHost', 'CudaEvents', 'Disturbances', 'Entropy', 'Fixed', 'GroupTree', 'Guards', 'Interval', 'NvtxRange', 'PerfGroup', 'PerfValue', 'Precision', 'Process', 'RangeCounters', 'RunningStatistics', 'SampledCounters', 'Span', 'Spans', 'StdRel', 'StepTimer', 'StopRule', 'Summary', 'Trend', 'Warmup', 'add_library_folder', 'addition_ns', 'batch_means', 'bootstrap_mean', 'bootstrap_ratio', 'compare', 'counter_chips', 'counter_refusal', 'cuda_profiler_start', 'cuda_profiler_stop', 'cupti_function_name', 'cupti_version', 'decode_activity', 'exit_without_destructors', 'flatten', 'format_cpu_list', 'heap_release', 'heap_retain', 'launch', 'library_folders', 'library_path', 'make_nvtx_range', 'make_span', 'mser5', 'now_ns', 'nvtx_mark', 'nvtx_start', 'nvtx_stop', 'parse_cpu_list', 'perf_events', 'quantile', 'rate', 'read_disturbances', 'read_hierarchies', 'read_topology', 'require_driver', 'seal_counter_image', 'spin', 'stream_triad', 'student_t', 'summarise', 'trend']
class RunningStatistics:
    """
    Count, mean, variance, minimum and maximum of values seen one at a time.
    """
    def __init__(self) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def add(self, value: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """
        Take one value in.
        """
    def merge(self, other: RunningStatistics) -> None:
        """
        Add every value of `other`.
        """
    @property
    def count(self) -> int:
        """
        Number of values.
        """
    @property
    def max(self) -> float:
        """
        NaN without values.
        """
    @property
    def mean(self) -> float:
        """
        NaN without values.
        """
    @property
    def min(self) -> float:
        """
        NaN without values.
        """
    @property
    def variance(self) -> float:
        """
        Standard deviation of the sample (n - 1); NaN below two values.
        """
class Interval:
    """
    An estimate and the interval it is known to.
    """
    def __repr__(self) -> str:
        ...
    @property
    def batches(self) -> int:
        """
        Batches used, never more than there are values.
        """
    @property
    def count(self) -> int:
        """
        Values that it is of.
        """
    @property
    def enough(self) -> bool:
        """
        True where the interval may be relied on: neither too short nor too few.
        """
    @property
    def half_width(self) -> float:
        """
        (high - low) / 2.
        """
    @property
    def high(self) -> float:
        """
        NaN where fewer than two batches were to be had.
        """
    @property
    def lag1(self) -> float:
        """
        Correlation of neighbouring batches, NaN below three; above 0.2 the series is too short.
        """
    @property
    def low(self) -> float:
        """
        NaN where fewer than two batches were to be had.
        """
    @property
    def mean(self) -> float:
        """
        The estimate, over all values.
        """
    @property
    def unseen(self) -> str:
        """
        Rare events that so few values cannot have seen, as a sentence; empty from 300 on.
        """
    @property
    def why(self) -> str:
        """
        Reason why values are too few to rely on it; empty where they are enough.
        """
class Warmup:
    """
    The end of warm-up in a series of times.
    """
    def __repr__(self) -> str:
        ...
    @property
    def drift_per_100(self) -> float:
        """
        Relative change per 100 values in what is left (0.01 is 1 %).
        """
    @property
    def reason(self) -> str:
        """
        Reason, as a sentence.
        """
    @property
    def steady(self) -> bool:
        """
        True if one number may summarise the values that are left.
        """
    @property
    def truncated(self) -> int:
        """
        Values to drop from the front.
        """
class Summary:
    """
    Centre and spread of a sample; NaN where there are too few values.
    """
    def __repr__(self) -> str:
        ...
    @property
    def count(self) -> int:
        """
        Number of values.
        """
    @property
    def cv(self) -> float:
        """
        sd / |mean|.
        """
    @property
    def mad(self) -> float:
        """
        Median of |value - median|.
        """
    @property
    def mean(self) -> float:
        ...
    @property
    def median(self) -> float:
        ...
    @property
    def mild(self) -> int:
        """
        Values 1.5 to 3 times (q3 - q1) outside the box; counted, not dropped.
        """
    @property
    def p5(self) -> float:
        """
        5 % quantile.
        """
    @property
    def p95(self) -> float:
        """
        95 % quantile.
        """
    @property
    def q1(self) -> float:
        """
        25 % quantile.
        """
    @property
    def q3(self) -> float:
        """
        75 % quantile.
        """
    @property
    def sd(self) -> float:
        """
        Standard deviation of the sample (n - 1).
        """
    @property
    def severe(self) -> int:
        """
        Values more than 3 times (q3 - q1) outside the box.
        """
class Trend:
    """
    Test of a trend in a series.
    """
    def __repr__(self) -> str:
        ...
    @property
    def drifting(self) -> bool:
        """
        p < 0.01, and more than 0.5 % from end to end.
        """
    @property
    def p(self) -> float:
        """
        Probability of as much order in a series without a trend.
        """
    @property
    def slope_per_100(self) -> float:
        """
        Relative change per 100 values (0.01 is 1 %).
        """
class Comparison:
    """
    Speed of a candidate over a baseline's, with a verdict.
    """
    def __repr__(self) -> str:
        ...
    @property
    def blocks(self) -> int:
        """
        Pairs, or values of the smaller side.
        """
    @property
    def high(self) -> float:
        ...
    @property
    def low(self) -> float:
        ...
    @property
    def more_blocks(self) -> int:
        """
        Blocks that an inconclusive verdict still needs, roughly.
        """
    @property
    def p(self) -> float:
        """
        Exact p by flipping the signs of all pairs; NaN from 10 pairs on, or unpaired.
        """
    @property
    def ratio(self) -> float:
        """
        Speed of the candidate over the baseline's: above 1 it is faster.
        """
    @property
    def reason(self) -> str:
        """
        Reason, as a sentence.
        """
    @property
    def verdict(self) -> str:
        """
        faster, slower, same or inconclusive.
        """
class Bootstrap:
    """
    An estimate with its interval from resampling.
    """
    def __repr__(self) -> str:
        ...
    @property
    def high(self) -> float:
        """
        NaN where there was nothing to resample.
        """
    @property
    def low(self) -> float:
        """
        NaN where there was nothing to resample.
        """
    @property
    def method(self) -> str:
        """
        BCa; percentile where its corrections cannot be had; t for fewer than 20 runs.
        """
    @property
    def runs(self) -> int:
        """
        Runs of the side that has fewer.
        """
    @property
    def value(self) -> float:
        ...
class StopRule:
    """
    Decides after each sample whether enough were taken.
    """
    def __repr__(self) -> str:
        ...
    def add(self, seconds: typing.SupportsFloat | typing.SupportsIndex, elapsed_s: typing.SupportsFloat | typing.SupportsIndex | None = None) -> str:
        """
        Take in a sample; returns the status. The budget is for `elapsed_s`, or the sum of the samples.
        
        Raises InvalidArgument for a time that is not positive and finite, Error when it has ended.
        """
    @property
    def reason(self) -> str:
        """
        Reason for the end, as a sentence.
        """
    @property
    def seconds(self) -> numpy.typing.NDArray[numpy.float64]:
        """
        The samples [n].
        """
    @property
    def status(self) -> str:
        """
        running, converged, noisy (it ended, but one number does not summarise the samples) or timeout.
        """
class Fixed(StopRule):
    """
    A fixed number of samples; converged when the mean is known to `target`.
    """
    def __init__(self, samples: typing.SupportsInt | typing.SupportsIndex, target: typing.SupportsFloat | typing.SupportsIndex = 0.01, budget_s: typing.SupportsFloat | typing.SupportsIndex = ...) -> None:
        ...
class StdRel(StopRule):
    """
    nvbench's stdrel: until the relative standard deviation is below `max_noise`, or settled.
    """
    def __init__(self, max_noise: typing.SupportsFloat | typing.SupportsIndex = 0.005, min_samples: typing.SupportsInt | typing.SupportsIndex = 40, min_time_s: typing.SupportsFloat | typing.SupportsIndex = 0.5, budget_s: typing.SupportsFloat | typing.SupportsIndex = 15.0) -> None:
        ...
class Entropy(StopRule):
    """
    nvbench's entropy: until the samples' distribution changes no more.
    """
    def __init__(self, max_angle_deg: typing.SupportsFloat | typing.SupportsIndex = 0.048, min_r2: typing.SupportsFloat | typing.SupportsIndex = 0.36, resolution: typing.SupportsFloat | typing.SupportsIndex = 0.005, budget_s: typing.SupportsFloat | typing.SupportsIndex = 15.0) -> None:
        ...
class Precision(StopRule):
    """
    Samples until the mean is known to `target` (95 %), looked at each time their number
    has doubled; noisy when neither of two doublings narrows the interval by 10 %.
    """
    def __init__(self, target: typing.SupportsFloat | typing.SupportsIndex = 0.01, first: typing.SupportsInt | typing.SupportsIndex = 80, budget_s: typing.SupportsFloat | typing.SupportsIndex = ...) -> None:
        ...
class Disturbances:
    """
    Counters of what disturbs this process; they only grow.
    """
    def __repr__(self) -> str:
        ...
    @property
    def involuntary_switches(self) -> int:
        """
        Threads taken off their core.
        """
    @property
    def pressure_s(self) -> float:
        """
        Time in which some task waited for a CPU; or NaN.
        """
    @property
    def steal_s(self) -> float:
        """
        CPU time the hypervisor gave to others; NaN if unknown.
        """
    @property
    def t_ns(self) -> int:
        """
        Time of reading, on `now_ns`.
        """
class StepTimer:
    """
    Start, end and number of items of each step, in memory set aside beforehand.
    
    The views are numpy arrays [count] of int64 without a copy: read-only, of the
    steps kept so far, and they keep the timer alive.
    """
    def __init__(self, capacity: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Room for `capacity` steps. Raises InvalidArgument when negative.
        """
    def __len__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def clear(self) -> None:
        """
        Forget all steps. Earlier views see the steps that follow.
        """
    def lap(self, items: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        End a step and begin the next at the same instant.
        """
    def start(self) -> None:
        """
        Begin a step now.
        """
    def stop(self, items: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        End the step now. Raises Error without a start, or when the timer is full.
        """
    @property
    def capacity(self) -> int:
        """
        Steps there is room for.
        """
    @property
    def count(self) -> int:
        """
        Steps kept.
        """
    @property
    def items(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        Items that each step finished.
        """
    @property
    def starts_ns(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        Start of each step, on `now_ns`.
        """
    @property
    def stops_ns(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        End of each step, on `now_ns`.
        """
class Cgroup:
    """
    A control group for one run, in one or more hierarchies.
    """
    @staticmethod
    def adopt(folders: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, str]]) -> Cgroup:
        """
        A group that another process left, as (version, folder) of each hierarchy.
        """
    def __repr__(self) -> str:
        ...
    def attach(self, process: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Move a process in; memory it has stays charged where it was.
        """
    def counters(self) -> dict:
        """
        Use of each resource: a dict; None where the kernel does not count it.
        """
    def kill(self, timeout_s: typing.SupportsFloat | typing.SupportsIndex = 5.0) -> list[int]:
        """
        Kill all but this process, wait for their end; returns the ids that are left.
        """
    def processes(self) -> list[int]:
        """
        Ids of the processes in it and below it.
        """
    def remove(self) -> None:
        """
        Remove the folders. Raises CgroupBusy with processes inside.
        """
    @property
    def applied(self) -> list:
        """
        Each limit as wanted and as found by reading it back.
        """
    @property
    def folders(self) -> list:
        """
        Version, folder and controllers in each hierarchy.
        """
class GroupTree:
    """
    A place for a supervisor's groups; puts everything back when closed.
    """
    def __init__(self, root: str, parent: str, name: str, controllers: collections.abc.Sequence[str]) -> None:
        """
        Make the folder `name` below `parent` ("": where this process may) in each hierarchy that has one of
        the controllers. Raises CgroupError's kinds; controllers that cannot be had are in `missing`.
        """
    def __repr__(self) -> str:
        ...
    def close(self) -> None:
        """
        Kill and remove what is left, put everything back.
        """
    def make(self, name: str, *, cpus: str | None = None, mems: str | None = None, memory_bytes: typing.SupportsInt | typing.SupportsIndex | None = None, cpu_quota: typing.SupportsFloat | typing.SupportsIndex | None = None, processes: typing.SupportsInt | typing.SupportsIndex | None = None, exclusive: bool = False) -> Cgroup:
        """
        A group with these limits, each read back.
        """
    @property
    def folders(self) -> list:
        ...
    @property
    def missing(self) -> dict[str, str]:
        """
        Controller → why it cannot be had.
        """
class Process:
    """
    A process that was started in a group.
    """
    def __repr__(self) -> str:
        ...
    def send(self, signal: typing.SupportsInt | typing.SupportsIndex, to_group: bool = False) -> None:
        """
        Send a signal; nothing after its end.
        """
    def wait(self, timeout_s: typing.SupportsFloat | typing.SupportsIndex) -> typing.Any:
        """
        Its end (code, signal, cpu_seconds, peak_resident_bytes), or None while it runs.
        """
    @property
    def id(self) -> int:
        ...
    @property
    def method(self) -> str:
        """
        Means by which it entered its group.
        """
class PerfValue:
    """
    Count of one counter of a `PerfGroup`.
    """
    def __init__(self, raw: typing.SupportsInt | typing.SupportsIndex, enabled_ns: typing.SupportsInt | typing.SupportsIndex, running_ns: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __repr__(self) -> str:
        ...
    @property
    def enabled_ns(self) -> int:
        """
        Time in which it was to count.
        """
    @property
    def multiplexed(self) -> bool:
        """
        True if it counted part of the time only, so that `scaled` is an estimate.
        """
    @property
    def raw(self) -> int:
        ...
    @property
    def running_ns(self) -> int:
        """
        Time in which it did count.
        """
    @property
    def scaled(self) -> float:
        """
        `raw` scaled to the whole of `enabled_ns`; NaN when it never ran.
        """
class PerfGroup:
    """
    Counters of one thread that count over the same instants (perf_event_open).
    """
    def __init__(self, tid: typing.SupportsInt | typing.SupportsIndex, names: collections.abc.Sequence[str]) -> None:
        """
        `tid` 0 is the caller. Raises Unavailable when the kernel refuses, with the reason and the way out.
        """
    def __repr__(self) -> str:
        ...
    def disable(self) -> None:
        ...
    def enable(self) -> None:
        """
        Go on counting, from where it was.
        """
    def read(self) -> list[PerfValue]:
        """
        A `PerfValue` for each of `names`.
        """
    @property
    def names(self) -> list[str]:
        ...
    @property
    def user_only(self) -> bool:
        """
        True if the kernel's own instructions are left out.
        """
class Bandwidth:
    """
    One measurement of `stream_triad`.
    """
    def __repr__(self) -> str:
        ...
    @property
    def best_bytes_per_s(self) -> float:
        ...
    @property
    def bytes_per_thread(self) -> int:
        ...
    @property
    def instruction_set(self) -> str:
        ...
    @property
    def median_bytes_per_s(self) -> float:
        ...
class ActivitySession:
    """
    CUPTI's activity records of this process; one at a time.
    """
    def __init__(self, tables: collections.abc.Sequence[str]) -> None:
        """
        Take CUPTI, to record these tables.
        
        Raises Unavailable without a GPU, or when another profiler holds CUPTI.
        """
    def close(self) -> None:
        """
        Give CUPTI back. May be repeated.
        """
    def start(self) -> None:
        """
        Wait for the devices, then record.
        """
    def stop(self) -> None:
        """
        Wait for the devices, fetch the records, record no more.
        """
    def take(self) -> dict:
        """
        Tables of columns [rows], without a copy, their strings, and counts; they are then gone.
        """
    @property
    def losses(self) -> dict:
        """
        Numbers of records and buffers that were lost.
        """
    @property
    def recording(self) -> bool:
        """
        True while a window is open.
        """
    @property
    def window_ns(self) -> tuple[int, int]:
        """
        Begin and end of the last window, on `now_ns`; zeros before there was one.
        """
class NvtxRange:
    """
    A name for NVTX ranges in the domain `dnnsuite`.
    """
    def __enter__(self) -> NvtxRange:
        """
        Push, with the payload `self.step`.
        """
    def __exit__(self, *error: typing.Any) -> None:
        """
        Pop.
        """
    def pop(self) -> None:
        """
        End the innermost range of this thread.
        """
    def push(self, step: int) -> None:
        """
        Begin the range in this thread, with the payload `step`.
        """
class CudaEvents:
    """
    Pairs of CUDA events from a pool, resolved when they happen to be over.
    """
    def __init__(self, pairs: typing.SupportsInt | typing.SupportsIndex = 1024) -> None:
        """
        Raises Unavailable without a driver, a device or libcudart.
        """
    def __repr__(self) -> str:
        ...
    def begin(self, key: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Begin the piece of work `key`.
        """
    def collect(self) -> None:
        """
        Resolve without waiting.
        """
    def end(self, key: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        End the piece of work.
        """
    def finish(self) -> None:
        """
        Wait for the device; resolve.
        """
    def set_stream(self, stream: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Record in this cudaStream_t from now on.
        """
    def take(self) -> list[tuple[int, int]]:
        """
        (key, nanoseconds on the device) of what was resolved since the last call.
        """
    @property
    def dropped(self) -> int:
        """
        Without a free pair, or refused by CUDA.
        """
    @property
    def last_error(self) -> int:
        """
        CUDA's status of the last refusal, or 0.
        """
    @property
    def pending(self) -> int:
        """
        Ended, and not yet over on the device.
        """
class Span:
    """
    A name whose spans are timed; made by `make_span`, and used again and again.
    """
    def __enter__(self) -> Span:
        """
        Same as begin.
        """
    def __exit__(self, *error: typing.Any) -> None:
        """
        Same as end.
        """
    def begin(self) -> None:
        """
        Begin the span now, inside those of this thread that are open.
        """
    def end(self) -> None:
        """
        End the span now. Raises Error unless it is this thread's innermost.
        """
class Spans:
    """
    Nested, named intervals of any thread, in memory set aside beforehand.
    """
    def __init__(self, capacity: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Room for `capacity` spans. Raises InvalidArgument when negative.
        """
    def __repr__(self) -> str:
        ...
    def clear(self) -> None:
        """
        Forget all spans. Raises Error while one is open.
        """
    def columns(self) -> dict:
        """
        Arrays [n] of the spans that have ended: slot, name (a number), step, depth, thread, t0_ns, t1_ns.
        """
    def names(self) -> list[str]:
        """
        The names by their number.
        """
    @property
    def capacity(self) -> int:
        """
        Spans there is room for.
        """
    @property
    def count(self) -> int:
        """
        Spans kept, those still open included.
        """
    @property
    def dropped(self) -> int:
        """
        Spans not kept, for want of room or their depth.
        """
    @property
    def open(self) -> int:
        """
        Spans begun and not ended.
        """
    @property
    def step(self) -> int:
        """
        The step that spans are of from now on.
        """
    @step.setter
    def step(self, arg1: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class CounterHost:
    """
    A chip's metrics, as CUPTI knows them. Needs no GPU.
    """
    def __init__(self, chip: str, collection: str = 'ranges', availability: bytes = b'') -> None:
        """
        Raises Unavailable without CUPTI, and for a chip that it does not know or cannot count on.
        """
    def accepts(self, metric: str) -> bool:
        """
        True if this full name can be collected.
        """
    def configure(self, metrics: collections.abc.Sequence[str]) -> typing.Any:
        """
        (passes, configuration) of these metrics together; None when they cannot be mixed.
        """
    def describe(self, metric: str) -> dict:
        """
        type, description, hardware_unit, unit. Raises InvalidArgument for an unknown name.
        """
    def evaluate(self, image: bytes, metrics: collections.abc.Sequence[str]) -> dict:
        """
        names, t0_ns, t1_ns and values [ranges or samples][metrics] of a sealed image; NaN where nothing was counted.
        
        Raises Error for anything but an image with an unbroken seal.
        """
    def max_metrics_per_pass(self) -> int:
        """
        CUPTI's upper bound.
        """
    def metrics(self, type: str) -> list[str]:
        """
        Names without submetric of one type.
        """
    def submetrics(self, metric: str) -> list[str]:
        """
        List the submetrics that may follow a name.
        """
class CounterDevice:
    """
    A GPU whose counters are to be read.
    """
    def __init__(self, ordinal: typing.SupportsInt | typing.SupportsIndex = 0) -> None:
        """
        Raises Unavailable without driver, GPU or CUPTI.
        """
    def availability(self, collection: str) -> bytes:
        """
        Availability image: the GPU's part of its chip's counters, for `CounterHost`.
        """
    def support(self) -> list:
        """
        Support of each of CUPTI's interfaces on it, with its conditions.
        """
    @property
    def chip(self) -> str:
        ...
class RangeCounters:
    """
    Counters over the steps of a loop; see range_session.hpp.
    """
    def __init__(self, device: CounterDevice, groups: collections.abc.Sequence[collections.abc.Sequence[str]], kernels: bool = False, max_ranges: typing.SupportsInt | typing.SupportsIndex = 64) -> None:
        ...
    def close(self) -> None:
        ...
    def mark(self, name: str) -> None:
        ...
    def start(self) -> None:
        ...
    def step(self) -> None:
        ...
    def stop(self) -> None:
        ...
    def take(self) -> list:
        """
        Segments since the last call: group, first_step, steps, dropped, image (sealed).
        """
    @property
    def passes(self) -> list[int]:
        ...
    @property
    def steps_left_out(self) -> int:
        ...
class SampledCounters:
    """
    A device's counters over time; see pm_sampling.hpp.
    """
    def __init__(self, device: CounterDevice, metrics: collections.abc.Sequence[str], interval: typing.SupportsInt | typing.SupportsIndex, interval_in_cycles: bool = False, keep_latest: bool = True, hardware_buffer_bytes: typing.SupportsInt | typing.SupportsIndex = 67108864) -> None:
        ...
    def close(self) -> None:
        ...
    def start(self) -> None:
        ...
    def stop(self) -> None:
        ...
    def take(self) -> list:
        """
        Windows since the last call: realtime_ns, monotonic_ns, overflows, t0_ns, t1_ns, values, image (sealed).
        """
class Guards:
    """
    Places that Python code can read, and what was there when each was added.
    """
    @staticmethod
    def __new__(type, *args, **kwargs):
        """
        Create and return a new object.  See help(type) for accurate signature.
        """
    def __len__(self):
        """
        Return len(self).
        """
    def attribute(self, owner: typing.Any, name: str) -> None:
        """
        Guard an attribute: the same object, or an equal one of its type.
        """
    def cell(self, cell: typing.Any) -> None:
        """
        Guard the object that a closure's cell holds.
        """
    def container(self, value: typing.Any, copy: typing.Any = None) -> None:
        """
        Guard a dict or a list: its keys and values are the same objects, in the same order. Any other
        container equals the `copy` of it.
        """
    def hold(self) -> bool:
        """
        True if all is as it was; False at the first that is not, or cannot be compared.
        """
    def item(self, mapping: typing.Any, key: typing.Any) -> None:
        """
        Guard the object under a key, or that there is none.
        """
    def memory(self, buffer: typing.Any) -> None:
        """
        Guard the bytes of a buffer.
        """
    def result(self, function: typing.Any, by_identity: bool = False) -> None:
        """
        Guard what a call returns: the same object, or without `by_identity` an equal one of its type.
        """
    def table(self, guards: Guards) -> None:
        """
        Guard all that another table guards.
        """
def add_library_folder(folder: str) -> None:
    """
    Look for vendors' libraries there too.
    """
def addition_ns(additions: typing.SupportsInt | typing.SupportsIndex = 100000) -> float:
    """
    Nanoseconds of one addition in a dependent chain: a cycle of the core, if this thread has it to itself.
    """
def batch_means(values: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batches: typing.SupportsInt | typing.SupportsIndex = 10, confidence: typing.SupportsFloat | typing.SupportsIndex = 0.95, *, independent: bool = False, may_be_negative: bool = False) -> Interval:
    """
    The mean of a series [n] whose values may be correlated, with its interval.
    
    From 20 values on the error is that of the slowest waves in them, corrected for the correlation of neighbours;
    fewer are averaged in `batches` pieces. independent=True: means of separate runs, by
    Student's t. `why` says where values are too few to rely on the interval: always for a series below 50, for
    runs below 6. An empty series gives NaN. Values that are all positive, as times are, have an interval on a
    logarithmic scale; may_be_negative=True: as differences and logarithms may, none.
    
    Raises InvalidArgument unless batches >= 2 and 0 < confidence < 1.
    """
def bootstrap_mean(runs: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex]], resamples: typing.SupportsInt | typing.SupportsIndex = 2000, confidence: typing.SupportsFloat | typing.SupportsIndex = 0.95, seed: typing.SupportsInt | typing.SupportsIndex = 0) -> Bootstrap:
    """
    The mean over runs of the mean over their blocks, `runs[r][k]`, by the hierarchical bootstrap (BCa).
    
    Runs are drawn with replacement, then blocks within each. The same seed gives the same bits. Of fewer than
    20 runs, where any bootstrap is too narrow, the interval is that of Student's t.
    
    Raises InvalidArgument for a run without blocks, or fewer than 100 resamples.
    """
def bootstrap_ratio(numerator: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex]], denominator: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex]], resamples: typing.SupportsInt | typing.SupportsIndex = 2000, confidence: typing.SupportsFloat | typing.SupportsIndex = 0.95, seed: typing.SupportsInt | typing.SupportsIndex = 0) -> Bootstrap:
    """
    The ratio of two means over runs, both sides resampled; as `bootstrap_mean`.
    """
def compare(baseline_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], candidate_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], *, paired: bool = True, threshold: typing.SupportsFloat | typing.SupportsIndex = 0.01, confidence: typing.SupportsFloat | typing.SupportsIndex = 0.95, independent: bool = False) -> Comparison:
    """
    Compare seconds of the same work [n]: block i of one with block i of the other (see `abba`), by log ratios
    and Student's t; with paired=False, samples of any length [n], [m] by Welch's t.
    
    Without pairs each sample is a series, as steps of one run are: its correlation widens the interval, and
    fewer than 20 values are too short. independent=True: means of separate runs, however few.
    
    Faster or slower where the interval excludes 1 and the effect exceeds `threshold`, same where it lies within
    the threshold, else inconclusive. Raises InvalidArgument for lengths that differ or a threshold <= 0.
    """
def counter_chips() -> list[str]:
    """
    The chips that CUPTI has heard of, as GH100.
    """
def counter_refusal(number: typing.SupportsInt | typing.SupportsIndex) -> typing.Any:
    """
    (reason, remedy) of a CUPTI error that speaks of the machine, None for other errors.
    """
def cuda_profiler_start() -> None:
    """
    cudaProfilerStart. Raises Unavailable without a driver, a device or libcudart.
    """
def cuda_profiler_stop() -> None:
    """
    cudaProfilerStop. Raises as cuda_profiler_start.
    """
def cupti_function_name(domain: typing.SupportsInt | typing.SupportsIndex, callback: typing.SupportsInt | typing.SupportsIndex) -> str:
    """
    Name of a recorded call: `domain` 1 is the runtime, 0 the driver.
    """
def cupti_version() -> int:
    """
    CUPTI's version, 130001 for CUDA 13.0. Raises Unavailable without it.
    """
def decode_activity(buffer: typing_extensions.Buffer) -> dict:
    """
    The records in a buffer that CUPTI filled in this process: its pointers are followed.
    
    Tables of columns [rows], strings and counts, as `ActivitySession.take` gives.
    """
def exit_without_destructors() -> bool:
    """
    Have this process, a forked child, end in `exit` without libraries' destructors, its status unchanged.
    
    Returns False where the C library is not glibc.
    """
def flatten(batch: typing.Any, tensor: typing.Any, plain: tuple, numbers: tuple, opened: typing.Any) -> tuple:
    """
    Take a batch apart: its tensors, its signature (their layouts and the values of everything else), and its numbers.
    
    The signature is None if a value cannot be compared. `tensor` is the type of tensors, `plain` are those of values, `numbers`
    those of numbers; `opened(value)` returns the names and the parts of any other value, or None.
    """
def format_cpu_list(numbers: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> str:
    """
    The shortest list format of the numbers, `0-3,8`. Raises InvalidArgument for a negative one.
    """
def heap_release() -> bool:
    """
    Give free memory back to the system and undo `heap_retain`.
    
    The threshold of glibc above which a block is mapped on its own stays at 128 KiB from then on.
    Returns False where the C library is not glibc.
    """
def heap_retain() -> bool:
    """
    Keep freed memory in the process, so that buffers as large as a step's are not page-faulted anew.
    
    Process-wide, and may be repeated. Returns False where the C library is not glibc.
    """
def launch(arguments: collections.abc.Sequence[str], environment: collections.abc.Sequence[str], group: typing.Any = None, *, folder: str = '', files: tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex] = (-1, -1, -1), cpus: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], mems: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], data_limit_bytes: typing.SupportsInt | typing.SupportsIndex | None = None, new_session: bool = True, close_files: bool = True) -> Process:
    """
    Start a program inside the group from its first instruction on. Raises LaunchError naming the step.
    """
def library_folders() -> list[str]:
    """
    List the folders of vendors' libraries, in the order of the search.
    """
def library_path(name: str, remedy: str = '') -> str:
    """
    The file of a vendor's library, which is opened for it. Raises Unavailable saying where it was looked for.
    """
def make_nvtx_range(type: type, name: str) -> typing.Any:
    """
    An `NvtxRange`, or an object of a class derived from it. Raises Unavailable in a build without NVTX.
    """
def make_span(type: type, spans: typing.Any, name: str, events: typing.Any = None, nvtx: bool = False) -> typing.Any:
    """
    A `Span`, or an object of a class derived from it.
    """
def mser5(values: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> Warmup:
    """
    Find the end of warm-up in a series of times [n] by MSER-5 (White 1997).
    
    Not steady when the truncation reaches the middle of the series, when what is left disagrees with the
    last half by more than its noise and 0.5 %, below 20 values, or when a value is not finite.
    """
def now_ns() -> int:
    """
    Nanoseconds of CLOCK_MONOTONIC, the same clock as `time.monotonic_ns()`.
    """
def nvtx_mark(name: str, step: typing.SupportsInt | typing.SupportsIndex = 0) -> None:
    """
    Mark an instant.
    """
def nvtx_start(name: str, step: typing.SupportsInt | typing.SupportsIndex = 0) -> int:
    """
    Begin a range of the process; returns what `nvtx_stop` takes.
    """
def nvtx_stop(range: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    End the range, from any thread.
    """
def parse_cpu_list(text: str) -> list[int]:
    """
    The numbers of the kernel's list format, `0-3,8`, sorted. Raises InvalidArgument for anything else.
    """
def perf_events() -> list[tuple]:
    """
    (name, unit, definition) of every event that a `PerfGroup` knows.
    """
def quantile(values: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], q: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    The `q` quantile of values [n], between neighbours linearly; NaN without values.
    """
def rate(items: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], seconds: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batches: typing.SupportsInt | typing.SupportsIndex = 10, confidence: typing.SupportsFloat | typing.SupportsIndex = 0.95) -> Interval:
    """
    Items per second of a run: all items [n] / all seconds [n].
    
    The interval is that of the time per item by batch means, inverted, and so not symmetric.
    
    Raises InvalidArgument for lengths that differ, and as `batch_means`.
    """
def read_disturbances() -> Disturbances:
    """
    Read the counters of the kernel.
    """
def read_hierarchies(root: str = '') -> list:
    """
    The mounted trees of control groups, and this process's group in each.
    """
def read_topology(root: str = '') -> dict:
    """
    CPUs, NUMA nodes, PCI devices and memory of this machine, or of the /sys and /proc under `root`.
    
    Raises Error when there are no CPUs to be read.
    """
def require_driver() -> None:
    """
    Raises Unavailable unless NVIDIA's driver is there and shows a GPU.
    """
def seal_counter_image(image: bytes) -> bytes:
    """
    A counter-data image of CUPTI's with the seal that `CounterHost.evaluate` asks for.
    """
def spin(iterations: typing.SupportsInt | typing.SupportsIndex) -> tuple[int, int]:
    """
    (wall ns, CPU ns of this thread) of a fixed piece of arithmetic that needs no memory.
    """
def stream_triad(cpus: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], bytes_per_thread: typing.SupportsInt | typing.SupportsIndex, repeats: typing.SupportsInt | typing.SupportsIndex = 5, least_ns: typing.SupportsInt | typing.SupportsIndex = 20000000) -> Bandwidth:
    """
    Memory bandwidth by STREAM's triad, one bound thread for each entry of `cpus` (-1: not bound).
    
    `bytes_per_thread` is the size of the three arrays together, 24 bytes an element are counted, and each of
    `repeats` lasts at least `least_ns`. Raises InvalidArgument, and Error when a CPU is refused.
    """
def student_t(confidence: typing.SupportsFloat | typing.SupportsIndex, degrees: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    The t for which Student's t lies in [-t, t] with probability `confidence`.
    
    Raises InvalidArgument unless 0 < confidence < 1 and degrees > 0.
    """
def summarise(values: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> Summary:
    """
    Centre, spread and outliers of values [n].
    """
def trend(values: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> Trend:
    """
    The test of Mann and Kendall on values [n], over at most 40 means of neighbours, with Theil and Sen's slope.
    """
