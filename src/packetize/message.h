// SPDX-License-Identifier: Apache-2.0
//
// What two ends must agree on before a packet makes sense: the job, and the message inside it.
// From the job's seed follow the rotation of every message and the salt of unkeyed checks, so a
// receiver with another seed refuses packets instead of decoding them to noise.
#pragma once

#include <cstdint>

#include "wire/data_header.h"
#include "wire/packet_auth.h"

namespace spillway::packetize {

struct Job {
  std::uint16_t id = 0;
  std::uint16_t epoch = 0;
  std::uint64_t seed = 0;
};

// The key of a message's rotations: different for every message and source, so that the errors of
// workers and of steps are independent and average out.
std::uint64_t rotation_key(const Job& job, const wire::MessageId& message);

// Unkeyed checks for this job's packets.
wire::PacketAuth unkeyed_auth(const Job& job);

}  // namespace spillway::packetize
