// SPDX-License-Identifier: Apache-2.0
//
// The job's secret, from the first of:
//
//   an argument
//   SPILLWAY_SECRET       the bytes themselves, visible to all who may read the environment
//   SPILLWAY_SECRET_FILE  a file of this user or root that only its owner can use, or the number of
//                         an open descriptor (pipe, memfd, file); trailing newlines are removed
//
// A pipe can be read only once, so its secret is kept for the process's next communicator. Other
// sources are read again each time, and wiped with the Secret. The secret is never logged, and no
// error message shows a byte of it.
//
// Limits: kMinSecretBytes to kMaxSecretBytes; a pipe's writer has kSecretPatience. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "wire/key.h"

namespace spillway::launch {

inline constexpr auto kMinSecretBytes =
    static_cast<std::size_t>(base::variable("SPILLWAY_SECRET").least);
inline constexpr std::size_t kMaxSecretBytes = 4096;
inline constexpr base::Duration kSecretPatience = base::seconds(10);

class Secret {
 public:
  Secret() = default;  // no secret
  explicit Secret(base::ByteView bytes) : bytes_(bytes.begin(), bytes.end()) {}
  explicit Secret(std::string_view text) : bytes_(text.begin(), text.end()) {}
  Secret(const Secret&) = default;
  Secret(Secret&&) noexcept = default;
  Secret& operator=(const Secret& other);
  Secret& operator=(Secret&& other) noexcept;
  ~Secret() { wipe(); }

  bool empty() const { return bytes_.empty(); }
  base::ByteView bytes() const { return bytes_; }
  // Erases the bytes; the secret is empty afterwards.
  void wipe();

 private:
  wire::KeyBytes bytes_{};  // excluded from core dumps
};

// `given`: the argument, or empty. Returns an empty secret if there is none.
base::Result<Secret> secret_from(const base::Environment& environment, const Secret& given = {});

}  // namespace spillway::launch
