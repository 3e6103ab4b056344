// SPDX-License-Identifier: Apache-2.0
//
// One rank's end of the transport: bounded-loss messages to and from its peers, as a pure state
// machine. Time and packets are handed in, packets to send and events come out:
//
//   send(), expect()              messages that the owner sends or expects
//   on_data(), on_control()       packets that arrived and passed their checks
//   on_timeout()                  when the clock passed next_timeout()
//   poll_transmit()               the next packet to send; call until it returns false
//   poll_event()                  messages that ended or stall, peers that died or left
//
// After any of the first three, poll both. The output depends only on the calls: nothing reads a
// clock, draws random numbers from outside, or depends on addresses in memory.
//
// The exchange (docs/algorithms.md): a sender sends a message's packets as credit allows. CREDIT
// packets carry grants and, per path, reports of what arrived: the sender sends again what they
// name as missing, beyond the loss budget, while the rest of the message goes on. After the last
// packet the receiver responds with a STOP if the message is over, and with a BITMAP of what
// arrived if it is not. A sender that hears nothing, or that may not send, probes: the receiver
// responds as above, or with WAIT if its owner does not expect the message yet.
//
// Limits: EndpointLimits bounds every table; what does not fit is refused and counted. A peer that
// is silent for peer_timeout while something is due from it is dead for good: its messages end with
// Outcome::kPeerDead and an event names it. The timeout is shorter once a host reported that the
// peer's port refuses. One thread per endpoint; any number of endpoints per process.
//
// Ended messages are remembered for a while, so that a sender that missed the STOP gets another. An
// owner that numbers its operations calls retire() when one is over. Then no old message is ever
// taken for a new one, nor a new one for an old one, however many there are. The outcome of each
// message of a running operation is kept in a few words until the operation is over. Other ended
// messages are kept up to limits.finished_kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "transport/message.h"
#include "transport/receive_window.h"
#include "wire/key.h"
#include "wire/packet_auth.h"
#include "wire/sum_datagram.h"

namespace spillway::transport {

// ------------------------------------------------------------------ configuration

struct EndpointLimits {
  std::uint32_t peers = 4096;
  std::uint32_t outgoing_messages = 16384;
  std::uint32_t incoming_messages = 16384;
  std::uint32_t finished_kept = 16384;  // ended incoming messages whose senders still get a STOP
  std::size_t early_bytes = 0;  // bytes of packets that come before their message is expected
};

// Times and sizes of the exchange; the defaults suit kernel UDP on 1 to 100 Gb/s Ethernet.
struct ExchangeConfig {
  std::uint8_t paths = 8;            // 1 .. 64
  std::uint8_t burst_packets = 8;    // sent over one path before the next takes over
  std::uint8_t report_packets = 24;  // data packets between two CREDITs to a sender
  base::BitRate receive_rate = base::gigabits_per_second(10);  // rate of granting credit
  // The credit that every peer has at the start. Once the round trip is known, idle peers
  // together keep what the link carries in one and a half of it, or as much as this, if that is
  // more.
  base::Bytes unsolicited = base::bytes(64 * 1024);
  WindowConfig window;  // the most that may be granted to a peer and not yet used
  base::Bytes packet = base::bytes(1500);  // the unit of credit; the same at both ends
  // Over-send on a trimming fabric: the share of packets that should arrive trimmed, so that the
  // bottleneck is always full. Unset: credit at exactly receive_rate.
  std::optional<double> trimmed_target;
  base::Duration probe_min = base::microseconds(200);  // shortest first wait for a report
  base::Duration probe_max = base::milliseconds(100);  // longest wait, after doubling
  base::Duration linger_min =
      base::microseconds(50);  // wait for stragglers, once the loss bound is met
  base::Duration peer_timeout = base::milliseconds(1500);
};

// A driver that reads the sources of packets later than poll_transmit() handed the packets out.
class SourceReader {
 public:
  virtual ~SourceReader() = default;
  // The message is withdrawn: its source may be destroyed once this returns.
  virtual void let_go(const wire::MessageId& id, std::uint16_t to) = 0;
};

struct EndpointConfig {
  std::uint16_t job = 0;
  std::uint64_t epoch = 0;
  std::uint16_t rank = 0;
  // Packets, control packets and path reports are numbered from here; the same at all ranks.
  std::uint64_t first_number = 0;
  EndpointLimits limits;
  ExchangeConfig exchange;
  // Report messages that peers announce and this rank does not expect.
  bool reports_unexpected = false;
  // Report messages of which nothing arrives although their peers are alive (message.h).
  bool reports_stalls = false;
  SourceReader* reader = nullptr;  // outlives the endpoint; null if sources are read at once
};

struct SessionConfig {
  wire::RunKey key;
  wire::Protection protection = wire::Protection::kTags;
};

// The packet protection between this rank and one peer in one epoch: the keys of both directions,
// and how far the peer's packet numbers have come, because packets carry only part of them. Numbers
// move on only with packets that passed their checks, so that no forgery pushes them ahead. It
// belongs to the peer and ends with the epoch.
struct PeerSession {
  wire::PacketAuth out;
  wire::PacketAuth in;
  std::uint64_t first_number = 0;
  std::uint64_t newest_control = 0;          // latest that passed its check
  std::vector<std::uint64_t> newest_data{};  // the same for data, by path

  // Fails only if keys cannot be derived.
  static base::Result<std::unique_ptr<PeerSession>> make(const SessionConfig& session,
                                                         const EndpointConfig& config,
                                                         std::uint16_t peer);

  std::uint64_t newest_on(std::uint8_t path) const {
    return path < newest_data.size() ? newest_data[path] : first_number;
  }
  void on_data(std::uint8_t path, std::uint64_t number);
};

// The packets of a job while its members do not change share these.
struct Epoch {
  std::uint16_t job = 0;
  std::uint64_t number = 0;  // grows with every change of members
  SessionConfig session;
  // This endpoint's rank from now on, if it changes.
  std::optional<std::uint16_t> rank{};
};

// ------------------------------------------------------------------ packets

// How a packet is sent: to which rank, by datagram or over the stream, from which source port, in
// which traffic class. The
// transport decides and the layers below carry it out: net with sockets, the simulator with
// addresses and labels. Datagrams of one size and one route may leave in one system call.
//
//   endpoint ──► datagram_port ──► net: DatagramSender ──► socket
//       └──────────────┴─────────► sim: a host's stack ───► packet
struct Route {
  std::uint16_t peer = 0;  // rank it goes to
  std::uint8_t path = 0;   // which of our source ports; ECMP hashes it into a path
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  bool is_control = false;                // may overtake data
  Carrier carrier = Carrier::kDatagrams;  // on a stream, path and traffic class mean nothing

  // DSCP and ECN, as in the IP header.
  std::uint8_t tos() const { return static_cast<std::uint8_t>(dscp << 2 | ecn); }

  friend bool operator==(const Route&, const Route&) = default;
};

// A data packet that arrived and passed its head's check.
struct DataArrival {
  wire::DataStamp stamp;
  std::uint32_t sent_bytes = 0;  // UDP payload, as it was sent
  std::uint8_t planes = 0;       // planes that arrived whole; unused when `packet` is given
  bool marked = false;           // congestion experienced
  bool trimmed = false;          // shorter than it was sent
  // With real bytes: the packet from which the message's sink takes planes.
  const wire::OpenedPacket* packet = nullptr;
  base::ByteView bytes;
};

enum class TransmissionKind : std::uint8_t { kData, kControl, kSum };

// A packet to send; `kind` says which of its fields are valid.
struct Transmission {
  TransmissionKind kind = TransmissionKind::kData;
  Route route;
  wire::DataStamp data;
  std::uint32_t data_bytes = 0;  // UDP payload; the last packet of a message may be shorter
  PayloadSource* source = nullptr;
  wire::ControlPacket control;
  wire::SumPacket sum;
};

// ------------------------------------------------------------------ events and counters

enum class DeathCause : std::uint8_t {
  kSilent,   // nothing was heard from it for peer_timeout
  kRefused,  // its port refuses and it did not answer, or its stream has ended
};
struct PeerDead {
  std::uint16_t rank = 0;
  DeathCause cause = DeathCause::kSilent;
};
// A peer sent LEAVE: it no longer takes part. Its unfinished messages stay until they are
// withdrawn.
struct PeerFailed {
  std::uint16_t from = 0;
  std::uint16_t culprit = 0;
  wire::FailureCause cause = wire::FailureCause::kClosed;
  std::uint64_t finished_before = 0;  // operations before this one were over at `from`
  std::shared_ptr<const wire::Mismatch> mismatch{};  // with kMismatch only
};
// A peer announced a message that is not expected, or that is expected with other sizes
// (`contradicts`).
struct UnexpectedMessage {
  wire::MessageId id;
  bool contradicts = false;
};
using Event = std::variant<ReceiveReport, SendReport, PeerDead, PeerFailed, UnexpectedMessage,
                           MessageStalled, SumReport>;

// Counts packets that changed nothing, and why, and packets and messages that did.
struct EndpointCounters {
  std::uint64_t data_sent = 0;
  std::uint64_t data_resent = 0;
  std::uint64_t data_sent_bytes = 0;  // UDP payload
  std::uint64_t data_resent_bytes = 0;
  std::uint64_t control_sent = 0;
  std::uint64_t data_taken = 0;  // new, or longer than an earlier copy
  std::uint64_t control_taken = 0;
  std::uint64_t marked = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t probes_sent = 0;
  std::uint64_t paths_retired = 0;
  std::uint64_t sums_sent = 0;  // sum packets, of all kinds
  std::uint64_t sums_sent_bytes = 0;
  std::uint64_t sums_repeated = 0;
  std::uint64_t sums_taken = 0;      // sum packets that passed their checks
  std::uint64_t sums_duplicate = 0;  // of these, packets with known ranks or results
  std::uint64_t sums_trimmed = 0;    // arrived without their words
  std::uint64_t flushes_sent = 0;

  std::uint64_t duplicate = 0;       // data that had arrived before
  std::uint64_t repeated = 0;        // replays and copies: their packet numbers arrived before
  std::uint64_t too_few_planes = 0;  // arrived below min_planes
  std::uint64_t early = 0;           // of messages not expected yet; some are kept
  std::uint64_t finished = 0;        // of messages that are over
  std::uint64_t wasted_bytes = 0;    // in duplicate and finished packets, as they were sent
  std::uint64_t foreign_job = 0;
  std::uint64_t other_epoch = 0;
  std::uint64_t unknown_peer = 0;   // or a dead one
  std::uint64_t misaddressed = 0;   // for another rank
  std::uint64_t replayed = 0;       // control packets seen before, or too old to tell
  std::uint64_t contradicting = 0;  // does not fit its message: packet number, counts, planes
};

// Whether a stream takes data.
enum class StreamState : std::uint8_t {
  kClosed,  // not open, or lost
  kFull,    // open, but has no room
  kReady,
};

// The reason why an endpoint sends nothing more, for the message that is closest to being sent.
enum class Holdup : std::uint8_t {
  kNothing,   // a packet may go now
  kStream,    // a peer's stream takes nothing now
  kCredit,    // no credit from the receiver
  kReceiver,  // the receiver does not expect the message yet
  kReport,    // all is sent; the receiver has not reported
  kIncoming,  // nothing is left to send, but messages are expected
  kIdle,      // nothing to send, nothing expected
};

// ------------------------------------------------------------------ the endpoint

struct Peer;  // core.h

class Endpoint {
 public:
  explicit Endpoint(const EndpointConfig& config);
  ~Endpoint();
  Endpoint(Endpoint&&) noexcept;
  Endpoint& operator=(Endpoint&&) noexcept;

  const EndpointConfig& config() const;

  // `session` is null for an endpoint that works with records alone.
  base::Status add_peer(std::uint16_t rank, base::Instant now,
                        std::unique_ptr<PeerSession> session = nullptr);
  // Null if the rank is no peer. May be called on another thread while packets are taken in, as
  // long as no peer is added and no epoch begins.
  const Peer* find_peer(std::uint16_t rank) const;
  // Moves to another epoch. All peers and messages are dropped without events; peers must be added
  // again.
  void begin_epoch(const Epoch& epoch);

  // The peer that sent a packet with this in its header, found once for all that is done with the
  // packet. Null if the packet may not be processed: that is counted. Call it before the packet's
  // check is verified; the peer is valid until the next epoch.
  struct Envelope {
    std::uint16_t job = 0;
    std::uint64_t epoch = 0;  // low bits
    std::uint16_t source = 0;
    std::uint16_t destination = 0;
  };
  Peer* admit(const Envelope& envelope);
  // Restores the fields that packets of this peer carry only in part.
  void complete(std::uint64_t& epoch, wire::MessageId& message, const Peer& peer) const;

  // Restores what packets of bytes do not say of themselves: the signature of their message, and
  // how long they were sent. Both stay unknown if the message is.
  void complete(DataArrival& arrival, Peer& peer) const;

  base::Status send(const SendOptions& options, base::Instant now);
  base::Status expect(const ReceiveOptions& options, base::Instant now);
  // Ends an incoming message as kCancelled, if it has not ended.
  void cancel(const wire::MessageId& id, base::Instant now);
  // Ends a message to or from `peer` without an event; its source or sink is not used any more. The
  // sender of an incoming message is told that it was cancelled.
  void withdraw(const wire::MessageId& id, std::uint16_t peer, base::Instant now);

  // Takes part in a sum (message.h), which ends with a SumReport. Its words belong to the endpoint
  // until the sum is over or withdrawn.
  base::Status begin_sum(const SumOptions& options, base::Instant now);
  void withdraw_sum(const SumId& id);
  // Stops waiting for `rank` to confirm that it has the results of a sum that this rank owns.
  void finish_sum_for(const SumId& id, std::uint16_t rank);

  // This operation, or every operation before it, is over: for messages among all ranks, and with
  // `peer` for its point-to-point messages, which have numbers of their own. A peer that still
  // sends one gets a STOP.
  void retire(std::uint64_t operation);
  void retire_before(std::uint64_t operation);
  void retire_before(std::uint16_t peer, std::uint64_t operation);

  // Treats every peer as if something were due from it, so that a silent one is declared dead.
  void watch_all_peers(bool watch, base::Instant now);
  // Sends LEAVE to every living peer, and again to any that sends something later. `mismatch`, with
  // kMismatch, holds the calls of two ranks as far as they are known; a later call may know more.
  void leave(std::uint16_t culprit, wire::FailureCause cause,
             const wire::Mismatch* mismatch = nullptr);

  // A packet that passed its check, from a peer that admit() returned.
  void on_data(const DataArrival& arrival, Peer& peer, base::Instant now);
  void on_control(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  // The same for records: packets that need no check. Refuses what admit() refuses.
  void on_data(const DataArrival& arrival, base::Instant now);
  void on_control(const wire::ControlPacket& packet, base::Instant now);
  // on_sum(): a sum packet that passed its check. on_trimmed_sum(): one that arrived without words.
  // Both are from peers that admit() returned.
  void on_sum(const wire::SumPacket& packet, std::span<const std::uint64_t> words, bool marked,
              base::Instant now);
  void on_trimmed_sum(const wire::SumPacket& packet, base::Instant now);
  void on_timeout(base::Instant now);

  // A host reported that the peer refused a datagram, and quoted one of this endpoint's. Any host
  // on the path could forge such a report, so it only makes the endpoint ping a peer from which
  // something is due. The peer is dead if it then is silent for a quarter of the peer timeout, at
  // most a second.
  void on_refused(std::uint16_t rank, base::Instant now);
  // The stream to the peer has ended: a peer is dead at once if something is due from it and the
  // stream carries messages, or everything (use_stream()).
  void on_stream_lost(std::uint16_t rank, base::Instant now);
  // For checking the quote: numbers of the latest control packet to the peer and of the latest data
  // packet over a path. source_of() gives the source of a data packet while its message lasts.
  std::uint64_t latest_control_to(std::uint16_t rank) const;
  std::uint64_t latest_data_to(std::uint16_t rank, std::uint8_t path) const;
  PayloadSource* source_of(std::uint16_t rank, const wire::DataStamp& stamp);
  // This host's kernel refused to send a datagram to the peer; `error` is an errno.
  void on_unsent(std::uint16_t rank, std::uint32_t bytes, int error, base::Instant now);

  // All packets to and from this peer now travel over a stream: messages whatever their options
  // say, those in progress included, and control packets.
  void use_stream(std::uint16_t rank);
  // The driver says how the stream to a peer is; at first it is closed. Messages on a stream that
  // is not ready wait, and only they.
  void set_stream(std::uint16_t rank, StreamState state);
  // True if the stream to this peer, or to every peer that is alive, is open: messages may be put
  // on it.
  bool has_stream(std::uint16_t rank) const;
  bool has_all_streams() const;
  struct Contact {
    bool is_awaited = false;   // something is due from it
    bool has_spoken = false;   // a datagram came from it, or a control packet over the stream
    base::Duration silence{};  // since the latest packet, or since something became due
  };
  Contact contact(std::uint16_t rank, base::Instant now) const;

  // When on_timeout() is due next; kNever if nothing is.
  base::Instant next_timeout() const;
  bool poll_transmit(base::Instant now, Transmission& out);
  // The same for packets that no pacer holds: control packets, which poll_transmit() returns first,
  // and data on streams.
  bool poll_unpaced(base::Instant now, Transmission& out);
  bool poll_event(Event& out);

  // Prefetches memory that the next call needs, for drivers of many endpoints that know which one
  // is next. Call step 0 first: step 1 reads what step 0 fetched.
  void prefetch(unsigned step) const;

  const EndpointCounters& counters() const;
  // Share of exchange.receive_rate that is available to our incoming traffic on this host's link
  // (link_share.h); empty while unknown.
  std::optional<double> link_share(base::Instant now) const;
  // Visits every outgoing message.
  Holdup holdup() const;
  // Memory held for peers and messages; the limits bound it.
  std::size_t memory_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::transport
