// SPDX-License-Identifier: MIT
#include "host/perf_event.hpp"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {

namespace {

constexpr std::uint64_t cache(std::uint64_t which, std::uint64_t operation, std::uint64_t result) {
    return which | operation << 8 | result << 16;
}

const PerfEvent& event_named(const std::string& name) {
    const auto& all = perf_events();
    const auto found = std::find_if(all.begin(), all.end(), [&](const PerfEvent& event) { return event.name == name; });
    if (found != all.end()) return *found;
    std::string known;
    for (const PerfEvent& event : all) known.append(known.empty() ? "" : ", ").append(event.name);
    throw InvalidArgument("no event '" + name + "'; there is " + known);
}

int open_event(const PerfEvent& event, int tid, int leader, bool user_only) {
    perf_event_attr attributes{};
    attributes.type = event.type;
    attributes.size = sizeof attributes;
    attributes.config = event.config;
    attributes.disabled = leader < 0;
    attributes.exclude_kernel = user_only;
    attributes.exclude_hv = 1;
    attributes.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return static_cast<int>(::syscall(SYS_perf_event_open, &attributes, tid, -1, leader, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

const std::vector<PerfEvent>& perf_events() {
    static const std::vector<PerfEvent> all = {
        {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, "cycles", "core cycles while the thread ran"},
        {"ref_cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES, "cycles",
         "cycles of a constant clock while the thread ran; cycles / ref_cycles shows turbo and throttling"},
        {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, "instructions", "instructions retired"},
        {"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, "instructions", "branches retired"},
        {"branch_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, "instructions", "branches mispredicted"},
        {"cache_references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES, "accesses",
         "accesses of the last-level cache, as the CPU's vendor defines them"},
        {"cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, "accesses",
         "accesses of memory beyond the last-level cache, as the CPU's vendor defines them"},
        {"l1d_read_misses", PERF_TYPE_HW_CACHE,
         cache(PERF_COUNT_HW_CACHE_L1D, PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_MISS), "accesses",
         "reads that missed the first-level data cache"},
        {"dtlb_read_misses", PERF_TYPE_HW_CACHE,
         cache(PERF_COUNT_HW_CACHE_DTLB, PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_MISS), "accesses",
         "reads that missed the data TLB"},
        {"task_clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, "ns", "time the thread ran on a CPU"},
        {"page_faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, "faults", "pages the kernel had to supply"},
        {"major_faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ, "faults", "page faults that read a disk"},
        {"context_switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, "switches",
         "times the thread gave up its CPU or lost it"},
        {"migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, "migrations",
         "times the thread went on on another CPU"},
    };
    return all;
}

PerfRefusal explain_perf_errno(int error, std::string_view event) {
    const std::string name(event);
    switch (error) {
        case ENOENT:
        case ENODEV:
            return {"no hardware counter for " + name + ": this machine shows no PMU, or not this event of it",
                    "use software events; a virtual machine gets a PMU from its host (kvm: -cpu host,pmu=on)"};
        case EACCES:
        case EPERM: {
            const auto paranoid = read_text("/proc/sys/kernel/perf_event_paranoid");
            return {"the kernel does not let this user count " + name + " (perf_event_paranoid is " +
                        paranoid.value_or("unknown") + ")",
                    "sysctl kernel.perf_event_paranoid=2 (or lower), or CAP_PERFMON; in a container also a seccomp "
                    "profile that allows perf_event_open"};
        }
        case EINVAL:
        case EOPNOTSUPP: return {"this CPU or kernel cannot count " + name + " in this way", "leave it out"};
        case ENOSYS: return {"this kernel is built without perf_event_open, or a sandbox hides it", "leave it out"};
        case ESRCH: return {"the thread has ended before " + name + " could be counted", ""};
        case EMFILE:
        case ENFILE:
            return {"no file descriptor is left for " + name, "raise `ulimit -n`: every thread needs one per event"};
        default: return {name + " cannot be counted: " + std::strerror(error), ""};
    }
}

double PerfValue::scaled() const noexcept {
    if (running_ns == 0) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(raw) * (static_cast<double>(enabled_ns) / static_cast<double>(running_ns));
}

PerfGroup::PerfGroup(int tid, const std::vector<std::string>& names) : names_(names) {
    if (names.empty()) throw InvalidArgument("a group needs at least one event");
    for (const std::string& name : names) event_named(name);
    for (std::size_t i = 0; i < names.size(); ++i) {
        const PerfEvent& event = event_named(names[i]);
        const int leader = files_.empty() ? -1 : files_.front();
        int file = open_event(event, tid, leader, user_only_);
        if (file < 0 && (errno == EACCES || errno == EPERM) && i == 0) {  // perf_event_paranoid=2 allows this much
            user_only_ = true;
            file = open_event(event, tid, leader, user_only_);
        }
        if (file < 0) {
            const PerfRefusal refusal = explain_perf_errno(errno, event.name);
            close_all();
            throw Unavailable(refusal.what, "perf_event_open", refusal.remedy);
        }
        files_.push_back(file);
    }
}

PerfGroup::~PerfGroup() { close_all(); }

PerfGroup::PerfGroup(PerfGroup&& other) noexcept
    : names_(std::move(other.names_)), files_(std::exchange(other.files_, {})), user_only_(other.user_only_) {}

void PerfGroup::close_all() noexcept {
    for (const int file : files_) ::close(file);
    files_.clear();
}

void PerfGroup::control(unsigned long request) {
    if (::ioctl(files_.front(), request, PERF_IOC_FLAG_GROUP) < 0)
        throw Error(std::string("perf_event: ") + std::strerror(errno));
}

void PerfGroup::enable() { control(PERF_EVENT_IOC_ENABLE); }
void PerfGroup::disable() { control(PERF_EVENT_IOC_DISABLE); }

std::vector<PerfValue> PerfGroup::read() const {
    std::vector<std::uint64_t> words(3 + files_.size());  // count, enabled, running, values
    const auto bytes = words.size() * sizeof words[0];
    if (::read(files_.front(), words.data(), bytes) != static_cast<ssize_t>(bytes) || words[0] != files_.size())
        throw Error("perf_event: a short read of the group of " + names_.front());
    std::vector<PerfValue> values;
    for (std::size_t i = 0; i < files_.size(); ++i) values.push_back({words[3 + i], words[1], words[2]});
    return values;
}

}  // namespace dnnsuite::host
