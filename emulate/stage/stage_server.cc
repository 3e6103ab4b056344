// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/stage_server.h"

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

namespace spillway::emulate {
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
    say();
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
        hear(order[i], peer);
      }
    }
    if (waiting[0].revents != 0) {
      welcome();
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

void StageServer::welcome() {
  net::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid() && peers_.size() < kMaxConnections) {
    peers_[next_connection_++].fd = std::move(fd);
  }
}

void StageServer::hear(StageProtocol::Connection from, Peer& peer) {
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

void StageServer::say() {
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

base::Result<StagedWorld> ask_stage(const std::string& path, base::Duration patience) {
  const base::Result<sockaddr_un> address = stage_address(path);
  if (!address.ok()) {
    return address.status();
  }
  const net::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit = {.tv_sec = static_cast<time_t>(patience.count() / 1'000'000'000),
                         .tv_usec = 0};
  const std::string_view question = "{\"enter\": null}\n";
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      ::send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0) {
    return net::system_error(fmt::format("reach the stage at {}", path), errno,
                             "is `spillway emulate stage` running?");
  }
  std::string answer;
  std::array<char, 4096> part{};
  while (answer.find('\n') == std::string::npos && answer.size() < StageProtocol::kMaxLineBytes) {
    const ssize_t got = ::recv(fd.get(), part.data(), part.size(), 0);
    if (got <= 0) {
      return base::Status(base::StatusCode::kUnavailable,
                          fmt::format("the stage at {} does not answer", path));
    }
    answer.append(part.data(), static_cast<std::size_t>(got));
  }
  const nlohmann::json said = nlohmann::json::parse(answer, nullptr, false);
  StagedWorld world;
  try {
    world = {said.at("world").get<std::uint32_t>(),
             said.at("real").get<std::vector<std::uint32_t>>()};
  } catch (const nlohmann::json::exception&) {
    return base::Status(base::StatusCode::kMalformed,
                        fmt::format("what listens at {} is no stage", path));
  }
  return world;
}

}  // namespace spillway::emulate
