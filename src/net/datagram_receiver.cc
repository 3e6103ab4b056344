// SPDX-License-Identifier: Apache-2.0
#include "net/datagram_receiver.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>

namespace spillway::net {
namespace {

constexpr std::size_t kJoinedBytes = 64 * 1024;
constexpr std::size_t kControlBytes = 128;
constexpr std::size_t kDatagramBytes = 9216;  // without GRO: more than any Spillway packet
constexpr std::size_t kBatch = 32;
constexpr std::size_t kBatchOfFull = 4;  // 256 KiB: a fraction of a second-level cache
// A call may fail for what was said about a datagram that left: it took nothing, and is repeated.
constexpr int kReceiveTries = 4;

}  // namespace

DatagramReceiver::DatagramReceiver(const UdpSocket& socket, const Offloads& offloads)
    : socket_(socket), max_messages_(offloads.batching ? kBatch : 1), asked_(max_messages_) {
  const std::size_t size = offloads.gro ? kJoinedBytes : kDatagramBytes;
  buffers_.resize(max_messages_ * size);
  controls_.resize(max_messages_ * kControlBytes);
  data_.resize(max_messages_);
  headers_.resize(max_messages_);
  names_.resize(max_messages_);
  for (std::size_t i = 0; i < max_messages_; ++i) {
    data_[i] = {buffers_.data() + i * size, size};
    msghdr& header = headers_[i].msg_hdr;
    header.msg_iov = &data_[i];
    header.msg_iovlen = 1;
    header.msg_control = controls_.data() + i * kControlBytes;
    header.msg_name = &names_[i];
  }
}

void DatagramReceiver::add_source(const SocketAddress& address) {
  sources_.add(address);
  knows_sources_ = true;
}

void DatagramReceiver::forget_sources() {
  sources_ = {};
  knows_sources_ = false;
}

bool DatagramReceiver::is_stranger(std::size_t message) {
  return knows_sources_ && !sources_.has(reinterpret_cast<const sockaddr*>(&names_[message]));
}

// How many messages came, or -1.
int DatagramReceiver::call() {
  for (std::size_t i = 0; i < asked_; ++i) {
    headers_[i].msg_hdr.msg_controllen = kControlBytes;
    headers_[i].msg_hdr.msg_namelen = sizeof(sockaddr_storage);
  }
  ++counters_.calls;
  if (max_messages_ > 1) {
    return ::recvmmsg(socket_.fd(), headers_.data(), static_cast<unsigned>(asked_), MSG_DONTWAIT,
                      nullptr);
  }
  const ssize_t size = ::recvmsg(socket_.fd(), &headers_[0].msg_hdr, MSG_DONTWAIT);
  headers_[0].msg_len = static_cast<unsigned>(std::max<ssize_t>(size, 0));
  return size < 0 ? -1 : 1;
}

int DatagramReceiver::receive_messages() {
  int messages = call();
  for (int i = 1; i < kReceiveTries && messages < 0 && errno != EAGAIN; ++i) {
    messages = call();
  }
  return std::max(messages, 0);
}

void DatagramReceiver::choose_next_batch(std::size_t messages, std::size_t bytes) {
  const bool are_full = bytes > messages * kJoinedBytes / 4;
  asked_ = std::min(max_messages_, are_full ? kBatchOfFull : kBatch);
}

bool DatagramReceiver::receive(base::Instant now, const DatagramHandler& handle) {
  const std::uint64_t bytes_before = counters_.bytes;
  const int messages = receive_messages();
  for (int i = 0; i < messages; ++i) {
    const Arrival arrival = read_control(headers_[i].msg_hdr, now);
    const base::ByteView bytes(static_cast<const std::uint8_t*>(data_[i].iov_base),
                               headers_[i].msg_len);
    const std::size_t step = arrival.segment == 0 ? bytes.size() : arrival.segment;
    counters_.bytes += bytes.size();
    if (is_stranger(static_cast<std::size_t>(i))) {
      counters_.strangers += (bytes.size() + step - 1) / std::max<std::size_t>(step, 1);
      continue;
    }
    for (std::size_t first = 0; first < bytes.size(); first += step) {
      ++counters_.datagrams;
      handle(bytes.subspan(first, std::min(step, bytes.size() - first)), arrival.notes.tos,
             arrival.notes.at);
    }
  }
  const bool was_full = static_cast<std::size_t>(messages) == asked_;
  choose_next_batch(static_cast<std::size_t>(messages), counters_.bytes - bytes_before);
  return was_full;
}

DatagramReceiver::Arrival DatagramReceiver::read_control(msghdr& header, base::Instant now) {
  Arrival arrival;
  arrival.notes.at = now;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO) {
      arrival.segment = static_cast<std::size_t>(control_value<int>(*control));
    } else {
      reader_.read(*control, now, arrival.notes);
    }
  }
  counters_.overflowed = reader_.overflowed();
  return arrival;
}

}  // namespace spillway::net
