// SPDX-License-Identifier: Apache-2.0
//
// Limits connections whose other side has not yet proved that it belongs to the job ("strangers").
// Decides how many a listening socket may have, and which one its owner closes to make room.
//
// A stranger needs no key to occupy a descriptor. All strangers of the process together therefore
// get one in kDescriptorShare of the descriptors that it may open, and those of one socket at most
// kMaxBytes of memory. The job's own connections are not counted, so strangers cannot use up their
// descriptors. Each socket has kLeast places that other sockets' strangers do not take.
//
// One IP address gets one place in kSourceShare, so that a flood from one host does not block the
// others. When the table is full, the address with the most strangers loses one:
//   - the oldest one that has sent nothing valid yet ("silent"),
//   - else the newest answered one whose grace period is over. Where many connect at once, the
//   older
//     ones so keep their places until they have proved themselves, however long that takes.
// An answered stranger may have proved itself already and count itself accepted. It is therefore
// safe for kAnsweredGrace, unless the owner chooses another period, and the owner reads from it
// once more before closing it. Ranks of the job whose connections were closed connect again.
//
// Pure bookkeeping; the owner closes the connections. One thread, except for Shared.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/units.h"

namespace spillway::net {

class StrangerTable {
 public:
  using Id = std::uint64_t;  // ascends with every new connection
  static constexpr std::uint64_t kDescriptorShare = 8;
  static constexpr std::uint64_t kMaxBytes = 64 * 1024 * 1024;
  static constexpr std::uint64_t kLeast = 8;  // for processes that may open hardly any files
  static constexpr std::size_t kSourceShare = 4;
  static constexpr base::Duration kAnsweredGrace = base::seconds(5);

  // Limit on strangers for a process that may open `files` files, with `bytes_each` for each.
  static std::size_t most_of(std::uint64_t files, std::size_t bytes_each);
  // This process's soft RLIMIT_NOFILE.
  static std::uint64_t files_of_process();

  // Count of the strangers in several tables; any thread.
  struct Shared {
    std::atomic<std::size_t> strangers{0};
    std::size_t most = 0;  // besides kLeast in every table
  };
  static Shared& of_process();

  explicit StrangerTable(std::size_t most, Shared& shared = of_process(),
                         base::Duration answered_grace = kAnsweredGrace)
      : most_(most), answered_grace_(answered_grace), shared_(&shared) {}
  ~StrangerTable() { shared_->strangers -= strangers_.size(); }
  // Not copyable: strangers point to their sources.
  StrangerTable(StrangerTable&& other) noexcept
      : most_(other.most_),
        answered_grace_(other.answered_grace_),
        shared_(other.shared_),
        strangers_(std::exchange(other.strangers_, {})),
        sources_(std::exchange(other.sources_, {})) {}

  std::size_t size() const { return strangers_.size(); }
  std::size_t most() const { return most_; }

  struct Room {
    bool is_free = false;
    std::optional<Id> evict{};  // close this one to make room; if empty and not free: refuse
  };
  Room room_for(const std::string& source, base::Instant now) const;
  // The stranger to close if the process has no descriptor left; empty if all are safe.
  std::optional<Id> first_to_evict(base::Instant now) const;

  void add(Id id, const std::string& source, base::Instant now);
  void answered(Id id);
  // Does nothing if the stranger is not in the table.
  void remove(Id id);

 private:
  // Number of strangers per IP address. Strangers point to its nodes, which never move.
  using Sources = std::unordered_map<std::string, std::size_t>;
  struct Stranger {
    Sources::value_type* source;
    base::Instant begun;
    bool is_answered = false;
  };

  // Picks the stranger to evict from those that are considered, oldest first.
  class Choice;

  bool is_safe(const Stranger& stranger, base::Instant now) const {
    return stranger.is_answered && now - stranger.begun < answered_grace_;
  }

  std::size_t most_;
  base::Duration answered_grace_;
  Shared* shared_;
  std::map<Id, Stranger> strangers_;  // oldest first
  Sources sources_;
};

}  // namespace spillway::net
