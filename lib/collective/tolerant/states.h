// SPDX-License-Identifier: Apache-2.0
//
// Where a tolerant all-reduce is, seen from one rank: every piece, and the run as a whole. A state
// changes only by Tracked::enter(), which stops the program where a transition is not one of these.
//
// A piece's contribution, which this rank sends to the piece's owner:
//
//   kWaiting ──► kEncoding ──► kSent
//       │            └───────► kSkipped      its shard was dropped meanwhile: nobody needs it
//       └────────────────────► kSkipped      it was held back, and the others decided without it
//   kNone                                   there is none: this rank owns the piece or is a server,
//                                           or the operation is an all-gather
//
// A piece's sum, which every rank ends with:
//
//   kCollecting ──► kAddingUp ──────────────► kHeld      at its owner
//   kAwaited ──► kReceived ──► kDecoding ───► kHeld      at all others
//   all of these, kHeld included ───────────► kDropped   its shard does not count: it is zero
//   kElsewhere                                           at servers and, in a reduce-scatter, ranks
//                                                        that do not own it
//
// Between kReceived and kDecoding the caller's input has to be read: it may lie where the output
// goes.
//
// A piece's account, which tells this rank who is in the sum and what of its own contribution is:
//
//   kAwaited ──► kReceived ──► kSettling ──► kSettled   the receipt came; error feedback takes note
//       │            └───────────────────► kSettled     there is nothing to take note of
//       └────────────────────────────────► kSettled     its shard was dropped
//   kNone                                                 this rank owns the piece, or none is sent
//
// The run:
//
//   kNew ──► kExchanging ────────────────► kDone         nobody has to agree
//                 └──────► kDecided ─────► kDone         which shards count is agreed
//   kNew ──► kHoldingBack ──► kExchanging                its time to hear from the others is over
//                 └──────► kDecided                      they had decided without it
//
// Plain values; one thread, the engine's.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace spillway::collective {

using base::Tracked;

enum class ContributionState : std::uint8_t { kNone, kWaiting, kEncoding, kSent, kSkipped };
inline constexpr unsigned kContributionStates = 5;

enum class SumState : std::uint8_t {
  kElsewhere,
  kCollecting,
  kAddingUp,
  kAwaited,
  kReceived,
  kDecoding,
  kHeld,
  kDropped,
};
inline constexpr unsigned kSumStates = 8;

enum class ReceiptState : std::uint8_t { kNone, kAwaited, kReceived, kSettling, kSettled };
inline constexpr unsigned kReceiptStates = 5;

enum class RunPhase : std::uint8_t {
  kNew,
  kHoldingBack,  // nothing was contributed yet
  kExchanging,
  kDecided,
  kDone,  // the result is complete; what others still have to be told goes on
};
inline constexpr unsigned kRunPhases = 5;

constexpr bool may_follow(ContributionState from, ContributionState to) {
  switch (from) {
    case ContributionState::kWaiting:
      return to == ContributionState::kEncoding || to == ContributionState::kSkipped;
    case ContributionState::kEncoding:
      return to == ContributionState::kSent || to == ContributionState::kSkipped;
    case ContributionState::kNone:
    case ContributionState::kSent:
    case ContributionState::kSkipped:
      break;
  }
  return false;
}

constexpr bool may_follow(SumState from, SumState to) {
  switch (from) {
    case SumState::kCollecting:
      return to == SumState::kAddingUp || to == SumState::kDropped;
    case SumState::kAwaited:
      return to == SumState::kReceived || to == SumState::kDropped;
    case SumState::kReceived:
      return to == SumState::kDecoding || to == SumState::kDropped;
    case SumState::kAddingUp:
    case SumState::kDecoding:
      return to == SumState::kHeld || to == SumState::kDropped;
    case SumState::kHeld:
      return to == SumState::kDropped;
    case SumState::kElsewhere:
    case SumState::kDropped:
      break;
  }
  return false;
}

constexpr bool may_follow(ReceiptState from, ReceiptState to) {
  switch (from) {
    case ReceiptState::kNone:
      return to == ReceiptState::kAwaited;
    case ReceiptState::kAwaited:
      return to == ReceiptState::kReceived || to == ReceiptState::kSettled;
    case ReceiptState::kReceived:
      return to == ReceiptState::kSettling || to == ReceiptState::kSettled;
    case ReceiptState::kSettling:
      return to == ReceiptState::kSettled;
    case ReceiptState::kSettled:
      break;
  }
  return false;
}

constexpr bool may_follow(RunPhase from, RunPhase to) {
  switch (from) {
    case RunPhase::kNew:
      return to == RunPhase::kHoldingBack || to == RunPhase::kExchanging;
    case RunPhase::kHoldingBack:
      return to == RunPhase::kExchanging || to == RunPhase::kDecided;
    case RunPhase::kExchanging:
      return to == RunPhase::kDecided || to == RunPhase::kDone;
    case RunPhase::kDecided:
      return to == RunPhase::kDone;
    case RunPhase::kDone:
      break;
  }
  return false;
}

}  // namespace spillway::collective
