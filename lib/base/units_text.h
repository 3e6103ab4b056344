// SPDX-License-Identifier: Apache-2.0
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
#pragma once

#include <string_view>

#include "base/status.h"
#include "base/units.h"

namespace spillway::base {

Result<Bytes> parse_bytes(std::string_view text);
Result<BitRate> parse_rate(std::string_view text);  // greater than zero
Result<Duration> parse_duration(std::string_view text);
Result<double> parse_fraction(std::string_view text);

}  // namespace spillway::base
