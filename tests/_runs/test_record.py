# SPDX-License-Identifier: MIT
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from dnnsuite._runs.record import (
    KINDS,
    VERSION,
    BadRecord,
    Device,
    Isolation,
    Machine,
    Metric,
    Moment,
    RunRecord,
    Samples,
    Verdict,
    data_source,
    new_id,
)


def a_record(**more: Any) -> RunRecord:
    record = RunRecord(
        id=new_id(), kind="suite", plan_id=new_id(), plan="fast", job="vae", mode="shares", precision="fp32", B=1,
        repeat=2, verdict=Verdict.good(), machine=Machine("node", "A processor", 2, 1, ("A GPU",), "570"),
        device=Device("cuda", "A GPU", ("GPU-1",)), started=Moment.now(), unit="images", share="0", copies=2,
        isolation=Isolation("cgroup", "auto", {"plan": "x"}),
        metrics=(Metric("throughput", 3.0, "images/s", 2.0, 4.0),),
        samples=Samples(), disturbances=("throttled",), details={"number": 3},
    )  # fmt: skip
    return replace(record, **more)


def changed(**more: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(a_record().to_dict()))
    return {**values, **more}


@pytest.mark.parametrize("kind", KINDS)
def test_json_gives_back_the_same_record(kind: Any) -> None:
    record = a_record(kind=kind)
    assert RunRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_the_version_is_written() -> None:
    assert changed()["version"] == VERSION


def test_a_key_of_a_later_version_is_left_out() -> None:
    assert RunRecord.from_dict(changed(weather="rain")).job == "vae"


def test_a_value_that_was_nan_is_nan_again() -> None:
    values = changed(metrics=[{"name": "throughput", "value": None, "unit": "images/s"}])
    assert math.isnan(RunRecord.from_dict(values).metrics[0].value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": VERSION + 1}, "upgrade dnnsuite"),
        ({"version": "two"}, "not the record"),
        ({"kind": "party"}, "kind is 'party'"),
        ({"verdict": {"status": "perhaps"}}, "status is 'perhaps'"),
        ({"verdict": None}, "not the record"),
        ({"B": "two"}, "B is 'two'"),
        ({"repeat": -1}, "repeat is -1"),
        ({"copies": True}, "copies is True"),
        ({"job": 3}, "job is 3"),
        ({"metrics": [{"name": "throughput", "value": -5.0, "unit": "images/s"}]}, "throughput is -5.0"),
        ({"metrics": [{"name": "throughput", "value": 1e308, "unit": "images/s"}]}, "throughput is 1e"),
        ({"metrics": [{"name": "throughput", "value": math.inf, "unit": "images/s"}]}, "throughput is inf"),
        ({"metrics": [{"name": "throughput", "value": "fast", "unit": "images/s"}]}, "value is 'fast'"),
        ({"metrics": [{"name": "throughput", "value": 1, "unit": "images/s", "low": []}]}, "low is"),
        ({"metrics": [{"value": 1}]}, "not the record"),
        ({"metrics": [3]}, "not the record"),
    ],
    ids=str,
)
def test_a_value_that_no_run_has_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        RunRecord.from_dict(changed(**change))


@pytest.mark.parametrize("key", ["id", "kind", "job", "verdict", "machine", "started", "unit", "version"])
def test_a_missing_key_is_named(key: str) -> None:
    values = changed()
    del values[key]
    with pytest.raises(BadRecord, match=key):
        RunRecord.from_dict(values)


@pytest.mark.parametrize("values", [[], None, 3, "text"])
def test_what_is_no_object_is_refused(values: Any) -> None:
    with pytest.raises(BadRecord):
        RunRecord.from_dict(values)


def test_a_moment_is_in_utc_and_sorts_as_text() -> None:
    first, second = Moment.now(), Moment.now()
    assert first.utc <= second.utc
    assert first.utc.endswith("Z")
    assert first.monotonic_ns <= second.monotonic_ns


@pytest.mark.parametrize(
    ("provenance", "source"),
    [
        ({"data": {"source": "digits (scikit-learn)", "licence": "BSD"}}, "digits (scikit-learn)"),
        ({"data": "none"}, "none"),
        ({"parameters": 3}, ""),
        (None, ""),
    ],
)
def test_the_source_of_data(provenance: Any, source: str) -> None:
    assert data_source(provenance) == source


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("machine", "gpus"), [{"name": "A GPU"}], "gpus of the machine is .*: not a list of texts"),
        (("machine", "gpus"), 1.5, "gpus of the machine is 1.5"),
        (("machine", "gpus"), "A GPU", "gpus of the machine is 'A GPU'"),
        (("device", "uuids"), [None], "uuids of the device is"),
        (("disturbances",), "contaminated", "disturbances is 'contaminated': not a list"),
        (("metrics",), [{"name": "throughput", "value": 10**400, "unit": "s"}], "value has 401 digits"),
        (("machine", "cpu_model"), 7, "cpu_model of the machine is 7: not a text"),
        (("machine", "cpus"), {}, "cpus is {}"),
        (("versions",), {"torch": 2.13}, "version of torch is 2.13: not a text"),
        (("metrics",), [{"name": 1, "value": 1.0, "unit": "s"}], "name of a metric is 1"),
        (("metrics",), [{"name": "throughput/with loader", "value": -1.0, "unit": "s"}], "a rate is more than 0"),
        (("disturbances",), [1.5], r"disturbances is \(1.5,\)"),
        (("seed",), 10**400, "seed is 1000"),
        (("copies",), 2**63, "copies is 9223372036854775808: not a count"),
        (("skipped_steps",), math.inf, "skipped_steps is inf"),
        (("changed",), ["lr"], r"changed is \['lr'\]: not an object"),
    ],
)
def test_odd_values_deep_in_a_record_are_named(path: tuple[str, ...], value: Any, said: str) -> None:
    values = changed()
    part = values
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(BadRecord, match=said):
        RunRecord.from_dict(values)
