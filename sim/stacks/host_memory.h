// SPDX-License-Identifier: Apache-2.0
//
// Memory that the ranks of one simulated host share. Copying takes no time, and there is room for
// everything.
//
// One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collective/byte_payload.h"
#include "collective/hosts.h"

namespace spillway::sim {

// The bytes that the ranks of a host have staged.
struct HostMemory {
  std::map<std::uint64_t, std::vector<std::uint8_t>> blocks{};  // by offset
  std::uint64_t next = 0;
};

// A rank's access to it. The host's ranks are `ranks` in number and begin with `first`.
class RankMemory final : public collective::PeerMemory {
 public:
  RankMemory(HostMemory& host, std::uint16_t first, std::uint16_t ranks)
      : host_(host), first_(first), ranks_(ranks) {}

  bool is_local_rank(std::uint16_t peer) const override {
    return peer >= first_ && peer < first_ + ranks_;
  }
  bool is_read_by(std::uint16_t peer) const override { return is_local_rank(peer); }

  std::optional<std::uint64_t> stage(base::ByteView bytes) override {
    host_.blocks.emplace(host_.next, std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
    return host_.next++;
  }
  void release(std::uint64_t offset) override { host_.blocks.erase(offset); }

  bool read(std::uint16_t peer, const collective::MemoryPlace& place,
            base::MutableByteView to) override {
    const auto found = host_.blocks.find(place.offset);
    const bool is_released = found == host_.blocks.end() && place.offset < host_.next;
    if (is_released) {
      return true;  // its owner's operation has failed; whatever is read is not used
    }
    if (found == host_.blocks.end() || found->second.size() != to.size()) {
      failure_ = {peer, {base::StatusCode::kMalformed, "it names memory that was never staged"}};
      return false;
    }
    std::copy(found->second.begin(), found->second.end(), to.begin());
    return true;
  }
  const std::optional<collective::MemoryFailure>& failure() const override { return failure_; }

 private:
  HostMemory& host_;
  std::uint16_t first_;
  std::uint16_t ranks_;
  std::optional<collective::MemoryFailure> failure_;
};

// The memory of all ranks of a group, `per_host` on each host.
class GroupMemory {
 public:
  GroupMemory(std::uint16_t ranks, std::uint16_t per_host) : hosts_(ranks / per_host) {
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      const auto host = static_cast<std::uint16_t>(rank / per_host);
      ranks_.emplace_back(hosts_[host], static_cast<std::uint16_t>(host * per_host), per_host);
    }
  }
  GroupMemory(const GroupMemory&) = delete;
  GroupMemory& operator=(const GroupMemory&) = delete;

  collective::PeerMemory& of(std::uint16_t rank) { return ranks_[rank]; }

 private:
  std::vector<HostMemory> hosts_;
  std::vector<RankMemory> ranks_;
};

// Ranks numbered host by host.
inline collective::Hosts hosts_of(std::uint16_t ranks, std::uint16_t per_host) {
  std::vector<std::uint32_t> host_of;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    host_of.push_back(rank / per_host);
  }
  return collective::Hosts(host_of);
}

}  // namespace spillway::sim
