// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>

namespace spillway::runtime {

Environment Environment::of_process() {
  Environment environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      environment.variables_.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

std::optional<std::string> Environment::get(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end() || found->second.empty()) {
    return std::nullopt;
  }
  return found->second;
}

std::string Environment::get_or(std::string_view name, std::string_view otherwise) const {
  return get(name).value_or(std::string(otherwise));
}

base::Result<std::uint32_t> Environment::number(std::string_view name, std::uint32_t most) const {
  const std::optional<std::string> text = get(name);
  if (!text) {
    return base::invalid_argument(fmt::format("{} is not set", name));
  }
  std::uint32_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value > most) {
    return base::invalid_argument(
        fmt::format("{} is '{}': it must be a whole number from 0 to {}", name, *text, most));
  }
  return value;
}

base::Result<std::uint32_t> Environment::number_or(std::string_view name, std::uint32_t most,
                                                   std::uint32_t otherwise) const {
  return has(name) ? number(name, most) : base::Result<std::uint32_t>(otherwise);
}

}  // namespace spillway::runtime
