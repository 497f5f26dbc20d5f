# SPDX-License-Identifier: MIT
"""Traces for viewers: https://ui.perfetto.dev, chrome://tracing, TensorBoard.

The format is Chrome's Trace Event Format. Each table of intervals is a track for each GPU stream or host thread, each
table of samples a counter, and an arrow leads from the call that launched a kernel to the kernel.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plots
from .._files import OutputError, replacing, write_json, write_text
from .._lazy import pandas as pd
from .._shown import duration, percent
from ..errors import InvalidArgument, reason
from ..results import save_csv
from ._breakdown import TRANSPARENT, meaning
from ._windows import Phase
from .instrument import definitions
from .summary import record, summary, under_the_roofs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ._profile import Profile

_GPU_TABLES = ("kernels", "memops", "graphs")
_LABELS = ("name", "phase", "function", "operation", "kind", "op")  # the first of these columns names the slices
_UNSHOWN = {"t0_ns", "t1_ns", "device", "stream", "thread", "t_ns"}  # the slice's place says it already
_GPU = 1_000_000  # process numbers: GPUs from here, counters from twice this; hosts' own are below
_HOST = 1


@dataclass
class _Tracks:
    """Numbers for processes and threads of the trace, and the events that name them."""

    names: list[str] = field(default_factory=list)
    _processes: set[int] = field(default_factory=set)
    _threads: dict[tuple[int, Any], int] = field(default_factory=dict)

    def process(self, pid: int, name: str) -> int:
        if pid not in self._processes:
            self._processes.add(pid)
            self._name("process_name", pid, 0, name)
        return pid

    def thread(self, pid: int, key: Any, name: str) -> int:
        tid = self._threads.setdefault((pid, key), len(self._threads) + 1)
        if tid == len(self._threads):
            self._name("thread_name", pid, tid, name)
        return tid

    def _name(self, what: str, pid: int, tid: int, name: str) -> None:
        self.names.append(f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"name":{json.dumps(name)}}}}}')


def export_trace(tables: Mapping[str, pd.DataFrame], path: str | Path) -> Path:
    """Write the trace of `tables` to `path`, compressed when that ends in `.gz`; whole or not at all.

    Args:
        tables: tables by name, with times in ns of CLOCK_MONOTONIC. A table with columns `t0_ns`, `t1_ns` gives
            slices, named by its column `name`, `phase`, `function`, `operation` or `kind`. One with `device` and
            without `thread` lies at that GPU, on its `stream` where it has one; others lie at the host, on their
            `thread`. A table with `t_ns`, `name` and `value` gives counters. Others, and empty ones, are left out.

    Returns:
        `path`.

    Raises:
        InvalidArgument: nothing in `tables` can be shown.
        OutputError: `path` cannot be written.
    """
    target = Path(path)
    events = trace_events(tables)
    with replacing(target) as temporary:
        opened = gzip.open if target.suffix == ".gz" else open
        with opened(temporary, "wt", encoding="utf-8") as file:
            file.write('{"displayTimeUnit":"ns","otherData":{"clock":"CLOCK_MONOTONIC",')
            file.write(f'"base_ns":"{_begin_ns(tables)}","producer":"dnnsuite"}},"traceEvents":[\n')
            for number, event in enumerate(events):
                file.write(event if number == 0 else ",\n" + event)
            file.write("\n]}\n")
    return target


def trace_events(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield the events of :func:`export_trace` as JSON; times in µs since the earliest of all tables.

    Raises:
        InvalidArgument: nothing in `tables` can be shown.
    """
    begin_ns = _begin_ns(tables)
    return _events(tables, begin_ns)


def _events(tables: Mapping[str, pd.DataFrame], begin_ns: int) -> Iterator[str]:
    tracks = _Tracks()
    for name, table in tables.items():
        if _has_slices(table):
            yield from _slices(name, table, begin_ns, tracks)
        elif _has_samples(table):
            yield from _counters(table, begin_ns, tracks)
    yield from _arrows(tables, begin_ns, tracks)
    yield from tracks.names


def _has_slices(table: pd.DataFrame) -> bool:
    return len(table) > 0 and {"t0_ns", "t1_ns"} <= {*table.columns}


def _has_samples(table: pd.DataFrame) -> bool:
    return len(table) > 0 and {"t_ns", "name", "value"} <= {*table.columns}


def _begin_ns(tables: Mapping[str, pd.DataFrame]) -> int:
    begins = [int(table["t0_ns"].min()) for table in tables.values() if _has_slices(table)]
    begins += [int(table["t_ns"].min()) for table in tables.values() if _has_samples(table)]
    if not begins:
        raise InvalidArgument(f"tables {sorted(tables)}: none has rows with t0_ns and t1_ns, or t_ns, name and value")
    return min(begins)


def _us(t_ns: int) -> str:
    """Format microseconds to the nanosecond: a float would round after some days."""
    return f"{t_ns // 1000}.{t_ns % 1000:03d}"


def _texts(table: pd.DataFrame, column: str) -> list[str]:
    """Convert a column to JSON strings; each distinct one once."""
    values = table[column].astype("category").cat
    known = [json.dumps(str(value)) for value in values.categories]
    return [known[code] if code >= 0 else '"?"' for code in values.codes.tolist()]


def _place(name: str, table: pd.DataFrame, tracks: _Tracks) -> Iterable[tuple[int, int]]:
    """Yield (process, thread) of each row."""
    if "device" in table and "thread" not in table:
        streams = [name] * len(table)
        if "stream" in table:
            streams = [f"stream {stream}" for stream in table["stream"].tolist()]
        keys = list(zip(table["device"].tolist(), streams, strict=True))
        known = {
            (device, stream): (
                tracks.process(_GPU + device, f"GPU {device}"),
                tracks.thread(_GPU + device, stream, stream),
            )
            for device, stream in sorted({*keys})
        }
        return [known[key] for key in keys]
    pid = tracks.process(_HOST, "host")
    threads = table["thread"].tolist() if "thread" in table else [None] * len(table)
    tids = {
        thread: tracks.thread(pid, (thread, name), name if thread is None else f"{name} of thread {thread}")
        for thread in dict.fromkeys(threads)
    }
    return [(pid, tids[thread]) for thread in threads]


def _slices(name: str, table: pd.DataFrame, begin_ns: int, tracks: _Tracks) -> Iterator[str]:
    label = next((column for column in _LABELS if column in table), None)
    texts = _texts(table, label) if label else [json.dumps(name)] * len(table)
    begins = (table["t0_ns"].to_numpy(np.int64) - begin_ns).tolist()
    lengths = np.maximum(table["t1_ns"].to_numpy(np.int64) - table["t0_ns"].to_numpy(np.int64), 0).tolist()
    rows = zip(texts, begins, lengths, _place(name, table, tracks), _arguments(table, label), strict=True)
    for text, begin, length, (pid, tid), arguments in rows:
        yield (
            f'{{"ph":"X","cat":"{name}","name":{text},"ts":{_us(begin)},"dur":{_us(length)},"pid":{pid},'
            f'"tid":{tid},"args":{{{arguments}}}}}'
        )


def _arguments(table: pd.DataFrame, label: str | None) -> list[str]:
    """Format the remaining columns of each row as the inside of a JSON object, without missing values."""
    shown = [str(column) for column in table.columns if column not in _UNSHOWN and column != label]
    pieces = []
    for column in shown:
        key, values = json.dumps(column), table[column]
        missing = values.isna().tolist()
        if values.dtype.kind in "iufb":
            known = [repr(value).lower() for value in values.tolist()]  # true, not True
            missing = [lost or text in ("inf", "-inf") for lost, text in zip(missing, known, strict=True)]
        elif values.dtype.kind in "O" and not len(values.dropna()):
            continue
        else:
            known = _texts(table, column)
        pieces.append(["" if lost else f"{key}:{text}" for lost, text in zip(missing, known, strict=True)])
    return [",".join(filter(None, row)) for row in zip(*pieces, strict=True)] if pieces else [""] * len(table)


def _counters(table: pd.DataFrame, begin_ns: int, tracks: _Tracks) -> Iterator[str]:
    """Yield a counter for each (source, device, name) of the samples; values that are not numbers are left out."""
    keys = [column for column in ("source", "device") if column in table]
    finite = table[np.isfinite(table["value"].to_numpy(np.float64))]
    for number, (key, rows) in enumerate(finite.groupby([*keys, "name"], sort=True, observed=True, dropna=False)):
        *where, name = key
        places = [str(part) for part in where if part == part and str(part)]  # NaN differs from itself
        pid = tracks.process(2 * _GPU + number, " ".join([*places, "samples"]))
        unit = str(rows["unit"].iloc[0]) if "unit" in rows else ""
        text = json.dumps(f"{name} ({unit})" if unit else str(name))
        times = (rows["t_ns"].to_numpy(np.int64) - begin_ns).tolist()
        for time, value in zip(times, rows["value"].to_numpy(np.float64).tolist(), strict=True):
            yield f'{{"ph":"C","name":{text},"ts":{_us(time)},"pid":{pid},"tid":0,"args":{{"value":{value!r}}}}}'


def _arrows(tables: Mapping[str, pd.DataFrame], begin_ns: int, tracks: _Tracks) -> Iterator[str]:
    """Yield arrows from each call to the work that it launched, by correlation id."""
    api = tables.get("api")
    if api is None or not _has_slices(api):
        return
    calls = api.sort_values("t0_ns", kind="stable").drop_duplicates("correlation").set_index("correlation")
    for name in _GPU_TABLES:
        work = tables.get(name)
        if work is None or not _has_slices(work):
            continue
        launched = work[work["correlation"].isin(calls.index)]
        callers = calls.loc[launched["correlation"]]
        rows = zip(
            launched["correlation"].tolist(),
            (callers["t0_ns"].to_numpy() - begin_ns).tolist(),
            _place("api", callers, tracks),
            (launched["t0_ns"].to_numpy() - begin_ns).tolist(),
            _place(name, launched, tracks),
            strict=True,
        )
        for number, called, (host, thread), ran, (gpu, stream) in rows:
            flow = f'"cat":"launch","name":"launch","id":{number}'
            yield f'{{"ph":"s",{flow},"ts":{_us(called)},"pid":{host},"tid":{thread}}}'
            yield f'{{"ph":"f","bp":"e",{flow},"ts":{_us(ran)},"pid":{gpu},"tid":{stream}}}'


_COLOURS = {
    "data": "#e69f00", "data wait": "#e69f00", "forward": "#56b4e9", "backward": "#0072b2", "optimizer": "#cc79a7",
    "host": "#999999", "idle": "#dddddd", "communication": "#d55e00", "gemm": "#009e73", "conv": "#117733",
    "attention": "#44aa99", "recurrence": "#332288", "norm": "#aa4499", "elementwise": "#f0e442", "copy": "#882255",
    "reduction": "#ddcc77", "loss": "#cc6677", "embedding": "#88ccee", "pooling": "#999933",
    "softmax": "#661100", "random": "#6699cc", "other": "#bbbbbb",
    "compiled": "#e7298a", "custom": "#a6761d", "fft": "#1b9e77", "linalg": "#7570b3", "views": "#cccccc",
    "frame": "#777777",
}  # fmt: skip
_STEPS = 3  # of a window that are drawn: more cannot be read


def colour(name: str) -> str:
    """Return the colour of a class or phase, the same in every figure."""
    return _COLOURS.get(name, "#666666")


def bars(breakdown: pd.DataFrame, ax: Axes) -> Axes:
    """Draw shares of a step as horizontal bars, largest on top."""
    table = breakdown.iloc[::-1]
    drawn = ax.barh(table["class"], table["share_pct"], color=[colour(name) for name in table["class"]])
    labels = [
        f"{percent(share)}  ({duration(ms / 1e3)})"
        for share, ms in zip(table["share_pct"], table["ms_per_step"], strict=True)
    ]
    ax.bar_label(drawn, labels, padding=3, fontsize=8)
    ax.set_xlim(0, min(100, table["share_pct"].max()) * 1.35)
    ax.set_xlabel("share of a step's wall time (%)")
    ax.set_title("Where a step's time goes", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def sizes(table: pd.DataFrame, shares: Axes, rates: Axes) -> None:
    """Draw shares of a step, stacked, and the rate with its interval over batch sizes.

    Args:
        table: a row per batch size: `batch_size`, `rate`, `rate_low`, `rate_high`, `unit` and columns `CLASS (%)`.
        shares, rates: axes to draw on.
    """
    labels = [str(size) for size in table["batch_size"]]
    bottom = np.zeros(len(table))
    columns = [column for column in table.columns if column.endswith(" (%)")]
    for column in sorted(columns, key=lambda name: -table[name].sum()):
        name = column.removesuffix(" (%)")
        shares.bar(labels, table[column], bottom=bottom, color=colour(name), label=name, width=0.7)
        bottom += table[column].to_numpy()
    shares.set_ylabel("share of a step (%)")
    shares.set_xlabel("batch size")
    shares.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    spread = np.abs(table[["rate_low", "rate_high"]].to_numpy(float).T - table["rate"].to_numpy(float))
    rates.errorbar(labels, table["rate"].astype(float), yerr=np.nan_to_num(spread), marker="o", capsize=3)
    rates.set_ylim(bottom=0)
    rates.set_ylabel(str(table["unit"].iloc[0]))
    rates.set_xlabel("batch size")


def timeline(tables: dict[str, pd.DataFrame], ax: Axes) -> Axes:
    """Draw the first observed steps over time: phases and operators of each thread, kernels of each stream."""
    steps = tables["steps"]
    active = steps[steps["phase"] == "active"]
    shown = active[active["window"] == active["window"].min()].head(_STEPS)
    begin, end = int(shown["t0_ns"].min()), int(shown["t1_ns"].max())
    rows = [row for row in _rows(tables) if ((row[1]["t0_ns"] < end) & (row[1]["t1_ns"] > begin)).any()]
    seen: dict[str, Any] = {}
    for at, (_, intervals) in enumerate(rows):
        for kind, part in intervals.groupby("kind", sort=False):
            part = part[(part["t0_ns"] < end) & (part["t1_ns"] > begin)]
            spans = np.column_stack([(part["t0_ns"] - begin) / 1e6, (part["t1_ns"] - part["t0_ns"]) / 1e6])
            drawn = ax.broken_barh(spans.tolist(), (at - 0.4, 0.8), facecolors=colour(str(kind)))
            seen.setdefault(str(kind), drawn)
    for edge in [*shown["t0_ns"], end]:
        ax.axvline((edge - begin) / 1e6, color="black", linewidth=0.6, linestyle=":")
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    ax.set_xlim(0, (end - begin) / 1e6)
    ax.set_xlabel("ms; dotted lines: steps")
    ax.set_title("The first observed steps", loc="left")
    ax.legend(seen.values(), seen.keys(), loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    return ax


def _rows(tables: dict[str, pd.DataFrame]) -> list[tuple[str, pd.DataFrame]]:
    """List (label, intervals with columns kind, t0_ns, t1_ns), the loop's thread first."""
    rows = []
    if (phases := tables.get("phases")) is not None:
        for number, (_, table) in enumerate(phases.groupby("thread", sort=False)):
            rows.append((_numbered("phases", number), table.assign(kind=table["phase"])))
    if (ops := tables.get("ops")) is not None:
        known = ops.assign(kind=[meaning(str(kind))[0] for kind in ops["class"]])
        known = known[~known["class"].isin(TRANSPARENT) & ~known["name"].astype(str).str.startswith("Optimizer")]
        for number, (_, table) in enumerate(known.groupby("thread", sort=False)):
            rows.append((_numbered("operators", number), table))
    if (kernels := tables.get("kernels")) is not None:
        for stream, table in kernels.groupby("stream", sort=True):
            rows.append((f"stream {stream}", table.assign(kind=[meaning(str(kind))[0] for kind in table["class"]])))
    return rows


def _numbered(name: str, number: int) -> str:
    return name if number == 0 else f"{name}, thread {number + 1}"


def save(profile: Profile, directory: Path, figures: bool = True) -> list[Path]:
    """Write everything, or all but the figures, into `directory`, which is made; return the files.

    Raises:
        OutputError: the directory cannot be made, or a file cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {directory}: {reason(error)}") from error
    files = []
    for name, table in profile.tables.items():
        files.append(directory / f"{name}.csv")
        save_csv(table, files[-1])
    files += [directory / name for name in ("definitions.json", "profile.json", "summary.txt")]
    write_json(files[-3], {name: definitions(table) for name, table in profile.tables.items()})
    write_json(files[-2], record(profile))
    write_text(files[-1], summary(profile))
    if profile.active:
        files.append(save_trace(profile.tables, directory / "trace.json.gz"))
        files += _draw(profile, directory) if figures else []
    return files


def save_trace(tables: dict[str, pd.DataFrame], path: Path) -> Path:
    """Write a profile's tables as a trace for Perfetto or chrome://tracing; observed steps are its first track."""
    steps = tables["steps"]
    observed = steps[steps["phase"] == Phase.ACTIVE.value]
    named = observed.assign(name=[f"step {number}" for number in observed["step"]], thread=0)
    shown = {name: table for name, table in tables.items() if name not in ("steps", "steps_cpu")}
    return export_trace({"steps": named, **shown}, path)


def _draw(profile: Profile, directory: Path) -> list[Path]:
    from matplotlib.figure import Figure

    from .roofline import draw

    files = []
    if "phases" in profile.tables or "ops" in profile.tables or "kernels" in profile.tables:
        files.append(directory / "timeline.png")
        plots.save(timeline(profile.tables, Figure(figsize=(10, 3)).subplots()), files[-1])
    roof = under_the_roofs(profile)
    if roof is not None:
        files += [directory / "roofline.csv", directory / "roofline.png"]
        save_csv(roof.table, files[-2])
        plots.save(draw(roof.peaks, roof.table, Figure(figsize=(6.4, 4)).subplots(), roof.lanes), files[-1])
    breakdown = profile.tables.get("breakdown")
    if breakdown is None:
        return files
    height = 1.2 + 0.3 * len(breakdown)
    files.append(directory / "breakdown.png")
    plots.save(bars(breakdown, Figure(figsize=(6.4, height)).subplots()), files[-1])
    return files
