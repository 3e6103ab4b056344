// SPDX-License-Identifier: Apache-2.0
//
// The strangers at a listening socket, that is connections whose other side has not yet proved to
// be of the job: how many there may be, and which one has to leave when another one comes.
//
// A stranger needs no key to take a descriptor, so all strangers of the process together, at
// whichever socket, get one descriptor in kDescriptorShare of those that it may open, and those of
// one socket at most kMaxBytes of its memory. The job's own connections are not counted: strangers
// cannot use up what they need. Each socket has kLeast places that those of others do not take.
//
// One IP address gets one place in kSourceShare, so a flood from one host is in nobody else's way.
// When the book is full, the address with the most strangers loses one. Within an address the
// oldest that has said nothing goes first. A stranger that was answered may have proved itself
// already and believe that it is in: it is safe for kAnsweredGrace, and its owner reads from it
// once more before it lets it go. Ranks of the job that had to leave or were turned away come
// again.
//
// Pure bookkeeping; the owner closes the connections. One thread, but for what books share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/units.h"

namespace spillway::net {

class StrangerBook {
 public:
  using Id = std::uint64_t;  // ascends with every newcomer
  static constexpr std::uint64_t kDescriptorShare = 8;
  static constexpr std::uint64_t kMaxBytes = 64 * 1024 * 1024;
  static constexpr std::uint64_t kLeast = 8;  // where a process may open hardly any files
  static constexpr std::size_t kSourceShare = 4;
  static constexpr base::Duration kAnsweredGrace = base::seconds(5);

  // How many strangers a process that may open `files` holds, if each takes up to `bytes_each`.
  static std::size_t most_of(std::uint64_t files, std::size_t bytes_each);
  // RLIMIT_NOFILE of this process, the soft limit.
  static std::uint64_t files_of_process();

  // The strangers of several books; any thread.
  struct Shared {
    std::atomic<std::size_t> strangers{0};
    std::size_t most = 0;  // and kLeast in every book
  };
  static Shared& of_process();

  explicit StrangerBook(std::size_t most, Shared& shared = of_process())
      : most_(most), shared_(&shared) {}
  ~StrangerBook() { shared_->strangers -= strangers_.size(); }
  // Not copied: strangers point to their sources.
  StrangerBook(StrangerBook&& other) noexcept
      : most_(other.most_),
        shared_(other.shared_),
        strangers_(std::exchange(other.strangers_, {})),
        sources_(std::exchange(other.sources_, {})) {}

  std::size_t size() const { return strangers_.size(); }
  std::size_t most() const { return most_; }

  struct Room {
    bool is_free = false;
    std::optional<Id> leaves{};  // there is room once this one has left; neither: turn it away
  };
  Room room_for(const std::string& source, base::Instant now) const;

  void add(Id id, const std::string& source, base::Instant now);
  void answered(Id id);
  // Does nothing if the stranger is not in the book.
  void remove(Id id);

 private:
  // How many strangers there are of each IP address. Its nodes stay where they are.
  using Sources = std::unordered_map<std::string, std::size_t>;
  struct Stranger {
    Sources::value_type* source;
    base::Instant begun;
    bool is_answered = false;
  };

  std::size_t most_;
  Shared* shared_;
  std::map<Id, Stranger> strangers_;  // the oldest first
  Sources sources_;
};

}  // namespace spillway::net
