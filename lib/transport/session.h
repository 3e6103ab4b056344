// SPDX-License-Identifier: Apache-2.0
//
// The packet protection of one rank, in one epoch of one run. It holds, for each peer, the keys of
// both directions and how far the peer's packet numbers have come, because packets carry only part
// of them.
//
// Numbers move on only with packets that passed their checks, so that no forgery pushes them ahead.
// Keys are made when a peer is added. Limit: as many peers as are added. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "wire/key.h"
#include "wire/packet_auth.h"
#include "wire/sum_tag.h"

namespace spillway::transport {

struct SessionConfig {
  wire::RunKey key;
  wire::Protection protection = wire::Protection::kTags;
};

// One membership of a job: what its packets have in common.
struct Epoch {
  std::uint16_t job = 0;
  std::uint64_t number = 0;  // grows with every membership of a run
  SessionConfig session;
  // This endpoint's rank from now on, if it changes.
  std::optional<std::uint16_t> rank{};
};

class Session {
 public:
  struct Link {
    std::shared_ptr<const wire::PacketAuth> out;
    std::shared_ptr<const wire::PacketAuth> in;
    std::uint64_t first_number = 0;
    std::uint64_t newest_control = 0;        // latest that passed its check
    std::vector<std::uint64_t> newest_data;  // the same for data, by path

    std::uint64_t newest_on(std::uint8_t path) const {
      return path < newest_data.size() ? newest_data[path] : first_number;
    }
    void on_data(std::uint8_t path, std::uint64_t number);
  };

  // Packets are numbered from `first_number` on (EndpointConfig).
  Session(const SessionConfig& config, std::uint16_t rank, std::uint64_t epoch,
          std::uint64_t first_number);

  // A peer that is there already stays as it is.
  base::Status add_peer(std::uint16_t rank);
  // Null if the rank is no peer.
  Link* find(std::uint16_t rank) { return rank < links_.size() ? links_[rank].get() : nullptr; }
  const Link* find(std::uint16_t rank) const {
    return rank < links_.size() ? links_[rank].get() : nullptr;
  }
  const SessionConfig& config() const { return config_; }
  // Protects sum packets; all ranks of the epoch share it. Made when it is first asked for; null
  // where it cannot be.
  const wire::SumAuth* sums() const;

 private:
  SessionConfig config_;
  std::uint16_t rank_;
  std::uint64_t epoch_;
  std::uint64_t first_number_;
  std::shared_ptr<const wire::PacketAuth> crc_;  // without keys: one for all peers
  std::vector<std::unique_ptr<Link>> links_;     // by rank
  mutable std::optional<wire::SumAuth> sums_;
};

}  // namespace spillway::transport
