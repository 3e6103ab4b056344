// SPDX-License-Identifier: Apache-2.0
#include "net/datagram_receiver.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace spillway::net {
namespace {

constexpr std::size_t kJoinedBytes = 64 * 1024;
constexpr std::size_t kControlBytes = 128;
constexpr std::size_t kDatagramBytes = 9216;  // without GRO: longer than any Spillway packet
constexpr std::size_t kBatch = 32;
constexpr std::size_t kBatchOfFull = 4;  // 256 KiB: a fraction of the L2 cache
// A call may fail with an error about an earlier datagram. It received nothing and is repeated.
constexpr int kReceiveTries = 4;

}  // namespace

DatagramReceiver::DatagramReceiver(const UdpSocket& socket, const Offloads& offloads)
    : socket_(socket),
      max_messages_(offloads.batching ? kBatch : 1),
      buffer_bytes_(offloads.gro ? kJoinedBytes : kDatagramBytes),
      asked_(max_messages_) {
  prepare(batch_);
}

void DatagramReceiver::use_helper(std::unique_ptr<HelperThread> helper) {
  prepare(ahead_);
  helper_ = std::move(helper);
}

void DatagramReceiver::prepare(Batch& batch) const {
  batch.buffers.resize(max_messages_ * buffer_bytes_);
  batch.controls.resize(max_messages_ * kControlBytes);
  batch.data.resize(max_messages_);
  batch.headers.resize(max_messages_);
  batch.names.resize(max_messages_);
  for (std::size_t i = 0; i < max_messages_; ++i) {
    batch.data[i] = {batch.buffers.data() + i * buffer_bytes_, buffer_bytes_};
    msghdr& header = batch.headers[i].msg_hdr;
    header.msg_iov = &batch.data[i];
    header.msg_iovlen = 1;
    header.msg_control = batch.controls.data() + i * kControlBytes;
    header.msg_name = &batch.names[i];
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

bool DatagramReceiver::is_stranger(const sockaddr_storage& name) {
  return knows_sources_ && !sources_.has(reinterpret_cast<const sockaddr*>(&name));
}

std::size_t DatagramReceiver::Batch::bytes() const {
  std::size_t bytes = 0;
  for (int i = 0; i < came; ++i) {
    bytes += headers[static_cast<std::size_t>(i)].msg_len;
  }
  return bytes;
}

// Returns how many messages arrived, or -1.
int DatagramReceiver::call(Batch& batch) const {
  for (std::size_t i = 0; i < batch.asked; ++i) {
    batch.headers[i].msg_hdr.msg_controllen = kControlBytes;
    batch.headers[i].msg_hdr.msg_namelen = sizeof(sockaddr_storage);
  }
  ++batch.calls;
  if (max_messages_ > 1) {
    return ::recvmmsg(socket_.fd(), batch.headers.data(), static_cast<unsigned>(batch.asked),
                      MSG_DONTWAIT, nullptr);
  }
  const ssize_t size = ::recvmsg(socket_.fd(), &batch.headers[0].msg_hdr, MSG_DONTWAIT);
  batch.headers[0].msg_len = static_cast<unsigned>(std::max<ssize_t>(size, 0));
  return size < 0 ? -1 : 1;
}

void DatagramReceiver::fill(Batch& batch, std::size_t asked) const {
  batch.asked = asked;
  batch.calls = 0;
  batch.came = call(batch);
  for (int i = 1; i < kReceiveTries && batch.came < 0 && errno != EAGAIN; ++i) {
    batch.came = call(batch);
  }
  batch.came = std::max(batch.came, 0);
}

bool DatagramReceiver::receive(base::Instant now, const DatagramHandler& handle) {
  if (reads_ahead_) {
    helper_->wait();
    reads_ahead_ = false;
    std::swap(batch_, ahead_);
  } else {
    fill(batch_, asked_);
  }
  const bool was_full = static_cast<std::size_t>(batch_.came) == batch_.asked;
  const bool are_long = batch_.bytes() > static_cast<std::size_t>(batch_.came) * kJoinedBytes / 4;
  asked_ = std::min(max_messages_, are_long ? kBatchOfFull : kBatch);
  if (helper_ && was_full && are_long) {
    reads_ahead_ = true;
    helper_->start([this] { fill(ahead_, asked_); });
  }
  hand_on(batch_, now, handle);
  return was_full;
}

void DatagramReceiver::hand_on(Batch& batch, base::Instant now, const DatagramHandler& handle) {
  counters_.calls += batch.calls;
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch.came); ++i) {
    const Arrival arrival = read_control(batch.headers[i].msg_hdr, now);
    const base::ByteView bytes(static_cast<const std::uint8_t*>(batch.data[i].iov_base),
                               batch.headers[i].msg_len);
    const std::size_t step = arrival.segment == 0 ? bytes.size() : arrival.segment;
    counters_.bytes += bytes.size();
    if (is_stranger(batch.names[i])) {
      counters_.strangers += (bytes.size() + step - 1) / std::max<std::size_t>(step, 1);
      continue;
    }
    for (std::size_t first = 0; first < bytes.size(); first += step) {
      ++counters_.datagrams;
      handle(bytes.subspan(first, std::min(step, bytes.size() - first)), arrival.notes.tos,
             arrival.notes.at);
    }
  }
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
