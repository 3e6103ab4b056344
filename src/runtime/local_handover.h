// SPDX-License-Identifier: Apache-2.0
//
// How ranks of one machine come by each other's segments. A rank opens a MemoryDoor, a Unix socket
// with a random abstract name, and its card says where that is. Once all cards are known, each rank
// knocks at its neighbours' doors and answers at its own (hand_over):
//
//   neighbour to owner   ask    its rank, and the owner's token
//   owner to neighbour   here   its rank, the neighbour's token, and the segment's descriptor
//   neighbour to owner   taken  its rank, and the owner's token: it can read
//
// A name can be seen by everybody on the machine, a token only in a card. So a token shows that the
// other was at the rendezvous; on top of that the kernel must say that it is of this user. What
// else comes to a door is turned away and counted.
//
// Nothing here blocks: a neighbour that is silent, gone or not what its card says costs no more
// than the patience, and its memory is then not shared. Each end knows for itself: an owner that
// was not told "taken" does not count on being read. The door is closed when all are served.
// Limits: kMaxMemoryStrangers connections that have not said who they are. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"
#include "runtime/local_segment.h"
#include "runtime/rank_card.h"

namespace spillway::runtime {

inline constexpr std::size_t kMaxMemoryStrangers = 64;

class MemoryDoor {
 public:
  static base::Result<MemoryDoor> open();

  const net::UniqueFd& socket() const { return socket_; }
  const std::string& name() const { return name_; }
  const std::string& token() const { return token_; }

 private:
  MemoryDoor(net::UniqueFd socket, std::string name, std::string token)
      : socket_(std::move(socket)), name_(std::move(name)), token_(std::move(token)) {}

  net::UniqueFd socket_;
  std::string name_;   // 32 hexadecimal digits
  std::string token_;  // the same
};

// What came of one neighbour.
struct Neighbour {
  std::uint16_t rank = 0;
  std::optional<SharedSegment> segment{};  // this rank can read it
  bool reads_us = false;                   // it can read this rank's
  std::string trouble{};                   // why not, if either is not so
};

struct HandoverResult {
  std::vector<Neighbour> neighbours{};
  std::uint64_t turned_away = 0;  // who knocked and was no neighbour
};

// With all ranks whose cards name the same domain as this rank's own, `cards[rank]`.
HandoverResult hand_over(MemoryDoor door, const OwnSegment& own, std::span<const RankCard> cards,
                         std::uint16_t rank, base::Duration patience);

}  // namespace spillway::runtime
