// SPDX-License-Identifier: Apache-2.0
//
// One TCP connection between two ranks: first the greeting, then frames of packets both ways.
//
//   kConnecting ──► kGreeting ──► kOpen        opened here: connects first, then as below
//                   kGreeting ──► kOpen        the other side has proved its identity
//   any ──► kClosed                            it broke, or the other side failed its proof
//
// Does nothing by itself: its owner waits for the socket and calls. One thread. Limits: one frame
// is kept; reading ends after kReadBytes, so that no connection starves the others.
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

  // `fd` comes from connect_tcp() or was accepted.
  StreamConnection(UniqueFd fd, Greeting greeting, bool is_ours, base::Instant begun)
      : fd_(std::move(fd)),
        greeting_(std::move(greeting)),
        is_ours_(is_ours),
        begun_(begun),
        state_(is_ours ? State::kConnecting : State::kGreeting) {}
  // Ends the connection even if another process, such as a child, still holds the descriptor.
  ~StreamConnection();
  StreamConnection(const StreamConnection&) = delete;
  StreamConnection& operator=(const StreamConnection&) = delete;

  int fd() const { return fd_.get(); }
  State state() const { return state_; }
  bool is_ours() const { return is_ours_; }       // opened here
  base::Instant begun() const { return begun_; }  // once open: when it opened
  std::uint16_t peer() const { return greeting_.peer(); }
  // For an accepted connection: its hello arrived and was answered.
  bool has_said_hello() const { return greeting_.state() != Greeting::State::kAwaitsHello; }
  bool has_brought() const { return has_brought_; }  // packets have arrived
  int error() const { return error_; }               // an errno, once closed

  // Called when the socket is writable. Sends pending bytes of the greeting.
  void on_writable(base::Instant now);
  // Reads once and returns the number of bytes. Packets are read only once it is open; `scratch`
  // has kReadBytes. If `handle` throws, the exception passes through and closes the connection, and
  // the remaining bytes are lost.
  std::size_t read(base::MutableByteView scratch, base::Instant now, const PacketHandler& handle);
  // Hands `bytes` to the kernel and returns how many it took. A broken connection is left for
  // read() to find, which first reads what the other side had sent.
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
