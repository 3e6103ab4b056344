// SPDX-License-Identifier: Apache-2.0
//
// The job's secret, as this process was given it.
//
//   an argument           goes before both variables
//   SPILLWAY_SECRET       the bytes themselves: whoever may see the process's environment sees them
//   SPILLWAY_SECRET_FILE  a file of this user or root that only its owner can use, or the number of
//   an open descriptor
//                         (a pipe, a memfd, a file): read to its end, less newlines there
//
// A pipe can be read once only, so what came of one is kept for the process's next communicator.
// Everything else is read anew each time, and wiped with the Secret. Never logged; sentences about
// it show no byte of it.
//
// Limits: kMinSecretBytes to kMaxSecretBytes; a pipe's writer is given kSecretPatience. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "wire/key_memory.h"

namespace spillway::runtime {

inline constexpr auto kMinSecretBytes =
    static_cast<std::size_t>(base::variable("SPILLWAY_SECRET").least);
inline constexpr std::size_t kMaxSecretBytes = 4096;
inline constexpr base::Duration kSecretPatience = base::seconds(10);

class Secret {
 public:
  Secret() = default;  // none
  explicit Secret(base::ByteView bytes) : bytes_(bytes.begin(), bytes.end()) {}
  explicit Secret(std::string_view text) : bytes_(text.begin(), text.end()) {}
  Secret(const Secret&) = default;
  Secret(Secret&&) noexcept = default;
  Secret& operator=(const Secret& other);
  Secret& operator=(Secret&& other) noexcept;
  ~Secret() { wipe(); }

  bool empty() const { return bytes_.empty(); }
  base::ByteView bytes() const { return bytes_; }
  // There is none then.
  void wipe();

 private:
  wire::KeyBytes bytes_{};  // in no core dump
};

// `given`: the argument, or empty. Without any: an empty one.
base::Result<Secret> secret_from(const base::Environment& environment, const Secret& given = {});

}  // namespace spillway::runtime
