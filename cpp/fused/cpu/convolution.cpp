// SPDX-License-Identifier: MIT
// Convolutions of an array by torch's own, model by model: the bits are those of one model alone. Each result comes to
// lie in its place among those of all models. torch has no convolution into given memory, so the place is offered to
// the allocator for the request that will be the result's (host/torch_allocator.cpp). Where nobody takes offers, or
// torch asked for something else, the result is copied.
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fused/tensors.hpp"

namespace dnnsuite::fused {
namespace {

using Sizes = std::vector<int64_t>;
using torch::stable::detail::from;

// Of libdnnsuite_memory.so, while its allocator serves.
using OpenOffer = void (*)(int64_t slot, void* memory, int64_t bytes, int64_t request);
using CloseOffer = int64_t (*)(int64_t slot, const void* result);
OpenOffer open_offer = nullptr;
CloseOffer close_offer = nullptr;

/// Facts seen of a result when a convolution like it was computed: sizes and strides of one model's, and which of the
/// requests of its size was for it.
struct Known {
    Sizes sizes, strides;
    int64_t request = 0;
};
using KnownResults = std::array<Known, 3>;

int64_t product(const Sizes& sizes) {
    int64_t total = 1;
    for (const int64_t size : sizes) total *= size;
    return total;
}

/// True if sizes and strides are of numbers without a gap, each in a place of its own.
bool is_dense(const Sizes& sizes, const Sizes& strides) {
    int64_t last = 0;
    for (size_t d = 0; d < sizes.size(); ++d) last += sizes[d] > 1 ? (sizes[d] - 1) * strides[d] : 0;
    return last + 1 == product(sizes);
}

Sizes sizes_of(const Tensor& t, int64_t first) {
    Sizes found;
    for (int64_t d = first; d < t.dim(); ++d) found.push_back(t.size(d));
    return found;
}
Sizes strides_of(const Tensor& t, int64_t first) {
    Sizes found;
    for (int64_t d = first; d < t.dim(); ++d) found.push_back(t.stride(d));
    return found;
}

/// One result of a call of torch's for each model, and the tensor of all of them.
class Results {
  public:
    /// `slot`: of the offers that are open at once. `like`: each model's result has the sizes and strides of its part.
    Results(bool needed, int64_t slot, const Tensor& given, Known& known, const Tensor* like = nullptr)
        : needed_(needed), slot_(slot), given_(given), known_(known) {
        if (!needed_) return;
        if (like != nullptr) {
            const Sizes sizes = sizes_of(*like, 1), strides = strides_of(*like, 1);
            fixed_ = is_dense(sizes, strides);
            if (fixed_) known_.sizes = sizes, known_.strides = strides;
        }
        if (!known_.strides.empty()) allocate();
    }
    Results(const Results&) = delete;
    Results& operator=(const Results&) = delete;
    ~Results() {
        if (offered_) close_offer(slot_, nullptr);
    }

    /// The next result is to be this model's.
    void expect(int64_t model) {
        if (!all_.has_value() || open_offer == nullptr || bytes_ == 0) return;
        void* const to = place(model);
        offered_ = reinterpret_cast<uintptr_t>(to) % 64 == 0;  // as every tensor of torch's lies
        if (offered_) open_offer(slot_, to, bytes_, known_.request);
    }

    void put(int64_t model, Tensor result) {
        if (!needed_) return;
        if (offered_) {
            const int64_t request = close_offer(slot_, result.data_ptr());
            if (request >= 0) known_.request = request;
            offered_ = false;
        }
        const OptionalTensor before = all_;  // what torch may have written to
        if (!fixed_ && !begun_ && !is_known(result)) {
            known_.sizes = sizes_of(result, 0), known_.strides = strides_of(result, 0);
            if (!is_dense(known_.sizes, known_.strides)) result = torch::stable::contiguous(result);
            known_.strides = strides_of(result, 0);
            allocate();
        }
        begun_ = true;
        if (result.data_ptr() == place(model)) {
            if (lies_in_place(result)) return;
            result = torch::stable::clone(result);
        }
        Tensor to = torch::stable::select(*all_, 0, model);
        torch::stable::copy_(to, result);
    }

    /// True if a tensor lies where these results are to be: it had the size of one, and took the place on offer.
    bool holds(const Tensor& t) const {
        if (!all_.has_value() || bytes_ == 0) return false;
        const char* const begin = static_cast<const char*>(all_->data_ptr());
        const char* const at = static_cast<const char*>(t.data_ptr());
        return at >= begin && at < begin + given_.size(0) * bytes_;
    }

    /// The results; one that is not needed comes as an empty tensor.
    Tensor all() const { return needed_ ? *all_ : new_tensor(given_, {0}); }

  private:
    bool is_known(const Tensor& t) const {
        return all_.has_value() && sizes_of(t, 0) == known_.sizes && strides_of(t, 0) == known_.strides;
    }
    bool lies_in_place(const Tensor& t) const {
        for (size_t d = 0; d < known_.sizes.size(); ++d)
            if (known_.sizes[d] > 1 && t.stride(static_cast<int64_t>(d)) != known_.strides[d]) return false;
        return true;
    }
    void* place(int64_t model) const { return static_cast<char*>(all_->data_ptr()) + model * bytes_; }

    void allocate() {
        Sizes sizes{given_.size(0)}, strides{product(known_.sizes)};
        sizes.insert(sizes.end(), known_.sizes.begin(), known_.sizes.end());
        strides.insert(strides.end(), known_.strides.begin(), known_.strides.end());
        int32_t dtype = 0, device_type = 0, device_index = 0;
        aoti_torch_get_dtype(given_.get(), &dtype);
        aoti_torch_get_device_type(given_.get(), &device_type);
        aoti_torch_get_device_index(given_.get(), &device_index);
        AtenTensorHandle handle = nullptr;
        const auto dims = static_cast<int64_t>(sizes.size());
        const auto error =
            aoti_torch_empty_strided(dims, sizes.data(), strides.data(), dtype, device_type, device_index, &handle);
        STD_TORCH_CHECK(error == 0, "dnnsuite: no memory for the convolutions of ", sizes[0], " models");
        all_ = Tensor(handle);
        bytes_ = strides[0] * static_cast<int64_t>(given_.element_size());
    }

    bool needed_;
    int64_t slot_;
    const Tensor& given_;
    Known& known_;
    bool fixed_ = false, begun_ = false, offered_ = false;
    OptionalTensor all_;
    int64_t bytes_ = 0;
};

/// No graph is to be recorded of what an operator does inside.
class WithoutGraph {
  public:
    WithoutGraph() : was_(aoti_torch_grad_mode_is_enabled()) { aoti_torch_grad_mode_set_enabled(false); }
    WithoutGraph(const WithoutGraph&) = delete;
    WithoutGraph& operator=(const WithoutGraph&) = delete;
    ~WithoutGraph() { aoti_torch_grad_mode_set_enabled(was_); }

  private:
    bool was_;
};

struct Geometry {
    Sizes stride, padding, dilation;
    bool transposed;
    Sizes output_padding;
    int64_t groups;
};

/// A number for each kind of convolution; two of the same number cost copies, nothing else.
class Key {
  public:
    void add(int64_t value) { hash_ = (hash_ ^ static_cast<uint64_t>(value)) * 1099511628211ULL; }
    void add(const Sizes& values) {
        for (const int64_t value : values) add(value);
    }
    void add(const Tensor& t) {
        add(sizes_of(t, 0)), add(strides_of(t, 0)), add(static_cast<int64_t>(t.scalar_type()));
    }
    void add(const Geometry& g) {
        add(g.stride), add(g.padding), add(g.dilation), add(g.output_padding), add(int64_t{g.transposed});
        add(g.groups);
    }
    uint64_t value() const { return hash_; }

  private:
    uint64_t hash_ = 1469598103934665603ULL;
};

KnownResults& known_of(const Key& key) {
    constexpr size_t kMost = 4096;
    thread_local std::unordered_map<uint64_t, KnownResults> known;
    if (known.size() > kMost) known.clear();
    return known[key.value()];
}

void check(const Checker& op, const Tensor& x, const Tensor& weight) {
    STD_TORCH_CHECK(x.dim() >= 4 && weight.dim() == x.dim() && weight.size(0) == x.size(0) && x.size(0) > 0, op.op(),
                    ": x must be [B, N, C, *] and weight [B, O, I, *], not ", shape_text(x), " and ",
                    shape_text(weight));
}

void check(const Checker& op, const OptionalTensor& bias, const Tensor& x) {
    STD_TORCH_CHECK(!bias.has_value() || (bias->dim() == 2 && bias->size(0) == x.size(0)), op.op(),
                    ": bias must be [B, O], not ", bias.has_value() ? shape_text(*bias) : "none");
}

Tensor own(const Tensor& t, int64_t model) { return torch::stable::select(t, 0, model); }

Tensor convolve_models(const Tensor& x, const Tensor& weight, OptionalTensor bias, Sizes stride, Sizes padding,
                       Sizes dilation, bool transposed, Sizes output_padding, int64_t groups) {
    const Checker op("convolve_models");
    check(op, x, weight);
    check(op, bias, x);
    const Geometry geometry{stride, padding, dilation, transposed, output_padding, groups};
    Key key;
    key.add(x), key.add(weight), key.add(geometry);
    key.add(int64_t{bias.has_value()});
    Results y(true, 0, x, known_of(key)[0]);
    const WithoutGraph without_graph;
    for (int64_t model = 0; model < x.size(0); ++model) {
        OptionalTensor offset;
        if (bias.has_value()) offset.emplace(own(*bias, model));
        std::array<StableIValue, 9> stack{
            from(own(x, model)), from(own(weight, model)), from(offset),         from(stride), from(padding),
            from(dilation),      from(transposed),         from(output_padding), from(groups)};
        y.expect(model);
        STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::convolution", "", stack.data(), TORCH_ABI_VERSION));
        y.put(model, torch::stable::detail::to<Tensor>(stack[0]));
    }
    return y.all();
}

std::tuple<Tensor, Tensor, Tensor> convolve_models_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                            Sizes stride, Sizes padding, Sizes dilation,
                                                            bool transposed, Sizes output_padding, int64_t groups,
                                                            bool needs_x, bool needs_weight, bool needs_bias) {
    const Checker op("convolve_models_backward");
    check(op, x, weight);
    check(op, grad, weight);
    const Geometry geometry{stride, padding, dilation, transposed, output_padding, groups};
    const std::array<bool, 3> needs{needs_x, needs_weight, needs_bias};
    Key key;
    key.add(grad), key.add(x), key.add(weight), key.add(geometry);
    for (const bool needed : needs) key.add(int64_t{needed});
    KnownResults& known = known_of(key);
    Results dx(needs_x, 0, x, known[0]), dweight(needs_weight, 1, x, known[1], &weight);
    Results dbias(needs_bias, 2, x, known[2]);
    const std::array<Results*, 3> all{&dx, &dweight, &dbias};
    const std::optional<Sizes> bias_sizes = Sizes{grad.size(2)};
    const torch::headeronly::HeaderOnlyArrayRef<bool> mask(needs.data(), needs.size());
    const WithoutGraph without_graph;
    for (int64_t model = x.size(0) - 1; model >= 0; --model) {  // the last is what a forward pass has left in caches
        std::array<StableIValue, 11> stack{from(own(grad, model)), from(own(x, model)), from(own(weight, model)),
                                           from(bias_sizes),       from(stride),        from(padding),
                                           from(dilation),         from(transposed),    from(output_padding),
                                           from(groups),           from(mask)};
        dx.expect(model), dweight.expect(model);
        STABLE_TORCH_ERROR_CODE_CHECK(
            torch_call_dispatcher("aten::convolution_backward", "", stack.data(), TORCH_ABI_VERSION));
        std::vector<Tensor> found;
        for (size_t i = 0; i < 3; ++i) found.push_back(torch::stable::detail::to<Tensor>(stack[i]));
        for (size_t i = 0; i < 3; ++i)
            for (size_t j = 0; j < 3; ++j)
                if (needs[i] && i != j && all[j]->holds(found[i])) found[i] = torch::stable::clone(found[i]);
        for (size_t i = 0; i < 3; ++i) all[i]->put(model, std::move(found[i]));
    }
    return {dx.all(), dweight.all(), dbias.all()};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("convolve_models", TORCH_BOX(&convolve_models));
    m.impl("convolve_models_backward", TORCH_BOX(&convolve_models_backward));
}

}  // namespace dnnsuite::fused

/// The allocator takes offers of memory from now on: see host/torch_allocator.cpp.
extern "C" __attribute__((visibility("default"))) void dnnsuite_offer_to(void* open, void* close) {
    dnnsuite::fused::open_offer = reinterpret_cast<dnnsuite::fused::OpenOffer>(open);
    dnnsuite::fused::close_offer = reinterpret_cast<dnnsuite::fused::CloseOffer>(close);
}
