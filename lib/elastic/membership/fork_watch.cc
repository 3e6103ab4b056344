// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/fork_watch.h"

#include <algorithm>
#include <iterator>

namespace spillway::membership {
namespace {

constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  const auto sum =
      static_cast<std::uint64_t>(product & kPrime) + static_cast<std::uint64_t>(product >> 61);
  return sum >= kPrime ? sum - kPrime : sum;
}

// The coefficients are the length, then four bytes each; the length makes the polynomials of any
// two texts differ.
std::uint64_t value_at(std::uint64_t point, base::ByteView bytes) {
  const std::uint64_t at = point % kPrime;
  std::uint64_t value = bytes.size();
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    std::uint32_t word = 0;
    for (std::size_t j = i; j < std::min(i + 4, bytes.size()); ++j) {
      word = word << 8U | bytes[j];
    }
    value = (times(value, at) + word) % kPrime;
  }
  return value;
}

std::vector<std::uint8_t> bytes_of(const Decision& decision) {
  return encode(DecisionNotice{decision});
}

bool differs(const Fingerprint& said, base::ByteView bytes) {
  return said.value != value_at(said.point, bytes);
}

}  // namespace

void ForkWatch::note(const Decision& decision) {
  followed_.push_back({decision.view.epoch, bytes_of(decision)});
  if (followed_.size() > kRemembered) {
    followed_.pop_front();
  }
  for (auto& [member, words] : early_) {
    std::erase_if(words,
                  [&](const Early& early) { return early.said.epoch <= decision.view.epoch; });
  }
  std::erase_if(early_, [](const auto& member) { return member.second.empty(); });
}

std::optional<Fingerprint> ForkWatch::fingerprint(std::uint64_t point) const {
  if (followed_.empty()) {
    return std::nullopt;
  }
  const Followed& latest = followed_.back();
  return Fingerprint{latest.epoch, point, value_at(point, latest.bytes)};
}

ForkWatch::Comparison ForkWatch::compare(MemberId from, const Fingerprint& said,
                                         base::Instant now) {
  if (followed_.empty() || said.epoch > followed_.back().epoch) {
    std::vector<Early>& early = early_[from];
    if (early.size() < kEarly) {
      early.push_back({said, now});
    }
    return Comparison::kLater;
  }
  const auto ours = std::ranges::find(followed_, said.epoch, &Followed::epoch);
  if (ours == followed_.end()) {
    return Comparison::kSkipped;
  }
  return differs(said, ours->bytes) ? Comparison::kContradicts : Comparison::kAgrees;
}

std::optional<Fingerprint> ForkWatch::contradiction(const Decision& decision) const {
  const std::vector<std::uint8_t> bytes = bytes_of(decision);
  for (const auto& [from, words] : early_) {
    for (const Early& early : words) {
      if (early.said.epoch == decision.view.epoch && differs(early.said, bytes)) {
        return early.said;
      }
    }
  }
  return std::nullopt;
}

std::vector<MemberId> ForkWatch::ahead_since(base::Instant then) const {
  std::vector<MemberId> found;
  for (const auto& [from, words] : early_) {
    if (words.front().heard <= then) {
      found.push_back(from);
    }
  }
  return found;
}

std::vector<Fingerprint> ForkWatch::early_of(MemberId member) const {
  std::vector<Fingerprint> found;
  if (const auto at = early_.find(member); at != early_.end()) {
    std::ranges::transform(at->second, std::back_inserter(found), &Early::said);
  }
  return found;
}

void ForkWatch::keep_only(const std::function<bool(MemberId)>& is_present) {
  std::erase_if(early_, [&](const auto& member) { return !is_present(member.first); });
}

}  // namespace spillway::membership
