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

    /// Of x: channels last if it lies so and not contiguous as well.
    ChannelLayout(const Checker& check, const Tensor& x) {
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
        if (!channels_last) strides = plain;
    }

    /// Whether each model of t lies in this order.
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
    std::vector<int64_t> packed_strides(bool last) const {
        std::vector<int64_t> s(sizes.size());
        int64_t step = last ? channels : 1;
        for (size_t d = sizes.size() - 1; d > 2; --d) {
            s[d] = step;
            step *= sizes[d] > 1 ? sizes[d] : 1;
        }
        s[2] = last ? 1 : step;
        s[1] = last ? step : step * channels;
        s[0] = batch * s[1];
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
