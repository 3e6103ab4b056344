// SPDX-License-Identifier: Apache-2.0
//
// A thin C++ face over spillway.h: handles that free themselves, spans, and errors as exceptions
// of one type. It adds nothing the C interface does not have; link with the same library.
#ifndef SPILLWAY_SPILLWAY_HPP
#define SPILLWAY_SPILLWAY_HPP

#include <spillway/spillway.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace spillway {

class Error : public std::runtime_error {
 public:
  explicit Error(spillway_status status)
      : std::runtime_error(std::string(spillway_status_name(status)) + ": " +
                           spillway_last_error()),
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
