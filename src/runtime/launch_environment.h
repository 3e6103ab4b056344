// SPDX-License-Identifier: Apache-2.0
//
// The variables that a launcher left for a process, as a value: what reads them can be handed any
// environment, and tests never change the real one. A variable that is set but empty counts as not
// set, because job scripts often "unset" one that way.
//
// A plain value. of_process() reads `environ` and must not run
// while another thread calls setenv.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace spillway::runtime {

class Environment {
 public:
  Environment() = default;
  Environment(std::initializer_list<std::pair<const std::string, std::string>> variables)
      : variables_(variables) {}
  static Environment of_process();
  void set(std::string name, std::string value) {
    variables_.insert_or_assign(std::move(name), std::move(value));
  }

  bool has(std::string_view name) const { return get(name).has_value(); }
  std::optional<std::string> get(std::string_view name) const;
  std::string get_or(std::string_view name, std::string_view otherwise) const;

  // A whole number from 0 to `most`; the error names the variable.
  base::Result<std::uint32_t> number(std::string_view name, std::uint32_t most) const;
  // The same, or `otherwise` where it is not set.
  base::Result<std::uint32_t> number_or(std::string_view name, std::uint32_t most,
                                        std::uint32_t otherwise) const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

}  // namespace spillway::runtime
