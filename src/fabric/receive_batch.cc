// SPDX-License-Identifier: Apache-2.0
#include "fabric/receive_batch.h"

#include <linux/if_packet.h>

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
  for (mmsghdr& header : headers_) {  // the kernel wrote over these
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

}  // namespace spillway::fabric
