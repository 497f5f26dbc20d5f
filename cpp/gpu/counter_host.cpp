// SPDX-License-Identifier: MIT
#include "gpu/counter_host.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "gpu/counter_api.hpp"
#include "gpu/counter_refusal.hpp"

namespace dnnsuite::gpu {

#ifdef DNNSUITE_HAS_CUPTI

namespace {

/// A host object, alive for as long as this is. The availability image must outlive it.
class HostObject {
  public:
    HostObject(const CounterHostApi& api, const std::string& chip, Collection collection,
               const std::vector<std::uint8_t>& availability)
        : api_(api) {
        auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params);
        params.profilerType =
            collection == Collection::kRanges ? CUPTI_PROFILER_TYPE_RANGE_PROFILER : CUPTI_PROFILER_TYPE_PM_SAMPLING;
        params.pChipName = chip.c_str();
        params.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
        result_ = api.initialize(&params);
        object_ = result_ == CUPTI_SUCCESS ? params.pHostObject : nullptr;
    }
    ~HostObject() {
        if (object_ != nullptr) {
            auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
            params.pHostObject = object_;
            api_.deinitialize(&params);
        }
    }
    HostObject(const HostObject&) = delete;
    HostObject& operator=(const HostObject&) = delete;

    CUptiResult result() const noexcept { return result_; }
    CUpti_Profiler_Host_Object* get() const noexcept { return object_; }

  private:
    const CounterHostApi& api_;
    CUptiResult result_;
    CUpti_Profiler_Host_Object* object_;
};

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
    std::vector<const char*> pointers;
    for (const std::string& text : texts) {
        pointers.push_back(text.c_str());
    }
    return pointers;
}

std::string text_or_empty(const char* text) { return text != nullptr ? text : ""; }

constexpr const char* kTypes[] = {"counter", "ratio", "throughput"};  // by CUpti_MetricType

CUpti_MetricType type_called(const std::string& name) {
    const auto* const found = std::find(std::begin(kTypes), std::end(kTypes), name);
    if (found == std::end(kTypes)) {
        throw InvalidArgument("metric type '" + name + "'; accepted: counter, ratio, throughput");
    }
    return static_cast<CUpti_MetricType>(found - std::begin(kTypes));
}

class CuptiHost final : public CounterHost {
  public:
    CuptiHost(std::string chip, Collection collection, std::vector<std::uint8_t> availability)
        : api_(counter_host_api()), chip_(std::move(chip)), collection_(collection),
          availability_(std::move(availability)), object_(api_, chip_, collection_, availability_) {
        if (object_.result() != CUPTI_SUCCESS) {
            refuse_chip();
        }
    }

    std::vector<std::string> metrics(const std::string& type) const override {
        auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_GetBaseMetrics_Params);
        params.pHostObject = object_.get();
        params.metricType = type_called(type);
        counter_check(api_.get_base_metrics(&params), "cuptiProfilerHostGetBaseMetrics");
        return {params.ppMetricNames, params.ppMetricNames + params.numMetrics};
    }

    std::vector<std::string> submetrics(const std::string& metric) const override {
        auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_GetSubMetrics_Params);
        params.pHostObject = object_.get();
        params.metricType = type_called(describe(metric).type);
        params.pMetricName = metric.c_str();
        counter_check(api_.get_sub_metrics(&params), "cuptiProfilerHostGetSubMetrics");
        return {params.ppSubMetrics, params.ppSubMetrics + params.numOfSubmetrics};
    }

    MetricInfo describe(const std::string& metric) const override {
        auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params);
        params.pHostObject = object_.get();
        params.pMetricName = metric.c_str();
        const CUptiResult result = api_.get_metric_properties(&params);
        if (result == CUPTI_ERROR_INVALID_PARAMETER || result == CUPTI_ERROR_INVALID_METRIC_NAME) {
            throw InvalidArgument("metric '" + metric + "' does not exist on " + chip_);
        }
        counter_check(result, "cuptiProfilerHostGetMetricProperties");
        return {kTypes[params.metricType], text_or_empty(params.pDescription), text_or_empty(params.pHwUnit),
                text_or_empty(params.pDimUnit)};
    }

    bool accepts(const std::string& metric) const override {
        const HostObject fresh(api_, chip_, collection_, availability_);
        const CUptiResult result = add(fresh, {metric});
        if (result != CUPTI_ERROR_INVALID_PARAMETER && result != CUPTI_ERROR_INVALID_METRIC_NAME) {
            counter_check(result, "cuptiProfilerHostConfigAddMetrics");
        }
        return result == CUPTI_SUCCESS;
    }

    std::optional<CounterConfig> configure(const std::vector<std::string>& metrics) const override {
        if (metrics.empty()) {
            throw InvalidArgument("no metrics to configure; name at least one");
        }
        const HostObject fresh(api_, chip_, collection_, availability_);  // a host object keeps what was added
        const CUptiResult result = add(fresh, metrics);
        if (result == CUPTI_ERROR_NOT_SUPPORTED && metrics.size() > 1) {
            return std::nullopt;
        }
        if (result == CUPTI_ERROR_INVALID_PARAMETER || result == CUPTI_ERROR_INVALID_METRIC_NAME) {
            refuse_metrics(metrics);
        }
        counter_check(result, "cuptiProfilerHostConfigAddMetrics");
        return config_of(fresh);
    }

    std::size_t max_metrics_per_pass() const override {
        auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_GetMaxNumHardwareMetricsPerPass_Params);
        params.profilerType =
            collection_ == Collection::kRanges ? CUPTI_PROFILER_TYPE_RANGE_PROFILER : CUPTI_PROFILER_TYPE_PM_SAMPLING;
        params.pChipName = chip_.c_str();
        counter_check(api_.get_max_metrics_per_pass(&params), "cuptiProfilerHostGetMaxNumHardwareMetricsPerPass");
        return params.maxMetricsPerPass;
    }

    CounterValues evaluate(const std::vector<std::uint8_t>& image, const std::vector<std::string>& metrics,
                           void* sampler) const override {
        CounterValues found;
        const std::size_t rows =
            collection_ == Collection::kRanges ? ranges(image, found.names) : samples(image, sampler, found);
        for (std::size_t row = 0; row < rows; ++row) {
            found.values.push_back(values(image, row, metrics));
        }
        return found;
    }

  private:
    [[noreturn]] void refuse_chip() const {
        std::string known;
        for (const std::string& chip : counter_chips()) {
            known += (known.empty() ? "" : ", ") + chip;
        }
        const bool unknown = object_.result() == CUPTI_ERROR_INVALID_CHIP_NAME;
        const char* const lacks =
            collection_ == Collection::kRanges ? " has no counters of ranges" : " has no counters sampled over time";
        if (!unknown && object_.result() != CUPTI_ERROR_NOT_SUPPORTED) {
            counter_check(object_.result(), "cuptiProfilerHostInitialize");
        }
        throw Unavailable("chip " + chip_ + (unknown ? " is not known to CUPTI" : lacks), "libcupti.so.13",
                          "the chips that it knows: " + known);
    }

    [[noreturn]] void refuse_metrics(const std::vector<std::string>& metrics) const {
        for (const std::string& metric : metrics) {  // CUPTI does not say which one it was
            if (!accepts(metric)) {
                throw InvalidArgument("metric '" + metric + "' cannot be collected on " + chip_);
            }
        }
        throw Error("CUPTI refuses these metrics of " + chip_ + " together, but takes each alone");
    }

    CUptiResult add(const HostObject& object, const std::vector<std::string>& metrics) const {
        std::vector<const char*> names = pointers_to(metrics);
        auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
        params.pHostObject = object.get();
        params.ppMetricNames = names.data();
        params.numMetrics = names.size();
        return api_.config_add_metrics(&params);
    }

    CounterConfig config_of(const HostObject& object) const {
        auto size = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
        size.pHostObject = object.get();
        counter_check(api_.get_config_image_size(&size), "cuptiProfilerHostGetConfigImageSize");
        CounterConfig config;
        config.image.resize(size.configImageSize);
        auto image = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
        image.pHostObject = object.get();
        image.configImageSize = config.image.size();
        image.pConfigImage = config.image.data();
        counter_check(api_.get_config_image(&image), "cuptiProfilerHostGetConfigImage");
        auto passes = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
        passes.configImageSize = config.image.size();
        passes.pConfigImage = config.image.data();
        counter_check(api_.get_num_of_passes(&passes), "cuptiProfilerHostGetNumOfPasses");
        config.passes = passes.numOfPasses;
        return config;
    }

    std::size_t ranges(const std::vector<std::uint8_t>& image, std::vector<std::string>& names) const {
        auto info = DNNSUITE_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
        info.pCounterDataImage = image.data();
        info.counterDataImageSize = image.size();
        counter_check(api_.get_ranges(&info), "cuptiRangeProfilerGetCounterDataInfo");
        for (std::size_t range = 0; range < info.numTotalRanges; ++range) {
            auto params = DNNSUITE_CUPTI_PARAMS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params);
            params.pCounterDataImage = image.data();
            params.counterDataImageSize = image.size();
            params.rangeIndex = range;
            params.rangeDelimiter = "/";
            counter_check(api_.get_range(&params), "cuptiRangeProfilerCounterDataGetRangeInfo");
            names.push_back(text_or_empty(params.rangeName));
        }
        return info.numTotalRanges;
    }

    std::size_t samples(const std::vector<std::uint8_t>& image, void* sampler, CounterValues& found) const {
        auto info = DNNSUITE_CUPTI_PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params);
        info.pCounterDataImage = image.data();
        info.counterDataImageSize = image.size();
        counter_check(api_.get_samples(&info), "cuptiPmSamplingGetCounterDataInfo");
        for (std::size_t sample = 0; sample < info.numCompletedSamples; ++sample) {
            auto params = DNNSUITE_CUPTI_PARAMS(CUpti_PmSampling_CounterData_GetSampleInfo_Params);
            params.pPmSamplingObject = static_cast<CUpti_PmSampling_Object*>(sampler);
            params.pCounterDataImage = image.data();
            params.counterDataImageSize = image.size();
            params.sampleIndex = sample;
            counter_check(api_.get_sample(&params), "cuptiPmSamplingCounterDataGetSampleInfo");
            found.t0_ns.push_back(static_cast<std::int64_t>(params.startTimestamp));
            found.t1_ns.push_back(static_cast<std::int64_t>(params.endTimestamp));
        }
        return info.numCompletedSamples;
    }

    std::vector<double> values(const std::vector<std::uint8_t>& image, std::size_t row,
                               const std::vector<std::string>& metrics) const {
        std::vector<const char*> names = pointers_to(metrics);
        std::vector<double> numbers(metrics.size(), std::numeric_limits<double>::quiet_NaN());
        auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
        params.pHostObject = object_.get();
        params.pCounterDataImage = image.data();
        params.counterDataImageSize = image.size();
        params.rangeIndex = row;
        params.ppMetricNames = names.data();
        params.numMetrics = names.size();
        params.pMetricValues = numbers.data();
        counter_check(api_.evaluate(&params), "cuptiProfilerHostEvaluateToGpuValues");
        return numbers;
    }

    const CounterHostApi& api_;
    const std::string chip_;
    const Collection collection_;
    const std::vector<std::uint8_t> availability_;
    const HostObject object_;
};

}  // namespace

std::unique_ptr<CounterHost> open_counter_host(const std::string& chip, Collection collection,
                                               const std::vector<std::uint8_t>& availability) {
    return std::make_unique<CuptiHost>(chip, collection, availability);
}

std::vector<std::string> counter_chips() {
    auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Host_GetSupportedChips_Params);
    counter_check(counter_host_api().get_supported_chips(&params), "cuptiProfilerHostGetSupportedChips");
    return {params.ppChipNames, params.ppChipNames + params.numChips};
}

std::uint32_t cupti_version() {
    std::uint32_t version = 0;
    counter_check(counter_host_api().get_version(&version), "cuptiGetVersion");
    return version;
}

#else

std::unique_ptr<CounterHost> open_counter_host(const std::string&, Collection, const std::vector<std::uint8_t>&) {
    throw built_without_cupti();
}

std::vector<std::string> counter_chips() { throw built_without_cupti(); }

std::uint32_t cupti_version() { throw built_without_cupti(); }

#endif

}  // namespace dnnsuite::gpu
