// SPDX-License-Identifier: Apache-2.0
#include "net/datagram_receiver.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

namespace spillway::net {
namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;
constexpr std::size_t kControlBytes = 128;
constexpr std::size_t kBatchWithGro = 4;  // 512 KiB: no more than a second-level cache
constexpr std::size_t kBatch = 64;
constexpr std::size_t kDatagramBytes = 9216;  // without GRO: more than any Spillway packet

template <typename T>
T value_of(const cmsghdr& control) {
  T value{};
  std::memcpy(&value, CMSG_DATA(&control), sizeof(value));
  return value;
}

bool is(const cmsghdr& control, int level, int type) {
  return control.cmsg_level == level && control.cmsg_type == type;
}

}  // namespace

DatagramReceiver::DatagramReceiver(const UdpSocket& socket, const Offloads& offloads)
    : socket_(socket),
      batch_(!offloads.batching ? 1
             : offloads.gro     ? kBatchWithGro
                                : kBatch) {
  const std::size_t size = offloads.gro ? kBufferBytes : kDatagramBytes;
  buffers_.resize(batch_ * size);
  controls_.resize(batch_ * kControlBytes);
  data_.resize(batch_);
  headers_.resize(batch_);
  for (std::size_t i = 0; i < batch_; ++i) {
    data_[i] = {buffers_.data() + i * size, size};
    msghdr& header = headers_[i].msg_hdr;
    header.msg_iov = &data_[i];
    header.msg_iovlen = 1;
    header.msg_control = controls_.data() + i * kControlBytes;
  }
}

// How many messages came.
int DatagramReceiver::receive_messages() {
  for (mmsghdr& header : headers_) {
    header.msg_hdr.msg_controllen = kControlBytes;
  }
  ++counters_.calls;
  if (batch_ > 1) {
    return std::max(0, ::recvmmsg(socket_.fd(), headers_.data(), static_cast<unsigned>(batch_),
                                  MSG_DONTWAIT, nullptr));
  }
  const ssize_t size = ::recvmsg(socket_.fd(), &headers_[0].msg_hdr, MSG_DONTWAIT);
  headers_[0].msg_len = static_cast<unsigned>(std::max<ssize_t>(size, 0));
  return size < 0 ? 0 : 1;
}

bool DatagramReceiver::receive(base::Instant now, const DatagramHandler& handle) {
  const int messages = receive_messages();
  for (int i = 0; i < messages; ++i) {
    const Arrival arrival = read_control(headers_[i].msg_hdr, now);
    const base::ByteView bytes(static_cast<const std::uint8_t*>(data_[i].iov_base),
                               headers_[i].msg_len);
    const std::size_t step = arrival.segment == 0 ? bytes.size() : arrival.segment;
    counters_.bytes += bytes.size();
    for (std::size_t first = 0; first < bytes.size(); first += step) {
      ++counters_.datagrams;
      handle(bytes.subspan(first, std::min(step, bytes.size() - first)), arrival.tos,
             arrival.arrived);
    }
  }
  return static_cast<std::size_t>(messages) == batch_;
}

DatagramReceiver::Arrival DatagramReceiver::read_control(msghdr& header, base::Instant now) {
  Arrival arrival;
  arrival.arrived = now;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (is(*control, SOL_UDP, UDP_GRO)) {
      arrival.segment = static_cast<std::size_t>(value_of<int>(*control));
    } else if (is(*control, IPPROTO_IP, IP_TOS)) {
      arrival.tos = value_of<std::uint8_t>(*control);
    } else if (is(*control, IPPROTO_IPV6, IPV6_TCLASS)) {
      arrival.tos = static_cast<std::uint8_t>(value_of<int>(*control));
    } else if (is(*control, SOL_SOCKET, SO_TIMESTAMPNS)) {
      arrival.arrived = clock_.instant_of(value_of<timespec>(*control), now);
    } else if (is(*control, SOL_SOCKET, SO_RXQ_OVFL)) {
      note_overflow(value_of<std::uint32_t>(*control));
    }
  }
  return arrival;
}

void DatagramReceiver::note_overflow(std::uint32_t total) {
  counters_.overflowed += static_cast<std::uint32_t>(total - overflow_seen_);
  overflow_seen_ = total;
}

}  // namespace spillway::net
