// SPDX-License-Identifier: Apache-2.0
#include "doctor/prober_table.h"

#include <algorithm>

namespace spillway::doctor {

ProberTable::Prober* ProberTable::find(std::uint64_t session) {
  const auto found = std::find_if(probers_.begin(), probers_.end(),
                                  [&](const Prober& one) { return one.session == session; });
  return found == probers_.end() ? nullptr : &*found;
}

ProberTable::Prober* ProberTable::find_tag(std::uint32_t tag) {
  const auto found = std::find_if(probers_.begin(), probers_.end(), [&](const Prober& one) {
    return static_cast<std::uint32_t>(one.session) == tag;
  });
  return found == probers_.end() ? nullptr : &*found;
}

ProberTable::Prober* ProberTable::begin(std::uint64_t session, base::Instant now) {
  Prober* place = find(session);
  if (place == nullptr && probers_.size() < kMost) {
    place = &probers_.emplace_back();
  }
  if (place == nullptr) {
    const auto oldest =
        std::min_element(probers_.begin(), probers_.end(),
                         [](const Prober& a, const Prober& b) { return a.heard < b.heard; });
    place = now - oldest->heard >= kKept ? &*oldest : nullptr;
  }
  if (place != nullptr) {
    *place = Prober{.session = session, .heard = now};
  }
  return place;
}

}  // namespace spillway::doctor
