// SPDX-License-Identifier: MIT
// Random numbers of each model as a function of (key, step, element): the same in any company, on any number of threads.
// Compiled once per instruction set.
//
// Sixteen calls Philox4x32-10(counter = (c_lo, c_hi, step_lo, step_hi), key), c = 16 * row + lane, make the 64 numbers of
// a row. float: element 16 * j + lane takes word j of its lane's call. double takes two words for a number, so that half
// of a row is made at a time, with c = 16 * (2 * row + half) + lane. A normal number takes two uniform ones (Box, Muller,
// 1958): radius from the first and third, angle from the second and fourth.
#include "fused/cpu/random_kernel.hpp"

#include <cmath>

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector_math.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

constexpr int kRounds = 10;
constexpr double kTwoPi = 6.283185307179586;

using F = Vec<float>;
using I = Vec<int32_t>;
using U = Vec<uint32_t>;

/// What a model's numbers are made of in one step.
struct Source {
    uint32_t key0, key1, step0, step1;
};

void call(const Source& source, uint64_t first, U (&word)[4]) {
    word[0] = U(static_cast<uint32_t>(first)) + iota<uint32_t>();
    word[1] = U(static_cast<uint32_t>(first >> 32));
    word[2] = U(source.step0);
    word[3] = U(source.step1);
    philox4x32<kRounds>(word, source.key0, source.key1);
}

F to_float(const I& v) {
    F r;
    _Pragma("GCC unroll 16") for (int i = 0; i < F::kParts; ++i) r.part[i] =
        __builtin_convertvector(v.part[i], F::Register);
    return r;
}

/// [0, 1), 24 bits.
F unit(const U& word) { return to_float(bits_as<int32_t>(word.shift_right(8))) * F(0x1p-24f); }

/// (0, 1], 31 bits.
F positive_unit(const U& word) { return to_float(bits_as<int32_t>(word.shift_right(1))) * F(0x1p-31f) + F(0x1p-32f); }

/// Cosine and sine of an angle of `word` 2^32ths of a turn (absolute error 1e-7): of the angle to the nearest quarter,
/// turned by the quarters.
void turn(const U& word, F& cosine, F& sine) {
    const U quarters = (word + U(0x20000000u)).shift_right(30);
    const F f = to_float(bits_as<int32_t>(word - quarters.shift_left(30))) * F(0x1p-30f);  // of a quarter
    const F s = f * f;
    F c(9.03629872e-4f), d(1.58206516e-4f);
    c = c * s + F(-2.08600704e-2f);
    d = d * s + F(-4.68126638e-3f);
    c = c * s + F(2.53669202e-1f);
    d = d * s + F(7.96925798e-2f);
    c = c * s + F(-1.23370051f);
    d = d * s + F(-6.45964086e-1f);
    c = c * s + F(1.0f);
    d = (d * s + F(1.57079637f)) * f;
    const U odd = U(0u) - (quarters & U(1u)), a = bits_as<uint32_t>(c), b = bits_as<uint32_t>(d);
    const U crossed = (a ^ b) & odd;
    const U of_cosine = (quarters + U(1u)).shift_right(1).shift_left(31),
            of_sine = quarters.shift_right(1).shift_left(31);
    cosine = bits_as<float>(a ^ crossed ^ of_cosine);
    sine = bits_as<float>(b ^ crossed ^ of_sine);
}

/// The 64 numbers of a row.
void make(const RandomArguments& args, const Source& source, uint64_t row, float* to) {
    U word[4];
    call(source, row * 16, word);
    const float first = static_cast<float>(args.first), second = static_cast<float>(args.second);
    F made[4];
    switch (args.distribution) {
        case Distribution::kUniform: {
            const F width(second - first), low(first), last(std::nextafter(second, first));
            for (int j = 0; j < 4; ++j) {
                const F x = unit(word[j]) * width + low;
                made[j] = select(last < x, last, x);  // rounding may reach the bound
            }
            break;
        }
        case Distribution::kNormal:
            for (int j = 0; j < 4; j += 2) {
                const F radius = square_root(F(-2.0f) * logarithm(positive_unit(word[j])));
                F cosine, sine;
                turn(word[j + 1], cosine, sine);
                made[j] = radius * cosine * F(second) + F(first);
                made[j + 1] = radius * sine * F(second) + F(first);
            }
            break;
        case Distribution::kBernoulli:
            for (int j = 0; j < 4; ++j) made[j] = select(unit(word[j]) < F(first), F(1.0f), F(0.0f));
            break;
        case Distribution::kExponential:
            for (int j = 0; j < 4; ++j)
                made[j] = logarithm(positive_unit(word[j])) * F(static_cast<float>(-1.0 / args.first));
            break;
    }
    for (int j = 0; j < 4; ++j) made[j].store(to + 16 * j);
}

/// One of 2^53 numbers in [0, 1).
double wide_unit(uint32_t high, uint32_t low) {
    return (static_cast<double>(high >> 5) * 67108864.0 + static_cast<double>(low >> 6)) * 0x1p-53;
}

/// Two numbers of the words of one call.
void make_two(const RandomArguments& args, const uint32_t (&word)[4], double& a, double& b) {
    const double u = wide_unit(word[0], word[1]), v = wide_unit(word[2], word[3]);
    const auto bounded = [&](double x) { return x < args.second ? x : std::nextafter(args.second, args.first); };
    switch (args.distribution) {
        case Distribution::kUniform:
            a = bounded(args.first + (args.second - args.first) * u);
            b = bounded(args.first + (args.second - args.first) * v);
            break;
        case Distribution::kNormal: {
            const double radius = std::sqrt(-2.0 * std::log1p(-u));
            a = args.first + args.second * radius * std::cos(kTwoPi * v);
            b = args.first + args.second * radius * std::sin(kTwoPi * v);
            break;
        }
        case Distribution::kBernoulli:
            a = u < args.first ? 1.0 : 0.0;
            b = v < args.first ? 1.0 : 0.0;
            break;
        case Distribution::kExponential:
            a = -std::log1p(-u) / args.first;
            b = -std::log1p(-v) / args.first;
            break;
    }
}

void make(const RandomArguments& args, const Source& source, uint64_t row, double* to) {
    for (uint64_t half = 0; half < 2; ++half, to += 32) {
        U word[4];
        call(source, (2 * row + half) * 16, word);
        uint32_t lanes[4][kLanes];
        for (int j = 0; j < 4; ++j) word[j].store(lanes[j]);
        for (int lane = 0; lane < kLanes; ++lane) {
            const uint32_t own[4] = {lanes[0][lane], lanes[1][lane], lanes[2][lane], lanes[3][lane]};
            make_two(args, own, to[lane], to[16 + lane]);
        }
    }
}

template <class T>
void fill(const RandomArguments& args, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const int64_t* const rng = args.rng + task.model * args.rng_stride;
        const uint64_t key = static_cast<uint64_t>(rng[0]), step = static_cast<uint64_t>(rng[args.rng_item_stride]);
        const Source source{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(step),
                            static_cast<uint32_t>(step >> 32)};
        T* const y = mutable_at<T>(args.y, task.model * args.count);
        for (int64_t row = task.first_row; row < task.last_row; ++row) {
            const int64_t place = row * kRandomRow, left = args.count - place;
            if (left >= kRandomRow) {
                make(args, source, static_cast<uint64_t>(row), y + place);
            } else {
                T numbers[kRandomRow];
                make(args, source, static_cast<uint64_t>(row), numbers);
                for (int64_t i = 0; i < left; ++i) y[place + i] = numbers[i];
            }
        }
    }
}

}  // namespace

void random_numbers(const RandomArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64)
        fill<double>(args, begin, end);
    else
        fill<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
