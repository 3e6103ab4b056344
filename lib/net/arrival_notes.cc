// SPDX-License-Identifier: Apache-2.0
#include "net/arrival_notes.h"

#include <netinet/in.h>

#include <algorithm>

#include "base/clock.h"
#include "net/system_call.h"

namespace spillway::net {
namespace {

constexpr base::Duration kMeasuredAgainAfter = base::milliseconds(100);

}  // namespace

void ArrivalClock::measure(base::Instant now) {
  ahead_ = base::unix_time_offset();
  measured_ = now;
  is_measured_ = true;
}

base::Instant ArrivalClock::instant_of(const timespec& stamped, base::Instant now) {
  if (!is_measured_ || now - measured_ >= kMeasuredAgainAfter) {
    measure(now);
  }
  return std::min(base::Instant(duration_of(stamped) - ahead_), now);
}

void ArrivalReader::read(const cmsghdr& control, base::Instant now, ArrivalNotes& notes) {
  const auto is = [&control](int level, int type) {
    return control.cmsg_level == level && control.cmsg_type == type;
  };
  if (is(IPPROTO_IP, IP_TOS)) {
    notes.tos = control_value<std::uint8_t>(control);
  } else if (is(IPPROTO_IPV6, IPV6_TCLASS)) {
    notes.tos = static_cast<std::uint8_t>(control_value<int>(control));
  } else if (is(SOL_SOCKET, SCM_TIMESTAMPNS)) {
    notes.at = clock_.instant_of(control_value<timespec>(control), now);
  } else if (is(SOL_SOCKET, SO_RXQ_OVFL)) {
    const auto total = control_value<std::uint32_t>(control);
    overflowed_ += static_cast<std::uint32_t>(total - overflow_seen_);
    overflow_seen_ = total;
  }
}

}  // namespace spillway::net
