// SPDX-License-Identifier: Apache-2.0
//
// A process's environment as a value. Readers can be given any environment, and tests never change
// the real one. A variable that is set but empty counts as unset, because job scripts often unset
// one that way.
//
// SPILLWAY_* variables are read through the table (base/variables.h), which holds range and
// default. An invalid value gives the same error everywhere:
//
//   SPILLWAY_MTU is '70000': it must be a whole number from 576 to 65536
//
// check() validates all of them at once, when a communicator is made and when the tool starts, so
// that typing errors surface early; warn_of_unknown_variables() then names variables that nothing
// reads. Whether an address is usable only a system call can tell; its user reports that with
// refusal().
//
// A plain value. of_process() must not run while another thread calls setenv.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "base/variables.h"

namespace spillway::base {

struct NumberRange {
  std::uint32_t least = 0;
  std::uint32_t most = 0;
};

class Environment {
 public:
  using Number = VariableWithDefault<VariableKind::kNumber>;
  using OptionalNumber = VariableWithoutDefault<VariableKind::kNumber>;
  using Seconds = VariableWithDefault<VariableKind::kSeconds>;
  using Flag = VariableWithDefault<VariableKind::kFlag>;
  using Text = VariableOf<VariableKind::kText, VariableKind::kPath>;
  using Checked = VariableOf<VariableKind::kChoice, VariableKind::kChoices, VariableKind::kPlace,
                             VariableKind::kAddress, VariableKind::kListen,
                             VariableKind::kAddresses, VariableKind::kSecret>;

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
  // Names of the variables that are set, in alphabetical order.
  std::vector<std::string> names_with_prefix(std::string_view prefix) const;

  // The value of a variable in the table, else its default. Optional ones have no default.
  Result<std::int64_t> number(Number name) const;
  Result<std::optional<std::int64_t>> optional_number(OptionalNumber name) const;
  Result<Duration> seconds(Seconds name) const;
  Result<bool> flag(Flag name) const;
  std::string text(Text name) const;
  // A choice in the table's spelling, other kinds as they were set; empty if unset
  // without a default.
  Result<std::string> checked_text(Checked name) const;

  // A launcher's variable, which must be set. Errors read as for the table's variables.
  Result<std::uint32_t> number_of(std::string_view name, const NumberRange& range) const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

// The text of a variable in the table, else its default, which may be empty.
struct VariableValue {
  std::string text;
  bool is_set = false;
};
Result<VariableValue> value_of(const Environment& environment, const Variable& variable);

// Fails if any variable that is set has an invalid value; the message lists all of them.
Status check(const Environment& environment);

// For example "a whole number from 576 to 65536".
std::string allowed_values(const Variable& variable);

// For example "SPILLWAY_MTU is '70000': it must be ...".
Status refusal(const Variable& variable, std::string_view value);

// SPILLWAY_* variables that are set but in neither table, each with the nearest known name.
struct UnknownVariable {
  std::string name;
  std::string_view nearest;
};
std::vector<UnknownVariable> unknown_variables(const Environment& environment);

// Calls `warn` with a sentence for each of them. Only the first call in a process does so, because
// the tool and each of its communicators check variables.
void warn_of_unknown_variables(const Environment& environment,
                               const std::function<void(const std::string&)>& warn);

// The name of a public variable with the smallest edit distance.
std::string_view nearest_variable(std::string_view name);

}  // namespace spillway::base
