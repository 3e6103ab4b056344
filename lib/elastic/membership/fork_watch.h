// SPDX-License-Identifier: Apache-2.0
//
// Detects members that follow different decisions where they should follow the same one.
//
// Paxos holds among members that fail by stopping. A member that lies can make two others follow
// two decisions, and the job would train twice. So members send each other fingerprints of the
// decision they follow. A fingerprint is a polynomial over the decision's bytes at a point that its
// sender draws after it has decided. A liar that cannot guess the point (MemberConfig::secret_word)
// cannot make two decisions agree there.
//
// If a member stays ahead of this one for a while, this one asks it for the missed decisions. If a
// member follows an epoch that was never followed here, this one sends it the latest decision.
// Either both end up with the same decision, or the job ends (member_inbox.cc).
//
// Invariants: if another member's fingerprint contradicts a decision, before or after note(), the
// contradiction is found while the decision is among the last kRemembered. Two different decisions
// agree at a point drawn after both with a probability of their bytes over 2^63.
// One thread. Limits: for epochs not decided here yet, the first kEarly fingerprints of each member
// are kept; keep_only() forgets those of members that are gone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "elastic/membership/message.h"
#include "elastic/membership/view.h"

namespace spillway::membership {

class ForkWatch {
 public:
  static constexpr std::size_t kRemembered = 4;  // number of decisions kept
  // A member that ends a split job sends two fingerprints: the one it received, and its own.
  static constexpr std::size_t kEarly = 2;

  enum class Comparison : std::uint8_t {
    kAgrees,
    kContradicts,
    kSkipped,  // of an older epoch that was not followed here or is forgotten
    kLater,    // not decided here yet; kept for contradiction()
  };

  // Follows this decision from now on. Drops early fingerprints of its epoch and earlier ones.
  void note(const Decision& decision);
  // The fingerprint of the latest decision at this point; unset before the first decision.
  std::optional<Fingerprint> fingerprint(std::uint64_t point) const;

  // Compares the decision that a member follows with the one followed here.
  Comparison compare(MemberId from, const Fingerprint& said, base::Instant now);
  // An early fingerprint of the same epoch that contradicts this decision; unset if none.
  std::optional<Fingerprint> contradiction(const Decision& decision) const;
  // Members that have been ahead of this one since `then` or longer.
  std::vector<MemberId> ahead_since(base::Instant then) const;
  // The early fingerprints of this member.
  std::vector<Fingerprint> early_of(MemberId member) const;
  void keep_only(const std::function<bool(MemberId)>& is_present);

 private:
  struct Followed {
    std::uint32_t epoch = 0;
    std::vector<std::uint8_t> bytes{};
  };
  struct Early {
    Fingerprint said{};
    base::Instant heard{};
  };

  std::deque<Followed> followed_{};                 // the latest comes last
  std::map<MemberId, std::vector<Early>> early_{};  // no list in it is empty
};

}  // namespace spillway::membership
