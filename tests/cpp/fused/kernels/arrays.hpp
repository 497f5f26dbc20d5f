// SPDX-License-Identifier: MIT
// What the tests of the CUDA kernels share: arrays between guards, the same numbers for the CPU's kernel, which is the
// oracle, and a comparison of the two.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "fused/kernels/host_cuda/runtime.hpp"
#include "fused/kernels/kernels.hpp"

namespace dnnsuite::fused::kernels {

/// The type that a kernel over T computes in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
constexpr DType kDType = std::is_same_v<T, double>          ? DType::kFloat64
                         : std::is_same_v<T, __nv_bfloat16> ? DType::kBFloat16
                         : std::is_same_v<T, __half>        ? DType::kFloat16
                                                            : DType::kFloat32;
using Numbers = ::testing::Types<float, double, __nv_bfloat16, __half>;

inline double wide(__nv_bfloat16 x) { return static_cast<double>(__bfloat162float(x)); }
inline double wide(__half x) { return static_cast<double>(__half2float(x)); }
inline double wide(double x) { return x; }
inline double wide(float x) { return static_cast<double>(x); }
template <class T>
T narrow(double x) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16(static_cast<float>(x));
    if constexpr (std::is_same_v<T, __half>) return __float2half(static_cast<float>(x));
    if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(x);
}
/// The distance of 1 and the next number.
template <class T>
constexpr double kUnit = std::is_same_v<T, __nv_bfloat16> ? 1.0 / 128
                         : std::is_same_v<T, __half> ? 1.0 / 1024
                                                     : static_cast<double>(std::numeric_limits<Wide<T>>::epsilon());

/// Bytes between guards. What is not set is NaN, and so are the guards: a stray read shows in the result.
class Room {
  public:
    /// `shift`: bytes that the first element is off a boundary of 64.
    Room(size_t bytes, size_t shift) : bytes_(bytes), memory_(bytes + shift + 3 * kGuard, kFill) {
        const size_t off = reinterpret_cast<uintptr_t>(memory_.data()) % kGuard;
        first_ = kGuard + (kGuard - off) % kGuard + shift;
    }
    unsigned char* begin() { return memory_.data() + first_; }
    std::vector<unsigned char> content() { return {begin(), begin() + bytes_}; }
    void set(const std::vector<unsigned char>& content) {
        if (bytes_ > 0) std::memcpy(begin(), content.data(), bytes_);
    }
    bool intact() const {
        const auto first = memory_.begin() + static_cast<std::ptrdiff_t>(first_);
        const auto is_fill = [](unsigned char byte) { return byte == kFill; };
        return std::all_of(memory_.begin(), first, is_fill) &&
               std::all_of(first + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), is_fill);
    }

  private:
    static constexpr size_t kGuard = 64;
    static constexpr unsigned char kFill = 0xFF;
    size_t bytes_, first_ = 0;
    std::vector<unsigned char> memory_;
};

/// An array on both sides: as the CUDA kernel has it, and widened for the CPU's.
template <class T>
class Both {
  public:
    explicit Both(int64_t count, size_t shift = 0)
        : room_(static_cast<size_t>(count) * sizeof(T), shift * sizeof(T)),
          cpu_(static_cast<size_t>(count), static_cast<Wide<T>>(NAN)) {}

    T* cuda() { return reinterpret_cast<T*>(room_.begin()); }
    Wide<T>* cpu() { return cpu_.data(); }
    Room& room() { return room_; }
    int64_t count() const { return static_cast<int64_t>(cpu_.size()); }

    void fill_at(int64_t i, double value) {
        cuda()[i] = narrow<T>(value);
        cpu_[static_cast<size_t>(i)] = static_cast<Wide<T>>(wide(cuda()[i]));
    }
    Both& random(unsigned seed, double scale = 1.0, double shift = 0.0) {
        std::mt19937 engine(seed);
        std::normal_distribution<double> normal(shift, scale);
        for (int64_t i = 0; i < count(); ++i) fill_at(i, normal(engine));
        return *this;
    }

    /// The CUDA kernel wrote what the CPU's did, within `units` of the last place of the largest number.
    void expect_near(const std::string& name, double units) {
        double scale = 1.0;
        for (const Wide<T> x : cpu_) scale = std::max(scale, std::abs(wide(x)));
        for (int64_t i = 0; i < count(); ++i) {
            const double want = wide(cpu_[static_cast<size_t>(i)]), got = wide(cuda()[i]);
            if (want == got || (std::isnan(want) && std::isnan(got))) continue;
            ASSERT_LE(std::abs(want - got), units * kUnit<T> * scale)
                << name << "[" << i << "]: " << got << ", not " << want;
        }
    }

  private:
    Room room_;
    std::vector<Wide<T>> cpu_;
};

/// Calls `start` with the threads in ascending and in descending order: what is in `rooms` must become the same.
template <class Start>
void run_cuda(const std::vector<Room*>& rooms, const Start& start) {
    std::vector<std::vector<unsigned char>> before, first;
    for (Room* room : rooms) before.push_back(room->content());
    for (const bool descending : {false, true}) {
        host_cuda::descending = descending;
        for (size_t i = 0; i < rooms.size(); ++i) rooms[i]->set(before[i]);
        ASSERT_EQ(start(), cudaSuccess);
        for (size_t i = 0; i < rooms.size(); ++i) {
            ASSERT_TRUE(rooms[i]->intact()) << "written beyond array " << i;
            const auto content = rooms[i]->content();
            if (!descending) first.push_back(content);
            ASSERT_EQ(content, first[i]) << "array " << i << " depends on the order of the threads";
        }
    }
    host_cuda::descending = false;
}

/// Rates and generators of dropout.
struct Dropout {
    std::vector<float> p;
    std::vector<int64_t> rng;
    DropoutArguments args;

    explicit Dropout(int64_t models) {
        for (int64_t b = 0; b < models; ++b) {
            p.push_back(0.1f + 0.2f * static_cast<float>(b));
            rng.insert(rng.end(), {(b + 1) * (int64_t(1) << 40) - 12345, b + (int64_t(1) << 33)});
        }
        args = {p.data(), 1, rng.data(), 2, 1};
    }
};

/// Scratch of a CPU kernel.
inline void* scratch(int64_t numbers) {
    static std::vector<double> room;
    room.assign(static_cast<size_t>(numbers), NAN);
    return room.data();
}

/// The arguments with the arrays of the CPU's kernel.
template <class T, class Arguments>
Arguments for_cpu(Arguments args) {
    args.dtype = kDType<Wide<T>>;
    return args;
}

}  // namespace dnnsuite::fused::kernels
