# SPDX-License-Identifier: MIT
"""Machines that are not here, for tests of plans: their /sys as files, and their topologies."""

from pathlib import Path

from dnnsuite.pin._topology import Cpu, Gpu, Node, Topology

GB = 1 << 30


def machine(nodes=1, cores=4, smt=1, l3_cores=0, gpu_nodes=(), memory_bytes=64 * GB, per_package=1):
    """Numbered as Linux numbers Intel servers: all first threads, then all second ones."""
    total = nodes * cores
    cpus = []
    for core in range(total):
        node, within = divmod(core, cores)
        l3 = node * cores + within // l3_cores * l3_cores if l3_cores else node * cores
        cpus += [Cpu(core + t * total, core, node // per_package, node, l3) for t in range(smt)]
    distances = [
        tuple(10 if a == b else 12 if a // per_package == b // per_package else 32 for b in range(nodes))
        for a in range(nodes)
    ]
    return Topology(
        cpus=tuple(sorted(cpus, key=lambda cpu: cpu.cpu)),
        nodes=tuple(Node(n, memory_bytes // nodes, distances[n]) for n in range(nodes)),
        gpus=tuple(Gpu(f"0000:{i:02x}:00.0", "nvidia", f"GPU-{i}", "X", n) for i, n in enumerate(gpu_nodes)),
        memory_bytes=memory_bytes,
    )


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def write_machine(root: Path, topology: Topology) -> Path:
    """The /sys and /proc that a topology would have been read from."""

    def listed(cpus):
        return ",".join(str(cpu.cpu) for cpu in cpus) + "\n"

    cpu_folder, node_folder = "sys/devices/system/cpu", "sys/devices/system/node"
    files = {
        f"{cpu_folder}/online": listed(topology.cpus),
        f"{node_folder}/online": "0\n",
        f"{node_folder}/has_cpu": "0\n",
        "proc/meminfo": f"MemTotal:       {topology.memory_bytes // 1024} kB\nMemFree: 1 kB\n",
        "proc/self/cgroup": "0::/\n",
    }
    for cpu in topology.cpus:
        own = f"{cpu_folder}/cpu{cpu.cpu}"
        files[f"{own}/topology/core_cpus_list"] = listed(c for c in topology.cpus if c.core == cpu.core)
        files[f"{own}/topology/physical_package_id"] = f"{cpu.package}\n"
        files[f"{own}/cache/index0/level"] = "1\n"
        files[f"{own}/cache/index0/shared_cpu_list"] = f"{cpu.cpu}\n"
        files[f"{own}/cache/index3/level"] = "3\n"
        files[f"{own}/cache/index3/shared_cpu_list"] = listed(c for c in topology.cpus if c.l3 == cpu.l3)
        if cpu.type:
            files[f"{own}/cpu_capacity"] = cpu.type.removeprefix("capacity ") + "\n"
    for node in topology.nodes:
        own = f"{node_folder}/node{node.node}"
        files[f"{own}/cpulist"] = listed(c for c in topology.cpus if c.node == node.node)
        files[f"{own}/distance"] = " ".join(map(str, node.distances)) + "\n"
        files[f"{own}/meminfo"] = f"Node {node.node} MemTotal:    {node.memory_bytes // 1024} kB\nNode 0 MemFree: 1 kB"
    for gpu in topology.gpus:
        own = f"sys/bus/pci/devices/{gpu.address}"
        files[f"{own}/class"], files[f"{own}/vendor"] = "0x030200\n", "0x10de\n"
        files[f"{own}/numa_node"], files[f"{own}/local_cpulist"] = f"{gpu.node}\n", "0\n"
    files["sys/bus/pci/devices/0000:ff:00.0/class"] = "0x030000\n"  # the server's own screen is no GPU
    files["sys/bus/pci/devices/0000:ff:00.0/vendor"] = "0x1a03\n"
    return write_tree(root, files)
