// SPDX-License-Identifier: Apache-2.0
//
// Accepts the streams that other ranks open to this one, greets them (stream_greeting.h), and hands
// on those that have proved their identity.
//
// Anybody can connect, so connections from hosts of no peer are refused, and a silent stranger has
// only kGreetingPatience. A stranger that was answered may have proved itself and believe that it
// is accepted, so it has kProofPatience. The stranger book decides how many strangers there may be
// and which one makes room (stranger_book.h). One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/known_sources.h"
#include "net/stranger_book.h"
#include "net/stream_connection.h"
#include "net/tcp_socket.h"
#include "transport/message.h"

namespace spillway::net {

class StreamDoor {
 public:
  static constexpr base::Duration kGreetingPatience = base::seconds(5);
  static constexpr base::Duration kProofPatience = base::seconds(60);
  static constexpr std::size_t kStrangerBytes = 16 * 1024;  // memory per stranger, at most

  static base::Result<StreamDoor> open(const SocketAddress& address, const TcpOptions& options);

  // Readable when let_in() has something to do.
  int fd() const { return poll_.get(); }

  // Closes all connections being greeted, and forgets all sources.
  void begin_epoch(const StreamIdentity& own);
  // Until the first is added, nobody is accepted.
  void add_source(const SocketAddress& address) { sources_.add(address); }

  // Returns the connections of ranks that have proved their identity.
  std::vector<std::unique_ptr<StreamConnection>> let_in(base::Instant now);
  // Closes connections that have been greeting for too long.
  void look(base::Instant now);
  // When look() has something to do; kNever if nothing is pending.
  base::Instant next_look() const { return next_look_; }

  std::uint64_t turned_away() const { return turned_away_; }
  std::size_t most_strangers() const { return book_.most(); }

 private:
  using Id = StrangerBook::Id;
  using Connections = std::vector<std::unique_ptr<StreamConnection>>;
  static constexpr Id kDoor = 0;

  StreamDoor(UniqueFd door, UniqueFd poll) : door_(std::move(door)), poll_(std::move(poll)) {}
  void accept(base::Instant now, Connections& known);
  void hear(Id stranger, base::Instant now, Connections& known);
  bool make_room(const std::string& source, base::Instant now, Connections& known);
  void turn_away(Id stranger);
  void watch_door(bool watch);

  UniqueFd door_;
  UniqueFd poll_;
  StreamIdentity own_;
  KnownSources sources_;
  std::map<Id, std::unique_ptr<StreamConnection>> strangers_;
  StrangerBook book_{StrangerBook::most_of(StrangerBook::files_of_process(), kStrangerBytes)};
  Id next_id_ = kDoor + 1;
  bool is_watched_ = true;
  base::Instant next_look_ = transport::kNever;
  std::uint64_t turned_away_ = 0;
};

}  // namespace spillway::net
