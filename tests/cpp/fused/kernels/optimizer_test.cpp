// SPDX-License-Identifier: MIT
#include "fused/math/optimizer.hpp"

#include <memory>

#include "fused/cpu/optimizer_kernel.hpp"
#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int64_t kModels = 3;
const double kHypers[] = {0.01, 0.9, 0.99, 1e-3, 0.05, 0.004};

/// A parameter with its gradient, states and scalars.
template <class T>
struct Parameter {
    std::vector<Both<T>> data;
    Both<double> steps{kModels}, carried{kModels};
    int64_t elements;

    Parameter(int64_t count, int tensors, size_t shift) : elements(count) {
        for (int i = 0; i < tensors; ++i) {
            data.emplace_back(kModels * count, shift).random(static_cast<unsigned>(i) + 1, 0.5);
            for (int64_t e = 0; i > 1 && e < data[2].count(); ++e)
                data.back().fill_at(e, std::abs(wide(data.back().cuda()[e])) + 0.1);
        }
        for (int64_t b = 0; b < kModels; ++b) {
            steps.fill_at(b, static_cast<double>(b));
            carried.fill_at(b, 0.5);
        }
    }
    template <class At>
    OptimizerEntry entry(const At& at, int scalars) {
        OptimizerEntry e{};
        for (size_t i = 0; i < data.size(); ++i) e.data[i] = at(data[i]), e.stride[i] = elements;
        if (scalars > 0) e.scalar[0] = at(steps), e.scalar_stride[0] = 1;
        if (scalars > 1) e.scalar[1] = at(carried), e.scalar_stride[1] = 1;
        e.elements = elements;
        return e;
    }
};

template <class T>
struct OptimizerStep : ::testing::Test {
    void check(Optimizer rule, const std::vector<int64_t>& sizes, size_t shift, bool some_rest = true) {
        const generic::RuleNeeds needs = generic::rule_needs(rule);
        std::vector<std::unique_ptr<Parameter<T>>> parameters;
        std::vector<OptimizerEntry> cuda_entries, cpu_entries;
        Both<unsigned> tickets(static_cast<int64_t>(sizes.size()) * kModels);
        std::vector<Room*> rooms{&tickets.room()};
        std::fill_n(tickets.cuda(), tickets.count(), 0u);
        for (const int64_t size : sizes) {
            parameters.push_back(std::make_unique<Parameter<T>>(size, 2 + needs.states, shift));
            Parameter<T>& p = *parameters.back();
            cuda_entries.push_back(p.entry([](auto& array) { return array.cuda(); }, needs.scalars));
            cpu_entries.push_back(p.entry([](auto& array) { return array.cpu(); }, needs.scalars));
            for (Both<T>& tensor : p.data) rooms.push_back(&tensor.room());
            rooms.insert(rooms.end(), {&p.steps.room(), &p.carried.room()});
        }
        const std::vector<double> factor = {1.0, 0.5, 2.0};
        const bool active[kModels] = {true, false, true};
        std::vector<std::vector<double>> hyper;
        for (const double value : kHypers) hyper.emplace_back(kModels, value);
        hyper[0] = {0.01, 0.02, 0.03};
        OptimizerArguments args{};
        args.rule = rule;
        args.dtype = kDType<T>;
        args.models = kModels;
        args.entry_count = static_cast<int64_t>(sizes.size());
        for (int i = 0; i < needs.hypers; ++i) args.hyper[i] = hyper[static_cast<size_t>(i)].data();
        args.factor = factor.data();
        args.active = some_rest ? active : nullptr;
        args.tickets = tickets.cuda();
        OptimizerArguments cpu = for_cpu<T>(args);
        args.entries = cuda_entries.data(), cpu.entries = cpu_entries.data();
        const int64_t launches = host_cuda::launches;
        run_cuda(rooms, [&] { return optimizer_step(args, nullptr); });
        EXPECT_EQ(host_cuda::launches - launches, 2 * (args.entry_count > 256 ? 2 : 1)) << "in both orders";
        run_cpu(cpu);
        for (size_t i = 0; i < parameters.size(); ++i) {
            for (Both<T>& tensor : parameters[i]->data) tensor.expect_near("tensor of " + std::to_string(i), 20);
            parameters[i]->steps.expect_near("steps", 0);
            parameters[i]->carried.expect_near("carried", 4);
        }
        for (int64_t i = 0; i < tickets.count(); ++i) ASSERT_EQ(tickets.cuda()[i], 0u) << "a replay would not step";
    }

  private:
    static void run_cpu(const OptimizerArguments& args) {
        std::vector<OptimizerChunk> chunks;
        for (int64_t b = 0; b < args.models; ++b)
            for (int64_t e = 0; e < args.entry_count; ++e)
                if (args.active == nullptr || args.active[b]) chunks.push_back({b, e, 0, args.entries[e].elements});
        baseline::optimizer_step(args, chunks.data(), chunks.data() + chunks.size());
        generic::with_rule<double>(args.rule, [&](auto tag) {
            for (const OptimizerChunk& c : chunks) {
                const RuleValues values = rule_values(args, args.entries[c.entry], c.model);
                generic::advance<typename decltype(tag)::type>(args.entries[c.entry], values, c.model);
            }
        });
    }
};
TYPED_TEST_SUITE(OptimizerStep, Numbers);

TYPED_TEST(OptimizerStep, EveryRuleIsTheCpus) {
    for (int rule = 0; rule <= static_cast<int>(Optimizer::kClamp); ++rule) {
        SCOPED_TRACE(kRuleNames[rule]);
        this->check(static_cast<Optimizer>(rule), {37, 0, 520}, 0);
        this->check(static_cast<Optimizer>(rule), {64, 33}, 1, false);
    }
}

TYPED_TEST(OptimizerStep, SeveralBlocksCountOneStep) { this->check(Optimizer::kNadam, {10000, 4096, 3}, 0); }

using OptimizerStepOfFloat = OptimizerStep<float>;
TEST_F(OptimizerStepOfFloat, ManyParametersTakeTwoLaunches) {
    check(Optimizer::kSgdMomentum, std::vector<int64_t>(258, 3), 0);
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
