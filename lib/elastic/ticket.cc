// SPDX-License-Identifier: Apache-2.0
#include "elastic/ticket.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/own_file.h"
#include "wire/key.h"

namespace spillway::runtime {
namespace {

constexpr std::size_t kNameBytes = 8;

std::string joined(const std::vector<net::SocketAddress>& addresses, std::string_view separator) {
  std::vector<std::string> texts;
  for (const net::SocketAddress& address : addresses) {
    texts.push_back(address.to_string());
  }
  return fmt::format("{}", fmt::join(texts, separator));
}

// nullopt if any of them is not an address.
std::optional<std::vector<net::SocketAddress>> addresses_in(std::string_view text) {
  std::vector<net::SocketAddress> addresses;
  while (true) {
    const std::size_t comma = text.find(',');
    const base::Result<net::SocketAddress> address =
        net::SocketAddress::parse(text.substr(0, comma));
    if (!address.ok() || address->port() == 0 || addresses.size() == kMaxTicketAddresses) {
      return std::nullopt;
    }
    addresses.push_back(*address);
    if (comma == std::string_view::npos) {
      return addresses;
    }
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string Ticket::to_string() const {
  return fmt::format("{}/{}", joined(addresses, ","), to_hex(job));
}

std::string Ticket::addresses_text() const {
  return joined(addresses, ", ");
}

std::string Ticket::name() const {
  std::array<std::uint8_t, kNameBytes> name{};
  const base::Status status = wire::derive(job, {}, wire::KeyLabel::kJobName, name);
  return status.ok() ? fmt::format("{:02x}", fmt::join(name, "")) : "unknown";
}

base::Result<Credential> Ticket::credential(base::ByteView secret) const {
  return secret.empty() ? Credential::of_id(job) : Credential::of_secret(secret);
}

base::Status Ticket::write_to(const std::string& path) const {
  const base::Status status = base::replace_file(path, to_string() + "\n");
  return status.ok() ? status
                     : base::invalid_argument(fmt::format(
                           "the job has no file for its ticket: {}: name one in a folder of your "
                           "own (SPILLWAY_JOB_FILE)",
                           status.message()));
}

base::Result<std::string> ticket_text_in(const std::string& path) {
  base::Result<std::string> text = base::read_own_file(path, kMaxTicketFileBytes);
  if (!text.ok()) {
    return text.status();
  }
  return text->substr(0, text->find_first_of(" \t\r\n"));
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
  std::optional<std::vector<net::SocketAddress>> addresses = addresses_in(text.substr(0, slash));
  if (!addresses) {
    return wrong();
  }
  Ticket ticket{.addresses = *std::move(addresses), .job = {}};
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
