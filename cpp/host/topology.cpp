// SPDX-License-Identifier: MIT
#include "host/topology.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "host/cpu_list.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {

namespace {

int integer_in(const std::string& path, int otherwise) {
    const auto text = read_text(path);
    const auto value = text ? parse_integer(*text) : std::nullopt;
    return value ? static_cast<int>(*value) : otherwise;
}

std::vector<int> list_in(const std::string& path) { return parse_cpu_list(read_text(path).value_or("")); }

/// Bytes of a line like "Node 0 MemTotal:  16384 kB".
long long total_bytes(const std::string& text) {
    const std::size_t key = text.find("MemTotal:");
    if (key == std::string::npos) return 0;
    const std::size_t line_end = std::min(text.find('\n', key), text.size());
    const auto words = split(text.substr(key, line_end - key), ' ');
    const auto kilobytes = words.size() > 1 ? parse_integer(words[1]) : std::nullopt;
    return kilobytes.value_or(0) * 1024;
}

int core_of(const std::string& cpu_folder, int cpu) {
    for (const char* name : {"/topology/core_cpus_list", "/topology/thread_siblings_list"}) {
        const auto siblings = list_in(cpu_folder + name);
        if (!siblings.empty()) return siblings.front();
    }
    return cpu;
}

int l3_of(const std::string& cpu_folder) {
    for (const std::string& index : list_names(cpu_folder + "/cache")) {
        const std::string cache = cpu_folder + "/cache/" + index;
        if (integer_in(cache + "/level", 0) != 3) continue;
        const auto shared = list_in(cache + "/shared_cpu_list");
        if (!shared.empty()) return shared.front();
    }
    return -1;
}

std::vector<TopologyNode> read_nodes(const std::string& root, std::map<int, int>& node_of_cpu) {
    const std::string folder = root + "/sys/devices/system/node";
    std::vector<TopologyNode> nodes;
    for (const std::string& name : list_names(folder)) {
        const auto number = name.starts_with("node") ? parse_integer(name.substr(4)) : std::nullopt;
        if (!number) continue;  // has_cpu, online, possible, ...
        TopologyNode node{.node = static_cast<int>(*number), .memory_bytes = 0, .distances = {}};
        node.memory_bytes = total_bytes(read_text(folder + "/" + name + "/meminfo").value_or(""));
        for (const std::string& distance : split(read_text(folder + "/" + name + "/distance").value_or(""), ' '))
            node.distances.push_back(static_cast<int>(parse_integer(distance).value_or(0)));
        for (const int cpu : list_in(folder + "/" + name + "/cpulist")) node_of_cpu[cpu] = node.node;
        nodes.push_back(std::move(node));
    }
    std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.node < b.node; });
    return nodes;
}

std::map<int, std::string> read_types(const std::string& root, const std::vector<int>& online) {
    std::map<int, std::string> types;
    for (const char* kind : {"core", "atom"})  // Intel's hybrid machines
        for (const int cpu : list_in(root + "/sys/devices/cpu_" + kind + "/cpus")) types[cpu] = kind;
    for (const int cpu : online) {  // Arm's
        const std::string path = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity";
        if (const auto capacity = read_text(path); capacity && !types.contains(cpu))
            types[cpu] = "capacity " + *capacity;
    }
    return types;
}

std::vector<TopologyDevice> read_devices(const std::string& root) {
    const std::string folder = root + "/sys/bus/pci/devices/";
    std::vector<TopologyDevice> devices;
    for (const std::string& address : list_names(folder)) {
        const std::string kind = read_text(folder + address + "/class").value_or("");
        if (!kind.starts_with("0x03") && !kind.starts_with("0x12")) continue;
        devices.push_back({.address = address,
                           .vendor = read_text(folder + address + "/vendor").value_or(""),
                           .node = integer_in(folder + address + "/numa_node", -1),
                           .cpus = read_text(folder + address + "/local_cpulist").value_or("")});
    }
    return devices;
}

}  // namespace

Topology read_topology(const std::string& root) {
    const std::string folder = root + "/sys/devices/system/cpu";
    const auto online = list_in(folder + "/online");
    if (online.empty()) throw Error("no CPUs in " + folder + "/online: is /sys mounted?");
    Topology topology;
    topology.memory_bytes = total_bytes(read_text(root + "/proc/meminfo").value_or(""));
    std::map<int, int> node_of_cpu;
    topology.nodes = read_nodes(root, node_of_cpu);
    if (topology.nodes.empty())
        topology.nodes.push_back({.node = 0, .memory_bytes = topology.memory_bytes, .distances = {10}});
    auto types = read_types(root, online);
    for (const int cpu : online) {
        const std::string own = folder + "/cpu" + std::to_string(cpu);
        const auto node = node_of_cpu.find(cpu);
        topology.cpus.push_back({.cpu = cpu,
                                 .core = core_of(own, cpu),
                                 .package = integer_in(own + "/topology/physical_package_id", -1),
                                 .node = node == node_of_cpu.end() ? topology.nodes.front().node : node->second,
                                 .l3 = l3_of(own),
                                 .type = types[cpu]});
    }
    topology.devices = read_devices(root);
    return topology;
}

}  // namespace dnnsuite::host
