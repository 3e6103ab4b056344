// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/incast/rank_meeting.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "net/system_call.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

// Longer than it takes to tell all ranks.
constexpr base::Duration kHeadStart = base::milliseconds(5);
constexpr int kJoinAttempts = 2000;  // a few milliseconds apart

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof(address.sun_path)) {
    throw CommandError("the path of the ranks' socket is too long: set TMPDIR to a shorter one");
  }
  std::copy(text.begin(), text.end(), address.sun_path);
  return address;
}

template <typename T>
void write_all(const net::UniqueFd& stream, const T* items, std::size_t count) {
  const char* data = reinterpret_cast<const char*>(items);
  for (std::size_t left = count * sizeof(T); left > 0;) {
    const ssize_t written = ::send(stream.get(), data, left, MSG_NOSIGNAL);
    if (written <= 0) {
      throw CommandError("another rank is gone");
    }
    data += written;
    left -= static_cast<std::size_t>(written);
  }
}

template <typename T>
void read_all(const net::UniqueFd& stream, T* items, std::size_t count) {
  char* data = reinterpret_cast<char*>(items);
  for (std::size_t left = count * sizeof(T); left > 0;) {
    const ssize_t got = ::recv(stream.get(), data, left, 0);
    if (got <= 0) {
      throw CommandError("another rank is gone");
    }
    data += got;
    left -= static_cast<std::size_t>(got);
  }
}

}  // namespace

RankMeeting::RankMeeting(std::uint16_t rank, std::uint16_t ranks,
                         const std::filesystem::path& folder)
    : rank_(rank) {
  const std::filesystem::path path = folder / "meeting";
  if (rank == 0) {
    accept_others(path, static_cast<std::uint16_t>(ranks - 1));
  } else {
    join(path);
  }
}

void RankMeeting::accept_others(const std::filesystem::path& path, std::uint16_t others) {
  const net::UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(path);
  std::filesystem::remove(path);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener.get(), others) != 0) {
    throw CommandError("cannot listen for the other ranks at " + path.string());
  }
  for (std::uint16_t i = 0; i < others; ++i) {
    streams_.emplace_back(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
}

void RankMeeting::join(const std::filesystem::path& path) {
  const sockaddr_un address = address_of(path);
  for (int attempt = 0; attempt < kJoinAttempts; ++attempt) {
    net::UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
        0) {
      streams_.push_back(std::move(stream));
      return;
    }
    ::usleep(5000);
  }
  throw CommandError("rank 0 did not come to " + path.string());
}

base::Instant RankMeeting::agree_on_start() {
  std::int64_t start = 0;
  std::uint8_t here = 1;
  if (rank_ != 0) {
    write_all(streams_.front(), &here, 1);
    read_all(streams_.front(), &start, 1);
    return base::Instant(base::nanoseconds(start));
  }
  for (const net::UniqueFd& stream : streams_) {
    read_all(stream, &here, 1);
  }
  start = (base::MonotonicClock().now() + kHeadStart).since_zero().count();
  for (const net::UniqueFd& stream : streams_) {
    write_all(stream, &start, 1);
  }
  return base::Instant(base::nanoseconds(start));
}

std::vector<FlowOutcome> RankMeeting::gather(const std::vector<FlowOutcome>& own) {
  if (rank_ != 0) {
    const std::uint64_t count = own.size();
    write_all(streams_.front(), &count, 1);
    write_all(streams_.front(), own.data(), own.size());
    return {};
  }
  std::vector<FlowOutcome> all = own;
  for (const net::UniqueFd& stream : streams_) {
    std::uint64_t count = 0;
    read_all(stream, &count, 1);
    std::vector<FlowOutcome> theirs(count);
    read_all(stream, theirs.data(), theirs.size());
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

}  // namespace spillway::bench
