// SPDX-License-Identifier: Apache-2.0
//
// How ranks of one machine get each other's segments. A rank opens a MemoryDoor, a Unix socket with
// a random abstract name, which its card names. Once all cards are known, each rank connects to its
// neighbours' doors and serves its own (hand_over):
//
//   neighbour to owner   ask    its rank, and the owner's token
//   owner to neighbour   here   its rank, the neighbour's token, and the segment's descriptor
//   neighbour to owner   taken  its rank, and the owner's token: it can read
//
// Every process on the machine can see a name; only cards carry a token. A token therefore proves
// that the peer was at the rendezvous, and the kernel must also confirm that it runs as this user.
// Other connections are rejected and counted.
//
// hand_over() never takes longer than `patience`. If a neighbour is silent, gone or does not match
// its card, its memory is not shared. Each end decides for itself: an owner that gets no "taken"
// assumes that the neighbour cannot read. The door closes when all are served. Limits:
// kMaxMemoryStrangers connections that have not identified themselves. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/local_segment.h"
#include "comm/rank_card.h"
#include "net/system_call.h"

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
  std::string token_;  // 32 hexadecimal digits
};

// The outcome for one neighbour.
struct Neighbour {
  std::uint16_t rank = 0;
  std::optional<SharedSegment> segment{};  // this rank can read it
  bool reads_us = false;                   // it can read this rank's
  std::string trouble{};                   // why either failed; empty if neither did
};

struct HandoverResult {
  std::vector<Neighbour> neighbours{};
  std::uint64_t turned_away = 0;  // rejected connections
};

// Hands over with all ranks whose cards name the same domain as `cards[rank]`, this rank's own.
HandoverResult hand_over(MemoryDoor door, const OwnSegment& own, std::span<const RankCard> cards,
                         std::uint16_t rank, base::Duration patience);

}  // namespace spillway::runtime
