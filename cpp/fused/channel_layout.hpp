// SPDX-License-Identifier: MIT
// How activations [B, N, C, *] of the norms over channels lie in memory: what is taken as it is, and what is copied.
#pragma once

#include <vector>

#include "fused/tensors.hpp"

namespace dnnsuite::fused {

/// One model's [N, C, *] lies contiguous, or with the channels last; models may lie anywhere.
struct ChannelLayout {
    std::vector<int64_t> sizes, strides;  // the strides of a packed tensor in this order
    int64_t batch = 0, channels = 0, inner = 1;
    bool channels_last = false;
    bool side_by_side = false;  // what is made like x has the models' samples (or pixels) in turn: [N, B, C, *]

    /// Of x: channels last if it lies so and not contiguous as well. `steps`: samples may lie apart from each other.
    ChannelLayout(const Checker& check, const Tensor& x, bool steps = false) {
        check.at_least(x, "x", 3);
        for (int64_t d = 0; d < x.dim(); ++d) sizes.push_back(x.size(d));
        batch = sizes[1];
        channels = sizes[2];
        for (size_t d = 3; d < sizes.size(); ++d) inner *= sizes[d];
        strides = packed_strides(false);
        if (lies_in(x)) return;
        const std::vector<int64_t> plain = strides;
        strides = packed_strides(true);
        channels_last = lies_in(x);
        if (channels_last) return;
        strides = plain;
        if (steps) take_apart(x);
    }

    /// Numbers from the beginning of a sample, or with the channels last of a pixel, to that of the next.
    int64_t unit() const { return channels_last ? channels : channels * inner; }
    /// The same in t, which may have other numbers between them; -1 if it lies in another order.
    int64_t step_of(const Tensor& t) const { return step_of(t, channels_last); }

    /// True if each model of t lies in this order.
    bool lies_in(const Tensor& t) const {
        for (size_t d = 1; d < sizes.size(); ++d)
            if (sizes[d] != 1 && t.stride(static_cast<int64_t>(d)) != strides[d]) return false;
        return true;
    }

    Tensor empty(const Tensor& like) const {
        int32_t dtype = 0, device_type = 0, device_index = 0;
        aoti_torch_get_dtype(like.get(), &dtype);
        aoti_torch_get_device_type(like.get(), &device_type);
        aoti_torch_get_device_index(like.get(), &device_index);
        AtenTensorHandle handle = nullptr;
        const auto error = aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                                                    dtype, device_type, device_index, &handle);
        STD_TORCH_CHECK(error == 0, "dnnsuite: no memory for a tensor like ", shape_text(like));
        return Tensor(handle);
    }

    /// True if t lies as `empty` makes it.
    bool lies_as_made(const Tensor& t) const { return lies_in(t) && (sizes[0] == 1 || t.stride(0) == strides[0]); }

    /// t itself if it lies in this order, else a copy that does.
    Tensor arranged(const Tensor& t) const {
        if (lies_in(t)) return t;
        Tensor copy = empty(t);
        torch::stable::copy_(copy, t);
        return copy;
    }

    /// The same, with the models one after the other.
    Tensor packed(const Tensor& t) const {
        if (lies_in(t) && (t.size(0) < 2 || t.stride(0) == strides[0])) return t;
        Tensor copy = empty(t);
        torch::stable::copy_(copy, t);
        return copy;
    }

    void make_contiguous() {
        strides = packed_strides(false);
        channels_last = false;
    }

  private:
    int64_t step_of(const Tensor& t, bool last) const {
        if (!last) {
            const std::vector<int64_t> whole = packed_strides(false);
            for (size_t d = 2; d < sizes.size(); ++d)
                if (sizes[d] != 1 && t.stride(static_cast<int64_t>(d)) != whole[d]) return -1;
            return batch > 1 ? t.stride(1) : channels * inner;
        }
        if (channels != 1 && t.stride(2) != 1) return -1;
        int64_t step = -1, pixels = 1;
        for (size_t d = sizes.size() - 1; d > 0; --d) {
            if (d == 2 || sizes[d] == 1) continue;
            const int64_t stride = t.stride(static_cast<int64_t>(d));
            if (step < 0) step = stride;
            if (stride != step * pixels) return -1;
            pixels *= sizes[d];
        }
        return step < 0 ? channels : step;
    }

    /// Takes x as it lies, samples or pixels apart; of models side by side what is made like x is so, too.
    void take_apart(const Tensor& x) {
        for (const bool last : {false, true}) {
            const int64_t step = step_of(x, last);
            if (step < 0) continue;
            channels_last = last;
            strides = packed_strides(last);
            if (x.size(0) < 2 || x.stride(0) != unit() || step != x.size(0) * unit()) return;
            side_by_side = true;
            strides = packed_strides(last, x.size(0));
            return;
        }
    }

    /// `models`: units of so many lie in turn.
    std::vector<int64_t> packed_strides(bool last, int64_t models = 1) const {
        std::vector<int64_t> s(sizes.size());
        int64_t step = last ? channels * models : 1;
        for (size_t d = sizes.size() - 1; d > 2; --d) {
            s[d] = step;
            step *= sizes[d] > 1 ? sizes[d] : 1;
        }
        s[2] = last ? 1 : step;
        s[1] = last ? step : step * channels * models;
        s[0] = models > 1 ? (last ? channels : step * channels) : batch * s[1];
        return s;
    }
};

constexpr int64_t kColumns = 128;  // that a row should have, so that a loop over them is worth it

/// The columns of rows that `units` pixels of `unit` channels are read in: several pixels make a row, so that it is whole
/// vectors, and not a short loop: `least` columns or more.
inline int64_t columns_of_row(int64_t unit, int64_t units, int64_t least = kColumns) {
    int64_t times = 1;
    while (times * unit % 16 != 0 && times < 16) times *= 2;
    while (times * unit < least) times *= 2;
    if (times * unit > 16 * kColumns || times * 2 > units) times = 1;
    return times * unit;
}

}  // namespace dnnsuite::fused
