// SPDX-License-Identifier: Apache-2.0
//
// Asking a running job something, as a tool does that is no member of it: one question to the
// member that the ticket names, one answer. And what questions there are. Any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "membership/terms.h"
#include "runtime/job/ticket.h"

namespace spillway::runtime {

// "move RANK...", "remove RANK...", "grow COUNT" or "end". "status" is no request.
base::Result<membership::Request> parse_request(const std::string& question);

// Questions as in Job::ask(). `secret`: the job's, or empty. Blocks for `limit` at most.
base::Result<std::string> ask_job(const Ticket& ticket, base::ByteView secret,
                                  const std::string& question, base::Duration limit);

}  // namespace spillway::runtime
