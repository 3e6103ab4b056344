// SPDX-License-Identifier: Apache-2.0
//
// Makes foreign text safe for terminals and logs: a peer's name must not move the cursor, change
// colours or forge a line.
//
// Invariant: the result is valid UTF-8 without control characters (C0, DEL, C1); printing it again
// changes nothing. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spillway::base {

// Escapes control characters and bytes that are not UTF-8, for example as \x1b, and keeps
// everything else. Characters in `kept` stay, such as "\n" for text of several lines.
std::string printable(std::string_view text, std::string_view kept = {});

// printable(text), cut between two characters to at most `most` bytes; for message fields.
std::string printable_prefix(std::string_view text, std::size_t most);

}  // namespace spillway::base
