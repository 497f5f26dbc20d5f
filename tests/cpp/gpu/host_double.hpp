// SPDX-License-Identifier: MIT
// A double of our own CounterHost, for the sessions' state machines: it says nothing about CUPTI.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "gpu/counter_host.hpp"

namespace dnnsuite::gpu {

/// Passes of a set: those of its most expensive metric, as told; "apart" cannot be mixed with others.
class HostDouble final : public CounterHost {
  public:
    std::map<std::string, std::size_t> passes;
    mutable std::size_t samples = 0;  ///< what evaluate finds

    std::vector<std::string> metrics(const std::string&) const override { return {}; }
    std::vector<std::string> submetrics(const std::string&) const override { return {}; }
    MetricInfo describe(const std::string&) const override { return {}; }
    bool accepts(const std::string& metric) const override { return passes.count(metric) != 0; }
    std::size_t max_metrics_per_pass() const override { return 8; }

    std::optional<CounterConfig> configure(const std::vector<std::string>& asked) const override {
        std::size_t most = 1;
        for (const std::string& metric : asked) {
            if (metric == "apart" && asked.size() > 1) {
                return std::nullopt;
            }
            const auto known = passes.find(metric);
            if (known == passes.end()) {
                throw InvalidArgument("metric '" + metric + "'");
            }
            most = std::max(most, known->second);
        }
        return CounterConfig{std::vector<std::uint8_t>(8), most};
    }

    CounterValues evaluate(const std::vector<std::uint8_t>&, const std::vector<std::string>& asked,
                           void*) const override {
        CounterValues found;
        for (std::size_t i = 0; i < samples; ++i) {
            found.t0_ns.push_back(static_cast<std::int64_t>(100 * i));
            found.t1_ns.push_back(static_cast<std::int64_t>(100 * i + 100));
            found.values.emplace_back(asked.size(), static_cast<double>(i));
        }
        return found;
    }
};

}  // namespace dnnsuite::gpu
