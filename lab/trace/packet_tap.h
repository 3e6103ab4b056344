// SPDX-License-Identifier: Apache-2.0
//
// Watches one interface: the time and first bytes of every UDP frame that leaves or arrives there.
// It uses a packet socket whose ring the kernel shares with this process. Frames that leave are
// seen after the queueing discipline, as they enter the wire. Nothing is held up: a frame that does
// not fit into the ring is missed and counted.
//
// Limits: kTapBytes of each frame. Needs CAP_NET_RAW where the interface is. One thread.
#pragma once

#include <linux/if_packet.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"
#include "switch/dataplane/frame.h"

namespace spillway::lab {

inline constexpr std::uint32_t kTapBytes = SPILLWAY_LONGEST_HEADERS;

struct TappedFrame {
  base::MutableByteView bytes;  // at most kTapBytes
  std::uint32_t length = 0;     // of the whole frame
  base::Duration time_of_day;
  bool leaves = false;
};

class PacketTap {
 public:
  // The interface is in the calling thread's network namespace; later calls may come from any
  // other. The ring holds about `frames` frames.
  static base::Result<PacketTap> open(const std::string& interface, std::size_t frames);
  PacketTap(PacketTap&& other) noexcept;
  PacketTap& operator=(PacketTap&&) = delete;
  ~PacketTap();

  // Hands every waiting frame that this host sent or that is for it to `take`. Returns true if
  // there were frames.
  template <typename Take>
  bool read(Take take) {
    bool any = false;
    while (tpacket2_hdr* frame = next()) {
      if (concerns_the_host(*frame)) {
        take(tapped(*frame));
      }
      hand_back(*frame);
      any = true;
    }
    return any;
  }

  // Frames missed since the last call.
  std::uint64_t missed();

 private:
  PacketTap(net::UniqueFd fd, std::size_t frames) : fd_(std::move(fd)), frames_(frames) {}

  base::Status map_ring();
  tpacket2_hdr* next();
  static bool concerns_the_host(const tpacket2_hdr& frame);
  static TappedFrame tapped(tpacket2_hdr& frame);
  void hand_back(tpacket2_hdr& frame);

  net::UniqueFd fd_;
  std::size_t frames_;
  std::uint8_t* ring_ = nullptr;
  std::size_t next_ = 0;
};

}  // namespace spillway::lab
