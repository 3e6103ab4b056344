// SPDX-License-Identifier: Apache-2.0
//
// Text on its way out: all of it, in whole lines.
//
// write_all() takes as long as it takes. A reader that went away is no reason to stop the work:
// what it does not take is lost.
//
// A LinePrefixer puts a prefix before every line of a stream that arrives in pieces, and gives
// lines out whole, so that several streams written to one place do not mix within a line. A line
// longer than kMaxLine is given out in pieces of that size, each as a line of its own: nothing is
// kept for ever. One thread.
#pragma once

#include <string>
#include <string_view>

namespace spillway::lab {

void write_all(int fd, std::string_view text);

class LinePrefixer {
 public:
  static constexpr std::size_t kMaxLine = 16384;

  // An empty prefix changes nothing but still gives out whole lines.
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // The lines that `bytes` completes.
  std::string feed(std::string_view bytes);
  // What is left when the stream has ended, as a line.
  std::string finish();

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace spillway::lab
