// SPDX-License-Identifier: Apache-2.0
#include "net/datagram_sender.h"

#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "wire/packet.h"

namespace spillway::net {
namespace {

constexpr std::size_t kMainBytes = 192 * 1024;  // stays in a second-level cache
constexpr std::size_t kAsideBytes = 32 * 1024;
constexpr std::size_t kShort = 1500;         // may be put aside: a copy that costs less than a call
constexpr std::size_t kMaxRuns = 64;         // in one call
constexpr std::size_t kMaxSegments = 64;     // what every kernel with UDP_SEGMENT takes
constexpr std::size_t kMaxRunBytes = 65000;  // an IP packet with its headers is below 64 KiB
constexpr unsigned kMaxTries = 4;            // of a run whose error may be another's

// A message header with its control data: DSCP and ECN, and where to cut.
struct OutgoingMessage {
  iovec data{};
  alignas(cmsghdr)
      std::array<char, CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint16_t))> control{};
};

void add_control(msghdr& header, int level, int type, const void* value, std::size_t size) {
  auto* place =
      reinterpret_cast<cmsghdr*>(static_cast<char*>(header.msg_control) + header.msg_controllen);
  place->cmsg_level = level;
  place->cmsg_type = type;
  place->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(place), value, size);
  header.msg_controllen += CMSG_SPACE(size);
}

}  // namespace

DatagramSender::DatagramSender(std::vector<UdpSocket> sockets, const Offloads& offloads)
    : sockets_(std::move(sockets)), offloads_(offloads) {
  main_.buffer.resize(kMainBytes);
  aside_.buffer.resize(kAsideBytes);
}

void DatagramSender::set_address(std::uint16_t peer, const SocketAddress& address) {
  addresses_.insert_or_assign(peer, address);
}

bool DatagramSender::has_room() const {
  return flushing_ == nullptr && main_.used + SPILLWAY_MAX_PACKET <= kMainBytes &&
         aside_.used + kShort <= kAsideBytes && main_.runs.size() < kMaxRuns &&
         aside_.runs.size() < kMaxRuns;
}

base::MutableByteView DatagramSender::room() {
  SPILLWAY_CHECK(has_room());
  return base::MutableByteView(main_.buffer).subspan(main_.used, SPILLWAY_MAX_PACKET);
}

bool DatagramSender::extends(const Lane& lane, const transport::Route& route,
                             std::size_t size) const {
  if (!offloads_.gso || lane.runs.empty()) {
    return false;
  }
  const Run& run = lane.runs.back();
  return !run.closed && run.route == route && size <= run.segment && run.segments < kMaxSegments &&
         run.bytes + size <= kMaxRunBytes;
}

void DatagramSender::append(Lane& lane, const transport::Route& route, std::size_t size) const {
  if (!extends(lane, route, size)) {
    const auto address = addresses_.find(route.peer);
    SPILLWAY_CHECK(address != addresses_.end());
    lane.runs.push_back({.route = route,
                         .address = &address->second,
                         .data = lane.buffer.data() + lane.used,
                         .segment = static_cast<std::uint16_t>(size)});
  }
  Run& run = lane.runs.back();
  run.bytes += static_cast<std::uint32_t>(size);
  ++run.segments;
  run.closed = size < run.segment;
  lane.used += size;
}

void DatagramSender::commit(const transport::Route& route, std::size_t size) {
  SPILLWAY_CHECK(size > 0 && size <= SPILLWAY_MAX_PACKET);
  const bool goes_aside =
      route.is_control && offloads_.gso && size <= kShort && !main_.runs.empty();
  if (!goes_aside) {
    append(main_, route, size);
    return;
  }
  std::memcpy(aside_.buffer.data() + aside_.used, main_.buffer.data() + main_.used, size);
  append(aside_, route, size);
}

// How many of the runs to send leave through the same socket, as far as one call takes them.
std::size_t DatagramSender::same_socket(const Lane& lane) const {
  std::size_t end = next_ + 1;
  while (offloads_.batching && end < lane.runs.size() && end - next_ < kMaxRuns &&
         lane.runs[end].route.path == lane.runs[next_].route.path) {
    ++end;
  }
  return end - next_;
}

// Returns how many runs went, or minus an errno.
int DatagramSender::send_some(const Lane& lane, std::size_t count) {
  std::array<OutgoingMessage, kMaxRuns> messages;
  std::array<mmsghdr, kMaxRuns> headers;
  for (std::size_t i = 0; i < count; ++i) {
    const Run& run = lane.runs[next_ + i];
    OutgoingMessage& message = messages[i];
    message.data = {const_cast<std::uint8_t*>(run.data), run.bytes};
    headers[i] = {};
    msghdr& header = headers[i].msg_hdr;
    header.msg_name = const_cast<sockaddr*>(run.address->data());
    header.msg_namelen = run.address->size();
    header.msg_iov = &message.data;
    header.msg_iovlen = 1;
    header.msg_control = message.control.data();
    const int tos = run.route.tos();
    const bool v6 = run.address->is_ipv6();
    add_control(header, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, &tos,
                sizeof(tos));
    if (run.segments > 1) {
      add_control(header, SOL_UDP, UDP_SEGMENT, &run.segment, sizeof(run.segment));
    }
  }
  ++counters_.calls;
  const int fd = sockets_[lane.runs[next_].route.path].fd();
  if (!offloads_.batching) {
    return ::sendmsg(fd, &headers[0].msg_hdr, 0) >= 0 ? 1 : -errno;
  }
  const int sent = ::sendmmsg(fd, headers.data(), static_cast<unsigned>(count), 0);
  return sent >= 0 ? sent : -errno;
}

bool DatagramSender::flush() {
  if (flushing_ == nullptr) {
    flushing_ = &aside_;
  }
  if (flushing_ == &aside_) {
    if (!flush(aside_)) {
      return false;
    }
    flushing_ = &main_;
  }
  if (!flush(main_)) {
    return false;
  }
  flushing_ = nullptr;
  return true;
}

bool DatagramSender::flush(Lane& lane) {
  while (next_ < lane.runs.size()) {
    const int sent = send_some(lane, same_socket(lane));
    if (sent < 0) {
      if (!handle_error(-sent, lane)) {
        return false;
      }
      continue;
    }
    tries_ = 0;
    for (int i = 0; i < sent; ++i) {
      counters_.datagrams += lane.runs[next_].segments;
      counters_.bytes += lane.runs[next_].bytes;
      ++next_;
    }
  }
  lane.runs.clear();
  lane.used = 0;
  next_ = 0;
  return true;
}

// Deals with what stopped the next run; false if it has to wait.
bool DatagramSender::handle_error(int error, Lane& lane) {
  switch (error) {
    case EAGAIN:
      ++counters_.waits;
      return false;
    case EINTR:
      return true;
    case EIO:     // no checksum offload, says the driver
    case EINVAL:  // a segment with its headers is longer than the MTU, or GSO is not known
      if (lane.runs[next_].segments > 1) {
        offloads_.gso = offloads_.gso && error != EIO;
        split_runs(lane);
      } else {
        drop_next(lane, error);
      }
      return true;
    case ENOBUFS:  // lost in this host's own queue, which tells because errors are asked for
      drop_next(lane, error);
      return true;
    default:
      if (++tries_ == kMaxTries) {
        drop_next(lane, error);
      }
      return true;
  }
}

// Makes a run of every datagram that is still to be sent.
void DatagramSender::split_runs(Lane& lane) const {
  std::vector<Run> split;
  for (std::size_t i = next_; i < lane.runs.size(); ++i) {
    const Run& run = lane.runs[i];
    for (std::uint32_t done = 0; done < run.bytes; done += run.segment) {
      const std::uint32_t size = std::min<std::uint32_t>(run.segment, run.bytes - done);
      split.push_back({.route = run.route,
                       .address = run.address,
                       .data = run.data + done,
                       .bytes = size,
                       .segment = static_cast<std::uint16_t>(size),
                       .segments = 1,
                       .closed = true});
    }
  }
  lane.runs.resize(next_);
  lane.runs.insert(lane.runs.end(), split.begin(), split.end());
}

void DatagramSender::drop_next(Lane& lane, int error) {
  const Run& run = lane.runs[next_];
  (error == EMSGSIZE ? counters_.too_long : counters_.refused) += run.segments;
  if (error != ENOBUFS) {
    unsent_ = Unsent{.peer = run.route.peer, .bytes = run.segment, .error = error};
  }
  tries_ = 0;
  ++next_;
}

int DatagramSender::waiting_fd() const {
  return sockets_[flushing_->runs[next_].route.path].fd();
}

}  // namespace spillway::net
