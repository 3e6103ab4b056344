// SPDX-License-Identifier: Apache-2.0
//
// Helpers for rendezvous tests: ranks as futures, and a raw client that may send anything. Tests
// only; one thread per client.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/socket.h"
#include "harness/slowdown.h"

namespace spillway::comm::testing_rendezvous {

using Gathered = base::Result<RendezvousResult>;

inline constexpr base::Duration kShort =
    base::milliseconds(400);  // for events that must not happen

// For events that must happen.
inline base::Duration long_time() {
  return base::Duration(harness::patience(harness::kHangs).count());
}

// Succeeds if all outcomes are failures with these words.
inline ::testing::AssertionResult all_say(std::vector<std::future<Gathered>> outcomes,
                                          const std::string& words) {
  ::testing::AssertionResult result = ::testing::AssertionSuccess();
  for (std::future<Gathered>& outcome : outcomes) {
    const Gathered gathered = outcome.get();
    if (gathered.ok() || gathered.status().message().find(words) == std::string::npos) {
      result = ::testing::AssertionFailure() << gathered.status().message();
    }
  }
  return result;
}

// Before a rank's patience ends, other ranks must have come, and they may wait for a processor. So
// this retries with twice the patience until `attempt` succeeds.
inline void expect_with_some_patience(
    const std::function<::testing::AssertionResult(base::Duration)>& attempt) {
  ::testing::AssertionResult result = attempt(kShort);
  for (base::Duration patience = kShort * 2; !result && patience < long_time();
       patience = patience * 2) {
    result = attempt(patience);
  }
  EXPECT_TRUE(result);
}

inline Blob blob_of(std::uint32_t rank) {
  return Blob(rank * 37 % 500 + 1, static_cast<std::uint8_t>(rank));
}

inline std::vector<Blob> all_blobs(std::uint32_t world) {
  std::vector<Blob> blobs;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    blobs.push_back(blob_of(rank));
  }
  return blobs;
}

inline Blob bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

inline UniqueId new_id(const char* address = "127.0.0.1:0") {
  return create_unique_id(net::SocketAddress::parse(address).value()).value();
}

inline std::future<Gathered> join(const UniqueId& id, std::uint32_t rank, std::uint32_t world,
                                  base::Duration patience = long_time(),
                                  const std::string& secret = {}) {
  return std::async(std::launch::async, [=] {
    return exchange(id, {rank, world}, bytes_of(secret), blob_of(rank), patience);
  });
}

// A fresh local meeting point of this machine.
inline launch::RendezvousPoint local_point() {
  const launch::Nonce nonce = launch::random_nonce().value();
  return {.places = {}, .local_name = "spillway-test-" + launch::to_hex(nonce), .nonce = nonce};
}

inline launch::Launch launch_of(const launch::RendezvousPoint& where, std::uint16_t rank,
                                std::uint16_t world) {
  launch::Launch launch;
  launch.rank = rank;
  launch.world = world;
  launch.where = where;
  return launch;
}

inline std::future<Gathered> join(const launch::Launch& launch,
                                  base::Duration patience = long_time(),
                                  const std::string& secret = {}) {
  return std::async(std::launch::async, [=] {
    return exchange(launch, bytes_of(secret), blob_of(launch.rank), patience);
  });
}

inline void expect_all(std::future<Gathered> outcome, std::uint32_t world) {
  const Gathered gathered = outcome.get();
  ASSERT_TRUE(gathered.ok()) << gathered.status().message();
  EXPECT_EQ(gathered->blobs, all_blobs(world));
}

inline void expect_error(std::future<Gathered> outcome, const std::string& words) {
  const Gathered gathered = outcome.get();
  ASSERT_FALSE(gathered.ok());
  EXPECT_NE(gathered.status().message().find(words), std::string::npos)
      << gathered.status().message();
}

// One end of a stream, on which a test may send anything.
class RawEnd {
 public:
  explicit RawEnd(net::UniqueFd stream) : stream_(std::move(stream)) {}

  void send(const Blob& bytes) {
    std::size_t sent = 0;
    ASSERT_EQ(send_some(stream_, bytes, sent), StreamState::kOpen);
    ASSERT_EQ(sent, bytes.size());
  }
  // Sends through the channel.
  void send(const Frame& frame) { send(channel_.pack(frame).value()); }
  // Sends to a peer that may have closed.
  void try_to_say(const Frame& frame) {
    std::size_t sent = 0;
    send_some(stream_, channel_.pack(frame).value(), sent);
  }

  // True if the peer has neither said anything nor closed.
  bool is_quiet() const { return !wait_for(stream_, POLLIN, base::Duration()); }

  // Reads until the peer closes.
  std::string read_to_end() {
    Blob bytes;
    while (wait_for(stream_, POLLIN, long_time()) &&
           receive_some(stream_, bytes) == StreamState::kOpen) {
    }
    return {bytes.begin(), bytes.end()};
  }
  // The next frame, through the channel; a frame of type 0 if none comes.
  Frame read_frame() {
    auto frame = reader_.next();
    StreamState state = StreamState::kOpen;
    while (frame.ok() && !frame->has_value() && state == StreamState::kOpen &&
           wait_for(stream_, POLLIN, long_time())) {
      Blob bytes;
      state = receive_some(stream_, bytes);
      reader_.append(bytes);
      frame = reader_.next();
    }
    if (!frame.ok() || !frame->has_value()) {
      return {FrameType{}, {}};
    }
    return channel_.unpack(**frame).value();
  }

 protected:
  void set_channel(const Channel& channel) { channel_ = channel; }

 private:
  net::UniqueFd stream_;
  FrameReader reader_{kMaxAnswerBytes};
  Channel channel_{};
};

class RawClient : public RawEnd {
 public:
  explicit RawClient(const launch::RendezvousPoint& point) : RawEnd(connect(point)) {}

  void shake_hands(const Credential& credential, const Random& random = {42}) {
    JoinerHandshake handshake(credential, random);
    send(handshake.opening());
    const auto proof = handshake.take(read_frame());
    ASSERT_TRUE(proof.ok()) << proof.status().message();
    if (proof->has_value()) {
      send(**proof);
    }
    set_channel(handshake.channel());
  }

 private:
  // Retries, because the host may not listen yet.
  static net::UniqueFd connect(const launch::RendezvousPoint& point) {
    harness::Limit limit;
    while (!limit.is_over()) {
      auto stream = connect_to(stream_addresses_of(point).value().front(), long_time());
      if (stream.ok()) {
        return std::move(stream).value();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return {};
  }
};

// Listens in place of the host.
class FakeHost {
 public:
  explicit FakeHost(const launch::RendezvousPoint& point) : listening_(listen_at(point).value()) {}

  RawEnd next_guest() {
    EXPECT_TRUE(wait_for(listening_.socket, POLLIN, long_time()));
    return RawEnd(accept_from(listening_.socket).socket);
  }
  std::optional<RawEnd> next_guest_within(base::Duration patience) {
    return wait_for(listening_.socket, POLLIN, patience) ? std::optional(next_guest())
                                                         : std::nullopt;
  }

 private:
  Listening listening_;
};

}  // namespace spillway::comm::testing_rendezvous
