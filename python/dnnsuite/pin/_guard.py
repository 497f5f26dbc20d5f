# SPDX-License-Identifier: MIT
"""Guard: a process that outlives its supervisor by a moment and ends the groups and processes it left."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from . import _groups
from .errors import CgroupError

_TRIES = 20


class Guard:
    """Watch over this process: when it is gone without :meth:`release`, everything of the run `name` is ended."""

    def __init__(self, name: str) -> None:
        read, self._write = os.pipe()  # the end is closed by the kernel when this process dies
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(read), name],
                pass_fds=(read,),
                start_new_session=True,
                close_fds=True,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except BaseException:
            os.close(self._write)
            raise
        finally:
            os.close(read)

    def release(self) -> None:
        """Stand down: nothing is left to be ended."""
        if self._write >= 0:
            os.write(self._write, b"!")
            os.close(self._write)
            self._write = -1
            self._process.wait()


def main(descriptor: int, name: str) -> None:
    """Wait for the end of the pipe; a byte before it means that all is well."""
    if os.read(descriptor, 1):
        return
    for _ in range(_TRIES):  # what the supervisor had just begun may appear yet
        try:
            _groups.end(name)
            left = [done for _, done in _groups.clean(kill=True, only=name) if not done.startswith("kept")]
        except (CgroupError, OSError):
            left = ["failed"]
        if not left and not _groups.of_run(name):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
