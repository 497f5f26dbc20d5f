"""
The instruments of dnnsuite: clock, timers, statistics.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
__all__: list[str] = ['Interval', 'RunningStatistics', 'StepTimer', 'Warmup', 'batch_means', 'format_cpu_list', 'heap_release', 'heap_retain', 'mser5', 'now_ns', 'parse_cpu_list', 'rate', 'read_topology', 'student_t']
class RunningStatistics:
    """
    Count, mean, variance, minimum and maximum of values seen one at a time.
    """
    def __init__(self) -> None:
        ...
    def add(self, value: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """
        Take one value in.
        """
    def merge(self, other: RunningStatistics) -> None:
        """
        As if every value of `other` had been added too.
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
        Of the sample (n - 1); NaN below two values.
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
class Warmup:
    """
    Where a series of times settles.
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
        Why, or why not, as a sentence.
        """
    @property
    def steady(self) -> bool:
        """
        Whether what is left may be summarised by one number.
        """
    @property
    def truncated(self) -> int:
        """
        Values to drop from the front.
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
    def clear(self) -> None:
        """
        Forget all steps. Earlier views see the steps that follow.
        """
    def lap(self, items: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        The step ends and the next begins at the same instant.
        """
    def start(self) -> None:
        """
        A step begins now.
        """
    def stop(self, items: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        The step ends now. Raises Error without a start, or when the timer is full.
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
        What each step finished.
        """
    @property
    def starts_ns(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        When each step began, on `now_ns`.
        """
    @property
    def stops_ns(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        When each step ended, on `now_ns`.
        """
def batch_means(values: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batches: typing.SupportsInt | typing.SupportsIndex = 10, confidence: typing.SupportsFloat | typing.SupportsIndex = 0.95) -> Interval:
    """
    The mean of a series [n] whose values may be correlated, with its interval.
    
    Non-overlapping batch means with Student's t: neighbouring values are averaged in `batches` pieces of
    equal length, which are nearly independent. A short series gives fewer batches, an empty one NaN.
    
    Raises InvalidArgument unless batches >= 2 and 0 < confidence < 1.
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
def parse_cpu_list(text: str) -> list[int]:
    """
    The numbers of the kernel's list format, `0-3,8`, sorted. Raises InvalidArgument for anything else.
    """
def rate(items: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], seconds: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batches: typing.SupportsInt | typing.SupportsIndex = 10, confidence: typing.SupportsFloat | typing.SupportsIndex = 0.95) -> Interval:
    """
    Items per second of a run: all items [n] / all seconds [n].
    
    The interval is that of the time per item by batch means, inverted, and so not symmetric.
    
    Raises InvalidArgument for lengths that differ, and as `batch_means`.
    """
def read_topology(root: str = '') -> dict:
    """
    CPUs, NUMA nodes, PCI devices and memory of this machine, or of the /sys and /proc under `root`.
    
    Raises Error when there are no CPUs to be read.
    """
def student_t(confidence: typing.SupportsFloat | typing.SupportsIndex, degrees: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    The t for which Student's t lies in [-t, t] with probability `confidence`.
    
    Raises InvalidArgument unless 0 < confidence < 1 and degrees > 0.
    """
