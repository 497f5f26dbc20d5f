# SPDX-License-Identifier: MIT
"""A virtual machine with a Debian kernel, to try what this machine's kernel does not have. Emulated: no KVM is needed.

It has this Python, the modules that `dnnsuite.pin` imports, and busybox, at the paths that they have here.
"""

import importlib.util
import os
import py_compile
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dnnsuite import _C

PACKAGES = "apt-get install --no-install-recommends qemu-system-x86 busybox-static linux-image-6.12-cloud-amd64"
PACKAGE = Path(__file__).parents[2] / "python/dnnsuite"
INIT = """#!/bin/busybox sh
export PATH=/bin HOME=/ PYTHONPATH=/app PYTHONHOME={home} PYTHONDONTWRITEBYTECODE=1
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup
{python} /app/checks.py; echo "guest ended with $?"
poweroff -f
"""


def kernel() -> Path:
    """The kernel to boot; skips the test, or fails it where DNNSUITE_VM_TESTS=required, without one or without qemu."""
    named = os.environ.get("DNNSUITE_VM_KERNEL")
    found = [Path(named)] if named else sorted(Path("/boot").glob("vmlinuz-6.*"))
    missing = [name for name in ("qemu-system-x86_64", "busybox") if not shutil.which(name)]
    if found and not missing:
        return found[-1]
    words = f"{', '.join(missing) or 'a kernel 6 in /boot'} is missing: {PACKAGES}"
    if os.environ.get("DNNSUITE_VM_TESTS") == "required":
        pytest.fail(words)
    pytest.skip(words)


def libraries(path: Path) -> set[Path]:
    """The shared objects that a program or module needs, the loader included."""
    said = subprocess.run(["ldd", str(path)], capture_output=True, text=True).stdout
    return {Path(word) for line in said.splitlines() for word in line.split() if word.startswith("/")}


def app(folder: Path, checks: Path) -> None:
    shutil.copytree(PACKAGE / "pin", folder / "dnnsuite/pin", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__", "_lazy", "errors", "_files", "host"):
        shutil.copy(PACKAGE / f"{name}.py", folder / "dnnsuite")
    shutil.copy(_C.__file__, folder / "dnnsuite")
    shutil.copy(checks, folder / "checks.py")


def python_files(folder: Path, python: Path) -> set[Path]:
    """What importing takes: Python, its modules in use, and what those need."""
    code = (
        "import sys, traceback, encodings.ascii, dnnsuite.pin, dnnsuite.pin._groups\n"
        "print(*{m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)}, sep='\\n')"
    )
    done = subprocess.run(
        [python, "-B", "-c", code], env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True
    )
    files = {Path(line) for line in done.stdout.splitlines() if not line.startswith(str(folder))}
    native = {python, Path(_C.__file__), *(path for path in files if path.suffix == ".so")}
    return files | {python} | {library for path in native for library in libraries(path)}


def archive(entries: dict[str, tuple[int, bytes]]) -> bytes:
    """A cpio archive of kind newc: path → (mode, content)."""
    out = bytearray()
    for number, (name, (mode, content)) in enumerate([*entries.items(), ("TRAILER!!!", (0, b""))]):
        fields = (number + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + content
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def compiled(files: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Bytecode of the modules, where Python looks for it: to compile them again in every process is slow in here."""
    found = {}
    for number, (name, path) in enumerate(files.items()):
        if path.suffix == ".py":
            made = py_compile.compile(
                str(path),
                str(folder / f"{number}.pyc"),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            found[importlib.util.cache_from_source(name)] = Path(made)
    return found


def initramfs(folder: Path, checks: Path) -> Path:
    python = Path(os.path.realpath(sys.executable))
    app(folder / "app", checks)
    files = {str(path): path for path in python_files(folder / "app", python)}
    files |= {
        f"/app/{path.relative_to(folder / 'app')}": path for path in (folder / "app").rglob("*") if path.is_file()
    }
    files |= compiled(files, folder / "compiled")
    files["/bin/busybox"] = Path(shutil.which("busybox") or "")
    entries: dict[str, tuple[int, bytes]] = {}
    for name in ("proc", "sys", "dev", "tmp", "bin"):
        entries[name] = (stat.S_IFDIR | 0o755, b"")
    for name, path in sorted(files.items()):
        for parent in reversed(Path(name).parents[:-1]):
            entries.setdefault(str(parent)[1:], (stat.S_IFDIR | 0o755, b""))
        entries[name[1:]] = (stat.S_IFREG | 0o755, path.read_bytes())
    init = INIT.format(python=python, home=sys.base_prefix)
    entries["init"] = (stat.S_IFREG | 0o755, init.encode())
    image = folder / "initramfs"
    image.write_bytes(archive(entries))  # an emulated machine would take seconds to unpack it
    return image


def boot(folder: Path, checks: Path, machine: list[str], timeout_s: float = 240) -> str:
    """Boot, run the checks, return what the console showed."""
    command = [
        # One thread: with several, QEMU 7.2 now and then misses code that the kernel patches while it runs.
        "qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "max", "-no-reboot", "-nographic", "-nodefaults",
        "-serial", "stdio",
        "-kernel", str(kernel()), "-initrd", str(initramfs(folder, checks)),
        "-append", "console=ttyS0 panic=-1 quiet mitigations=off", *machine,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
    return done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
