// SPDX-License-Identifier: MIT
// rearranged: a contiguous tensor in another order of dimensions. torch copies number by number where the innermost ones
// differ. On CUDA its own copy serves.
#include "fused/cpu/rearrange_kernel.hpp"

#include <algorithm>
#include <vector>

#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

using Dimensions = std::vector<CopiedDimension>;

constexpr int64_t kLeastSide = 4;          // of a matrix that is transposed in blocks
constexpr int64_t kMostRuns = 2048;        // in a table
constexpr int64_t kMostRepeated = 262144;  // numbers of a task of small matrices

/// The dimensions of the result, outermost first, as few as there can be.
Dimensions dimensions(const Tensor& x, const std::vector<int64_t>& order) {
    Dimensions found;
    for (const int64_t dim : order) {
        const int64_t size = x.size(dim), from = x.stride(dim);
        if (size == 1) continue;
        if (!found.empty() && found.back().from == from * size)
            found.back() = {found.back().size * size, from, 0};
        else
            found.push_back({size, from, 0});
    }
    if (found.empty()) found.push_back({1, 1, 0});
    int64_t step = 1;
    for (auto dim = found.rbegin(); dim != found.rend(); step *= dim++->size) dim->to = step;
    return found;
}

/// Takes the innermost dimensions for the table.
std::vector<int64_t> table_of(Dimensions& dims, RearrangeArguments& args) {
    args.run = 1;
    if (dims.back().from == 1) {
        args.run = dims.back().size;
        dims.pop_back();
    }
    std::vector<int64_t> table{0};
    while (!dims.empty() && static_cast<int64_t>(table.size()) * dims.back().size <= kMostRuns) {
        const auto inner = table;
        table.clear();
        for (int64_t i = 0; i < dims.back().size; ++i)
            for (const int64_t place : inner) table.push_back(i * dims.back().from + place);
        dims.pop_back();
    }
    args.runs = static_cast<int64_t>(table.size());
    return table;
}

/// Takes the two dimensions that are innermost, one in x and the other in the result, and one that repeats them; false
/// if they are short, or one.
bool take_matrix(Dimensions& dims, RearrangeArguments& args) {
    const auto columns = std::find_if(dims.begin(), dims.end(), [](const CopiedDimension& d) { return d.from == 1; });
    if (dims.back().from == 1 || columns == dims.end()) return false;
    const CopiedDimension rows = dims.back();
    const bool interleaved = (rows.size == 2 && columns->to == 2) || (columns->size == 2 && rows.from == 2);
    if (!interleaved && std::min(rows.size, columns->size) < kLeastSide) return false;
    args.rows = rows, args.columns = *columns, args.repeats = {1, 0, 0};
    dims.erase(columns);
    dims.pop_back();
    if (!dims.empty() && dims.back().size * rows.size * args.columns.size <= kMostRepeated) {
        args.repeats = dims.back();
        dims.pop_back();
    }
    return true;
}

void check(const Tensor& x, const std::vector<int64_t>& order) {
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    bool every = static_cast<int64_t>(order.size()) == x.dim();
    for (int64_t i = 0; every && i < x.dim(); ++i) every = sorted[static_cast<size_t>(i)] == i;
    STD_TORCH_CHECK(every && x.dim() <= RearrangeArguments::kMostDimensions,
                    "rearranged: order must name each dimension of ", shape_text(x), " once, of at most ",
                    RearrangeArguments::kMostDimensions);
}

/// x.permute(order), contiguous, a copy.
Tensor rearranged(const Tensor& given, std::vector<int64_t> order) {
    check(given, order);
    RearrangeArguments args{};
    args.dtype = Checker("rearranged").floating(given, "x");
    const Tensor x = packed(given);
    std::vector<int64_t> sizes;
    for (const int64_t dim : order) sizes.push_back(x.size(dim));
    Tensor y = new_tensor(x, sizes.data(), x.dim());
    if (x.numel() == 0) return y;
    args.from = x.data_ptr(), args.to = y.data_ptr();
    Dimensions dims = dimensions(x, order);
    std::vector<int64_t> table;
    if (!take_matrix(dims, args)) table = table_of(dims, args);
    args.table = table.empty() ? nullptr : table.data();
    args.dims = static_cast<int64_t>(dims.size());
    std::copy(dims.begin(), dims.end(), args.outer);
    int64_t tasks = 1;
    for (const CopiedDimension& dim : dims) tasks *= dim.size;
    const auto kernel = DNNSUITE_SELECT(rearrange);
    run_tasks(tasks, x.numel() / tasks, 0, [&](int64_t begin, int64_t end, void*) { kernel(args, begin, end); });
    return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { m.impl("rearranged", TORCH_BOX(&rearranged)); }

}  // namespace dnnsuite::fused
