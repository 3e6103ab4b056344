// SPDX-License-Identifier: Apache-2.0
//
// Text of a fixed size for places that can neither allocate nor fail: names and messages from
// outside, as UTF-8 that any reader of JSON or of metrics takes.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace spillway::runtime {

// As much of `text` as fits into `out` with a zero behind it, cut between characters. A byte that
// belongs to no UTF-8 character becomes '?', as does a zero.
void copy_clean(std::string_view text, std::span<char> out);

std::string clean_text(std::string_view text);

}  // namespace spillway::runtime
