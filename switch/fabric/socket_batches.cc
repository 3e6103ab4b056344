// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/socket_batches.h"

#include <linux/if_packet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"

namespace spillway::fabric {
namespace {

void read_remarks(const tpacket_auxdata& remarks, Received& received) {
  received.no_checksum = (remarks.tp_status & TP_STATUS_CSUMNOTREADY) != 0;
  if ((remarks.tp_status & TP_STATUS_VLAN_VALID) != 0) {
    received.vlan = (std::uint32_t{remarks.tp_vlan_tpid} << 16) | remarks.tp_vlan_tci;
  }
}

}  // namespace

ReceiveBatch::ReceiveBatch(std::size_t message_bytes)
    : buffers_(kMessages * (kHeadroom + message_bytes)),
      controls_(kMessages * kControlBytes / sizeof(std::uint64_t)),
      senders_(kMessages),
      data_(kMessages),
      headers_(kMessages) {
  for (std::size_t i = 0; i < kMessages; ++i) {
    data_[i] = {&buffers_[i * (kHeadroom + message_bytes) + kHeadroom], message_bytes};
    headers_[i].msg_hdr.msg_iov = &data_[i];
    headers_[i].msg_hdr.msg_iovlen = 1;
    headers_[i].msg_hdr.msg_name = &senders_[i];
    headers_[i].msg_hdr.msg_control = &controls_[i * kControlBytes / sizeof(std::uint64_t)];
  }
}

std::size_t ReceiveBatch::receive(int fd) {
  for (mmsghdr& header : headers_) {  // the kernel overwrites these
    header.msg_hdr.msg_namelen = sizeof(sockaddr_storage);
    header.msg_hdr.msg_controllen = kControlBytes;
  }
  const int count = ::recvmmsg(fd, headers_.data(), kMessages, MSG_DONTWAIT, nullptr);
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

Received ReceiveBatch::message(std::size_t index, base::Instant now) {
  mmsghdr& header = headers_[index];
  Received received;
  received.bytes = {static_cast<std::uint8_t*>(data_[index].iov_base), header.msg_len};
  received.notes.at = now;
  received.is_cut = (header.msg_hdr.msg_flags & MSG_TRUNC) != 0;
  received.from = &senders_[index];
  read_control(header.msg_hdr, now, received);
  return received;
}

void ReceiveBatch::read_control(msghdr& header, base::Instant now, Received& received) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level == SOL_PACKET && control->cmsg_type == PACKET_AUXDATA) {
      read_remarks(net::control_value<tpacket_auxdata>(*control), received);
    } else {
      reader_.read(*control, now, received.notes);
    }
  }
}

SendBatch::SendBatch(std::size_t message_bytes, std::optional<net::SocketAddress> to)
    : message_bytes_(message_bytes),
      to_(to),
      buffers_(kMessages * message_bytes),
      controls_(kMessages * kControlBytes / sizeof(std::uint64_t)),
      data_(kMessages),
      headers_(kMessages),
      due_(kMessages) {
  for (std::size_t i = 0; i < kMessages; ++i) {
    msghdr& header = headers_[i].msg_hdr;
    data_[i] = {&buffers_[i * message_bytes], message_bytes};
    header.msg_iov = &data_[i];
    header.msg_iovlen = 1;
    if (to_) {
      header.msg_name = const_cast<sockaddr*>(to_->data());  // the kernel only reads it
      header.msg_namelen = to_->size();
      header.msg_control = &controls_[i * kControlBytes / sizeof(std::uint64_t)];
      header.msg_controllen = kControlBytes;
    }
  }
}

base::MutableByteView SendBatch::add(std::size_t bytes, std::uint8_t tos, base::Instant due) {
  SPILLWAY_CHECK(bytes <= message_bytes_ && !is_full());
  const std::size_t index = gathered_++;
  data_[index].iov_len = bytes;
  due_[index] = due;
  if (to_) {
    write_class(index, tos);
  }
  return {&buffers_[index * message_bytes_], bytes};
}

void SendBatch::write_class(std::size_t index, std::uint8_t tos) {
  cmsghdr* control = CMSG_FIRSTHDR(&headers_[index].msg_hdr);
  control->cmsg_level = to_->is_ipv6() ? IPPROTO_IPV6 : IPPROTO_IP;
  control->cmsg_type = to_->is_ipv6() ? IPV6_TCLASS : IP_TOS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  const int value = tos;
  std::memcpy(CMSG_DATA(control), &value, sizeof(value));
}

// The kernel stops at a message that it refuses, and reports the error if that message is the
// first. A full queue refuses the others as well; any other error concerns only that message.
SendCounters SendBatch::send(int fd) {
  SendCounters counters;
  counters.late = lateness();
  for (std::size_t next = 0; next < gathered_;) {
    const int count =
        ::sendmmsg(fd, &headers_[next], static_cast<unsigned>(gathered_ - next), MSG_DONTWAIT);
    if (count > 0) {
      counters.sent += static_cast<std::uint64_t>(count);
      next += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      counters.refused += gathered_ - next;
      break;
    } else {
      ++counters.refused;
      ++next;
    }
  }
  gathered_ = 0;
  return counters;
}

Lateness SendBatch::lateness() const {
  const base::Instant now = base::MonotonicClock().now();
  Lateness late;
  for (std::size_t i = 0; i < gathered_; ++i) {
    late.add(now - due_[i]);
  }
  return late;
}

}  // namespace spillway::fabric
