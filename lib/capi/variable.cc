// SPDX-License-Identifier: Apache-2.0
//
// spillway_variable() of include/spillway/spillway.h: the table of variables (base/variables.h) for
// other languages, so that ranges and defaults are defined once.
#include <fmt/format.h>
#include <spillway/spillway.h>

#include <cstring>

#include "base/environment.h"
#include "capi/last_error.h"

namespace spillway::capi {
namespace {

base::Result<base::VariableValue> variable_named(std::string_view name) {
  const base::Variable* variable = base::find_variable(name);
  if (variable == nullptr) {
    return base::invalid_argument(fmt::format("nothing reads a variable {}; the nearest name is {}",
                                              name, base::nearest_variable(name)));
  }
  return base::value_of(base::Environment::of_process(), *variable);
}

}  // namespace
}  // namespace spillway::capi

spillway_status spillway_variable(const char* name, char* text, size_t size, int* is_set) {
  if (name == nullptr || text == nullptr) {
    return spillway::capi::missing(name == nullptr ? "name" : "text");
  }
  return spillway::capi::guarded([&] {
    const auto value = spillway::capi::variable_named(name);
    if (!value.ok()) {
      return spillway::capi::fail(value.status());
    }
    if (value->text.size() >= size) {
      return spillway::capi::fail(
          SPILLWAY_LIMIT_EXCEEDED,
          fmt::format("the value of {} has {} bytes: give room for one more", name,
                      value->text.size()));
    }
    std::memcpy(text, value->text.c_str(), value->text.size() + 1);
    if (is_set != nullptr) {
      *is_set = value->is_set ? 1 : 0;
    }
    return SPILLWAY_OK;
  });
}
