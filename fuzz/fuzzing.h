// SPDX-License-Identifier: Apache-2.0
//
// Shared by the fuzz targets: a check that stops the fuzzer in every build, and packet checks with
// tags alone or with encryption.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>

#include "wire/packet_auth.h"

namespace spillway::fuzzing {

inline void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

inline const wire::PacketAuth& auth_of(bool encrypts) {
  static const std::array<std::uint8_t, 16> secret = {1, 2, 3};
  static const wire::PacketAuth tags = wire::PacketAuth::of_secret(secret).value();
  static const wire::PacketAuth cipher =
      wire::PacketAuth::of_secret(secret, wire::Protection::kEncryption).value();
  return encrypts ? cipher : tags;
}

}  // namespace spillway::fuzzing
