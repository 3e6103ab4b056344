// SPDX-License-Identifier: Apache-2.0
//
// What a rank waits for, for another process to look at: a file of a page that both have in their
// memory. The looker makes it, the rank finds its path in SPILLWAY_WAITS and, while an operation is
// under way, counts every few milliseconds what holds it up at that moment. Looks and bytes only
// grow; how many looks are of one kind says which share of a while was spent so. A rank that has no
// operation under way counts nothing: it is with its caller.
//
// Any thread of any process may count and read; each number is whole, but not all are of the same
// moment. What a rank writes is not trusted to make sense.
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
  kNothing,    // it sends
  kCredit,     // from a receiver
  kWindow,     // towards a receiver is full
  kAnswer,     // all is sent: whether it came
  kOtherRank,  // has not come so far, or has not sent its part
  kComputing,  // coding and sums of this rank
};
inline constexpr std::size_t kWaits = 6;
std::string_view wait_name(Wait wait);

// Between two looks of a rank at itself.
inline constexpr base::Duration kWaitLookEvery = base::milliseconds(5);

struct WaitCounts {
  std::array<std::uint64_t, kWaits> looks{};  // by Wait
  std::uint64_t sent_bytes = 0;               // data, of UDP payload
  std::uint64_t resent_bytes = 0;             // of those, not for the first time
  std::uint64_t wasted_bytes = 0;  // that arrived and were there already, or came too late
  std::uint64_t under_way = 0;     // operations: begun less ended
};

class WaitBoard {
 public:
  // A new file with nothing counted, or one that make() made.
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
