// SPDX-License-Identifier: Apache-2.0
//
// spillway_request_* of include/spillway/spillway.h.
#include "capi/handles.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

using spillway::capi::fail;
using spillway::capi::status_of;
using spillway::capi::write_sized;
using spillway::collective::OperationReport;
using spillway::collective::PeerDelivery;
using spillway::collective::ShardDelivery;

namespace spillway::capi {

void CallbackCall::run(const base::Status& status) {
  callback_(context_, status_of(status.code()), status.message().c_str());
  has_returned_ = true;
  has_returned_.notify_all();
}

}  // namespace spillway::capi

std::optional<spillway::base::Status> spillway_request::wait(
    std::optional<std::chrono::nanoseconds> limit) const {
  std::optional<spillway::base::Status> status = request->wait(limit);
  if (status && callback) {
    callback->wait_until_returned();
  }
  return status;
}

namespace {

// Longer limits mean no limit, which keeps the nanoseconds from overflowing.
constexpr std::int64_t kLongestWaitMs = std::int64_t{366} * 24 * 3600 * 1000;

std::optional<std::chrono::nanoseconds> limit_of(std::int64_t timeout_ms) {
  if (timeout_ms < 0 || timeout_ms > kLongestWaitMs) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(timeout_ms);
}

spillway_status outcome_of(const std::optional<spillway::base::Status>& status) {
  if (!status) {
    return SPILLWAY_IN_PROGRESS;
  }
  return status->ok() ? SPILLWAY_OK : fail(*status);
}

spillway_operation_report report_of(const OperationReport& from) {
  const PeerDelivery total = from.total();
  spillway_operation_report to{};
  to.duration_ns = static_cast<std::uint64_t>((from.finished - from.queued).count());
  to.packets_whole = total.whole;
  to.packets_trimmed = total.trimmed;
  to.packets_missing = total.missing;
  to.packets_sent = from.packets_sent;
  to.packets_repeated = from.packets_repeated;
  to.wire_bytes_sent = from.wire_bytes_sent;
  to.contributors = from.contributors;
  to.empty_shards = from.empty_shards;
  to.peers = static_cast<std::uint32_t>(from.peers.size());
  to.algorithm = static_cast<std::uint32_t>(from.algorithm);
  // The report of a receive from any rank names the rank that sent.
  const bool is_receive = from.operation.kind == spillway::collective::Kind::kReceive &&
                          from.operation.root != spillway::collective::kAnyRank;
  to.source = is_receive ? from.operation.root : SPILLWAY_ANY_RANK;
  to.codec = from.operation.tolerance ? static_cast<std::uint32_t>(from.operation.tolerance->codec)
                                      : std::uint32_t{SPILLWAY_CODEC_PLANES};
  to.absent_elements = from.absent_elements();
  to.absent_ranges = static_cast<std::uint32_t>(from.absent.size());
  to.shards = static_cast<std::uint32_t>(from.shards.size());
  to.parts_added = from.sums.added;
  to.parts_alone = from.sums.alone;
  to.chunks_flushed = from.sums.flushed;
  to.values_clipped = from.sums.clipped + from.entropy.clipped;
  to.entropy_values = from.entropy.values();
  to.entropy_bytes = from.entropy.bytes();
  to.entropy_tables = from.entropy.tables();
  to.sketch_predicted = from.entropy.sketch.predicted;
  to.sketch_misses = from.entropy.sketch.misses;
  to.sketch_unrecovered = from.entropy.sketch.unrecovered;
  const auto nanoseconds = [](spillway::base::Duration duration) {
    return static_cast<std::uint64_t>(duration.count());
  };
  to.encode_ns = nanoseconds(from.parts.encode);
  to.to_host_ns = nanoseconds(from.parts.to_host);
  to.exchange_ns = nanoseconds(from.parts.exchange);
  to.to_device_ns = nanoseconds(from.parts.to_device);
  to.decode_ns = nanoseconds(from.parts.decode);
  to.gpu_wait_ns = nanoseconds(from.parts.waits);
  to.gpu_bytes = from.device_bytes;
  return to;
}

spillway_shard_report report_of(const ShardDelivery& from) {
  spillway_shard_report to{};
  to.first = from.extent.first;
  to.count = from.extent.count;
  to.owner = from.owner;
  to.contributors = from.contributors;
  return to;
}

spillway_peer_report report_of(const PeerDelivery& from) {
  spillway_peer_report to{};
  to.packets_whole = from.whole;
  to.packets_trimmed = from.trimmed;
  to.packets_missing = from.missing;
  to.late = from.late ? 1 : 0;
  return to;
}

spillway_status no_request() {
  return fail(SPILLWAY_INVALID_ARGUMENT, "request is NULL");
}

// Calls `write` with the report, if the request is done.
template <typename Write>
spillway_status with_report(const spillway_request* request, Write write) {
  if (request == nullptr) {
    return no_request();
  }
  return spillway::capi::guarded([&] {
    return request->request->is_done() ? write(request->request->report()) : SPILLWAY_IN_PROGRESS;
  });
}

template <typename Report>
spillway_status write_report(const Report& value, Report* out, const char* name) {
  const spillway::base::Status status = write_sized(value, out, name);
  return status.ok() ? SPILLWAY_OK : fail(status);
}

spillway_status no_such(std::string_view what, std::uint32_t index, std::size_t count) {
  return fail(SPILLWAY_INVALID_ARGUMENT,
              fmt::format("the report has {0} {1}s, no {1} {2}", count, what, index));
}

}  // namespace

spillway_status spillway_request_wait(const spillway_request* request, int64_t timeout_ms) {
  if (request == nullptr) {
    return no_request();
  }
  return spillway::capi::guarded([&] {
    if (request->process != ::getpid() && !request->request->is_done()) {
      return fail(SPILLWAY_INVALID_ARGUMENT,
                  fmt::format("this request belongs to process {}: a child of fork() would wait "
                              "for ever",
                              request->process));
    }
    return outcome_of(request->wait(limit_of(timeout_ms)));
  });
}

int spillway_request_test(const spillway_request* request) {
  return request != nullptr && request->request->is_done() ? 1 : 0;
}

spillway_status spillway_request_status(const spillway_request* request) {
  if (request == nullptr) {
    return no_request();
  }
  return spillway::capi::guarded(
      [&] { return outcome_of(request->request->wait(std::chrono::nanoseconds(0))); });
}

const char* spillway_request_message(const spillway_request* request) {
  if (request == nullptr || !request->request->is_done()) {
    return "";
  }
  const std::lock_guard lock(request->mutex);
  spillway::capi::guarded([&] {
    if (request->message.empty()) {
      request->message = request->request->wait(std::nullopt)->message();
    }
    return SPILLWAY_OK;
  });
  return request->message.c_str();
}

void spillway_request_free(spillway_request* request) {
  delete request;
}

spillway_status spillway_request_report(const spillway_request* request,
                                        spillway_operation_report* report) {
  return with_report(request, [&](const OperationReport& full) {
    return write_report(report_of(full), report, "spillway_operation_report");
  });
}

spillway_status spillway_request_peers(const spillway_request* request,
                                       spillway_peer_report* reports, uint32_t capacity,
                                       uint32_t* count) {
  if (request != nullptr && reports == nullptr && capacity > 0) {
    return spillway::capi::missing("reports");
  }
  return with_report(request, [&](const OperationReport& full) {
    const std::size_t written = std::min<std::size_t>(capacity, full.peers.size());
    const std::size_t size = written > 0 ? reports->size : 0;
    auto* entry = reinterpret_cast<unsigned char*>(reports);
    for (std::size_t rank = 0; rank < written; ++rank, entry += size) {
      // The caller's struct may be larger or smaller than ours: only its size is certain.
      auto* const report = reinterpret_cast<spillway_peer_report*>(entry);
      std::memcpy(entry, &size, sizeof size);
      if (const spillway_status status =
              write_report(report_of(full.peers[rank]), report, "spillway_peer_report");
          status != SPILLWAY_OK) {
        return status;
      }
    }
    if (count != nullptr) {
      *count = static_cast<std::uint32_t>(full.peers.size());
    }
    return SPILLWAY_OK;
  });
}

spillway_status spillway_request_shard_report(const spillway_request* request, uint32_t shard,
                                              spillway_shard_report* report) {
  return with_report(request, [&](const OperationReport& full) {
    return shard < full.shards.size()
               ? write_report(report_of(full.shards[shard]), report, "spillway_shard_report")
               : no_such("shard", shard, full.shards.size());
  });
}

spillway_status spillway_request_absent_range(const spillway_request* request, uint32_t range,
                                              uint64_t* first, uint64_t* count) {
  if (request != nullptr && (first == nullptr || count == nullptr)) {
    return fail(SPILLWAY_INVALID_ARGUMENT, "first or count is NULL");
  }
  return with_report(request, [&](const OperationReport& full) {
    if (range >= full.absent.size()) {
      return no_such("absent range", range, full.absent.size());
    }
    *first = full.absent[range].first;
    *count = full.absent[range].count;
    return SPILLWAY_OK;
  });
}
