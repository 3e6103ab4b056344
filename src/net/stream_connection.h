// SPDX-License-Identifier: Apache-2.0
//
// One TCP connection between two ranks: first the greeting, then frames of packets both ways.
//
//   kConnecting ──► kGreeting ──► kOpen        opened here: it is not there yet, then as below
//                   kGreeting ──► kOpen        the other side has proved who it is
//   any ──► kClosed                            it broke, or the other side is not who it must be
//
// Says nothing of its own accord: its owner waits for the socket and calls. One thread. Limits: one
// frame is kept; reading ends after kReadBytes, so that no connection keeps the others waiting.
#pragma once

#include <cstdint>
#include <functional>

#include "base/bytes.h"
#include "base/units.h"
#include "net/frame_stream.h"
#include "net/stream_greeting.h"
#include "net/system_call.h"

namespace spillway::net {

using PacketHandler = std::function<void(base::ByteView packet)>;

class StreamConnection {
 public:
  static constexpr std::size_t kReadBytes = 256 * 1024;
  enum class State : std::uint8_t { kConnecting, kGreeting, kOpen, kClosed };

  // Begun by connect_tcp(), or accepted.
  StreamConnection(UniqueFd fd, Greeting greeting, bool is_ours, base::Instant begun)
      : fd_(std::move(fd)),
        greeting_(std::move(greeting)),
        is_ours_(is_ours),
        begun_(begun),
        state_(is_ours ? State::kConnecting : State::kGreeting) {}
  // Whoever else has the descriptor, a child of this process perhaps: the connection ends.
  ~StreamConnection();
  StreamConnection(const StreamConnection&) = delete;
  StreamConnection& operator=(const StreamConnection&) = delete;

  int fd() const { return fd_.get(); }
  State state() const { return state_; }
  bool is_ours() const { return is_ours_; }       // opened here
  base::Instant begun() const { return begun_; }  // and, once open, since when it is
  std::uint16_t peer() const { return greeting_.peer(); }
  // Of one that was accepted: who connected did, and was answered.
  bool has_said_hello() const { return greeting_.state() != Greeting::State::kAwaitsHello; }
  bool has_brought() const { return has_brought_; }  // packets
  int error() const { return error_; }               // an errno, of one that is closed

  // The socket may be written to. Says what there is of the greeting.
  void on_writable(base::Instant now);
  // Reads what came, of packets none before it is open; `scratch` has kReadBytes. Returns how many
  // bytes that were. What `handle` throws passes through, and closes it: the rest of what came is
  // gone.
  std::size_t read(base::MutableByteView scratch, base::Instant now, const PacketHandler& handle);
  // Hands `bytes` to the kernel; returns how many it took. That it broke is for read() to find out:
  // what the other side said before comes first.
  std::size_t write(base::ByteView bytes);

 private:
  void take_greeting(base::ByteView bytes, base::Instant now);
  void take_frames(base::ByteView bytes, const PacketHandler& handle);
  void say_greeting(base::Instant now);
  void close(int error);

  UniqueFd fd_;
  Greeting greeting_;
  FrameReader frames_;
  bool is_ours_;
  bool has_brought_ = false;
  int error_ = 0;
  base::Instant begun_;
  State state_;
};

}  // namespace spillway::net
