// SPDX-License-Identifier: Apache-2.0
#include "net/datagrams.h"

#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/check.h"
#include "wire/packet.h"

namespace spillway::net {

// ------------------------------------------------------------------ sender

namespace {

constexpr std::size_t kMainBytes = 192 * 1024;  // fits the L2 cache
constexpr std::size_t kAsideBytes = 32 * 1024;
constexpr std::size_t kShort = 1500;      // limit for aside: copying costs less than a call
constexpr std::size_t kMaxRuns = 64;      // per call
constexpr std::size_t kNamedPerRun = 2;   // named datagrams that count roughly as one run
constexpr std::size_t kMaxSegments = 64;  // every kernel with UDP_SEGMENT takes as many
constexpr unsigned kMaxTries = 4;         // for a run whose error may belong to an earlier datagram
// Bytes above which a call takes longer than handing it to the helper.
constexpr std::size_t kWorthHelp = 48 * 1024;

// A message with its control data: DSCP and ECN, and the segment size.
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
  for (Batch* batch : {&next_out_, &leaving_.batch}) {
    batch->main.buffer.resize(kMainBytes);
    batch->aside.buffer.resize(kAsideBytes);
  }
}

void DatagramSender::set_address(std::uint16_t peer, const SocketAddress& address) {
  take_back();
  addresses_.insert_or_assign(peer, address);
}

bool DatagramSender::has_room() const {
  const RunBuffer& main = next_out_.main;
  const RunBuffer& aside = next_out_.aside;
  return !waits_ && main.used + next_out_.named_bytes + SPILLWAY_MAX_PACKET <= kMainBytes &&
         aside.used + kShort <= kAsideBytes &&
         main.runs.size() + next_out_.named.size() / kNamedPerRun < kMaxRuns &&
         aside.runs.size() < kMaxRuns;
}

base::MutableByteView DatagramSender::room() {
  SPILLWAY_CHECK(has_room());
  RunBuffer& main = next_out_.main;
  return base::MutableByteView(main.buffer)
      .subspan(main.used + next_out_.named_bytes, SPILLWAY_MAX_PACKET);
}

bool DatagramSender::extends(const RunBuffer& part, const transport::Route& route,
                             std::size_t size) const {
  if (!offloads_.gso || part.runs.empty()) {
    return false;
  }
  const Run& run = part.runs.back();
  return !run.closed && run.route == route && size <= run.segment && run.segments < kMaxSegments &&
         run.bytes + size <= kMaxRunBytes;
}

void DatagramSender::append(RunBuffer& part, const transport::Route& route,
                            std::size_t size) const {
  if (!extends(part, route, size)) {
    const auto address = addresses_.find(route.peer);
    SPILLWAY_CHECK(address != addresses_.end());
    part.runs.push_back({.route = route,
                         .address = &address->second,
                         .data = part.buffer.data() + part.used,
                         .segment = static_cast<std::uint16_t>(size)});
  }
  Run& run = part.runs.back();
  run.bytes += static_cast<std::uint32_t>(size);
  ++run.segments;
  run.closed = size < run.segment;
  part.used += size;
}

void DatagramSender::commit(const transport::Route& route, std::size_t size) {
  SPILLWAY_CHECK(size > 0 && size <= SPILLWAY_MAX_PACKET);
  RunBuffer& main = next_out_.main;
  RunBuffer& aside = next_out_.aside;
  const bool breaks_run = route.is_control && offloads_.gso && !main.runs.empty();
  const bool goes_aside = size <= kShort && (breaks_run || !next_out_.named.empty());
  const std::uint8_t* const written = main.buffer.data() + main.used + next_out_.named_bytes;
  if (!goes_aside) {
    write_named(next_out_);  // keeps the order
    std::memmove(main.buffer.data() + main.used, written, size);
    append(main, route, size);
    return;
  }
  std::memcpy(aside.buffer.data() + aside.used, written, size);
  append(aside, route, size);
}

void DatagramSender::add(const transport::Transmission& named) {
  SPILLWAY_CHECK(has_room());
  next_out_.named.push_back({named.route, named.data, named.source});
  next_out_.named_bytes += named.data_bytes;
}

void DatagramSender::wait_until_written(const wire::MessageId& message, std::uint16_t to) {
  const NamedMessage awaited{message, to};
  const bool is_next =
      std::any_of(next_out_.named.begin(), next_out_.named.end(), [&awaited](const Named& named) {
        return NamedMessage{named.stamp.message, named.route.peer} == awaited;
      });
  const bool is_leaving = !is_written_.load(std::memory_order_acquire) &&
                          std::find(leaving_messages_.begin(), leaving_messages_.end(), awaited) !=
                              leaving_messages_.end();
  if (is_next || is_leaving) {
    wait_until_written();
  }
}

void DatagramSender::wait_until_written() {
  if (!next_out_.named.empty()) {
    write_named(next_out_);
  }
  while (!is_written_.load(std::memory_order_acquire)) {
    std::this_thread::yield();  // a batch is written in microseconds
  }
}

void DatagramSender::write_named(Batch& batch) const {
  RunBuffer& main = batch.main;
  for (const Named& named : batch.named) {
    const base::MutableByteView out =
        base::MutableByteView(main.buffer).subspan(main.used, SPILLWAY_MAX_PACKET);
    append(main, named.route, writer_->write_data(named.route, named.stamp, *named.source, out));
  }
  batch.named.clear();
  batch.named_bytes = 0;
}

// Counts the next runs that leave through the same socket, up to the limit of one call.
std::size_t DatagramSender::same_socket(const RunBuffer& part) const {
  std::size_t end = leaving_.next + 1;
  while (offloads_.batching && end < part.runs.size() && end - leaving_.next < kMaxRuns &&
         part.runs[end].route.path == part.runs[leaving_.next].route.path) {
    ++end;
  }
  return end - leaving_.next;
}

// Returns how many runs were sent, or a negative errno.
int DatagramSender::send_some(const RunBuffer& part, std::size_t count) {
  std::array<OutgoingMessage, kMaxRuns> messages;
  std::array<mmsghdr, kMaxRuns> headers;
  for (std::size_t i = 0; i < count; ++i) {
    const Run& run = part.runs[leaving_.next + i];
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
  ++leaving_.counters.calls;
  const int fd = sockets_[part.runs[leaving_.next].route.path].fd();
  if (!offloads_.batching) {
    return ::sendmsg(fd, &headers[0].msg_hdr, 0) >= 0 ? 1 : -errno;
  }
  const int sent = ::sendmmsg(fd, headers.data(), static_cast<unsigned>(count), 0);
  return sent >= 0 ? sent : -errno;
}

bool DatagramSender::flush() {
  if (!take_back()) {
    send_all();
    if (!take_back()) {
      return false;
    }
  }
  if (next_out_.empty()) {
    return true;
  }
  std::swap(next_out_, leaving_.batch);
  leaving_.part = &leaving_.batch.aside;
  if (helper_ && may_help_ && leaving_.batch.main.used + leaving_.batch.named_bytes >= kWorthHelp) {
    leaving_messages_.clear();
    for (const Named& named : leaving_.batch.named) {
      const NamedMessage message{named.stamp.message, named.route.peer};
      if (leaving_messages_.empty() || leaving_messages_.back() != message) {
        leaving_messages_.push_back(message);
      }
    }
    is_written_.store(false, std::memory_order_relaxed);
    helper_->start([this] {
      try {
        write_named(leaving_.batch);
        is_written_.store(true, std::memory_order_release);
        send_all();
      } catch (const std::bad_alloc&) {
        leaving_.batch.named.clear();  // never written, so lost
        leaving_.batch.named_bytes = 0;
        leaving_.tries = 0;  // flush() retries the rest, as if a socket had no room
      }
      is_written_.store(true, std::memory_order_release);
    });
    return true;
  }
  write_named(leaving_.batch);
  if (send_all()) {
    std::swap(next_out_, leaving_.batch);  // reuses the buffer that is in a cache
  }
  return take_back();
}

bool DatagramSender::take_back() {
  if (helper_) {
    helper_->wait();
  }
  counters_ = leaving_.counters;
  offloads_.gso = offloads_.gso && !leaving_.gso_refused;
  if (leaving_.unsent) {
    unsent_ = std::exchange(leaving_.unsent, std::nullopt);
  }
  waits_ = leaving_.part != nullptr;
  return !waits_;
}

// Sends everything in leaving_; false if some has to wait.
bool DatagramSender::send_all() {
  if (leaving_.part == &leaving_.batch.aside) {
    if (!send_all(leaving_.batch.aside)) {
      return false;
    }
    leaving_.part = &leaving_.batch.main;
  }
  if (!send_all(leaving_.batch.main)) {
    return false;
  }
  leaving_.part = nullptr;
  return true;
}

bool DatagramSender::send_all(RunBuffer& part) {
  while (leaving_.next < part.runs.size()) {
    const int sent = send_some(part, same_socket(part));
    if (sent < 0) {
      if (!handle_error(-sent, part)) {
        return false;
      }
      continue;
    }
    leaving_.tries = 0;
    for (int i = 0; i < sent; ++i) {
      leaving_.counters.datagrams += part.runs[leaving_.next].segments;
      leaving_.counters.bytes += part.runs[leaving_.next].bytes;
      ++leaving_.next;
    }
  }
  part.runs.clear();
  part.used = 0;
  leaving_.next = 0;
  return true;
}

// Handles the error that stopped the next run; false if it has to wait.
bool DatagramSender::handle_error(int error, RunBuffer& part) {
  switch (error) {
    case EAGAIN:
      ++leaving_.counters.waits;
      return false;
    case EINTR:
      return true;
    case EIO:     // the driver has no checksum offload
    case EINVAL:  // a segment with headers exceeds the MTU, or GSO is unknown
      if (part.runs[leaving_.next].segments > 1) {
        leaving_.gso_refused = leaving_.gso_refused || error == EIO;
        split_runs(part);
      } else {
        drop_next(part, error);
      }
      return true;
    case ENOBUFS:  // dropped by this host's queue; reported because IP_RECVERR is on
      drop_next(part, error);
      return true;
    default:
      if (++leaving_.tries == kMaxTries) {
        drop_next(part, error);
      }
      return true;
  }
}

// Makes every datagram that is still to be sent a run of its own.
void DatagramSender::split_runs(RunBuffer& part) const {
  std::vector<Run> split(part.runs.begin(),
                         part.runs.begin() + static_cast<std::ptrdiff_t>(leaving_.next));
  for (std::size_t i = leaving_.next; i < part.runs.size(); ++i) {
    const Run& run = part.runs[i];
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
  part.runs = std::move(split);  // only now: the allocations above may fail
}

void DatagramSender::drop_next(RunBuffer& part, int error) {
  const Run& run = part.runs[leaving_.next];
  (error == EMSGSIZE ? leaving_.counters.too_long : leaving_.counters.refused) += run.segments;
  if (error != ENOBUFS) {
    leaving_.unsent = Unsent{.peer = run.route.peer, .bytes = run.segment, .error = error};
  }
  leaving_.tries = 0;
  ++leaving_.next;
}

int DatagramSender::waiting_fd() const {
  return sockets_[leaving_.part->runs[leaving_.next].route.path].fd();
}

// ------------------------------------------------------------------ receiver

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
