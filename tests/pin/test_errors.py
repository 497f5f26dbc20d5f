# SPDX-License-Identifier: MIT
import errno
import pickle

import pytest

from dnnsuite import errors as base
from dnnsuite.pin import errors

CGROUP = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CgroupError)]


@pytest.mark.parametrize("kind", CGROUP, ids=lambda kind: kind.__name__)
def test_control_group_errors_say_what_where_why_and_the_way_out(kind: type) -> None:
    error = kind("write", "/sys/fs/cgroup/x/pids.max", "12", errno.EROFS, "mount it rw")
    text = "control group: write '12' /sys/fs/cgroup/x/pids.max: Read-only file system; mount it rw"
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == text
    assert isinstance(error, base.Error)
    assert (error.errno, error.hint) == (errno.EROFS, "mount it rw")
    assert str(kind("attach")) == "control group: attach"


def test_planning_errors_are_refused_arguments() -> None:
    for kind in (errors.NotEnoughCpus, errors.NotEnoughMemory, errors.HeterogeneousCpus, errors.SmtSplit):
        assert issubclass(kind, base.InvalidArgument)
    assert issubclass(errors.PinningTooWeak, base.Unavailable)
