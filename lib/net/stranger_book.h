// SPDX-License-Identifier: Apache-2.0
//
// Strangers at a listening socket: connections whose other side has not yet proved that it belongs
// to the job. Decides how many there may be, and which one is closed to make room.
//
// A stranger needs no key to occupy a descriptor. All strangers of the process together therefore
// get one in kDescriptorShare of the descriptors it may open, and those of one socket at most
// kMaxBytes of memory. The job's own connections are not counted, so strangers cannot use up what
// they need. Each socket has kLeast places that other sockets' strangers do not take.
//
// One IP address gets one place in kSourceShare, so that a flood from one host does not block
// others. When the book is full, the address with the most strangers loses one. Within an address
// the oldest silent one goes first. A stranger that was answered may have proved itself already and
// believe that it is accepted. It is safe for a grace (kAnsweredGrace unless the owner chooses
// another), and the owner reads from it once more before closing it. Of those whose grace is over,
// the newest goes first: where many connect at once, the older ones then keep their places until
// they have proved themselves, however long that takes. If the oldest went, all could be closed
// just before. Ranks of the job that were closed or turned away connect again.
//
// Pure bookkeeping; the owner closes the connections. One thread, except for what books share.
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

class StrangerBook {
 public:
  using Id = std::uint64_t;  // ascends with every newcomer
  static constexpr std::uint64_t kDescriptorShare = 8;
  static constexpr std::uint64_t kMaxBytes = 64 * 1024 * 1024;
  static constexpr std::uint64_t kLeast = 8;  // for processes that may open hardly any files
  static constexpr std::size_t kSourceShare = 4;
  static constexpr base::Duration kAnsweredGrace = base::seconds(5);

  // Limit on strangers for a process that may open `files` files, with `bytes_each` for each.
  static std::size_t most_of(std::uint64_t files, std::size_t bytes_each);
  // This process's soft RLIMIT_NOFILE.
  static std::uint64_t files_of_process();

  // Count of the strangers in several books; any thread.
  struct Shared {
    std::atomic<std::size_t> strangers{0};
    std::size_t most = 0;  // besides kLeast in every book
  };
  static Shared& of_process();

  explicit StrangerBook(std::size_t most, Shared& shared = of_process(),
                        base::Duration answered_grace = kAnsweredGrace)
      : most_(most), answered_grace_(answered_grace), shared_(&shared) {}
  ~StrangerBook() { shared_->strangers -= strangers_.size(); }
  // Not copyable: strangers point to their sources.
  StrangerBook(StrangerBook&& other) noexcept
      : most_(other.most_),
        answered_grace_(other.answered_grace_),
        shared_(other.shared_),
        strangers_(std::exchange(other.strangers_, {})),
        sources_(std::exchange(other.sources_, {})) {}

  std::size_t size() const { return strangers_.size(); }
  std::size_t most() const { return most_; }

  struct Room {
    bool is_free = false;
    std::optional<Id> leaves{};  // close this one to make room; empty and not free: refuse
  };
  Room room_for(const std::string& source, base::Instant now) const;
  // The one to close where the process has no descriptor for a newcomer; empty if all are safe.
  std::optional<Id> first_to_leave(base::Instant now) const;

  void add(Id id, const std::string& source, base::Instant now);
  void answered(Id id);
  // Does nothing if the stranger is not in the book.
  void remove(Id id);

 private:
  // Number of strangers per IP address. Strangers point to its nodes, which never move.
  using Sources = std::unordered_map<std::string, std::size_t>;
  struct Stranger {
    Sources::value_type* source;
    base::Instant begun;
    bool is_answered = false;
  };

  // Picks the stranger that leaves from those that are considered, oldest first.
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
