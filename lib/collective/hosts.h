// SPDX-License-Identifier: Apache-2.0
//
// Which ranks share a host, as data: the same at all ranks. A rank's mates are the ranks of its
// host, in their order; its place is its number among them. Its counterparts are the ranks with the
// same place, one per host, in the order of the hosts' first ranks.
//
//   hosts of ranks 0 to 5:  a b a b a b     rank 3: mates 1 3 5, place 1, counterparts 2 3
//
// Hosts are even if all hold the same number of ranks, two or more, and there are two hosts or
// more. Only then there are counterparts.
//
// Plain values and pure functions: any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace spillway::collective {

class Hosts {
 public:
  // Every rank on a host of its own.
  Hosts() = default;
  // `host_of`: by rank, any number that ranks of one host have in common.
  explicit Hosts(const std::vector<std::uint32_t>& host_of) {
    std::map<std::uint32_t, std::size_t> numbers;
    for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
      const auto [found, is_new] = numbers.emplace(host_of[rank], ranks_.size());
      if (is_new) {
        ranks_.emplace_back();
      }
      ranks_[found->second].push_back(static_cast<std::uint16_t>(rank));
    }
  }

  bool are_even() const {
    return ranks_.size() > 1 && ranks_.front().size() > 1 &&
           std::all_of(ranks_.begin(), ranks_.end(),
                       [this](const auto& ranks) { return ranks.size() == ranks_.front().size(); });
  }
  // Even, and numbered host by host.
  bool are_adjacent() const {
    std::uint16_t next = 0;
    for (const std::vector<std::uint16_t>& ranks : ranks_) {
      for (const std::uint16_t rank : ranks) {
        if (rank != next++) {
          return false;
        }
      }
    }
    return are_even();
  }

  // These need even hosts:
  std::uint16_t ranks_per_host() const { return static_cast<std::uint16_t>(ranks_.front().size()); }
  const std::vector<std::uint16_t>& mates(std::uint16_t rank) const {
    return ranks_[position(rank).first];
  }
  std::uint16_t host(std::uint16_t rank) const {
    return static_cast<std::uint16_t>(position(rank).first);
  }
  std::uint16_t place(std::uint16_t rank) const {
    return static_cast<std::uint16_t>(position(rank).second);
  }
  std::vector<std::uint16_t> counterparts(std::uint16_t rank) const {
    std::vector<std::uint16_t> counterparts;
    for (const std::vector<std::uint16_t>& ranks : ranks_) {
      counterparts.push_back(ranks[place(rank)]);
    }
    return counterparts;
  }

 private:
  std::pair<std::size_t, std::size_t> position(std::uint16_t rank) const {
    for (std::size_t host = 0; host < ranks_.size(); ++host) {
      const auto found = std::find(ranks_[host].begin(), ranks_[host].end(), rank);
      if (found != ranks_[host].end()) {
        return {host, static_cast<std::size_t>(found - ranks_[host].begin())};
      }
    }
    return {};
  }

  std::vector<std::vector<std::uint16_t>> ranks_;  // by host
};

}  // namespace spillway::collective
