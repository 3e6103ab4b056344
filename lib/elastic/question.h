// SPDX-License-Identifier: Apache-2.0
//
// Asks a running job one question, as a tool that is no member: it connects to a member that the
// ticket names and waits for one answer. Also parses requests. Any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "elastic/membership/terms.h"
#include "elastic/ticket.h"

namespace spillway::runtime {

// Parses "move RANK...", "remove RANK...", "grow COUNT" or "end". "status" is no request.
base::Result<membership::Request> parse_request(const std::string& question);

// Questions as in Job::ask(). `secret`: the job's secret, or empty. Blocks for at most `limit`.
base::Result<std::string> ask_job(const Ticket& ticket, base::ByteView secret,
                                  const std::string& question, base::Duration limit);

}  // namespace spillway::runtime
