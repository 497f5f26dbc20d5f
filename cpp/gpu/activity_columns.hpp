// SPDX-License-Identifier: MIT
// Records of a tracer as tables of columns. Times are nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dnnsuite::gpu {

/// Index of a string in `Strings`; kNoName where the tracer gave none.
enum class Name : std::int32_t {};
inline constexpr Name kNoName{-1};

/// Strings, each kept once.
class Strings {
  public:
    Strings() = default;
    Strings(Strings&&) = default;
    Strings& operator=(Strings&&) = default;
    Strings(const Strings&) = delete;  // the index points into `all_`
    Strings& operator=(const Strings&) = delete;

    Name intern(std::string_view text);
    const std::vector<std::string>& all() const noexcept { return all_; }

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
    };
    std::vector<std::string> all_;
    std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> index_;
};

// Each table lists its columns once, in `each`, as f(name, column); `self` is the table, const or not.

struct KernelColumns {
    std::vector<std::int64_t> t0_ns, t1_ns;
    std::vector<Name> name;
    std::vector<std::uint32_t> device, context, stream, correlation;
    std::vector<std::int32_t> grid_x, grid_y, grid_z, block_x, block_y, block_z;
    std::vector<std::uint32_t> cluster_x, cluster_y, cluster_z;
    std::vector<std::uint16_t> registers_per_thread;
    std::vector<std::int32_t> static_shared_bytes, dynamic_shared_bytes;
    std::vector<std::uint32_t> local_bytes_per_thread, graph_id;
    std::vector<std::uint64_t> graph_node;

    template <class Self, class F>
    static void each(Self& self, F f) {
        f("t0_ns", self.t0_ns);
        f("t1_ns", self.t1_ns);
        f("name", self.name);
        f("device", self.device);
        f("context", self.context);
        f("stream", self.stream);
        f("correlation", self.correlation);
        f("grid_x", self.grid_x);
        f("grid_y", self.grid_y);
        f("grid_z", self.grid_z);
        f("block_x", self.block_x);
        f("block_y", self.block_y);
        f("block_z", self.block_z);
        f("cluster_x", self.cluster_x);
        f("cluster_y", self.cluster_y);
        f("cluster_z", self.cluster_z);
        f("registers_per_thread", self.registers_per_thread);
        f("static_shared_bytes", self.static_shared_bytes);
        f("dynamic_shared_bytes", self.dynamic_shared_bytes);
        f("local_bytes_per_thread", self.local_bytes_per_thread);
        f("graph_id", self.graph_id);
        f("graph_node", self.graph_node);
    }
};

/// Copies and memsets. `operation`: CUpti_ActivityMemcpyKind, or kMemset. A memset has no source.
struct MemopColumns {
    static constexpr std::uint8_t kMemset = 255;

    std::vector<std::int64_t> t0_ns, t1_ns;
    std::vector<std::uint8_t> operation, source_memory, target_memory;
    std::vector<std::uint64_t> bytes;
    std::vector<std::uint32_t> device, context, stream, correlation, source_device, target_device, graph_id;
    std::vector<std::uint64_t> graph_node;

    template <class Self, class F>
    static void each(Self& self, F f) {
        f("t0_ns", self.t0_ns);
        f("t1_ns", self.t1_ns);
        f("operation", self.operation);
        f("source_memory", self.source_memory);
        f("target_memory", self.target_memory);
        f("bytes", self.bytes);
        f("device", self.device);
        f("context", self.context);
        f("stream", self.stream);
        f("correlation", self.correlation);
        f("source_device", self.source_device);
        f("target_device", self.target_device);
        f("graph_id", self.graph_id);
        f("graph_node", self.graph_node);
    }
};

/// Calls of the host. `domain`: 1 the runtime, 0 the driver; `callback`: which function, in CUPTI's numbering.
struct ApiColumns {
    std::vector<std::int64_t> t0_ns, t1_ns;
    std::vector<std::uint8_t> domain;
    std::vector<std::uint32_t> callback, thread, correlation, return_value;

    template <class Self, class F>
    static void each(Self& self, F f) {
        f("t0_ns", self.t0_ns);
        f("t1_ns", self.t1_ns);
        f("domain", self.domain);
        f("callback", self.callback);
        f("thread", self.thread);
        f("correlation", self.correlation);
        f("return_value", self.return_value);
    }
};

/// Cost of the tracer itself and of the driver's compiler. `kind`: CUpti_ActivityOverheadKind.
struct OverheadColumns {
    std::vector<std::int64_t> t0_ns, t1_ns;
    std::vector<std::uint32_t> kind, thread, correlation;

    template <class Self, class F>
    static void each(Self& self, F f) {
        f("t0_ns", self.t0_ns);
        f("t1_ns", self.t1_ns);
        f("kind", self.kind);
        f("thread", self.thread);
        f("correlation", self.correlation);
    }
};

/// Events of NVTX: `event` 1 a mark, 2 a beginning, 4 an end, in CUpti_ActivityFlag's bits. An end has no name.
struct MarkerColumns {
    std::vector<std::int64_t> t_ns;
    std::vector<std::uint32_t> event, id, thread;
    std::vector<Name> name, domain;

    template <class Self, class F>
    static void each(Self& self, F f) {
        f("t_ns", self.t_ns);
        f("event", self.event);
        f("id", self.id);
        f("thread", self.thread);
        f("name", self.name);
        f("domain", self.domain);
    }
};

/// Payload of a marker: NaN where it is no number.
struct MarkerDataColumns {
    std::vector<std::uint32_t> id, category;
    std::vector<double> payload;

    template <class Self, class F>
    static void each(Self& self, F f) {
        f("id", self.id);
        f("category", self.category);
        f("payload", self.payload);
    }
};

/// Waits of the host for the device. `kind`: CUpti_ActivitySynchronizationType.
struct SyncColumns {
    std::vector<std::int64_t> t0_ns, t1_ns;
    std::vector<std::uint32_t> kind, context, stream, event, correlation;

    template <class Self, class F>
    static void each(Self& self, F f) {
        f("t0_ns", self.t0_ns);
        f("t1_ns", self.t1_ns);
        f("kind", self.kind);
        f("context", self.context);
        f("stream", self.stream);
        f("event", self.event);
        f("correlation", self.correlation);
    }
};

/// CUDA graphs that were traced as a whole.
struct GraphColumns {
    std::vector<std::int64_t> t0_ns, t1_ns;
    std::vector<std::uint32_t> device, context, stream, correlation, graph_id;

    template <class Self, class F>
    static void each(Self& self, F f) {
        f("t0_ns", self.t0_ns);
        f("t1_ns", self.t1_ns);
        f("device", self.device);
        f("context", self.context);
        f("stream", self.stream);
        f("correlation", self.correlation);
        f("graph_id", self.graph_id);
    }
};

/// All tables, and what could not go into them.
struct ActivityColumns {
    KernelColumns kernels;
    MemopColumns memops;
    ApiColumns api;
    OverheadColumns overhead;
    MarkerColumns markers;
    MarkerDataColumns marker_data;
    SyncColumns syncs;
    GraphColumns graphs;
    Strings strings;

    std::size_t records = 0;     ///< seen, of every kind
    std::size_t incomplete = 0;  ///< without times, or ending before they begin: left out
    std::size_t unknown = 0;     ///< of a kind that has no table: left out
    std::size_t damaged = 0;     ///< buffers of which the rest could not be read

    /// f(name of the table, table), for each.
    template <class Self, class F>
    static void each_table(Self& self, F f) {
        f("kernels", self.kernels);
        f("memops", self.memops);
        f("api", self.api);
        f("overhead", self.overhead);
        f("markers", self.markers);
        f("marker_data", self.marker_data);
        f("syncs", self.syncs);
        f("graphs", self.graphs);
    }

    /// Adds the rows and counts of `other` behind these.
    void append(const ActivityColumns& other);
};

}  // namespace dnnsuite::gpu
