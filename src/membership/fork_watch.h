// SPDX-License-Identifier: Apache-2.0
//
// Whether members that should follow one decision follow different ones.
//
// Paxos holds among members that fail by stopping. One that lies can have two others follow two
// decisions, and the job would train twice. So members tell each other fingerprints of what they
// follow. A fingerprint is a polynomial over the decision's bytes at a point that its sender draws
// after it has decided. A liar that cannot guess the point (MemberConfig::secret_word) cannot make
// two decisions agree there.
//
// A member that is ahead of this one for a while is asked for the decisions that were missed. A
// member that follows an epoch that was never followed here is told the latest decision. Both end
// up with the same decision, or the job ends (member_inbox.cc).
//
// Invariants: a decision whose fingerprint another member contradicts, before or after it was
// noted, is found to be contradicted, as long as it is among the last kRemembered. Two different
// decisions agree at a point that was drawn after both with a chance of their bytes over 2^63.
// One thread. Limits: kEarly fingerprints per member are kept for what was not decided here yet,
// the first that were said; keep_only() forgets those of members that are gone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "membership/message.h"
#include "membership/view.h"

namespace spillway::membership {

class ForkWatch {
 public:
  static constexpr std::size_t kRemembered = 4;  // decisions
  // A member that ends a split job sends two fingerprints: the one it heard, and its own.
  static constexpr std::size_t kEarly = 2;

  enum class Comparison : std::uint8_t {
    kAgrees,
    kContradicts,
    kSkipped,  // of an epoch before the latest that was not followed here, or is forgotten
    kLater,    // not decided here yet: kept for contradiction()
  };

  // This decision is followed from now on. Early fingerprints of its epoch and before are dropped.
  void note(const Decision& decision);
  // The fingerprint of the latest decision at this point; none before the first decision.
  std::optional<Following> fingerprint(std::uint64_t point) const;

  // Compares the decision that a member follows with the one followed here.
  Comparison compare(MemberId from, const Following& said, base::Instant now);
  // A fingerprint of the same epoch, heard before, that contradicts this decision.
  std::optional<Following> contradiction(const Decision& decision) const;
  // Members that have been ahead of this one at least since then.
  std::vector<MemberId> ahead_since(base::Instant then) const;
  // The fingerprints that this member sent ahead of time.
  std::vector<Following> early_of(MemberId member) const;
  void keep_only(const std::function<bool(MemberId)>& is_present);

 private:
  struct Followed {
    std::uint32_t epoch = 0;
    std::vector<std::uint8_t> bytes{};
  };
  struct Early {
    Following said{};
    base::Instant heard{};
  };

  std::deque<Followed> followed_{};                 // the latest is the last
  std::map<MemberId, std::vector<Early>> early_{};  // none of them empty
};

}  // namespace spillway::membership
