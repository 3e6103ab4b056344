// SPDX-License-Identifier: Apache-2.0
//
// The flight recorders that live in this process, for whoever must see them all: a signal handler.
//
// Registering and leaving are for any thread; leaving waits until a dump that runs has ended, so a
// recorder never goes while it is read. dump_recorders() is safe in a signal handler.
//
// Limits: kMostRecorders at a time. One more than that is not found by a signal, and is told so.
#pragma once

#include <cstddef>

namespace spillway::runtime {

class FlightRecorder;

inline constexpr std::size_t kMostRecorders = 64;

class RecorderRegistration {
 public:
  explicit RecorderRegistration(const FlightRecorder& recorder);
  ~RecorderRegistration();
  RecorderRegistration(const RecorderRegistration&) = delete;
  RecorderRegistration& operator=(const RecorderRegistration&) = delete;

  bool registered() const { return place_ < kMostRecorders; }

 private:
  std::size_t place_ = kMostRecorders;
};

void dump_recorders(int fd) noexcept;

}  // namespace spillway::runtime
