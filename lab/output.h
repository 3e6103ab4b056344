// SPDX-License-Identifier: Apache-2.0
//
// Output of text: all of it, in whole lines.
//
// write_all() blocks until everything is written. If the reader is gone, the rest is lost, and the
// caller continues.
//
// A LinePrefixer puts a prefix before every line of a stream that arrives in pieces. It returns
// only whole lines, so that several streams written to one place do not mix within a line. A line
// longer than kMaxLine is split into lines of that size, so that memory stays bounded. One thread.
#pragma once

#include <string>
#include <string_view>

namespace spillway::lab {

void write_all(int fd, std::string_view text);

class LinePrefixer {
 public:
  static constexpr std::size_t kMaxLine = 16384;

  // An empty prefix changes nothing, but lines are still returned whole.
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // The lines that `bytes` completes.
  std::string feed(std::string_view bytes);
  // The unfinished last line of a stream that has ended.
  std::string finish();

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace spillway::lab
