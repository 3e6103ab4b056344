// SPDX-License-Identifier: Apache-2.0
#include "collective/mismatch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace spillway::collective {
namespace {

// Point-to-point numbers mean nothing to other pairs.
bool are_about_one(const wire::Mismatch& a, const wire::Mismatch& b) {
  if (a.operation != b.operation || a.is_point_to_point != b.is_point_to_point) {
    return false;
  }
  return !a.is_point_to_point ||
         std::is_permutation(a.calls.begin(), a.calls.end(), b.calls.begin(),
                             [](auto& one, auto& other) { return one.rank == other.rank; });
}

}  // namespace

wire::CallText call_text(std::uint16_t rank, std::string_view text, bool is_whole) {
  const std::string kept = base::printable_prefix(text, SPILLWAY_MAX_CALL_TEXT);
  wire::CallText call{.rank = rank,
                      .is_whole = is_whole,
                      .bytes = static_cast<std::uint8_t>(kept.size()),
                      .text = {}};
  std::copy(kept.begin(), kept.end(), call.text.begin());
  return call;
}

wire::CallText call_text(std::uint16_t rank, const Operation& operation) {
  return call_text(rank, describe_call(operation), /*is_whole=*/true);
}

bool has_texts(const wire::Mismatch& mismatch) {
  return mismatch.calls[0].bytes > 0 && mismatch.calls[1].bytes > 0;
}

bool is_whole(const wire::Mismatch& mismatch) {
  return mismatch.calls[0].is_whole && mismatch.calls[1].is_whole;
}

void fill_in(wire::Mismatch& mismatch, const wire::Mismatch& from) {
  if (!are_about_one(mismatch, from)) {
    return;
  }
  for (wire::CallText& call : mismatch.calls) {
    for (const wire::CallText& other : from.calls) {
      if (!call.is_whole && other.is_whole && other.rank == call.rank) {
        call = other;
      }
    }
  }
}

std::string mismatch_sentence(const wire::Mismatch& mismatch, const Group& group) {
  const wire::CallText& first = mismatch.calls[0];
  const wire::CallText& second = mismatch.calls[1];
  const bool are_alike = first.view() == second.view();
  return fmt::format(
      "operation {} is {} at {}, but at {} it is {}; all ranks must call the same operations with "
      "the same arguments in the same order",
      mismatch.operation, base::printable(first.view()), rank_name(group, first.rank),
      rank_name(group, second.rank),
      are_alike ? "the same with other arguments or packet sizes" : base::printable(second.view()));
}

}  // namespace spillway::collective
