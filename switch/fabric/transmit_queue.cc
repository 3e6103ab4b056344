// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/transmit_queue.h"

#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace spillway::fabric {

// ------------------------------------------------------------------ batches

namespace {

void read_auxdata(const tpacket_auxdata& auxdata, Received& received) {
  received.no_checksum = (auxdata.tp_status & TP_STATUS_CSUMNOTREADY) != 0;
  if ((auxdata.tp_status & TP_STATUS_VLAN_VALID) != 0) {
    received.vlan = (std::uint32_t{auxdata.tp_vlan_tpid} << 16) | auxdata.tp_vlan_tci;
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
      read_auxdata(net::control_value<tpacket_auxdata>(*control), received);
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

// Bucket 0 is for lateness below a microsecond. Above it, buckets are linear quarters of each
// doubling: close enough, and no logarithm is needed.
std::size_t Lateness::bucket_of(base::Duration late) {
  const auto quarters = static_cast<std::uint64_t>(late.count()) * kPerDoubling / 1'000;
  if (quarters < kPerDoubling) {
    return 0;
  }
  const auto doubling = static_cast<std::size_t>(std::bit_width(quarters)) - 3;
  const std::size_t quarter = (quarters >> doubling) - kPerDoubling;
  return std::min(doubling * kPerDoubling + quarter + 1, kBuckets - 1);
}

base::Duration Lateness::end_of(std::size_t bucket) {
  const std::size_t doubling = (bucket == 0 ? 0 : bucket - 1) / kPerDoubling;
  const std::size_t quarter = bucket == 0 ? 0 : (bucket - 1) % kPerDoubling + 1;
  const std::uint64_t quarters = (kPerDoubling + quarter) << doubling;
  return base::nanoseconds(static_cast<std::int64_t>(quarters * 1'000 / kPerDoubling));
}

void Lateness::add(base::Duration late) {
  late = std::max(late, base::Duration());
  ++count_;
  sum_ += late;
  latest_ = std::max(latest_, late);
  ++buckets_[bucket_of(late)];
}

void Lateness::add(const Lateness& other) {
  count_ += other.count_;
  sum_ += other.sum_;
  latest_ = std::max(latest_, other.latest_);
  for (std::size_t i = 0; i < kBuckets; ++i) {
    buckets_[i] += other.buckets_[i];
  }
}

base::Duration Lateness::mean() const {
  return count_ == 0 ? base::Duration()
                     : base::nanoseconds(sum_.count() / static_cast<std::int64_t>(count_));
}

base::Duration Lateness::percentile(unsigned percent) const {
  const std::uint64_t wanted = (count_ * percent + 99) / 100;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets && count_ > 0; ++i) {
    seen += buckets_[i];
    if (seen >= wanted) {
      return std::min(end_of(i), latest_);
    }
  }
  return base::Duration();
}

unsigned default_writers(std::size_t ports, unsigned cores) {
  constexpr unsigned kCoresPerWriter = 4;
  return std::min(static_cast<unsigned>(ports), cores / kCoresPerWriter);
}

// ------------------------------------------------------------------ Writer

Writer::Writer() : thread_([this] { work(); }) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Writer::take(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_one();
}

void Writer::work() {
  const RealTimePriority real_time;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return;
    }
    const Job job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    job.queue->write(job.batch, job.fd);
    lock.lock();
  }
}

// ------------------------------------------------------------------ TransmitQueue

TransmitQueue::TransmitQueue(std::size_t message_bytes, std::optional<net::SocketAddress> to)
    : to_(std::move(to)) {
  batches_.push_back(std::make_unique<Slot>(message_bytes, to_));
}

void TransmitQueue::use(Writer& writer) {
  writer_ = &writer;
  while (batches_.size() < kBatches) {
    batches_.push_back(std::make_unique<Slot>(message_bytes(), to_));
  }
}

base::MutableByteView TransmitQueue::add(int fd, std::size_t bytes, std::uint8_t tos,
                                         base::Instant due) {
  if (batches_[current_]->batch.is_full()) {
    flush(fd);
  }
  return batches_[current_]->batch.add(bytes, tos, due);
}

void TransmitQueue::flush(int fd) {
  Slot& slot = *batches_[current_];
  if (slot.batch.is_empty()) {
    return;
  }
  if (writer_ == nullptr) {
    write(current_, fd);
    return;
  }
  slot.is_leaving.store(true, std::memory_order_relaxed);
  writer_->take({.queue = this, .batch = current_, .fd = fd});
  current_ = (current_ + 1) % batches_.size();
  batches_[current_]->is_leaving.wait(true, std::memory_order_acquire);
}

// Runs on the writer's thread, if there is one.
void TransmitQueue::write(std::size_t index, int fd) {
  Slot& slot = *batches_[index];
  const SendCounters written = slot.batch.send(fd);
  {
    const std::lock_guard lock(mutex_);
    counters_.sent += written.sent;
    counters_.refused += written.refused;
    counters_.late.add(written.late);
  }
  slot.is_leaving.store(false, std::memory_order_release);
  slot.is_leaving.notify_one();
}

void TransmitQueue::wait_until_written() {
  for (const auto& slot : batches_) {
    slot->is_leaving.wait(true, std::memory_order_acquire);
  }
}

SendCounters TransmitQueue::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

RealTimePriority::RealTimePriority()
    : policy_before_(::sched_getscheduler(0)), slack_before_(::prctl(PR_GET_TIMERSLACK)) {
  ::sched_getparam(0, &priority_before_);
  sched_param lowest_real_time{};
  lowest_real_time.sched_priority = 1;
  ::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest_real_time);
  ::prctl(PR_SET_TIMERSLACK, 1);
}

RealTimePriority::~RealTimePriority() {
  if (policy_before_ >= 0) {
    ::sched_setscheduler(0, policy_before_, &priority_before_);
  }
  if (slack_before_ > 0) {
    ::prctl(PR_SET_TIMERSLACK, slack_before_);
  }
}

}  // namespace spillway::fabric
