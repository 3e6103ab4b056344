// SPDX-License-Identifier: Apache-2.0
#include "elastic/job_query.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/own_file.h"
#include "base/text.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/socket.h"
#include "elastic/mesh.h"
#include "wire/key.h"

namespace spillway::elastic {

namespace {

// One stream to a member, used by one blocking thread.
class QueryClient {
 public:
  QueryClient(net::UniqueFd stream, base::Instant deadline)
      : stream_(std::move(stream)), deadline_(deadline) {}

  void wait_until(base::Instant deadline) { deadline_ = deadline; }

  base::Status send(const comm::Frame& frame) {
    const base::Result<comm::Blob> packed = channel_.pack(frame);
    if (!packed.ok()) {
      return packed.status();
    }
    for (std::size_t sent = 0; sent < packed->size();) {
      if (comm::send_some(stream_, *packed, sent) == comm::StreamState::kClosed) {
        return closed();
      }
      if (sent < packed->size() && !comm::wait_for(stream_, POLLOUT, deadline_ - clock_.now())) {
        return too_late();
      }
    }
    return {};
  }

  base::Result<comm::Frame> receive() {
    while (true) {
      base::Result<std::optional<comm::Frame>> frame = inbox_.next();
      if (!frame.ok()) {
        return frame.status();
      }
      if (frame->has_value()) {
        return channel_.unpack(std::move(**frame));
      }
      if (!comm::wait_for(stream_, POLLIN, deadline_ - clock_.now())) {
        return too_late();
      }
      comm::Blob bytes;
      if (comm::receive_some(stream_, bytes) == comm::StreamState::kClosed) {
        return closed();
      }
      inbox_.append(bytes);
    }
  }

  base::Status shake_hands(comm::JoinerHandshake handshake) {
    if (base::Status status = send(handshake.opening()); !status.ok()) {
      return status;
    }
    while (!handshake.is_done()) {
      const base::Result<comm::Frame> frame = receive();
      if (!frame.ok()) {
        return frame.status();
      }
      const base::Result<std::optional<comm::Frame>> answer = handshake.take(*frame);
      if (!answer.ok()) {
        return answer.status();
      }
      if (answer->has_value()) {
        if (base::Status status = send(**answer); !status.ok()) {
          return status;
        }
      }
    }
    channel_ = handshake.channel();
    return {};
  }

 private:
  static base::Status closed() {
    return {base::StatusCode::kUnavailable,
            "the job hung up: the ticket is another job's, or the job has a secret that this "
            "process was not given (SPILLWAY_SECRET_FILE)"};
  }
  static base::Status too_late() {
    return {base::StatusCode::kTimedOut, "the job has not answered in time"};
  }

  net::UniqueFd stream_;
  base::MonotonicClock clock_;
  base::Instant deadline_;
  comm::FrameReader inbox_{Mesh::kMaxMessageBytes};
  comm::Channel channel_{};
};

// Connects to the member at this address within `patience`. The member must prove that it belongs
// to the job. Its answers may come until `deadline`.
base::Result<QueryClient> reach(const net::SocketAddress& address,
                                const comm::Credential& credential, base::Duration patience,
                                base::Instant deadline) {
  const base::Instant end = base::MonotonicClock().now() + patience;
  const base::Result<comm::Random> random = comm::draw_random();
  base::Result<net::UniqueFd> stream =
      comm::connect_to(comm::stream_address_of(address, address.to_string()), patience);
  if (!random.ok() || !stream.ok()) {
    return random.ok() ? stream.status() : random.status();
  }
  QueryClient client(std::move(stream).value(), end);
  if (base::Status status = client.shake_hands(comm::JoinerHandshake(credential, *random));
      !status.ok()) {
    return status;
  }
  client.wait_until(deadline);
  return client;
}

// Reaches the first of the ticket's members that answers. Each address gets a share of the
// remaining time, so a silent one cannot use all of it.
base::Result<QueryClient> reach_any(const Ticket& ticket, const comm::Credential& credential,
                                    base::Instant deadline) {
  base::Status status = base::invalid_argument("the ticket names no member of the job");
  for (std::size_t i = 0; i < ticket.addresses.size(); ++i) {
    const base::Duration left = deadline - base::MonotonicClock().now();
    const auto share =
        base::Duration(left.count() / static_cast<std::int64_t>(ticket.addresses.size() - i));
    base::Result<QueryClient> client =
        reach(ticket.addresses[i], credential, std::max(share, base::Duration()), deadline);
    if (client.ok()) {
      return client;
    }
    status = client.status();
  }
  return status;
}

}  // namespace

base::Result<std::string> ask_job(const Ticket& ticket, base::ByteView secret,
                                  const std::string& question, base::Duration limit) {
  const base::Result<comm::Credential> credential = ticket.credential(secret);
  if (!credential.ok()) {
    return credential.status();
  }
  base::Result<QueryClient> reached =
      reach_any(ticket, *credential, base::MonotonicClock().now() + limit);
  if (!reached.ok()) {
    return reached.status();
  }
  QueryClient client = std::move(reached).value();
  if (base::Status status = client.send(encode_text(comm::FrameType::kQuestion, question));
      !status.ok()) {
    return status;
  }
  const base::Result<comm::Frame> reply = client.receive();
  if (!reply.ok()) {
    return reply.status();
  }
  return text_of(*reply);
}

base::Result<membership::ChangeRequest> parse_request(const std::string& question) {
  std::istringstream words(question);
  std::string verb;
  words >> verb;
  membership::ChangeRequest request{.kind = membership::RequestKind::kEnd,
                                    .why = "asked for: " + question};
  if (verb == "move" || verb == "remove") {
    request.kind =
        verb == "move" ? membership::RequestKind::kMove : membership::RequestKind::kRemove;
    for (std::uint32_t rank = 0; words >> rank;) {
      request.ranks.push_back(rank);
    }
    if (request.ranks.empty() || !words.eof()) {
      return base::invalid_argument(
          fmt::format("\"{}\": name the ranks, as in \"{} 2\"", question, verb));
    }
  } else if (verb == "grow") {
    request.kind = membership::RequestKind::kGrow;
    if (!(words >> request.places) || !(words >> std::ws).eof()) {
      return base::invalid_argument(
          fmt::format("\"{}\": say by how many ranks, as in \"grow 2\"", question));
    }
  } else if (verb == "end") {
    // With a reason the job counts as failed; without one it ends as intended.
    request.why.clear();
    std::getline(words >> std::ws, request.why);
  } else {
    return base::invalid_argument(fmt::format(
        "\"{}\" is no question that a job answers; ask status, move, remove, grow or end",
        question));
  }
  return request;
}

namespace {

std::string json_of(const MemberReport& member) {
  return fmt::format(
      "{{\"rank\":{},\"id\":\"{:016x}\",\"name\":{},\"address\":{},"
      "\"waits\":{}}}",
      member.rank ? std::to_string(*member.rank) : "null", member.id,
      base::json_quoted(member.name), base::json_quoted(member.address), member.waits);
}

std::string family(const char* name, const char* type, const char* help,
                   const std::vector<std::string>& samples) {
  return fmt::format("# HELP spillway_job_{0} {1}\n# TYPE spillway_job_{0} {2}\n{3}", name, help,
                     type, fmt::join(samples, ""));
}

template <typename Number>
std::string sample(const char* name, const std::string& labels, Number value) {
  return fmt::format("spillway_job_{}{{{}}} {}\n", name, labels, value);
}

}  // namespace

std::string status_json(const JobReport& report) {
  std::vector<std::string> members;
  for (const MemberReport& member : report.members) {
    members.push_back(json_of(member));
  }
  std::vector<std::string> stragglers;
  for (const std::string& straggler : report.stragglers) {
    stragglers.push_back(base::json_quoted(straggler));
  }
  return fmt::format(
      "{{\"job\":\"{}\",\"epoch\":{},\"step\":{},\"members\":[{}],\"stragglers\":[{}],"
      "\"waits_for\":{},\"last_change\":{{\"why\":{},\"step\":{},\"interrupted_ns\":{},"
      "\"parked_ns\":{},\"decided_ns\":{}}}}}",
      report.job, report.epoch, report.step, fmt::join(members, ","), fmt::join(stragglers, ","),
      base::json_quoted(report.waits_for), base::json_quoted(report.why), report.change_step,
      report.interrupted_ns, report.parked_ns, report.decided_ns);
}

std::string metrics_text(const JobReport& report) {
  const std::string job = fmt::format("job=\"{}\"", report.job);
  const auto ranks = std::ranges::count_if(
      report.members, [](const MemberReport& member) { return member.rank.has_value(); });
  const auto standbys = std::ssize(report.members) - ranks;
  const auto number = [&job](const char* name, const char* type, const char* help, auto value) {
    return family(name, type, help, {sample(name, job, value)});
  };
  return number("epoch", "gauge", "How often the members have changed, and one.", report.epoch) +
         number("rank", "gauge", "This process's rank; -1 for a standby.",
                report.rank ? static_cast<std::int64_t>(*report.rank) : -1) +
         number("step", "gauge", "The latest step that was begun here.", report.step) +
         family("members", "gauge", "Processes of the job, by what they are.",
                {sample("members", job + ",standing=\"rank\"", ranks),
                 sample("members", job + ",standing=\"standby\"", standbys)}) +
         number("stragglers", "gauge", "Ranks that are slower than others in this epoch.",
                report.stragglers.size()) +
         number("changes_total", "counter", "Changes of members that this process went through.",
                report.changes) +
         number("interruptions_total", "counter", "Steps that had to be stopped for one.",
                report.interruptions) +
         family("pause_seconds_total", "counter", "Time that training stood still for changes.",
                {sample("pause_seconds_total", job + ",phase=\"stop\"",
                        base::seconds_of(report.stopping)),
                 sample("pause_seconds_total", job + ",phase=\"decide\"",
                        base::seconds_of(report.deciding))});
}

// ------------------------------------------------------------------ tickets

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
  return fmt::format("{}/{}", joined(addresses, ","), launch::to_hex(job));
}

std::string Ticket::addresses_text() const {
  return joined(addresses, ", ");
}

std::string Ticket::name() const {
  std::array<std::uint8_t, kNameBytes> name{};
  const base::Status status = wire::derive(job, {}, wire::KeyLabel::kJobName, name);
  return status.ok() ? fmt::format("{:02x}", fmt::join(name, "")) : "unknown";
}

base::Result<comm::Credential> Ticket::credential(base::ByteView secret) const {
  return secret.empty() ? comm::Credential::of_id(job) : comm::Credential::of_secret(secret);
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
  if (slash == std::string_view::npos || text.size() - slash - 1 != 2 * sizeof(launch::Nonce)) {
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

}  // namespace spillway::elastic
