// SPDX-License-Identifier: Apache-2.0
//
// The texts that ranks exchange when two of them call different operations.
//
// The rank that notices knows its own call, and only the signature of the other one. Each rank
// therefore puts the calls it knows into its LEAVE and completes them from the LEAVEs of others
// (Engine::dispute()), until both calls are whole.
//
// Peers' texts are made printable when they go into a sentence. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collective/operation.h"
#include "wire/control_packet.h"

namespace spillway::collective {

// At most SPILLWAY_MAX_CALL_TEXT bytes of `text`.
wire::CallText call_text(std::uint16_t rank, std::string_view text, bool is_whole);
wire::CallText call_text(std::uint16_t rank, const Operation& operation);

// False for the mismatch of a peer that knows neither call.
bool has_texts(const wire::Mismatch& mismatch);
bool is_whole(const wire::Mismatch& mismatch);
// Takes the calls that `from` knows whole and `mismatch` does not, if both are about one operation.
void fill_in(wire::Mismatch& mismatch, const wire::Mismatch& from);

std::string mismatch_sentence(const wire::Mismatch& mismatch, const Group& group);

}  // namespace spillway::collective
