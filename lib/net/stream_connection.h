// SPDX-License-Identifier: Apache-2.0
//
// A TCP connection between two ranks: first a handshake, in which both prove their identity, then
// frames of packets both ways.
//
//   kConnecting ──► kHandshake ──► kOpen     opened here: connects first
//                   kHandshake ──► kOpen     accepted; both sides have proved their identity
//   any ──► kClosed                          it broke, or the other side failed its proof
//
// The parts accept any bytes: FrameReader and FrameWriter find packets on a byte stream,
// StreamHandshake checks the other side, StreamConnection reads and writes the socket for them. A
// connection does nothing by itself: its owner waits for the socket and calls. StreamAcceptor owns
// accepted connections until they have proved who they are.
//
// Limits: a reader holds at most one frame; one read returns at most kReadBytes, so that no
// connection starves the others. StrangerTable limits unproved connections. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "net/address.h"
#include "net/stranger_table.h"
#include "net/system_call.h"
#include "transport/message.h"
#include "wire/key.h"
#include "wire/packet.h"

namespace spillway::net {

// ------------------------------------------------------------------ frames

// On the stream, the packet's length precedes each packet (docs/wire.md).
inline constexpr std::size_t kFrameLengthBytes = 4;
inline constexpr std::size_t kMaxFrameBytes = kFrameLengthBytes + SPILLWAY_MAX_PACKET;

// Finds packets on the stream, wherever its bytes were cut. A length of zero or above
// SPILLWAY_MAX_PACKET ends the reader for good, before it stores anything.
class FrameReader {
 public:
  // Returns the next packet and removes its bytes from `bytes`. Returns nothing if all bytes are
  // used up; a partial frame is kept. The packet lies in `bytes`, or in the reader until next().
  std::optional<base::ByteView> next(base::ByteView& bytes);
  // True if the stream held an invalid frame.
  bool is_broken() const { return is_broken_; }

 private:
  std::optional<std::size_t> frame_bytes(const std::uint8_t* length);
  std::optional<base::ByteView> complete(base::ByteView& bytes);
  bool fill_up_to(std::size_t size, base::ByteView& bytes);

  std::vector<std::uint8_t> begun_;  // a partial frame
  bool is_handed_out_ = false;       // begun_ is complete and was returned
  bool is_broken_ = false;
};

// Queues frames until the stream takes them. Its owner bounds the queue.
class FrameWriter {
 public:
  // The bytes that wait to be sent; call sent() with the number that was sent.
  base::ByteView waiting() const { return {buffer_.data() + begin_, end_ - begin_}; }
  void sent(std::size_t bytes);

  // Where to write the next packet: SPILLWAY_MAX_PACKET bytes. May move the waiting bytes. The
  // buffer grows beyond `most_bytes` only if this packet needs it.
  base::MutableByteView room(std::size_t most_bytes = SIZE_MAX);
  void commit(std::size_t packet_bytes);

 private:
  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// ------------------------------------------------------------------ handshake

// Identity of this side.
struct StreamIdentity {
  std::uint16_t rank = 0;
  std::uint64_t epoch = 0;
  wire::RunKey key{};
};

using StreamNonce = std::array<std::uint8_t, 16>;  // random, one per stream and side

// The first bytes on a stream, by which each side proves that it belongs to the run and which rank
// it is:
//
//   connector ── hello: magic 4, version 2, from 2, to 2, zero 2, epoch 8, nonce 16 ──► acceptor
//   connector ◄── answer: nonce 16, proof 16 ────────────────────────────────────────── acceptor
//   connector ── proof 16, then frames ───────────────────────────────────────────────► acceptor
//
// A proof is HKDF-SHA256 of the run's key over hello and both nonces, under a label that names the
// side. It cannot be made without the key, and no proof of another stream, rank or epoch passes.
// Later packets carry tags anyway; the handshake keeps strangers from taking a rank's connection.
// Any bytes lead to State::kDone or State::kRefused, or wait for more.
class StreamHandshake {
 public:
  enum class State : std::uint8_t { kAwaitsHello, kAwaitsAnswer, kAwaitsProof, kDone, kRefused };

  // `nonce` is this side's.
  static StreamHandshake connecting(const StreamIdentity& own, std::uint16_t to,
                                    const StreamNonce& nonce);
  static StreamHandshake answering(const StreamIdentity& own, const StreamNonce& nonce);

  State state() const { return state_; }
  // The rank that the other side claims to be; proved once kDone.
  std::uint16_t peer() const { return peer_; }

  // Number of bytes that it still expects; take() accepts them, whole or in part.
  std::size_t wanted() const { return awaited_bytes() - received_.size(); }
  void take(base::ByteView bytes);
  // Bytes to send next; call sent() with the number that was sent.
  base::ByteView reply() const { return base::ByteView(reply_).subspan(replied_); }
  void sent(std::size_t bytes) { replied_ += bytes; }

 private:
  static constexpr std::size_t kHelloBytes = 36;
  static constexpr std::size_t kProofBytes = 16;
  static constexpr std::size_t kAnswerBytes = sizeof(StreamNonce) + kProofBytes;
  using Hello = std::array<std::uint8_t, kHelloBytes>;
  using Proof = std::array<std::uint8_t, kProofBytes>;

  StreamHandshake(const StreamIdentity& own, const StreamNonce& nonce, State state)
      : own_(own), nonce_(nonce), state_(state) {}
  std::size_t awaited_bytes() const;
  void on_hello();
  void on_answer();
  void on_proof();
  bool prove(wire::KeyLabel label, const StreamNonce& answering, Proof& proof) const;
  bool is_proved(wire::KeyLabel label, const StreamNonce& answering, base::ByteView proof) const;
  void queue_reply(base::ByteView bytes) {
    reply_.insert(reply_.end(), bytes.begin(), bytes.end());
  }

  StreamIdentity own_;
  StreamNonce nonce_;
  State state_;
  std::uint16_t peer_ = 0;
  Hello hello_{};                       // this stream's hello, whichever side sent it
  std::vector<std::uint8_t> received_;  // part of the expected bytes
  std::vector<std::uint8_t> reply_;
  std::size_t replied_ = 0;
};

// ------------------------------------------------------------------ the connection

using PacketHandler = std::function<void(base::ByteView packet)>;

class StreamConnection {
 public:
  static constexpr std::size_t kReadBytes = 256 * 1024;
  enum class State : std::uint8_t { kConnecting, kHandshake, kOpen, kClosed };

  // `fd` comes from connect_tcp() or was accepted.
  StreamConnection(UniqueFd fd, StreamHandshake handshake, bool is_ours, base::Instant begun)
      : fd_(std::move(fd)),
        handshake_(std::move(handshake)),
        is_ours_(is_ours),
        begun_(begun),
        state_(is_ours ? State::kConnecting : State::kHandshake) {}
  // Ends the connection even if another process, such as a child, still holds the descriptor.
  ~StreamConnection();
  StreamConnection(const StreamConnection&) = delete;
  StreamConnection& operator=(const StreamConnection&) = delete;

  int fd() const { return fd_.get(); }
  State state() const { return state_; }
  bool is_ours() const { return is_ours_; }       // opened here
  base::Instant begun() const { return begun_; }  // once open: when it opened
  std::uint16_t peer() const { return handshake_.peer(); }
  // For an accepted connection: its hello arrived and was answered.
  bool has_received_hello() const {
    return handshake_.state() != StreamHandshake::State::kAwaitsHello;
  }
  bool has_delivered() const { return has_delivered_; }  // packets have arrived
  int error() const { return error_; }                   // an errno, once closed

  // Call when the socket is writable: sends pending bytes of the handshake.
  void on_writable(base::Instant now);
  // Reads once and returns the number of bytes. Packets are read only once it is open; `scratch`
  // has kReadBytes. If `handle` throws, the exception passes through and closes the connection, and
  // the remaining bytes are lost.
  std::size_t read(base::MutableByteView scratch, base::Instant now, const PacketHandler& handle);
  // Hands `bytes` to the kernel and returns how many it took. A broken connection is left for
  // read() to find, which first reads what the other side had sent.
  std::size_t write(base::ByteView bytes);

 private:
  void take_handshake(base::ByteView bytes, base::Instant now);
  void take_frames(base::ByteView bytes, const PacketHandler& handle);
  void send_handshake(base::Instant now);
  void close(int error);

  UniqueFd fd_;
  StreamHandshake handshake_;
  FrameReader frames_;
  bool is_ours_;
  bool has_delivered_ = false;
  int error_ = 0;
  base::Instant begun_;
  State state_;
};

// ------------------------------------------------------------------ accepting connections

// Accepts connections from other ranks and runs their handshakes (stream_connection.h). Anybody can
// connect, so connections from hosts of no peer are rejected, and a connection without a hello is
// closed after kHelloTimeout. A connection that was answered may have sent its proof and count
// itself accepted, so it gets kProofTimeout. StrangerTable limits how many may be pending, and
// decides which one makes room.
class StreamAcceptor {
 public:
  static constexpr base::Duration kHelloTimeout = base::seconds(5);
  static constexpr base::Duration kProofTimeout = base::seconds(60);
  static constexpr std::size_t kStrangerBytes = 16 * 1024;  // memory per stranger, at most

  static base::Result<StreamAcceptor> open(const SocketAddress& address);

  // Readable when take_proved() has something to do.
  int fd() const { return poll_.get(); }

  // Closes all connections in their handshake, and forgets all sources.
  void begin_epoch(const StreamIdentity& own);
  // Until the first source is added, nobody is accepted.
  void add_source(const SocketAddress& address) { sources_.add(address); }

  // Returns the connections of ranks that have proved their identity.
  std::vector<std::unique_ptr<StreamConnection>> take_proved(base::Instant now);
  // Closes connections whose handshake takes too long, and listens again after a pause.
  void on_timeout(base::Instant now);
  // When on_timeout() has something to do; kNever if nothing is pending.
  base::Instant next_timeout() const { return next_timeout_; }

  std::uint64_t rejected() const { return rejected_; }
  std::size_t most_strangers() const { return table_.most(); }

 private:
  using Id = StrangerTable::Id;
  using Connections = std::vector<std::unique_ptr<StreamConnection>>;
  static constexpr Id kListenerId = 0;

  StreamAcceptor(UniqueFd listener, UniqueFd poll)
      : listener_(std::move(listener)), poll_(std::move(poll)) {}
  void accept(base::Instant now, Connections& proved);
  void read_handshake(Id stranger, base::Instant now, Connections& proved);
  bool make_room(const std::string& source, base::Instant now, Connections& proved);
  void reject(Id stranger);
  void watch_listener(bool watch);

  UniqueFd listener_;
  UniqueFd poll_;
  StreamIdentity own_;
  KnownSources sources_;
  std::map<Id, std::unique_ptr<StreamConnection>> strangers_;
  StrangerTable table_{StrangerTable::most_of(StrangerTable::files_of_process(), kStrangerBytes)};
  Id next_id_ = kListenerId + 1;
  bool is_watched_ = true;
  base::Instant next_timeout_ = transport::kNever;
  std::uint64_t rejected_ = 0;
};

}  // namespace spillway::net
