// SPDX-License-Identifier: Apache-2.0
//
// Text from people and peers, and text for people and programs: parses quantities, and makes
// foreign text safe for terminals, logs and JSON.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"

namespace spillway::base {

// ------------------------------------------------------------------ quantities
//
// Sizes, rates, times and shares as people write them in scenario files and on command lines.
//
//   bytes     1500, 64k, 10MB        k m g and KiB MiB GiB are powers of 1024, kB MB GB of 1000
//   rate      100gbit, 2.5gbit       bit kbit mbit gbit tbit, powers of 1000
//   duration  10us, 1.5ms, 2s, 0     ns us ms s; a time other than 0 needs its unit
//   fraction  1%, 0.01, 250ppm       from 0 to 1
//
// Case does not matter. Numbers may have decimals and are rounded to whole units. Text that does
// not parse is an error that quotes it and lists what is accepted.

Result<Bytes> parse_bytes(std::string_view text);
Result<BitRate> parse_rate(std::string_view text);  // greater than zero
Result<Duration> parse_duration(std::string_view text);
Result<double> parse_fraction(std::string_view text);

// ------------------------------------------------------------------ foreign text
//
// Makes foreign text safe for terminals and logs: a peer's name must not move the cursor, change
// colours or forge a line.
//
// Invariant: the result is valid UTF-8 without control characters (C0, DEL, C1); printing it again
// changes nothing.

// Escapes control characters and bytes that are not UTF-8, for example as \x1b, and keeps
// everything else. Characters in `kept` stay, such as "\n" for text of several lines.
std::string printable(std::string_view text, std::string_view kept = {});

// printable(text), cut between two characters to at most `most` bytes; for message fields.
std::string printable_prefix(std::string_view text, std::size_t most);

// The text as a JSON string, with its quotes. Bytes from 0x80 are kept as they are.
std::string json_quoted(std::string_view text);

}  // namespace spillway::base
