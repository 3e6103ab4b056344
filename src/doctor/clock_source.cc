// SPDX-License-Identifier: Apache-2.0
#include "doctor/clock_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>

#include "base/clock.h"
#include "net/time_spec.h"

namespace spillway::doctor {
namespace {

constexpr std::array<std::string_view, 5> kFast = {"tsc", "arch_sys_counter", "kvm-clock",
                                                   "hyperv_clocksource_tsc_page", "timebase"};
constexpr std::array<std::string_view, 5> kSlow = {"hpet", "acpi_pm", "xen", "jiffies", "pit"};
constexpr base::Duration kCoarse = base::microseconds(1);

bool contains(const std::array<std::string_view, 5>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Finding check_clock_source(const HostFiles& files) {
  const std::string name =
      files.read("sys/devices/system/clocksource/clocksource0/current_clocksource").value_or("");
  if (contains(kFast, name)) {
    return {"clocksource", Severity::kOk, fmt::format("{}: read without a system call", name)};
  }
  if (contains(kSlow, name)) {
    return {"clocksource", Severity::kWarning,
            fmt::format("{}: every look at the clock is slow", name),
            "boot with clocksource=tsc (tsc=reliable on some machines), if the processor has it"};
  }
  return {"clocksource", Severity::kNote, fmt::format("'{}' is not one that is known here", name),
          "see that what clock-read says is below a microsecond"};
}

ClockQuality measure_clock() {
  timespec resolution{};
  ::clock_getres(CLOCK_MONOTONIC, &resolution);
  const base::MonotonicClock clock;
  constexpr std::int64_t kLooks = 10'000;
  const base::Instant begin = clock.now();
  base::Instant last = begin;
  for (std::int64_t i = 0; i < kLooks; ++i) {
    last = clock.now();
  }
  return {.resolution = net::duration_of(resolution), .read_cost = (last - begin) / kLooks};
}

Finding check_clock(const ClockQuality& quality) {
  const std::string figures = fmt::format("resolution {} ns, a look takes {} ns",
                                          quality.resolution.count(), quality.read_cost.count());
  if (quality.resolution > kCoarse) {
    return {"clock-read", Severity::kWarning, fmt::format("too coarse to pace by: {}", figures),
            "use a kernel with CONFIG_HIGH_RES_TIMERS"};
  }
  return {"clock-read", Severity::kOk, figures};
}

}  // namespace spillway::doctor
