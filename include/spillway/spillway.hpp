// SPDX-License-Identifier: Apache-2.0
//
// A thin C++ wrapper over spillway.h: handles that free themselves, spans, and errors as exceptions
// of one type. It adds nothing that the C interface lacks; link with the same library.
//
//   spillway::Communicator comm;                              // as the launcher says
//   comm.all_reduce(std::span(gradient));                     // in place, returns when it is done
//   spillway::Request request = comm.start_all_reduce(std::span(gradient));
//   request.wait();
//
// Threads: as in spillway.h.
#ifndef SPILLWAY_SPILLWAY_HPP
#define SPILLWAY_SPILLWAY_HPP

#include <spillway/spillway.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spillway {

class Error : public std::runtime_error {
 public:
  // Takes the message of this thread's last failed call.
  explicit Error(spillway_status status) : Error(status, spillway_last_error()) {}
  Error(spillway_status status, const std::string& message)
      : std::runtime_error(std::string(spillway_status_name(status)) + ": " + message),
        status_(status) {}
  spillway_status status() const noexcept { return status_; }

 private:
  spillway_status status_;
};

inline void check(spillway_status status) {
  if (status != SPILLWAY_OK) {
    throw Error(status);
  }
}

// ---- Communicators ----

inline spillway_unique_id make_unique_id() {
  spillway_unique_id id;
  check(spillway_unique_id_create(&id));
  return id;
}

inline spillway_comm_config default_comm_config() {
  spillway_comm_config config;
  spillway_comm_config_init(&config);
  return config;
}

inline spillway_operation_options default_operation_options() {
  spillway_operation_options options;
  spillway_operation_options_init(&options);
  return options;
}

// The bit patterns of types that C++ does not have.
enum class Float16 : std::uint16_t {};
enum class Bfloat16 : std::uint16_t {};

template <typename T>
inline constexpr std::optional<spillway_data_type> kDataTypeOf = std::nullopt;
template <>
inline constexpr std::optional<spillway_data_type> kDataTypeOf<float> = SPILLWAY_FLOAT32;
template <>
inline constexpr std::optional<spillway_data_type> kDataTypeOf<double> = SPILLWAY_FLOAT64;
template <>
inline constexpr std::optional<spillway_data_type> kDataTypeOf<Float16> = SPILLWAY_FLOAT16;
template <>
inline constexpr std::optional<spillway_data_type> kDataTypeOf<Bfloat16> = SPILLWAY_BFLOAT16;
template <>
inline constexpr std::optional<spillway_data_type> kDataTypeOf<std::int32_t> = SPILLWAY_INT32;
template <>
inline constexpr std::optional<spillway_data_type> kDataTypeOf<std::int64_t> = SPILLWAY_INT64;
template <>
inline constexpr std::optional<spillway_data_type> kDataTypeOf<std::int8_t> = SPILLWAY_INT8;
template <>
inline constexpr std::optional<spillway_data_type> kDataTypeOf<std::uint8_t> = SPILLWAY_UINT8;

template <typename T>
concept Element = kDataTypeOf<std::remove_const_t<T>>
.has_value();

// An operation in progress. The destructor waits for its end, so buffers declared before the
// request outlive the operation.
class Request {
 public:
  explicit Request(spillway_request* request) : request_(request) {}

  void wait() const { check(spillway_request_wait(request_.get(), -1)); }
  // Returns whether the operation has ended; throws if it has failed.
  bool wait_for(std::int64_t timeout_ms) const {
    const spillway_status status = spillway_request_wait(request_.get(), timeout_ms);
    if (status == SPILLWAY_IN_PROGRESS) {
      return false;
    }
    check(status);
    return true;
  }
  bool is_done() const { return spillway_request_test(request_.get()) != 0; }
  spillway_status status() const { return spillway_request_status(request_.get()); }
  std::string message() const { return spillway_request_message(request_.get()); }
  // The operation must have ended.
  spillway_operation_report report() const {
    spillway_operation_report report{};
    report.size = sizeof report;
    check(spillway_request_report(request_.get(), &report));
    return report;
  }
  // By rank.
  std::vector<spillway_peer_report> peers() const {
    std::uint32_t count = 0;
    check(spillway_request_peers(request_.get(), nullptr, 0, &count));
    std::vector<spillway_peer_report> reports(count);
    if (count > 0) {
      reports[0].size = sizeof(spillway_peer_report);
      check(spillway_request_peers(request_.get(), reports.data(), count, nullptr));
    }
    return reports;
  }
  spillway_shard_report shard_report(std::uint32_t shard) const {
    spillway_shard_report report{};
    report.size = sizeof report;
    check(spillway_request_shard_report(request_.get(), shard, &report));
    return report;
  }
  // First element and number of elements.
  std::pair<std::uint64_t, std::uint64_t> absent_range(std::uint32_t range) const {
    std::pair<std::uint64_t, std::uint64_t> extent;
    check(spillway_request_absent_range(request_.get(), range, &extent.first, &extent.second));
    return extent;
  }

 private:
  struct Free {
    void operator()(spillway_request* request) const {
      spillway_request_wait(request, -1);
      spillway_request_free(request);
    }
  };
  std::unique_ptr<spillway_request, Free> request_;
};

// Calls come in pairs: start_x() returns a request, x() returns when x has ended. Counts follow
// from the spans. Spans whose sizes do not fit each other throw Error.
class Communicator {
 public:
  explicit Communicator(const spillway_comm_config& config = default_comm_config()) {
    spillway_comm* made = nullptr;
    check(spillway_comm_create(&config, &made));
    comm_.reset(made);
  }

  std::uint32_t rank() const { return spillway_comm_rank(comm_.get()); }
  std::uint32_t world() const { return spillway_comm_world(comm_.get()); }
  void abort(const char* why) { check(spillway_comm_abort(comm_.get(), why)); }
  // Throws Error if the communicator is broken.
  void check_health() const { check(spillway_comm_error(comm_.get())); }
  spillway_comm* get() const { return comm_.get(); }

  template <Element T>
  Request start_all_reduce(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                           spillway_reduction op = SPILLWAY_SUM,
                           const spillway_operation_options* options = nullptr) {
    require(send.size() == receive.size());
    return started([&](spillway_request** request) {
      return spillway_all_reduce(get(), send.data(), receive.data(), send.size(), *kDataTypeOf<T>,
                                 op, options, request);
    });
  }
  template <Element T>
  Request start_all_reduce(std::span<T> buffer, spillway_reduction op = SPILLWAY_SUM,
                           const spillway_operation_options* options = nullptr) {
    return start_all_reduce(std::span<const T>(buffer), buffer, op, options);
  }
  template <Element T>
  void all_reduce(std::span<T> buffer, spillway_reduction op = SPILLWAY_SUM,
                  const spillway_operation_options* options = nullptr) {
    start_all_reduce(buffer, op, options).wait();
  }
  template <Element T>
  void all_reduce(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                  spillway_reduction op = SPILLWAY_SUM,
                  const spillway_operation_options* options = nullptr) {
    start_all_reduce(send, receive, op, options).wait();
  }

  template <Element T>
  Request start_reduce_scatter(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                               spillway_reduction op = SPILLWAY_SUM,
                               const spillway_operation_options* options = nullptr) {
    require(send.size() == receive.size() * world());
    return started([&](spillway_request** request) {
      return spillway_reduce_scatter(get(), send.data(), receive.data(), receive.size(),
                                     *kDataTypeOf<T>, op, options, request);
    });
  }
  template <Element T>
  void reduce_scatter(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                      spillway_reduction op = SPILLWAY_SUM,
                      const spillway_operation_options* options = nullptr) {
    start_reduce_scatter(send, receive, op, options).wait();
  }

  template <Element T>
  Request start_all_gather(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                           const spillway_operation_options* options = nullptr) {
    require(receive.size() == send.size() * world());
    return started([&](spillway_request** request) {
      return spillway_all_gather(get(), send.data(), receive.data(), send.size(), *kDataTypeOf<T>,
                                 options, request);
    });
  }
  template <Element T>
  void all_gather(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                  const spillway_operation_options* options = nullptr) {
    start_all_gather(send, receive, options).wait();
  }

  // Input at the root, output at every rank.
  template <Element T>
  Request start_broadcast(std::span<T> buffer, std::uint32_t root,
                          const spillway_operation_options* options = nullptr) {
    return started([&](spillway_request** request) {
      return spillway_broadcast(get(), buffer.data(), buffer.data(), buffer.size(), *kDataTypeOf<T>,
                                root, options, request);
    });
  }
  template <Element T>
  void broadcast(std::span<T> buffer, std::uint32_t root,
                 const spillway_operation_options* options = nullptr) {
    start_broadcast(buffer, root, options).wait();
  }

  // `receive` may be empty except at the root.
  template <Element T>
  Request start_reduce(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                       std::uint32_t root, spillway_reduction op = SPILLWAY_SUM,
                       const spillway_operation_options* options = nullptr) {
    require(rank() != root || receive.size() == send.size());
    return started([&](spillway_request** request) {
      return spillway_reduce(get(), send.data(), receive.data(), send.size(), *kDataTypeOf<T>, op,
                             root, options, request);
    });
  }
  template <Element T>
  void reduce(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
              std::uint32_t root, spillway_reduction op = SPILLWAY_SUM,
              const spillway_operation_options* options = nullptr) {
    start_reduce(send, receive, root, op, options).wait();
  }

  // `receive` may be empty except at the root.
  template <Element T>
  Request start_gather(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                       std::uint32_t root, const spillway_operation_options* options = nullptr) {
    require(rank() != root || receive.size() == send.size() * world());
    return started([&](spillway_request** request) {
      return spillway_gather(get(), send.data(), receive.data(), send.size(), *kDataTypeOf<T>, root,
                             options, request);
    });
  }
  template <Element T>
  void gather(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
              std::uint32_t root, const spillway_operation_options* options = nullptr) {
    start_gather(send, receive, root, options).wait();
  }

  // `send` may be empty except at the root.
  template <Element T>
  Request start_scatter(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                        std::uint32_t root, const spillway_operation_options* options = nullptr) {
    require(rank() != root || send.size() == receive.size() * world());
    return started([&](spillway_request** request) {
      return spillway_scatter(get(), send.data(), receive.data(), receive.size(), *kDataTypeOf<T>,
                              root, options, request);
    });
  }
  template <Element T>
  void scatter(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
               std::uint32_t root, const spillway_operation_options* options = nullptr) {
    start_scatter(send, receive, root, options).wait();
  }

  template <Element T>
  Request start_all_to_all(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                           const spillway_operation_options* options = nullptr) {
    require(send.size() == receive.size() && send.size() % world() == 0);
    return started([&](spillway_request** request) {
      return spillway_all_to_all(get(), send.data(), receive.data(), send.size() / world(),
                                 *kDataTypeOf<T>, options, request);
    });
  }
  template <Element T>
  void all_to_all(std::span<const std::type_identity_t<T>> send, std::span<T> receive,
                  const spillway_operation_options* options = nullptr) {
    start_all_to_all(send, receive, options).wait();
  }

  Request start_barrier(const spillway_operation_options* options = nullptr) {
    return started(
        [&](spillway_request** request) { return spillway_barrier(get(), options, request); });
  }
  void barrier(const spillway_operation_options* options = nullptr) {
    start_barrier(options).wait();
  }

  template <Element T>
  Request start_send(std::span<T> values, std::uint32_t to,
                     const spillway_operation_options* options = nullptr) {
    return started([&](spillway_request** request) {
      return spillway_send(get(), values.data(), values.size(),
                           *kDataTypeOf<std::remove_const_t<T>>, to, options, request);
    });
  }
  template <Element T>
  void send(std::span<T> values, std::uint32_t to,
            const spillway_operation_options* options = nullptr) {
    start_send(values, to, options).wait();
  }
  // `from` may be SPILLWAY_ANY_RANK.
  template <Element T>
  Request start_receive(std::span<T> values, std::uint32_t from,
                        const spillway_operation_options* options = nullptr) {
    return started([&](spillway_request** request) {
      return spillway_receive(get(), values.data(), values.size(), *kDataTypeOf<T>, from, options,
                              request);
    });
  }
  template <Element T>
  void receive(std::span<T> values, std::uint32_t from,
               const spillway_operation_options* options = nullptr) {
    start_receive(values, from, options).wait();
  }

 private:
  struct Free {
    void operator()(spillway_comm* comm) const { spillway_comm_free(comm); }
  };

  static void require(bool sizes_fit) {
    if (!sizes_fit) {
      throw Error(SPILLWAY_INVALID_ARGUMENT,
                  "the sizes of the buffers do not fit each other; see spillway.h for what goes "
                  "in and what comes out");
    }
  }
  template <typename Start>
  static Request started(Start&& start) {
    spillway_request* request = nullptr;
    check(std::forward<Start>(start)(&request));
    return Request(request);
  }

  std::unique_ptr<spillway_comm, Free> comm_;
};

// ---- Packets ----

inline spillway_packet_options default_options() {
  spillway_packet_options options;
  spillway_packet_options_init(&options);
  return options;
}

class Packets {
 public:
  Packets(std::span<const float> values, const spillway_packet_options& options) {
    spillway_packets* made = nullptr;
    check(spillway_packetize(values.data(), values.size(), &options, &made));
    packets_.reset(made);
  }
  std::size_t size() const { return spillway_packets_count(packets_.get()); }
  std::span<const std::uint8_t> operator[](std::size_t index) const {
    const std::uint8_t* bytes = nullptr;
    std::size_t size = 0;
    check(spillway_packets_get(packets_.get(), index, &bytes, &size));
    return {bytes, size};
  }

 private:
  struct Free {
    void operator()(spillway_packets* packets) const { spillway_packets_free(packets); }
  };
  std::unique_ptr<spillway_packets, Free> packets_;
};

class Assembly {
 public:
  Assembly(std::span<float> values, const spillway_packet_options& options) {
    spillway_assembly* made = nullptr;
    check(spillway_assembly_create(values.data(), values.size(), &options, &made));
    assembly_.reset(made);
  }
  spillway_outcome add(std::span<const std::uint8_t> packet) {
    spillway_outcome outcome{};
    check(spillway_assembly_add(assembly_.get(), packet.data(), packet.size(), &outcome));
    return outcome;
  }
  spillway_delivery_report finish() {
    spillway_delivery_report report{};
    report.size = sizeof report;
    check(spillway_assembly_finish(assembly_.get(), &report));
    return report;
  }

 private:
  struct Free {
    void operator()(spillway_assembly* assembly) const { spillway_assembly_free(assembly); }
  };
  std::unique_ptr<spillway_assembly, Free> assembly_;
};

}  // namespace spillway

#endif  // SPILLWAY_SPILLWAY_HPP
