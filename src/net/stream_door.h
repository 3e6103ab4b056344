// SPDX-License-Identifier: Apache-2.0
//
// Where other ranks open streams to this one: lets them in, greets them (stream_greeting.h), and
// hands on those that have proved who they are.
//
// The door is open to everybody, so a stranger is looked at no longer than it takes: hosts that are
// no peer's are not let in, whoever says nothing has kGreetingPatience, kMaxStrangers may be at it,
// and then whoever has said nothing for longest has to make room. Who was answered may have proved
// itself and think that it is in, so it has kProofPatience and makes room for nobody. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/known_sources.h"
#include "net/stream_connection.h"
#include "net/tcp_socket.h"
#include "transport/message.h"

namespace spillway::net {

class StreamDoor {
 public:
  static constexpr base::Duration kGreetingPatience = base::seconds(5);
  static constexpr base::Duration kProofPatience = base::seconds(60);
  static constexpr std::size_t kMaxStrangers = 4096;  // every rank of a large job at once

  static base::Result<StreamDoor> open(const SocketAddress& address, const TcpOptions& options);

  // Readable when let_in() has something to do.
  int fd() const { return poll_.get(); }

  // Sends everybody away who is being greeted, and knows nobody's host.
  void begin_epoch(const StreamIdentity& own);
  // Until the first is added, nobody is let in.
  void add_source(const SocketAddress& address) { sources_.add(address); }

  // Connections of ranks that have proved who they are.
  std::vector<std::unique_ptr<StreamConnection>> let_in(base::Instant now);
  // Sends away who has been greeted for too long.
  void look(base::Instant now);
  // When look() has something to do; kNever if nothing is pending.
  base::Instant next_look() const { return next_look_; }

  std::uint64_t turned_away() const { return turned_away_; }

 private:
  using Id = std::uint64_t;
  static constexpr Id kDoor = 0;

  StreamDoor(UniqueFd door, UniqueFd poll) : door_(std::move(door)), poll_(std::move(poll)) {}
  void accept(base::Instant now);
  void greet(std::unique_ptr<StreamConnection> stranger);
  bool make_room();
  void turn_away(Id stranger);
  void watch_door(bool watch);

  UniqueFd door_;
  UniqueFd poll_;
  StreamIdentity own_;
  KnownSources sources_;
  std::map<Id, std::unique_ptr<StreamConnection>> strangers_;  // the oldest first
  Id next_id_ = kDoor + 1;
  bool is_watched_ = true;
  base::Instant next_look_ = transport::kNever;
  std::uint64_t turned_away_ = 0;
};

}  // namespace spillway::net
