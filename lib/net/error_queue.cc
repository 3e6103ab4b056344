// SPDX-License-Identifier: Apache-2.0
#include "net/error_queue.h"

#include <linux/errqueue.h>
#include <sys/socket.h>

#include <array>

#include "net/arrival_notes.h"

namespace spillway::net {
namespace {

constexpr std::size_t kQuoteBytes = 1500;
constexpr std::size_t kErrorControlBytes = 512;

bool is_error_note(const cmsghdr& control) {
  return (control.cmsg_level == IPPROTO_IP && control.cmsg_type == IP_RECVERR) ||
         (control.cmsg_level == IPPROTO_IPV6 && control.cmsg_type == IPV6_RECVERR);
}

void take_notes(msghdr& header, SocketError& error) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (is_error_note(*control)) {
      const auto note = control_value<sock_extended_err>(*control);
      error.error = static_cast<int>(note.ee_errno);
      error.from_network =
          note.ee_origin == SO_EE_ORIGIN_ICMP || note.ee_origin == SO_EE_ORIGIN_ICMP6;
    }
  }
}

// False if none is waiting.
bool read_error(int fd, const ErrorHandler& handle) {
  std::array<std::uint8_t, kQuoteBytes> quote;
  alignas(cmsghdr) std::array<char, kErrorControlBytes> control{};
  sockaddr_storage to{};
  iovec data{quote.data(), quote.size()};
  msghdr header{};
  header.msg_name = &to;
  header.msg_namelen = sizeof(to);
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(fd, &header, MSG_ERRQUEUE | MSG_DONTWAIT);
  if (size < 0) {
    return false;
  }
  SocketError error{.quoted = base::ByteView(quote).first(static_cast<std::size_t>(size))};
  take_notes(header, error);
  if (to.ss_family == AF_INET || to.ss_family == AF_INET6) {
    error.to = SocketAddress::from(to);
  }
  handle(error);
  return true;
}

}  // namespace

void read_errors(const UdpSocket& socket, const ErrorHandler& handle) {
  int read = 0;
  while (read < kMaxErrorsRead && read_error(socket.fd(), handle)) {
    ++read;
  }
  int pending = 0;
  socklen_t size = sizeof(pending);
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &pending, &size);
}

}  // namespace spillway::net
