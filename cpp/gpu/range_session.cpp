// SPDX-License-Identifier: MIT
#include "gpu/range_session.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <unistd.h>

#include <utility>

#include "base/error.hpp"
#include "gpu/counter_api.hpp"

namespace dnnsuite::gpu {

namespace {

template <class Params>
Params of_profiler(std::size_t size, void* object) {
    Params params = sized<Params>(size);
    params.pRangeProfilerObject = static_cast<CUpti_RangeProfiler_Object*>(object);
    return params;
}
#define OF_PROFILER(type) of_profiler<type>(type##_STRUCT_SIZE, object_)

}  // namespace

RangeSession::RangeSession(const RangeApi& api, const CounterHost& host, void* context,
                           std::vector<std::vector<std::string>> groups, RangeMode mode, std::size_t max_ranges)
    : api_(api), groups_(std::move(groups)), mode_(mode), max_ranges_(max_ranges), owner_(getpid()) {
    if (groups_.empty() || max_ranges_ == 0) {
        throw InvalidArgument("no groups of metrics, or no room for a range; at least one of each is needed");
    }
    for (const auto& group : groups_) {
        std::optional<CounterConfig> config = host.configure(group);
        if (!config) {
            throw InvalidArgument("metric '" + group.front() + "' and others of its group cannot be counted together");
        }
        configs_.push_back(std::move(config->image));
        passes_.push_back(config->passes);
    }
    auto enable = DNNSUITE_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params);
    enable.ctx = static_cast<CUcontext>(context);
    counter_check(api_.enable(&enable), "cuptiRangeProfilerEnable");
    object_ = enable.pRangeProfilerObject;
}

RangeSession::~RangeSession() { close(); }

void RangeSession::require(State state, const char* operation) const {
    if (state_ != state) {
        constexpr const char* kNames[] = {"between windows", "within a window", "closed"};
        throw Error(std::string("counters: ") + operation + " while the session is " +
                    kNames[static_cast<int>(state_)]);
    }
}

void RangeSession::start() {
    require(State::kIdle, "start");
    state_ = State::kRunning;
    steps_in_window_ = 0;
    mark_.clear();
    try {
        begin_segment();
    } catch (...) {
        abandon();
        throw;
    }
}

void RangeSession::mark(const std::string& name) {
    require(State::kRunning, "mark");
    if (mode_ == RangeMode::kKernels) {
        return;  // each kernel is a range already
    }
    try {
        pop();
        mark_ = name;
        push();
    } catch (...) {
        abandon();
        throw;
    }
}

void RangeSession::step() {
    require(State::kRunning, "step");
    try {
        pop();
        ++step_;
        ++steps_in_window_;
        ++current_.steps;
        ranges_of_step_ = ranges_ - ranges_before_;
        ranges_before_ = ranges_;
        mark_.clear();
        const bool one_pass = passes_[group_] == 1;
        if (mode_ == RangeMode::kSteps && groups_.size() == 1 && one_pass && !is_full()) {
            push();
            return;
        }
        if (end_pass()) {
            end_segment();
            group_ = (group_ + 1) % groups_.size();
            begin_segment();
        } else {
            begin_pass();
        }
    } catch (...) {
        abandon();
        throw;
    }
}

void RangeSession::stop() {
    require(State::kRunning, "stop");
    try {
        pop();
        if (steps_in_window_ == 0) {  // no steps were told apart: the window is the one step
            ++step_;
            ++current_.steps;
        }
        // A pass over what came after the last step is not a pass over a step.
        const std::size_t needed = mode_ == RangeMode::kKernels ? 1 : passes_[group_];
        if (!end_pass() || current_.steps < needed) {
            steps_left_out_ += current_.steps;
        } else {
            end_segment();
            group_ = (group_ + 1) % groups_.size();
        }
        state_ = State::kIdle;
    } catch (...) {
        abandon();
        throw;
    }
}

bool RangeSession::is_full() const noexcept {
    return ranges_ + (ranges_of_step_ > 0 ? ranges_of_step_ : 1) > max_ranges_;
}

std::size_t RangeSession::image_bytes() const {
    std::vector<const char*> names;
    for (const std::string& metric : groups_[group_]) {
        names.push_back(metric.c_str());
    }
    auto size = OF_PROFILER(CUpti_RangeProfiler_GetCounterDataSize_Params);
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxNumOfRanges = max_ranges_;
    size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(max_ranges_);
    counter_check(api_.get_image_size(&size), "cuptiRangeProfilerGetCounterDataSize");
    return size.counterDataSize;
}

void RangeSession::begin_segment() {
    // An image is laid out for the metrics whose size was asked for last: of another group's CUPTI says "unknown".
    current_ = RangeSegment{group_, step_, 0, 0, std::vector<std::uint8_t>(image_bytes())};
    ranges_ = ranges_before_ = 0;
    auto image = OF_PROFILER(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
    image.counterDataSize = current_.image.size();
    image.pCounterData = current_.image.data();
    counter_check(api_.initialize_image(&image), "cuptiRangeProfilerCounterDataImageInitialize");
    auto config = OF_PROFILER(CUpti_RangeProfiler_SetConfig_Params);
    config.configSize = configs_[group_].size();
    config.pConfig = configs_[group_].data();
    config.counterDataImageSize = current_.image.size();
    config.pCounterDataImage = current_.image.data();
    config.range = mode_ == RangeMode::kKernels ? CUPTI_AutoRange : CUPTI_UserRange;
    config.replayMode = mode_ == RangeMode::kKernels ? CUPTI_KernelReplay : CUPTI_UserReplay;
    config.maxRangesPerPass = max_ranges_;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.passIndex = 0;
    config.targetNestingLevel = 1;
    counter_check(api_.set_config(&config), "cuptiRangeProfilerSetConfig");
    begin_pass();
}

void RangeSession::begin_pass() {
    auto params = OF_PROFILER(CUpti_RangeProfiler_Start_Params);
    counter_check(api_.start(&params), "cuptiRangeProfilerStart");
    started_ = true;
    push();
}

bool RangeSession::end_pass() {
    auto params = OF_PROFILER(CUpti_RangeProfiler_Stop_Params);
    started_ = false;
    counter_check(api_.stop(&params), "cuptiRangeProfilerStop");
    return params.isAllPassSubmitted != 0;
}

void RangeSession::end_segment() {
    auto params = OF_PROFILER(CUpti_RangeProfiler_DecodeData_Params);
    counter_check(api_.decode(&params), "cuptiRangeProfilerDecodeData");
    current_.dropped = params.numOfRangeDropped;
    done_.push_back(std::move(current_));
}

void RangeSession::push() {
    if (mode_ == RangeMode::kKernels) {
        return;
    }
    const std::size_t step = passes_[group_] > 1 ? current_.first_step : step_;  // passes of a range share its name
    const std::string name = std::to_string(step) + (mark_.empty() ? "" : "/" + mark_);
    auto params = OF_PROFILER(CUpti_RangeProfiler_PushRange_Params);
    params.pRangeName = name.c_str();
    counter_check(api_.push_range(&params), "cuptiRangeProfilerPushRange");
    pushed_ = true;
    ++ranges_;
}

void RangeSession::pop() {
    if (!pushed_) {
        return;
    }
    pushed_ = false;
    auto params = OF_PROFILER(CUpti_RangeProfiler_PopRange_Params);
    counter_check(api_.pop_range(&params), "cuptiRangeProfilerPopRange");
}

void RangeSession::abandon() noexcept {
    if (pushed_) {
        auto params = OF_PROFILER(CUpti_RangeProfiler_PopRange_Params);
        api_.pop_range(&params);
    }
    if (started_) {
        auto params = OF_PROFILER(CUpti_RangeProfiler_Stop_Params);
        api_.stop(&params);
    }
    pushed_ = started_ = false;
    state_ = state_ == State::kClosed ? State::kClosed : State::kIdle;
}

void RangeSession::close() noexcept {
    if (state_ == State::kClosed) {
        return;
    }
    if (getpid() == owner_ && object_ != nullptr) {
        abandon();
        auto params = OF_PROFILER(CUpti_RangeProfiler_Disable_Params);
        api_.disable(&params);
    }
    object_ = nullptr;
    state_ = State::kClosed;
}

std::vector<RangeSegment> RangeSession::take() { return std::exchange(done_, {}); }

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
