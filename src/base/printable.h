// SPDX-License-Identifier: Apache-2.0
//
// Text of others, fit for a terminal and a log: a peer's name must not move the cursor, change
// colours or forge a line.
//
// Invariant: the result is valid UTF-8 without control characters (C0, DEL, C1); printing it again
// changes nothing. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spillway::base {

// Control characters and bytes that are no UTF-8 as \x1b; all else as it is. Characters of `kept`
// stay: "\n" for text of several lines.
std::string printable(std::string_view text, std::string_view kept = {});

// printable(text), cut between two characters to at most `most` bytes: for fields of messages.
std::string printable_prefix(std::string_view text, std::size_t most);

}  // namespace spillway::base
