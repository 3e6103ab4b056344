// SPDX-License-Identifier: Apache-2.0
//
// Shows another process what a rank waits for: a one-page file that both map. The observer creates
// it, and the rank finds its path in SPILLWAY_WAITS. While an operation is under way, the rank
// notes every few milliseconds what holds it up at that moment. Looks and bytes only grow; a wait's
// share of the looks is its share of the time. A rank without an operation under way counts
// nothing: its caller has control.
//
// Any thread of any process may count and read. Each number is read whole, but they are not all
// from the same moment. The observer must not trust the rank's numbers to make sense.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"

namespace spillway::net {

enum class Wait : std::uint8_t {
  kNothing,    // it is sending
  kCredit,     // credit from a receiver
  kStream,     // the stream to a receiver is full
  kAnswer,     // all is sent; an answer from the receiver
  kOtherRank,  // a rank that is behind, or has not sent its part
  kComputing,  // this rank's coding and sums
};
inline constexpr std::size_t kWaits = 6;
std::string_view wait_name(Wait wait);

// Interval between two looks of a rank at itself.
inline constexpr base::Duration kWaitSampleInterval = base::milliseconds(5);

struct WaitCounts {
  std::array<std::uint64_t, kWaits> looks{};  // by Wait
  std::uint64_t sent_bytes = 0;               // data, as UDP payload
  std::uint64_t resent_bytes = 0;             // the retransmitted part of these
  std::uint64_t wasted_bytes = 0;             // data that arrived twice or too late
  std::uint64_t under_way = 0;                // operations begun minus operations ended
};

class WaitBoard {
 public:
  // make() creates a file with zero counts, in place of an older one. open() opens one that make()
  // made: a link, and a file of another user or that others may use, are refused.
  static base::Result<WaitBoard> make(const std::string& path);
  static base::Result<WaitBoard> open(const std::string& path);
  ~WaitBoard();
  WaitBoard(WaitBoard&& other) noexcept;
  WaitBoard& operator=(WaitBoard&& other) noexcept;

  void add(const WaitCounts& more);
  WaitCounts read() const;

 private:
  explicit WaitBoard(std::uint64_t* words) : words_(words) {}
  static base::Result<WaitBoard> map(const UniqueFd& fd, const std::string& path);

  std::uint64_t* words_ = nullptr;
};

}  // namespace spillway::net
