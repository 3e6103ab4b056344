// SPDX-License-Identifier: Apache-2.0
//
// The transport's packets over TCP (docs/adr/0015-tcp-carrier.md): a connection per pair of ranks,
// and the packets queued for each peer.
//
// A peer is not carried until use(); from then on packets for it are written here. The lower of two
// ranks opens their connection. With try_peer() either side may have opened one. Each side then
// sends over its own connection, if it has one, and reads from both. When a connection breaks that
// has carried packets, the peer is lost for good, and the owner is told.
//
// Limits: kFullBytes of data wait per peer, fewer bytes with many peers. Control packets, which are
// small, get 1/kControlParts more; beyond that they are dropped, which the transport treats as
// loss. One thread: the loop's, which waits for fd().
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/frame_stream.h"
#include "net/stream_connection.h"
#include "net/stream_door.h"
#include "net/stream_greeting.h"
#include "net/tcp_socket.h"
#include "transport/message.h"

namespace spillway::net {

struct StreamCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t send_calls = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t receive_calls = 0;
  std::uint64_t waits = 0;       // a connection took no more for now
  std::uint64_t dropped = 0;     // control packets for which there was no room
  std::uint64_t strangers = 0;   // connections that were turned away
  std::uint64_t lost_peers = 0;  // peers whose connections broke
};

class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void on_stream_packet(std::uint16_t rank, base::ByteView packet) = 0;
  // Whether data may be written for this peer.
  virtual void on_stream_room(std::uint16_t rank, bool has_room) = 0;
  // The peer's connection broke for good. Repeated at every look().
  virtual void on_stream_lost(std::uint16_t rank) = 0;
};

class StreamCarrier {
 public:
  static constexpr std::size_t kFullBytes = 256 * 1024;
  static constexpr std::size_t kControlParts = 4;  // a fourth of the data limit

  // `owner` must outlive the carrier.
  static base::Result<std::unique_ptr<StreamCarrier>> listen(const SocketAddress& address,
                                                             const TcpOptions& options,
                                                             StreamOwner& owner);

  // Readable when receive() has something to do.
  int fd() const { return poll_.get(); }

  // Closes all connections and forgets all peers.
  void begin_epoch(const StreamIdentity& own);
  void add_peer(std::uint16_t rank, const SocketAddress& address);
  // Also accepts a peer's connections from this address.
  void add_source(const SocketAddress& address) { door_.add_source(address); }

  // Carries packets for this peer from now on, or as soon as it has a connection.
  void use(std::uint16_t rank, base::Instant now);
  bool carries(std::uint16_t rank) const;

  // Tries whether a connection to the peer opens, until drop_trial() or use().
  void try_peer(std::uint16_t rank, base::Instant now);
  void drop_trial(std::uint16_t rank);
  // Since when the connection opened here is open; empty if it is not.
  std::optional<base::Instant> open_since(std::uint16_t rank) const;

  // Where to write a packet for a carried peer; empty if the packet must be dropped.
  std::optional<base::MutableByteView> room(std::uint16_t rank);
  void commit(std::uint16_t rank, std::size_t packet_bytes);
  // Hands waiting packets to the kernel. Returns true if anything left.
  bool flush();

  // Reads packets and accepts new connections. Returns true if there may be more.
  bool receive(base::Instant now);
  // Call regularly: retries failed connections and reports lost peers.
  void look(base::Instant now);
  // When to call look() at the latest; kNever if only lost peers are pending.
  base::Instant next_look() const { return std::min(door_.next_look(), next_retry_); }

  StreamCounters counters() const;

 private:
  struct Peer {
    SocketAddress address;
    FrameWriter out;
    std::unique_ptr<StreamConnection> ours;    // opened here
    std::unique_ptr<StreamConnection> theirs;  // opened by the peer, and open
    StreamConnection* sending = nullptr;       // the one of these that sends
    bool is_used = false;
    bool is_lost = false;
    bool has_room = false;
    bool is_queued = false;  // in unsent_
    base::Instant retry_at;
  };
  // Identifies a connection in an event: the peer's rank, and who opened it.
  enum class Opener : std::uint8_t { kUs = 0, kThem = 1 };
  static std::uint64_t key_of(std::uint16_t rank, Opener opener) {
    return std::uint64_t{rank} << 1 | static_cast<std::uint64_t>(opener);
  }

  StreamCarrier(StreamDoor door, UniqueFd poll, const SocketAddress& local,
                const TcpOptions& options, StreamOwner& owner);
  Peer* find(std::uint16_t rank) const;
  void connect(std::uint16_t rank, Peer& peer, base::Instant now);
  void retry_later(Peer& peer, base::Instant now);
  void let_in(std::unique_ptr<StreamConnection> newcomer);
  void drop(std::unique_ptr<StreamConnection>& connection);
  void watch(int operation, const StreamConnection& connection, std::uint32_t events);
  bool serve(std::uint16_t rank, Opener opener, std::uint32_t events, base::Instant now);
  bool read(std::uint16_t rank, StreamConnection& connection, base::Instant now);
  void on_broken(std::uint16_t rank, Peer& peer, Opener opener, base::Instant now);
  void lose(std::uint16_t rank, Peer& peer);
  void start_sending(std::uint16_t rank, Peer& peer);
  void update_room(std::uint16_t rank, Peer& peer);
  void queue(std::uint16_t rank, Peer& peer);
  void flush(std::uint16_t rank, Peer& peer);
  std::size_t full_bytes() const;
  std::size_t most_bytes() const;

  StreamDoor door_;
  UniqueFd poll_;
  SocketAddress local_;
  TcpOptions options_;
  StreamOwner& owner_;
  StreamIdentity own_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank
  std::size_t peer_count_ = 0;
  base::Instant next_retry_ = transport::kNever;  // of a connection, if one is due
  std::vector<std::uint16_t> unsent_;             // peers with waiting packets that may leave
  std::vector<std::uint8_t> scratch_;
  StreamCounters counters_;
};

}  // namespace spillway::net
