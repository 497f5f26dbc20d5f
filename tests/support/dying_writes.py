# SPDX-License-Identifier: MIT
"""A file layer that ends the process at its n-th write: before a file or folder gets its name, or loses it, or when
half of what is added to a file is there."""

import os
import traceback
from collections.abc import Callable

_WRITES = ("replace", "rename", "unlink", "remove", "rmdir")


def _counted(number: int | None, seen: list[int]) -> None:
    """Patch the file layer of this process, which is a child that ends soon."""
    for name in _WRITES:
        real = getattr(os, name)

        def write(*arguments, real=real, **options):
            seen[0] += 1
            if seen[0] == number:
                os._exit(9)
            return real(*arguments, **options)

        setattr(os, name, write)
    real_add = os.pwrite

    def add(file, data, offset):
        seen[0] += 1
        if seen[0] == number:
            real_add(file, data[: len(data) // 2], offset)
            os._exit(9)
        return real_add(file, data, offset)

    os.pwrite = add


def in_child(function: Callable[[], object], dies_at: int | None = None) -> int | None:
    """Call `function` in a child that dies at write `dies_at`, from 1; its number of writes, None if it died."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        status, seen = 1, [0]
        try:
            os.close(reader)
            _counted(dies_at, seen)
            function()
            os.write(writer, str(seen[0]).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 9), f"the child ended with status {status}"
    return int(said) if status == 0 else None
