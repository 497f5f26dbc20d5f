# SPDX-License-Identifier: MIT
"""Slurm on this machine, for tests: a controller and two nodes of one CPU, apart from any that is here already."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "scancel")
INSTALL = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
NODES = ("n1", "n2")


def missing():
    """Why Slurm cannot be started here, or ""."""
    for program in PROGRAMS:
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
            return f"no {program}: {INSTALL}"
    return "" if os.geteuid() == 0 else "slurmd starts jobs as root only"


def _free_ports(count):
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _configuration(folder, ports):
    host = socket.gethostname()
    nodes = [
        f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=1 State=UNKNOWN"
        for name, port in zip(NODES, ports[1:], strict=True)
    ]
    settings = {
        "ClusterName": "dnnsuite", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmctldPort": ports[0],
        "SlurmUser": "root", "AuthType": "auth/munge", "AuthInfo": f"socket={folder}/munge.socket",
        "StateSaveLocation": f"{folder}/state", "SlurmdSpoolDir": f"{folder}/spool-%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid", "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
        "SlurmctldLogFile": f"{folder}/slurmctld.log", "SlurmdLogFile": f"{folder}/slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "MpiDefault": "none",
        "AccountingStorageType": "accounting_storage/none", "JobAcctGatherType": "jobacct_gather/none",
        "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CPU", "ReturnToService": 2, "KillWait": 2,
    }  # fmt: skip
    lines = [f"{name}={value}" for name, value in settings.items()]
    return "\n".join([*lines, *nodes, "PartitionName=test Nodes=ALL Default=YES State=UP", ""])


@contextlib.contextmanager
def slurm(folder: Path):
    """Environment variables with which Slurm's commands reach the cluster; it ends with the context."""
    folder.chmod(0o755)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    (folder / "slurm.conf").write_text(_configuration(folder, _free_ports(3)))
    environment = {"SLURM_CONF": f"{folder}/slurm.conf", "PATH": os.environ["PATH"] + ":/usr/sbin"}
    names = ("socket", "key-file", "pid-file", "log-file", "seed-file")
    munge = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in names]
    commands = [["munged", "--foreground", "--force", *munge], ["slurmctld", "-D", "-i"]]
    commands += [["slurmd", "-D", "-N", name] for name in NODES]
    daemons = []
    try:
        for command in commands:
            with open(folder / f"{command[0]}-{len(daemons)}.txt", "wb") as output:
                pipes = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
                daemons.append(subprocess.Popen(command, env={**os.environ, **environment}, **pipes))
            if command[0] == "munged":
                _until((folder / "munge.socket").exists, "munged did not start", folder)
        _until(lambda: _states(environment) == ["idle"] * len(NODES), "the nodes are not idle", folder)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _states(environment):
    found = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%T"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    return found.stdout.split()


def _until(ready, complaint, folder, limit_s=60.0):
    end_s = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > end_s:
            said = "".join(path.read_text(errors="replace")[-500:] for path in folder.glob("*-*.txt"))
            raise TimeoutError(f"{complaint}: {said}")
        time.sleep(0.1)
