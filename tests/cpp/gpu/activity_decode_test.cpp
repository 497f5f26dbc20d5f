// SPDX-License-Identifier: MIT
#include "gpu/activity_decode.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "activity_records.hpp"

namespace dnnsuite::gpu {
namespace {

std::string text(const ActivityColumns& columns, Name name) {
    return name == kNoName ? "-" : columns.strings.all().at(static_cast<std::size_t>(name));
}

TEST(DecodeActivity, Kernels) {
    DNNSUITE_REQUIRE_CUPTI();
    CUpti_ActivityKernel10 kernel = kernel_record(1000, 3500, "gemm", 42);
    kernel.deviceId = 1;
    kernel.streamId = 7;
    kernel.gridX = 11;
    kernel.blockZ = 3;
    kernel.clusterX = 2;
    kernel.registersPerThread = 96;
    kernel.dynamicSharedMemory = 49152;
    kernel.graphId = 5;
    kernel.graphNodeId = 0x5'0000'0009;
    const std::string same_text = "gemm";  // at another address
    Records records;
    records.add(kernel).add(kernel_record(3500, 4000, same_text.c_str())).add(kernel_record(4000, 4001, nullptr));
    const ActivityColumns columns = decode_activity(records.bytes(), cupti->get_next_record);
    const KernelColumns& kernels = columns.kernels;
    EXPECT_EQ(kernels.t0_ns, (std::vector<std::int64_t>{1000, 3500, 4000}));
    EXPECT_EQ(kernels.t1_ns, (std::vector<std::int64_t>{3500, 4000, 4001}));
    EXPECT_EQ(text(columns, kernels.name[0]), "gemm");
    EXPECT_EQ(kernels.name[1], kernels.name[0]);
    EXPECT_EQ(kernels.name[2], kNoName);
    EXPECT_EQ(kernels.correlation[0], 42U);
    EXPECT_EQ(kernels.device[0], 1U);
    EXPECT_EQ(kernels.stream[0], 7U);
    EXPECT_EQ(kernels.grid_x[0], 11);
    EXPECT_EQ(kernels.block_z[0], 3);
    EXPECT_EQ(kernels.cluster_x[0], 2U);
    EXPECT_EQ(kernels.registers_per_thread[0], 96);
    EXPECT_EQ(kernels.dynamic_shared_bytes[0], 49152);
    EXPECT_EQ(kernels.graph_id[0], 5U);
    EXPECT_EQ(kernels.graph_node[0], 0x5'0000'0009U);
    EXPECT_EQ(columns.records, 3U);
    EXPECT_EQ(columns.damaged, 0U);
}

TEST(DecodeActivity, CopiesAndMemsetsShareATable) {
    DNNSUITE_REQUIRE_CUPTI();
    auto copy = record_of<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
    copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.bytes = 1 << 20;
    copy.start = 10;
    copy.end = 20;
    copy.deviceId = 1;
    auto peer = record_of<CUpti_ActivityMemcpyPtoP4>(CUPTI_ACTIVITY_KIND_MEMCPY2);
    peer.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    peer.start = 20;
    peer.end = 30;
    peer.srcDeviceId = 2;
    peer.dstDeviceId = 3;
    peer.correlationId = 9;
    auto set = record_of<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
    set.start = 30;
    set.end = 31;
    set.bytes = 64;
    set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    const MemopColumns memops =
        decode_activity(Records().add(copy).add(peer).add(set).bytes(), cupti->get_next_record).memops;
    EXPECT_EQ(memops.operation, (std::vector<std::uint8_t>{1, 10, MemopColumns::kMemset}));
    EXPECT_EQ(memops.source_memory, (std::vector<std::uint8_t>{2, 0, 0}));
    EXPECT_EQ(memops.target_memory, (std::vector<std::uint8_t>{3, 0, 3}));
    EXPECT_EQ(memops.bytes, (std::vector<std::uint64_t>{1 << 20, 0, 64}));
    EXPECT_EQ(memops.source_device, (std::vector<std::uint32_t>{1, 2, 0}));
    EXPECT_EQ(memops.target_device, (std::vector<std::uint32_t>{1, 3, 0}));
    EXPECT_EQ(memops.correlation[1], 9U);
}

TEST(DecodeActivity, HostCallsOverheadAndWaits) {
    DNNSUITE_REQUIRE_CUPTI();
    CUpti_ActivityAPI call = api_record(5, 9, 77);
    call.cbid = 211;
    call.threadId = 1234;
    call.returnValue = 35;
    CUpti_ActivityAPI inner = call;
    inner.kind = CUPTI_ACTIVITY_KIND_DRIVER;
    auto cost = record_of<CUpti_ActivityOverhead3>(CUPTI_ACTIVITY_KIND_OVERHEAD);
    cost.overheadKind = CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING;
    cost.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
    cost.objectId.pt.threadId = 88;
    cost.start = 6;
    cost.end = 7;
    auto wait = record_of<CUpti_ActivitySynchronization2>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
    wait.start = 8;
    wait.end = 9;
    wait.streamId = 4;
    const ActivityColumns columns =
        decode_activity(Records().add(call).add(inner).add(cost).add(wait).bytes(), cupti->get_next_record);
    EXPECT_EQ(columns.api.domain, (std::vector<std::uint8_t>{1, 0}));
    EXPECT_EQ(columns.api.callback[0], 211U);
    EXPECT_EQ(columns.api.thread[0], 1234U);
    EXPECT_EQ(columns.api.correlation[1], 77U);
    EXPECT_EQ(columns.api.return_value[0], 35U);
    EXPECT_EQ(columns.overhead.kind[0], 5U << 16);
    EXPECT_EQ(columns.overhead.thread[0], 88U);
    EXPECT_EQ(columns.syncs.kind[0], 3U);
    EXPECT_EQ(columns.syncs.stream[0], 4U);
}

TEST(DecodeActivity, MarkersTheirDataAndGraphs) {
    DNNSUITE_REQUIRE_CUPTI();
    auto begin = record_of<CUpti_ActivityMarker2>(CUPTI_ACTIVITY_KIND_MARKER);
    begin.flags = CUPTI_ACTIVITY_FLAG_MARKER_START;
    begin.timestamp = 100;
    begin.id = 6;
    begin.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
    begin.objectId.pt.threadId = 21;
    begin.name = "forward";
    begin.domain = "dnnsuite";
    auto end = record_of<CUpti_ActivityMarker2>(CUPTI_ACTIVITY_KIND_MARKER);
    end.flags = CUPTI_ACTIVITY_FLAG_MARKER_END;
    end.timestamp = 200;
    end.id = 6;
    auto data = record_of<CUpti_ActivityMarkerData2>(CUPTI_ACTIVITY_KIND_MARKER_DATA);
    data.id = 6;
    data.payloadKind = CUPTI_METRIC_VALUE_KIND_INT64;
    data.payload.metricValueInt64 = -3;
    auto opaque = data;
    opaque.payloadKind = CUPTI_METRIC_VALUE_KIND_THROUGHPUT;
    auto graph = record_of<CUpti_ActivityGraphTrace2>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    graph.start = 1;
    graph.end = 2;
    graph.graphId = 12;
    const ActivityColumns columns =
        decode_activity(Records().add(begin).add(end).add(data).add(opaque).add(graph).bytes(), cupti->get_next_record);
    EXPECT_EQ(columns.markers.t_ns, (std::vector<std::int64_t>{100, 200}));
    EXPECT_EQ(columns.markers.event, (std::vector<std::uint32_t>{2, 4}));
    EXPECT_EQ(columns.markers.thread, (std::vector<std::uint32_t>{21, 0}));
    EXPECT_EQ(text(columns, columns.markers.name[0]), "forward");
    EXPECT_EQ(text(columns, columns.markers.name[1]), "-");
    EXPECT_EQ(text(columns, columns.markers.domain[0]), "dnnsuite");
    EXPECT_EQ(columns.marker_data.payload[0], -3.0);
    EXPECT_TRUE(std::isnan(columns.marker_data.payload[1]));
    EXPECT_EQ(columns.graphs.graph_id, std::vector<std::uint32_t>{12});
}

TEST(DecodeActivity, WhatSaysNothingIsLeftOutAndCounted) {
    DNNSUITE_REQUIRE_CUPTI();
    Records records;
    records.add(kernel_record(0, 0, "no times"))
        .add(kernel_record(9, 3, "backwards"))
        .add(kernel_record(1, 2, "whole"));
    records.add(record_of<CUpti_ActivityExternalCorrelation>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION));
    const ActivityColumns columns = decode_activity(records.bytes(), cupti->get_next_record);
    EXPECT_EQ(columns.kernels.t0_ns, std::vector<std::int64_t>{1});
    EXPECT_EQ(columns.incomplete, 2U);
    EXPECT_EQ(columns.unknown, 1U);
    EXPECT_EQ(columns.records, 4U);
}

TEST(DecodeActivity, ABufferCutAnywhereGivesItsWholeRecords) {
    DNNSUITE_REQUIRE_CUPTI();
    Records records;
    for (std::uint64_t i = 1; i <= 3; ++i) {
        records.add(kernel_record(i, i + 1, "k")).add(api_record(i, i + 1, 0));
    }
    const std::size_t pair = sizeof(CUpti_ActivityKernel10) + sizeof(CUpti_ActivityAPI);
    for (std::size_t bytes = 0; bytes <= records.bytes().size(); ++bytes) {
        std::vector<std::uint64_t> exact(bytes / 8 + 1);  // of this size, so that a sanitizer sees a read beyond it
        std::memcpy(exact.data(), records.bytes().data(), bytes);
        const ActivityColumns columns =
            decode_activity({reinterpret_cast<std::uint8_t*>(exact.data()), bytes}, cupti->get_next_record);
        EXPECT_EQ(columns.api.t0_ns.size(), bytes / pair);
        EXPECT_EQ(columns.kernels.t0_ns.size(), (bytes + sizeof(CUpti_ActivityAPI)) / pair);
    }
}

TEST(DecodeActivity, AKindThatIsNoneEndsTheBufferAndIsCounted) {
    DNNSUITE_REQUIRE_CUPTI();
    Records records;
    records.add(api_record(1, 2, 0)).add(record_of<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_INVALID));
    const ActivityColumns columns = decode_activity(records.add(api_record(3, 4, 0)).bytes(), cupti->get_next_record);
    EXPECT_EQ(columns.api.t0_ns, std::vector<std::int64_t>{1});
    EXPECT_EQ(columns.damaged, 1U);
}

TEST(DecodeActivity, AnyBytesWithoutPointersAreSurvived) {
    DNNSUITE_REQUIRE_CUPTI();
    std::mt19937 random(1);
    for (int kind = 0; kind < 80; ++kind) {
        std::vector<std::uint64_t> words(64);
        std::memcpy(words.data(), &kind, sizeof kind);
        const bool points = kind == CUPTI_ACTIVITY_KIND_KERNEL || kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
                            kind == CUPTI_ACTIVITY_KIND_MARKER;
        for (std::size_t i = 8; !points && i < 24; ++i) {
            reinterpret_cast<std::uint8_t*>(words.data())[i] = static_cast<std::uint8_t>(random());
        }
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{40}, std::size_t{64 * 8}}) {
            const ActivityColumns columns =
                decode_activity({reinterpret_cast<std::uint8_t*>(words.data()), bytes}, cupti->get_next_record);
            EXPECT_LE(columns.records, 1U) << kind;
        }
    }
}

/// A later library's walker, whose API records are longer by 16 bytes.
CUptiResult walk_longer(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
    constexpr std::size_t kStride = sizeof(CUpti_ActivityAPI) + 16;
    auto* const next = *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + kStride;
    if (next + kStride > buffer + bytes) {
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    *record = reinterpret_cast<CUpti_Activity*>(next);
    return CUPTI_SUCCESS;
}

TEST(DecodeActivity, TheLibraryDecidesHowLongARecordIs) {
    Records records;
    for (std::uint64_t i = 1; i <= 3; ++i) {
        records.add(api_record(i, i + 1, 0)).add(std::uint64_t{0xfefefefe}).add(std::uint64_t{0xfefefefe});
    }
    const ActivityColumns columns = decode_activity(records.bytes(), walk_longer);
    EXPECT_EQ(columns.api.t0_ns, (std::vector<std::int64_t>{1, 2, 3}));
}

/// A walker that points too close to the end for the headers' record.
CUptiResult walk_to_the_edge(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
    *record = reinterpret_cast<CUpti_Activity*>(buffer + bytes - 8);
    return CUPTI_SUCCESS;
}

TEST(DecodeActivity, NothingIsReadBeyondTheBuffer) {
    std::vector<std::uint64_t> words(2);
    const std::uint32_t kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    std::memcpy(&words[1], &kind, sizeof kind);
    const ActivityColumns columns =
        decode_activity({reinterpret_cast<std::uint8_t*>(words.data()), 16}, walk_to_the_edge);
    EXPECT_EQ(columns.damaged, 1U);
    EXPECT_TRUE(columns.kernels.t0_ns.empty());
}

}  // namespace
}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
