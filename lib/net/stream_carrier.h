// SPDX-License-Identifier: Apache-2.0
//
// Carries the transport's packets over TCP (docs/adr/0015-tcp-carrier.md). StreamCarrier keeps one
// connection for each pair of ranks and queues packets for each peer. StreamPaths decides which
// peers have one, for an endpoint, which decides what travels over it.
//
// A stream to a peer is kept from open() or use() on; the lower of two ranks opens the connection.
// With try_peer(), both sides may have opened one: then each side sends over its own connection and
// reads from both. If a connection breaks over which this side sends or has received packets, the
// stream is lost for good, and the owner is told.
//
// Limits: kFullBytes of data wait for a peer, fewer in large jobs. Control packets, which are
// small, get 1/kControlParts more. Beyond that they are dropped, which the transport treats as
// loss. One thread: the loop's, which waits for fd().
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/sockets.h"
#include "net/stream_connection.h"
#include "transport/datagram_port.h"
#include "transport/message.h"

namespace spillway::net {

// ------------------------------------------------------------------ carrying packets

struct StreamCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t send_calls = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t receive_calls = 0;
  std::uint64_t waits = 0;       // a full connection took no more bytes
  std::uint64_t dropped = 0;     // control packets for which there was no room
  std::uint64_t strangers = 0;   // connections that were rejected
  std::uint64_t lost_peers = 0;  // peers whose connections broke
};

class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void on_stream_packet(std::uint16_t rank, base::ByteView packet) = 0;
  // Until the first call, a peer's stream is closed.
  virtual void on_stream_state(std::uint16_t rank, transport::StreamState state) = 0;
  // The peer's connection broke for good. Called again at every on_timeout().
  virtual void on_stream_lost(std::uint16_t rank) = 0;
};

class StreamCarrier {
 public:
  static constexpr std::size_t kFullBytes = 256 * 1024;
  static constexpr std::size_t kControlParts = 4;  // a fourth of the data limit

  // `owner` must outlive the carrier.
  static base::Result<std::unique_ptr<StreamCarrier>> listen(const SocketAddress& address,
                                                             StreamOwner& owner);

  // Readable when receive() has something to do.
  int fd() const { return poll_.get(); }

  // Closes all connections and forgets all peers.
  void begin_epoch(const StreamIdentity& own);
  void add_peer(std::uint16_t rank, const SocketAddress& address);
  // Also accepts a peer's connections from this address.
  void add_source(const SocketAddress& address) { acceptor_.add_source(address); }

  // Keeps a stream to this peer, or to every peer, from now on. A peer whose port refuses it is not
  // asked again.
  void open(std::uint16_t rank, base::Instant now);
  void open_all(base::Instant now);
  // The same for a peer that nothing else reaches: if its port refuses, it is lost.
  void use(std::uint16_t rank, base::Instant now);
  bool is_used(std::uint16_t rank) const;

  // Tries whether a connection to the peer opens, until drop_trial(), open() or use().
  void try_peer(std::uint16_t rank, base::Instant now);
  void drop_trial(std::uint16_t rank);
  // Since when there is an open connection to the peer; empty if there is none.
  std::optional<base::Instant> open_since(std::uint16_t rank) const;

  // Where to write a packet for a peer; empty if the packet must be dropped.
  std::optional<base::MutableByteView> room(std::uint16_t rank);
  void commit(std::uint16_t rank, std::size_t packet_bytes);
  // Hands waiting packets to the kernel. Returns true if anything left.
  bool flush();

  // Reads packets and accepts new connections. Returns true if there may be more.
  bool receive(base::Instant now);
  // Call regularly: retries failed connections and reports lost peers.
  void on_timeout(base::Instant now);
  // When to call on_timeout() at the latest; kNever if only lost peers are pending.
  base::Instant next_timeout() const { return std::min(acceptor_.next_timeout(), next_retry_); }

  StreamCounters counters() const;

 private:
  struct Peer {
    SocketAddress address;
    FrameWriter out;
    std::unique_ptr<StreamConnection> ours;    // opened here
    std::unique_ptr<StreamConnection> theirs;  // opened by the peer, and open
    StreamConnection* sending = nullptr;       // the one of these that sends
    bool is_kept = false;                      // open() or use()
    bool is_used = false;
    bool is_lost = false;
    transport::StreamState state = transport::StreamState::kClosed;
    bool is_queued = false;  // in unsent_
    base::Instant retry_at;
  };
  // Identifies a connection in an event: the peer's rank, and who opened it.
  enum class Opener : std::uint8_t { kUs = 0, kThem = 1 };
  static std::uint64_t key_of(std::uint16_t rank, Opener opener) {
    return std::uint64_t{rank} << 1 | static_cast<std::uint64_t>(opener);
  }

  StreamCarrier(StreamAcceptor acceptor, UniqueFd poll, const SocketAddress& local,
                StreamOwner& owner);
  Peer* find(std::uint16_t rank) const;
  void connect(std::uint16_t rank, Peer& peer, base::Instant now);
  void retry_later(Peer& peer, base::Instant now);
  void adopt(std::unique_ptr<StreamConnection> newcomer);
  void drop(std::unique_ptr<StreamConnection>& connection);
  void watch(int operation, const StreamConnection& connection, std::uint32_t events);
  bool serve(std::uint16_t rank, Opener opener, std::uint32_t events, base::Instant now);
  bool read(std::uint16_t rank, StreamConnection& connection, base::Instant now);
  void on_broken(std::uint16_t rank, Peer& peer, Opener opener, base::Instant now);
  void on_refused(std::uint16_t rank, Peer& peer);
  void lose(std::uint16_t rank, Peer& peer);
  void start_sending(std::uint16_t rank, Peer& peer);
  transport::StreamState state_of(const Peer& peer) const;
  void update_state(std::uint16_t rank, Peer& peer);
  void queue(std::uint16_t rank, Peer& peer);
  void flush(std::uint16_t rank, Peer& peer);
  std::size_t full_bytes() const;
  std::size_t most_bytes() const;

  StreamAcceptor acceptor_;
  UniqueFd poll_;
  SocketAddress local_;
  StreamOwner& owner_;
  StreamIdentity own_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank
  std::size_t peer_count_ = 0;
  base::Instant next_retry_ = transport::kNever;  // of a connection, if one is due
  std::vector<std::uint16_t> unsent_;             // peers with waiting packets that may leave
  std::vector<std::uint8_t> scratch_;
  StreamCounters counters_;
};

// ------------------------------------------------------------------ choosing the carrier

// The TCP side of a driver. All packets of a peer go over TCP from add_peer() on if the caller says
// so; once its control packets come over TCP; or if it was never heard by UDP although TCP
// connects. A peer that was heard once stays with UDP: later silence has other reasons. With
// open_all() there are streams beside UDP, for messages that the endpoint is told to put there.
// The endpoint learns of the state of streams, of peers that moved, and of losses.
//
// `now` never runs back, and is what the endpoint is told.
class StreamPaths final : private StreamOwner {
 public:
  // Called when all packets of a peer take TCP that did not at add_peer().
  using OnUsed = std::function<void(std::uint16_t rank)>;

  // `port` must outlive this. Peers that owe something and were silent for a part of
  // `peer_timeout` are tried.
  static base::Result<std::unique_ptr<StreamPaths>> listen(const SocketAddress& address,
                                                           base::Duration peer_timeout,
                                                           transport::DatagramPort& port,
                                                           OnUsed on_used);

  // Readable when receive() has something to do.
  int fd() const { return carrier_->fd(); }

  // Follows the port's new epoch.
  void begin_epoch(std::uint64_t epoch);
  void add_peer(std::uint16_t rank, const SocketAddress& address, bool is_used, base::Instant now);
  void add_source(const SocketAddress& address) { carrier_->add_source(address); }
  // Opens streams to all peers; the endpoint says which are open.
  void open_all(base::Instant now);

  // Writes a packet for the stream. Returns its bytes; 0 if it was dropped.
  std::size_t write(const transport::Transmission& transmission);
  // Hands waiting packets to the kernel. Returns true if anything left.
  bool flush(base::Instant now);
  // Passes arrivals to the port. Returns true if there may be more.
  bool receive(base::Instant now);
  // Also called when the endpoint's timeouts run, so that silent peers are checked regularly.
  void on_timeout(base::Instant now);
  base::Instant next_timeout() const { return std::max(carrier_->next_timeout(), due_); }

  // True if the endpoint was told of a lost peer since the last call.
  bool take_loss() { return std::exchange(has_lost_, false); }
  StreamCounters counters() const { return carrier_->counters(); }

 private:
  StreamPaths(base::Duration trial_after, transport::DatagramPort& port, OnUsed on_used)
      : port_(port), on_used_(std::move(on_used)), trial_after_(trial_after) {}
  void on_stream_packet(std::uint16_t rank, base::ByteView packet) override;
  void on_stream_state(std::uint16_t rank, transport::StreamState state) override;
  void on_stream_lost(std::uint16_t rank) override;
  void use(std::uint16_t rank);
  void try_or_use(std::uint16_t rank);

  transport::DatagramPort& port_;
  OnUsed on_used_;
  base::Duration trial_after_;
  std::unique_ptr<StreamCarrier> carrier_;  // set by listen()
  std::vector<std::uint16_t> undecided_;    // peers heard by neither carrier
  base::Instant due_;                       // when to look at them again
  base::Instant now_;                       // of the latest call
  bool has_lost_ = false;
};

}  // namespace spillway::net
