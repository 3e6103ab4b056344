// SPDX-License-Identifier: Apache-2.0
#include "doctor/offload_support.h"

#include <fmt/format.h>

#include <string_view>

namespace spillway::doctor {
namespace {

struct Offload {
  std::string_view check;
  std::string_view variable;
  std::string_view buys;
  std::string_view since;  // which kernel has it
};

Finding check_one(const Offload& offload, bool wanted, bool available) {
  const std::string check(offload.check);
  if (!wanted) {
    return {check, Severity::kNote, fmt::format("turned off by {}=0", offload.variable),
            fmt::format("unset {}", offload.variable)};
  }
  if (!available) {
    return {check, Severity::kWarning, fmt::format("the kernel does not have it: {}", offload.buys),
            fmt::format("use {} or newer", offload.since)};
  }
  return {check, Severity::kOk, fmt::format("on: {}", offload.buys)};
}

}  // namespace

Findings check_offloads(const net::Offloads& wanted, const net::Offloads& available) {
  return {
      check_one({"gso", "SPILLWAY_GSO", "many datagrams leave in one call", "Linux 4.18"},
                wanted.gso, available.gso),
      check_one({"gro", "SPILLWAY_GRO", "many datagrams arrive in one call", "Linux 5.0"},
                wanted.gro, available.gro),
      check_one({"batching", "SPILLWAY_BATCHING", "several calls are made in one", "Linux 3.0"},
                wanted.batching, available.batching),
  };
}

}  // namespace spillway::doctor
