// SPDX-License-Identifier: Apache-2.0
//
// The capabilities of codecs: one row per codec, and one for exact operations. Everything that asks
// whether a codec fits reads this table: validate(), the engine, the communicator's choice of a
// codec that switches can add, the C interface, Python, and the table of docs/algorithms.md.
//
// Invariants: rows are in the order of Codec, with exact last. A codec with a set of precisions
// honours no other; one without ignores the precision.
//
// Constants and pure functions: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/status.h"
#include "collective/operation.h"

namespace spillway::collective {

// A set of enumerators, or of numbers below 64, as bits.
template <typename Member>
struct CapabilitySet {
  std::uint64_t bits = 0;

  constexpr CapabilitySet() = default;
  constexpr CapabilitySet(std::initializer_list<Member> members) {
    for (const Member member : members) {
      bits |= bit(member);
    }
  }
  static constexpr std::uint64_t bit(Member member) {
    return std::uint64_t{1} << static_cast<unsigned>(member);
  }
  constexpr bool has(Member member) const { return (bits & bit(member)) != 0; }
  constexpr bool is_empty() const { return bits == 0; }
};

struct Capabilities {
  const char* codec;  // "planes", ..., "exact"
  CapabilitySet<Kind> kinds;
  CapabilitySet<Algorithm> algorithms;
  CapabilitySet<DataType> types;
  CapabilitySet<ReduceOp> reductions;  // has_reduction() says which types have them
  // Types of tensors in a device's memory, in all_reduces among two ranks and more. These wait for
  // all ranks: not with least_contributors.
  CapabilitySet<DataType> device_types;
  CapabilitySet<unsigned> precisions;  // bits per value; empty: ignored
  std::uint16_t ranks;                 // at most, parameter servers included
  std::uint64_t values;                // of one operation, at most; 0: no limit of its own
  bool servers;
  bool encryption;
  bool losses;              // takes a loss bound above 0
  bool least_contributors;  // late ranks need not be waited for
  bool error_feedback;
  unsigned packet_bytes;  // size of its packets without headers; 0: as the MTU allows
};

inline constexpr std::size_t kCapabilityRows = kCodecs + 1;
const std::array<Capabilities, kCapabilityRows>& capability_table();

// The row of a codec; of exact operations if there is none.
const Capabilities& capabilities_of(std::optional<Codec> codec);
const Capabilities& capabilities_of(const Operation& operation);

// Says in one sentence, with a remedy, what does not fit the operation's codec.
base::Status check_capabilities(const Operation& operation, const Group& group,
                                const GroupPackets& packets = {});

// The table for people (docs/algorithms.md holds it) and for programs: an array of one object per
// row, whose keys are the fields above.
std::string capabilities_markdown();
std::string capabilities_json();

}  // namespace spillway::collective
