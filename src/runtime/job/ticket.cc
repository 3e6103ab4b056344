// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/ticket.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <fstream>

namespace spillway::runtime {

std::string Ticket::to_string() const {
  return fmt::format("{}/{}", address.to_string(), to_hex(job));
}

base::Result<Credential> Ticket::credential(base::ByteView secret) const {
  return secret.empty() ? Credential::of_id(job) : Credential::of_secret(secret);
}

base::Status Ticket::write_to(const std::string& path) const {
  const std::string part = path + ".part";
  std::ofstream file(part);
  file << to_string() << "\n";
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    return base::invalid_argument(
        fmt::format("the job's ticket cannot be written to {}: name a file in a folder that this "
                    "process may write to (SPILLWAY_JOB_FILE)",
                    path));
  }
  return {};
}

base::Result<Ticket> parse_ticket(std::string_view text) {
  const auto wrong = [text] {
    return base::invalid_argument(fmt::format(
        "\"{}\" is no job's ticket, which looks like 10.0.0.3:41234/ and 32 hexadecimal digits; a "
        "member prints its own when it starts, and SPILLWAY_JOB_FILE names a file for it",
        text.substr(0, 100)));
  };
  const std::size_t slash = text.rfind('/');
  if (slash == std::string_view::npos || text.size() - slash - 1 != 2 * sizeof(Nonce)) {
    return wrong();
  }
  const base::Result<net::SocketAddress> address = net::SocketAddress::parse(text.substr(0, slash));
  if (!address.ok() || address->port() == 0) {
    return wrong();
  }
  Ticket ticket{.address = *address, .job = {}};
  for (std::size_t i = 0; i < ticket.job.size(); ++i) {
    const char* digits = text.data() + slash + 1 + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, ticket.job[i], 16);
    if (error != std::errc() || end != digits + 2) {
      return wrong();
    }
  }
  return ticket;
}

}  // namespace spillway::runtime
