// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/stage_protocol.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>

namespace spillway::emulate {

namespace {

using nlohmann::json;

constexpr std::int64_t kMaxInstant = std::int64_t{1} << 61;  // the sum of two does not overflow
constexpr std::int64_t kMaxPatienceMs = 86'400'000;

// Returns nothing if the field is missing or no whole number from 0 to `most`.
std::optional<std::int64_t> number(const json& fields, const char* name, std::int64_t most) {
  const auto found = fields.find(name);
  if (found == fields.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() &&
       found->get<std::uint64_t>() > static_cast<std::uint64_t>(most))) {
    return std::nullopt;
  }
  const auto value = found->get<std::int64_t>();
  return value < 0 || value > most ? std::nullopt : std::optional(value);
}

double real_number(const json& fields, const char* name) {
  const auto found = fields.find(name);
  return found != fields.end() && found->is_number() ? found->get<double>() : 0.0;
}

base::Status malformed_line(const char* what) {
  return {base::StatusCode::kMalformed,
          fmt::format("a line of a rank makes no sense: {}; are tool and package of one version?",
                      what)};
}

// Fields of every operation.
struct Heading {
  std::uint64_t ticket = 0;
  std::uint32_t group = 0;
  std::uint64_t bytes = 0;
  base::Instant at;
};

std::optional<Heading> heading_of(const json& fields,
                                  const std::map<std::uint32_t, std::uint32_t>& groups) {
  const auto ticket = number(fields, "ticket", INT64_MAX);
  const auto group = number(fields, "group", StageProtocol::kMaxGroupNumber);
  const auto bytes = number(fields, "bytes", INT64_MAX);
  const auto at = number(fields, "at", kMaxInstant);
  if (!ticket || !group || !bytes || !at) {
    return std::nullopt;
  }
  const auto known = groups.find(static_cast<std::uint32_t>(*group));
  if (known == groups.end()) {
    return std::nullopt;
  }
  return Heading{static_cast<std::uint64_t>(*ticket), known->second,
                 static_cast<std::uint64_t>(*bytes), base::Instant(base::nanoseconds(*at))};
}

std::string line_of(const json& fields) {
  return fields.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string line_of(const StageReply& reply) {
  if (reply.status.ok()) {
    return fmt::format("{{\"ticket\": {}, \"end\": {}}}\n", reply.ticket,
                       reply.end.since_zero().count());
  }
  return line_of({{"ticket", reply.ticket},
                  {"code", std::string(base::status_code_name(reply.status.code()))},
                  {"error", reply.status.message()}});
}

}  // namespace

base::Status StageProtocol::line(Connection from, std::string_view text) {
  const json fields = text.size() > kMaxLineBytes ? json(json::value_t::discarded)
                                                  : json::parse(text, nullptr, false);
  base::Status status =
      fields.is_object() ? dispatch(from, fields) : malformed_line("it is no object");
  if (!status.ok()) {
    lines_.emplace_back(from, line_of(json{{"error", status.message()}}));
  }
  return status;
}

base::Status StageProtocol::dispatch(Connection from, const json& fields) {
  if (fields.contains("enter")) {
    return enter(from, fields);
  }
  const auto found = ranks_.find(from);
  if (found == ranks_.end()) {
    return malformed_line("it has not entered");
  }
  ConnectedRank& caller = found->second;
  if (fields.contains("call")) {
    return call(caller, fields);
  }
  if (fields.contains("send")) {
    return message(caller, fields, StageMessage::End::kSend);
  }
  if (fields.contains("receive")) {
    return message(caller, fields, StageMessage::End::kReceive);
  }
  if (fields.contains("waited")) {
    return waited(caller, fields);
  }
  if (fields.contains("leave")) {
    leave(from, fields.at("leave"));
    return {};
  }
  return fields.contains("name") ? make_group(caller, fields)
                                 : malformed_line("it asks for nothing");
}

base::Status StageProtocol::enter(Connection from, const json& fields) {
  if (!fields.at("enter").is_null()) {
    const auto number_of_rank = number(fields, "enter", UINT32_MAX);
    if (!number_of_rank || !stage_.is_real(static_cast<std::uint32_t>(*number_of_rank))) {
      return base::invalid_argument(
          fmt::format("rank {} is no real rank of this staged world of {}; see --real",
                      fields.at("enter").dump(), stage_.config().world));
    }
    const auto rank = static_cast<std::uint32_t>(*number_of_rank);
    if (ranks_.contains(from) || !connections_.emplace(rank, from).second) {
      return base::invalid_argument(fmt::format("rank {} has entered already", rank));
    }
    ranks_[from].rank = rank;
  }
  lines_.emplace_back(from, line_of(json{{"world", stage_.config().world},
                                         {"real", stage_.config().real},
                                         {"strict", settings_.is_strict},
                                         {"waits", !stage_.config().slow.empty()},
                                         {"memory", settings_.memory_bytes}}));
  return {};
}

base::Status StageProtocol::make_group(ConnectedRank& caller, const json& fields) {
  const auto index = number(fields, "group", kMaxGroupNumber);
  const auto ranks = fields.find("ranks");
  if (!index || !fields.at("name").is_string() || ranks == fields.end() || !ranks->is_array()) {
    return malformed_line("a group");
  }
  std::vector<std::uint32_t> members;
  for (const json& rank : *ranks) {
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() > UINT32_MAX) {
      return malformed_line("a group's rank");
    }
    members.push_back(rank.get<std::uint32_t>());
  }
  if (members.empty()) {
    members.resize(stage_.config().world);
    std::iota(members.begin(), members.end(), 0U);
  }
  const base::Result<std::uint32_t> made =
      stage_.group(fields.at("name").get<std::string>(), std::move(members));
  if (!made.ok()) {
    return made.status();
  }
  caller.groups[static_cast<std::uint32_t>(*index)] = *made;
  return {};
}

base::Status StageProtocol::call(ConnectedRank& caller, const json& fields) {
  const std::optional<Heading> heading = heading_of(fields, caller.groups);
  const auto root = number(fields, "root", UINT32_MAX);
  const std::optional<CollectiveKind> kind =
      fields.at("call").is_string()
          ? chakra::parse_collective_kind(fields.at("call").get_ref<const std::string&>())
          : std::nullopt;
  if (!heading || !root || !kind) {
    return malformed_line("a call");
  }
  StageCall call;
  call.ticket = heading->ticket;
  call.kind = *kind;
  call.bytes = heading->bytes;
  call.root = static_cast<std::uint32_t>(*root);
  call.at = heading->at;
  call.is_uneven = fields.contains("uneven");
  if (const auto patience = number(fields, "patience_ms", kMaxPatienceMs);
      patience && *patience > 0) {
    call.patience = base::milliseconds(*patience);
  }
  stage_.call(caller.rank, heading->group, call);
  return {};
}

base::Status StageProtocol::message(ConnectedRank& caller, const json& fields,
                                    StageMessage::End end) {
  const bool sends = end == StageMessage::End::kSend;
  const std::optional<Heading> heading = heading_of(fields, caller.groups);
  const auto peer = number(fields, sends ? "send" : "receive", UINT32_MAX);
  const auto tag = number(fields, "tag", UINT32_MAX);
  if (!heading || !peer || !tag) {
    return malformed_line("a message");
  }
  stage_.message(caller.rank, heading->group,
                 {heading->ticket, end, static_cast<std::uint32_t>(*peer),
                  static_cast<std::uint32_t>(*tag), heading->bytes, heading->at});
  return {};
}

base::Status StageProtocol::waited(const ConnectedRank& caller, const json& fields) {
  const json& times = fields.at("waited");
  if (!times.is_array() || times.size() % 2 != 0) {
    return malformed_line("a wait");
  }
  for (std::size_t i = 0; i < times.size(); i += 2) {
    if (!times[i].is_number_unsigned() || !times[i + 1].is_number_unsigned() ||
        times[i].get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxInstant) ||
        times[i + 1].get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxInstant)) {
      return malformed_line("a wait's times");
    }
    stage_.waited(caller.rank, base::Instant(base::nanoseconds(times[i].get<std::int64_t>())),
                  base::Instant(base::nanoseconds(times[i + 1].get<std::int64_t>())));
  }
  return {};
}

void StageProtocol::leave(Connection from, const json& fields) {
  const auto found = ranks_.find(from);
  const std::uint32_t rank = found->second.rank;
  ranks_.erase(found);
  if (fields.is_object()) {
    summaries_[rank] = {static_cast<std::uint64_t>(number(fields, "waits", INT64_MAX).value_or(0)),
                        real_number(fields, "late_p50_us"), real_number(fields, "late_p99_us"),
                        real_number(fields, "late_us"),
                        static_cast<std::uint64_t>(number(fields, "reads", INT64_MAX).value_or(0))};
  }
  stage_.leave(rank, "has left");
}

void StageProtocol::closed(Connection from) {
  const auto found = ranks_.find(from);
  if (found != ranks_.end()) {
    const std::uint32_t rank = found->second.rank;
    ranks_.erase(found);
    stage_.leave(rank, "has died");
  }
}

std::vector<std::pair<StageProtocol::Connection, std::string>> StageProtocol::take_lines() {
  for (const StageReply& reply : stage_.take_replies()) {
    const auto found = connections_.find(reply.rank);
    if (found != connections_.end()) {
      lines_.emplace_back(found->second, line_of(reply));
    }
  }
  return std::exchange(lines_, {});
}

namespace {

constexpr int kStageBacklog = 128;
constexpr int kLongestSleepMs = 1000;

base::Result<sockaddr_un> stage_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return base::invalid_argument(fmt::format("'{}' cannot be a socket's path: 1 to {} bytes", path,
                                              sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

base::Result<std::unique_ptr<StageServer>> StageServer::start(const std::string& path,
                                                              StageProtocol& protocol,
                                                              Stage& stage) {
  const base::Result<sockaddr_un> address = stage_address(path);
  if (!address.ok()) {
    return address.status();
  }
  net::UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  net::UniqueFd stop(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!listener.valid() || !stop.valid() ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      ::listen(listener.get(), kStageBacklog) != 0) {
    return net::system_error(fmt::format("open the stage at {}", path), errno);
  }
  try {
    return std::unique_ptr<StageServer>(
        new StageServer(path, std::move(listener), std::move(stop), protocol, stage));
  } catch (const std::system_error& error) {
    return net::cannot_make_thread("serves the stage", error);
  }
}

StageServer::StageServer(std::string path, net::UniqueFd listener, net::UniqueFd stop,
                         StageProtocol& protocol, Stage& stage)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      protocol_(protocol),
      stage_(stage),
      thread_([this] { serve(); }) {}

StageServer::~StageServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
  ::unlink(path_.c_str());
}

void StageServer::serve() {
  std::vector<pollfd> waiting;
  std::vector<StageProtocol::Connection> order;
  for (;;) {
    const std::optional<base::Instant> next = stage_.expire(clock_.now());
    send_pending();
    waiting = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    order.clear();
    for (const auto& [connection, peer] : peers_) {
      waiting.push_back(
          {peer.fd.get(), static_cast<short>(peer.unsent.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      order.push_back(connection);
    }
    ::poll(waiting.data(), waiting.size(), milliseconds_to(next));
    if (waiting[1].revents != 0) {
      return;
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      Peer& peer = peers_[order[i]];
      if ((waiting[i + 2].revents & POLLOUT) != 0) {
        send_some(peer);
      }
      if ((waiting[i + 2].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        read_from(order[i], peer);
      }
    }
    if (waiting[0].revents != 0) {
      accept_connection();
    }
  }
}

int StageServer::milliseconds_to(std::optional<base::Instant> next) const {
  if (!next) {
    return kLongestSleepMs;
  }
  const std::int64_t left = (*next - clock_.now()).count() / 1'000'000 + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kLongestSleepMs));
}

void StageServer::accept_connection() {
  net::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid() && peers_.size() < kMaxConnections) {
    peers_[next_connection_++].fd = std::move(fd);
  }
}

void StageServer::read_from(StageProtocol::Connection from, Peer& peer) {
  std::array<char, 65'536> part{};
  const ssize_t got = ::recv(peer.fd.get(), part.data(), part.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got <= 0 || peer.is_ending) {
    protocol_.closed(from);
    peer.is_ending = true;
    peer.unsent.clear();
    return;
  }
  peer.received.append(part.data(), static_cast<std::size_t>(got));
  std::size_t begin = 0;
  for (std::size_t end = peer.received.find('\n'); end != std::string::npos && !peer.is_ending;
       end = peer.received.find('\n', begin)) {
    peer.is_ending =
        !protocol_.line(from, std::string_view(peer.received).substr(begin, end - begin)).ok();
    begin = end + 1;
  }
  peer.received.erase(0, begin);
  if (peer.received.size() > StageProtocol::kMaxLineBytes) {
    peer.is_ending = true;
  }
  if (peer.is_ending) {
    protocol_.closed(from);
  }
}

void StageServer::send_pending() {
  for (auto& [connection, line] : protocol_.take_lines()) {
    const auto found = peers_.find(connection);
    if (found != peers_.end()) {
      found->second.unsent += line;
    }
  }
  for (auto& [connection, peer] : peers_) {
    send_some(peer);
    if (peer.unsent.size() > kMaxUnsent) {
      peer.unsent.clear();
      peer.is_ending = true;
      protocol_.closed(connection);
    }
  }
  drop_ended();
}

void StageServer::send_some(Peer& peer) {
  while (!peer.unsent.empty()) {
    const ssize_t sent =
        ::send(peer.fd.get(), peer.unsent.data(), peer.unsent.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      if (errno != EAGAIN && errno != EINTR) {
        peer.unsent.clear();  // the peer is gone; reading will report it
      }
      return;
    }
    peer.unsent.erase(0, static_cast<std::size_t>(sent));
  }
}

void StageServer::drop_ended() {
  std::erase_if(
      peers_, [](const auto& each) { return each.second.is_ending && each.second.unsent.empty(); });
}

base::Result<StagedWorld> query_stage(const std::string& path, base::Duration patience) {
  const base::Result<sockaddr_un> address = stage_address(path);
  if (!address.ok()) {
    return address.status();
  }
  const net::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit = {.tv_sec = static_cast<time_t>(patience.count() / 1'000'000'000),
                         .tv_usec = 0};
  const std::string_view request = "{\"enter\": null}\n";
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return net::system_error(fmt::format("reach the stage at {}", path), errno,
                             "is `spillway emulate stage` running?");
  }
  std::string reply;
  std::array<char, 4096> part{};
  while (reply.find('\n') == std::string::npos && reply.size() < StageProtocol::kMaxLineBytes) {
    const ssize_t got = ::recv(fd.get(), part.data(), part.size(), 0);
    if (got <= 0) {
      return base::Status(base::StatusCode::kUnavailable,
                          fmt::format("the stage at {} does not reply", path));
    }
    reply.append(part.data(), static_cast<std::size_t>(got));
  }
  const nlohmann::json fields = nlohmann::json::parse(reply, nullptr, false);
  StagedWorld world;
  try {
    world = {fields.at("world").get<std::uint32_t>(),
             fields.at("real").get<std::vector<std::uint32_t>>()};
  } catch (const nlohmann::json::exception&) {
    return base::Status(base::StatusCode::kMalformed,
                        fmt::format("what listens at {} is no stage", path));
  }
  return world;
}

}  // namespace spillway::emulate
