// SPDX-License-Identifier: MIT
#include "gpu/activity_decode.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <cstddef>
#include <cstring>
#include <limits>
#include <unordered_map>

namespace dnnsuite::gpu {

namespace {

class Decoder {
  public:
    Decoder(std::span<std::uint8_t> buffer, ActivityColumns& out) : end_(buffer.data() + buffer.size()), out_(out) {}

    /// Adds a record; false when it reaches beyond the buffer.
    bool add(const CUpti_Activity* record) {
        switch (record->kind) {
            case CUPTI_ACTIVITY_KIND_KERNEL:
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return read<CUpti_ActivityKernel10>(record);
            case CUPTI_ACTIVITY_KIND_MEMCPY: return read<CUpti_ActivityMemcpy6>(record);
            case CUPTI_ACTIVITY_KIND_MEMCPY2: return read<CUpti_ActivityMemcpyPtoP4>(record);
            case CUPTI_ACTIVITY_KIND_MEMSET: return read<CUpti_ActivityMemset4>(record);
            case CUPTI_ACTIVITY_KIND_RUNTIME:
            case CUPTI_ACTIVITY_KIND_DRIVER: return read<CUpti_ActivityAPI>(record);
            case CUPTI_ACTIVITY_KIND_OVERHEAD: return read<CUpti_ActivityOverhead3>(record);
            case CUPTI_ACTIVITY_KIND_MARKER: return read<CUpti_ActivityMarker2>(record);
            case CUPTI_ACTIVITY_KIND_MARKER_DATA: return read<CUpti_ActivityMarkerData2>(record);
            case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return read<CUpti_ActivitySynchronization2>(record);
            case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return read<CUpti_ActivityGraphTrace2>(record);
            default: ++out_.unknown; return true;
        }
    }

  private:
    template <class Record>
    bool read(const CUpti_Activity* record) {
        const auto* const bytes = reinterpret_cast<const std::uint8_t*>(record);
        if (static_cast<std::size_t>(end_ - bytes) < sizeof(Record)) {
            return false;
        }
        Record copy;  // records are packed: no reference may be bound to their fields
        std::memcpy(&copy, bytes, sizeof copy);
        put(copy);
        return true;
    }

    /// Appends the times of a row, unless they say nothing.
    template <class Table>
    bool times(Table& table, std::uint64_t start, std::uint64_t end) {
        if ((start == 0 && end == 0) || end < start) {
            ++out_.incomplete;
            return false;
        }
        table.t0_ns.push_back(static_cast<std::int64_t>(start));
        table.t1_ns.push_back(static_cast<std::int64_t>(end));
        return true;
    }

    Name name(const char* text) {
        if (text == nullptr) {
            return kNoName;
        }
        const auto [known, fresh] = names_.try_emplace(text, kNoName);
        if (fresh) {
            known->second = out_.strings.intern(text);
        }
        return known->second;
    }

    /// An enumeration's number, which may be one that these headers do not know: not to be read as the enumeration.
    template <class Record>
    static std::uint32_t number_at(const Record& record, std::size_t offset) {
        std::uint32_t number;
        std::memcpy(&number, reinterpret_cast<const std::uint8_t*>(&record) + offset, sizeof number);
        return number;
    }

    template <class Record>
    static std::uint32_t thread_of(const Record& from) {
        const std::uint32_t kind = number_at(from, offsetof(Record, objectKind));
        return kind == CUPTI_ACTIVITY_OBJECT_THREAD ? from.objectId.pt.threadId : 0;
    }

    void put(const CUpti_ActivityKernel10& from) {
        KernelColumns& to = out_.kernels;
        if (!times(to, from.start, from.end)) {
            return;
        }
        to.name.push_back(name(from.name));
        to.device.push_back(from.deviceId);
        to.context.push_back(from.contextId);
        to.stream.push_back(from.streamId);
        to.correlation.push_back(from.correlationId);
        to.grid_x.push_back(from.gridX);
        to.grid_y.push_back(from.gridY);
        to.grid_z.push_back(from.gridZ);
        to.block_x.push_back(from.blockX);
        to.block_y.push_back(from.blockY);
        to.block_z.push_back(from.blockZ);
        to.cluster_x.push_back(from.clusterX);
        to.cluster_y.push_back(from.clusterY);
        to.cluster_z.push_back(from.clusterZ);
        to.registers_per_thread.push_back(from.registersPerThread);
        to.static_shared_bytes.push_back(from.staticSharedMemory);
        to.dynamic_shared_bytes.push_back(from.dynamicSharedMemory);
        to.local_bytes_per_thread.push_back(from.localMemoryPerThread);
        to.graph_id.push_back(from.graphId);
        to.graph_node.push_back(from.graphNodeId);
    }

    template <class Record>
    void put_memop(const Record& from, std::uint8_t operation, std::uint8_t source, std::uint8_t target,
                   std::uint32_t source_device, std::uint32_t target_device) {
        MemopColumns& to = out_.memops;
        if (!times(to, from.start, from.end)) {
            return;
        }
        to.operation.push_back(operation);
        to.source_memory.push_back(source);
        to.target_memory.push_back(target);
        to.bytes.push_back(from.bytes);
        to.device.push_back(from.deviceId);
        to.context.push_back(from.contextId);
        to.stream.push_back(from.streamId);
        to.correlation.push_back(from.correlationId);
        to.source_device.push_back(source_device);
        to.target_device.push_back(target_device);
        to.graph_id.push_back(from.graphId);
        to.graph_node.push_back(from.graphNodeId);
    }

    void put(const CUpti_ActivityMemcpy6& from) {
        put_memop(from, from.copyKind, from.srcKind, from.dstKind, from.deviceId, from.deviceId);
    }

    void put(const CUpti_ActivityMemcpyPtoP4& from) {
        put_memop(from, from.copyKind, from.srcKind, from.dstKind, from.srcDeviceId, from.dstDeviceId);
    }

    void put(const CUpti_ActivityMemset4& from) {
        put_memop(from, MemopColumns::kMemset, CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN,
                  static_cast<std::uint8_t>(from.memoryKind), from.deviceId, from.deviceId);
    }

    void put(const CUpti_ActivityAPI& from) {
        ApiColumns& to = out_.api;
        if (!times(to, from.start, from.end)) {
            return;
        }
        to.domain.push_back(from.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? 1 : 0);
        to.callback.push_back(from.cbid);
        to.thread.push_back(from.threadId);
        to.correlation.push_back(from.correlationId);
        to.return_value.push_back(from.returnValue);
    }

    void put(const CUpti_ActivityOverhead3& from) {
        OverheadColumns& to = out_.overhead;
        if (!times(to, from.start, from.end)) {
            return;
        }
        to.kind.push_back(number_at(from, offsetof(CUpti_ActivityOverhead3, overheadKind)));
        to.thread.push_back(thread_of(from));
        to.correlation.push_back(from.correlationId);
    }

    void put(const CUpti_ActivityMarker2& from) {
        MarkerColumns& to = out_.markers;
        to.t_ns.push_back(static_cast<std::int64_t>(from.timestamp));
        to.event.push_back(number_at(from, offsetof(CUpti_ActivityMarker2, flags)));
        to.id.push_back(from.id);
        to.thread.push_back(thread_of(from));
        to.name.push_back(name(from.name));
        to.domain.push_back(name(from.domain));
    }

    static double number(std::uint32_t kind, const CUpti_MetricValue& value) {
        switch (kind) {
            case CUPTI_METRIC_VALUE_KIND_DOUBLE: return value.metricValueDouble;
            case CUPTI_METRIC_VALUE_KIND_UINT64: return static_cast<double>(value.metricValueUint64);
            case CUPTI_METRIC_VALUE_KIND_INT64: return static_cast<double>(value.metricValueInt64);
            default: return std::numeric_limits<double>::quiet_NaN();
        }
    }

    void put(const CUpti_ActivityMarkerData2& from) {
        MarkerDataColumns& to = out_.marker_data;
        to.id.push_back(from.id);
        to.category.push_back(from.category);
        to.payload.push_back(number(number_at(from, offsetof(CUpti_ActivityMarkerData2, payloadKind)), from.payload));
    }

    void put(const CUpti_ActivitySynchronization2& from) {
        SyncColumns& to = out_.syncs;
        if (!times(to, from.start, from.end)) {
            return;
        }
        to.kind.push_back(number_at(from, offsetof(CUpti_ActivitySynchronization2, type)));
        to.context.push_back(from.contextId);
        to.stream.push_back(from.streamId);
        to.event.push_back(from.cudaEventId);
        to.correlation.push_back(from.correlationId);
    }

    void put(const CUpti_ActivityGraphTrace2& from) {
        GraphColumns& to = out_.graphs;
        if (!times(to, from.start, from.end)) {
            return;
        }
        to.device.push_back(from.deviceId);
        to.context.push_back(from.contextId);
        to.stream.push_back(from.streamId);
        to.correlation.push_back(from.correlationId);
        to.graph_id.push_back(from.graphId);
    }

    const std::uint8_t* const end_;
    ActivityColumns& out_;
    std::unordered_map<const char*, Name> names_;  // within a buffer one pointer is one string
};

}  // namespace

ActivityColumns decode_activity(std::span<std::uint8_t> buffer, decltype(cuptiActivityGetNextRecord)* walk) {
    ActivityColumns out;
    Decoder decoder(buffer, out);
    CUpti_Activity* record = nullptr;
    while (true) {
        const CUptiResult result =
            buffer.empty() ? CUPTI_ERROR_MAX_LIMIT_REACHED : walk(buffer.data(), buffer.size(), &record);
        if (result == CUPTI_ERROR_MAX_LIMIT_REACHED) {
            return out;
        }
        if (result != CUPTI_SUCCESS) {
            ++out.damaged;
            return out;
        }
        ++out.records;
        if (!decoder.add(record)) {
            ++out.damaged;
            return out;
        }
    }
}

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
