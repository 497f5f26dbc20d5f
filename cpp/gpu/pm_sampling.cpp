// SPDX-License-Identifier: MIT
#include "gpu/pm_sampling.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "gpu/counter_api.hpp"

namespace dnnsuite::gpu {

namespace {

template <class Params>
Params of_sampler(std::size_t size, void* object) {
    Params params = sized<Params>(size);
    params.pPmSamplingObject = static_cast<CUpti_PmSampling_Object*>(object);
    return params;
}
#define OF_SAMPLER(type) of_sampler<type>(type##_STRUCT_SIZE, object_)

std::int64_t clock_ns(clockid_t clock) noexcept {
    timespec now{};
    clock_gettime(clock, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void append(CounterValues& all, CounterValues&& more, std::ptrdiff_t skip) {
    const auto move_into = [skip](auto& to, auto& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin() + skip), std::make_move_iterator(from.end()));
    };
    move_into(all.t0_ns, more.t0_ns);
    move_into(all.t1_ns, more.t1_ns);
    move_into(all.values, more.values);
}

}  // namespace

PmSampler::PmSampler(const PmSamplingApi& api, const CounterHost& host, std::vector<std::string> metrics,
                     const SamplingOptions& options)
    : api_(api), host_(host), metrics_(std::move(metrics)), options_(options), owner_(getpid()) {
    std::optional<CounterConfig> config = host_.configure(metrics_);
    if (!config || config->passes != 1) {
        throw InvalidArgument("metrics that need " + std::to_string(config ? config->passes : 2) +
                              " passes cannot be sampled over time, which is one pass: ask for fewer");
    }
    config_ = std::move(config->image);
    auto enable = DNNSUITE_CUPTI_PARAMS(CUpti_PmSampling_Enable_Params);
    enable.deviceIndex = options_.device;
    counter_check(api_.enable(&enable), "cuptiPmSamplingEnable");
    object_ = enable.pPmSamplingObject;
    try {
        configure();
    } catch (...) {
        close();
        throw;
    }
}

PmSampler::~PmSampler() { close(); }

void PmSampler::configure() {
    auto config = OF_SAMPLER(CUpti_PmSampling_SetConfig_Params);
    config.configSize = config_.size();
    config.pConfig = config_.data();
    config.hardwareBufferSize = options_.hardware_buffer_bytes;
    config.samplingInterval = options_.interval;
    config.triggerMode = options_.interval_in_cycles ? CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL
                                                     : CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    config.hwBufferAppendMode = options_.keep_latest ? CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST
                                                     : CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
    counter_check(api_.set_config(&config), "cuptiPmSamplingSetConfig");
    std::vector<const char*> names;
    for (const std::string& metric : metrics_) {
        names.push_back(metric.c_str());
    }
    auto size = OF_SAMPLER(CUpti_PmSampling_GetCounterDataSize_Params);
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxSamples = options_.samples_per_image;
    counter_check(api_.get_image_size(&size), "cuptiPmSamplingGetCounterDataSize");
    image_.resize(size.counterDataSize);
}

void PmSampler::start() {
    if (running_ || object_ == nullptr) {
        throw Error(std::string("sampling: start while the sampler is ") + (running_ ? "running" : "closed"));
    }
    window_ = SampledWindow{};
    window_.realtime_ns = clock_ns(CLOCK_REALTIME);
    window_.monotonic_ns = clock_ns(CLOCK_MONOTONIC);
    auto params = OF_SAMPLER(CUpti_PmSampling_Start_Params);
    counter_check(api_.start(&params), "cuptiPmSamplingStart");
    discard_first_ = true;
    stopping_ = false;
    failure_ = nullptr;
    running_ = true;
    thread_ = std::thread([this] { fetch_regularly(); });
}

void PmSampler::fetch_regularly() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::nanoseconds(options_.decode_every_ns), [this] { return stopping_; })) {
        try {
            fetch();
        } catch (...) {
            failure_ = std::current_exception();
            return;
        }
    }
}

void PmSampler::fetch() {
    while (fetch_one_image()) {
    }
}

bool PmSampler::fetch_one_image() {
    auto fresh = OF_SAMPLER(CUpti_PmSampling_CounterDataImage_Initialize_Params);
    fresh.counterDataSize = image_.size();
    fresh.pCounterData = image_.data();
    counter_check(api_.initialize_image(&fresh), "cuptiPmSamplingCounterDataImageInitialize");
    auto params = OF_SAMPLER(CUpti_PmSampling_DecodeData_Params);
    params.pCounterDataImage = image_.data();
    params.counterDataImageSize = image_.size();
    const CUptiResult result = api_.decode(&params);
    const bool ran_over = params.overflow != 0 || result == CUPTI_ERROR_OUT_OF_MEMORY;
    window_.overflows += ran_over ? 1 : 0;
    if (result == CUPTI_ERROR_OUT_OF_MEMORY) {  // the documented answer when the GPU's buffer ran over
        return false;
    }
    counter_check(result, "cuptiPmSamplingDecodeData");
    CounterValues found = host_.evaluate(image_, metrics_, object_);
    if (!found.values.empty()) {
        window_.image = image_;
    }
    const bool skip = discard_first_ && !found.values.empty();
    discard_first_ = discard_first_ && !skip;
    append(window_.samples, std::move(found), skip ? 1 : 0);
    return params.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
}

void PmSampler::join() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void PmSampler::stop() {
    if (!running_) {
        throw Error("sampling: stop while the sampler is not running");
    }
    running_ = false;
    join();
    auto params = OF_SAMPLER(CUpti_PmSampling_Stop_Params);
    const CUptiResult stopped = api_.stop(&params);
    if (failure_ != nullptr) {
        std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    counter_check(stopped, "cuptiPmSamplingStop");
    fetch();
    done_.push_back(std::move(window_));
}

void PmSampler::close() noexcept {
    if (getpid() != owner_) {
        if (thread_.joinable()) {
            thread_.detach();  // the thread exists in the parent alone
        }
        object_ = nullptr;
        return;
    }
    join();
    if (object_ != nullptr) {
        if (std::exchange(running_, false)) {
            auto stop = OF_SAMPLER(CUpti_PmSampling_Stop_Params);
            api_.stop(&stop);
        }
        auto params = OF_SAMPLER(CUpti_PmSampling_Disable_Params);
        api_.disable(&params);
        object_ = nullptr;
    }
}

std::vector<SampledWindow> PmSampler::take() { return std::exchange(done_, {}); }

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
