// SPDX-License-Identifier: MIT
// max_over: tensors to arguments. A Backend has forward(args, like).
#pragma once

#include <limits>
#include <tuple>
#include <vector>

#include "fused/norm_arguments.hpp"
#include "fused/tensors.hpp"

namespace dnnsuite::fused {

template <class Backend>
struct MaxOperators {
    /// (values, indices) over dimension `dim`, counted with the model and kept as 1.
    static std::tuple<Tensor, Tensor> forward(const Tensor& x, int64_t dim) {
        const Checker check("max_over");
        check.at_least(x, "x", 2);
        STD_TORCH_CHECK(dim > 0 && dim < x.dim(), "max_over: dim must be 1 to ", x.dim() - 1, ", not ", dim);
        return over(check, x, dim, OptionalTensor());
    }

    /// The same of x [B, N, L, C] times sign [B, C], over L.
    static std::tuple<Tensor, Tensor> signed_forward(const Tensor& x, const Tensor& sign) {
        const Checker check("signed_max_over");
        STD_TORCH_CHECK(x.dim() == 4, "signed_max_over: x must be [B, N, L, C], not ", shape_text(x));
        check.same_kind(sign, "sign", x);
        check.shape(sign, "sign", {x.size(0), x.size(3)});
        return over(check, x, 2, packed(OptionalTensor(sign)));
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("max_over", TORCH_BOX(&forward));
        m.impl("signed_max_over", TORCH_BOX(&signed_forward));
    }

  private:
    static std::tuple<Tensor, Tensor> over(const Checker& check, const Tensor& x, int64_t dim,
                                           const OptionalTensor& sign) {
        STD_TORCH_CHECK(x.size(dim) > 0 && x.size(dim) < std::numeric_limits<int32_t>::max(), check.op(),
                        ": nothing, or too much, in dimension ", dim, " of ", shape_text(x));
        const Tensor input = packed(x);
        MaxArguments args{};
        args.dtype = check.floating(x, "x");
        args.models = x.size(0);
        args.count = x.size(dim);
        args.outer = args.inner = 1;
        std::vector<int64_t> sizes;
        for (int64_t d = 0; d < x.dim(); ++d) {
            sizes.push_back(d == dim ? 1 : x.size(d));
            if (d > 0 && d < dim) args.outer *= x.size(d);
            if (d > dim) args.inner *= x.size(d);
        }
        Tensor values = new_tensor(x, sizes.data(), x.dim());
        Tensor indices = torch::stable::new_empty(x, sizes, ScalarType::Long);
        args.x = input.data_ptr();
        args.sign = pointer(sign);
        args.values = values.data_ptr();
        args.indices = static_cast<int64_t*>(indices.data_ptr());
        Backend::forward(args, x);
        return {values, indices};
    }
};

}  // namespace dnnsuite::fused
