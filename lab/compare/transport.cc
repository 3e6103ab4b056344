// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace spillway::compare {
namespace {

constexpr const char* kCubic = "cubic";

Transport over_gloo(std::string name, std::string tcp, std::string hook, std::string control) {
  const bool is_named = name.ends_with(tcp);
  const std::string title = is_named ? name : fmt::format("{} ({})", name, tcp);
  std::vector<std::string> variables = {"SPILLWAY_LAB_BACKEND=gloo",
                                        fmt::format("SPILLWAY_LAB_HOOK={}", hook)};
  return {
      std::move(name),     title, "gloo", std::move(tcp), std::move(hook), std::move(control), "",
      std::move(variables)};
}

// A variable that is set but empty counts as unset, so the caller's own value has no effect.
Transport over_spillway(std::string name, std::string control, std::string_view carrier,
                        std::vector<std::string> variables) {
  const std::string title = carrier == "tcp" ? fmt::format("{} ({})", name, kCubic) : name;
  variables.emplace_back("SPILLWAY_LAB_BACKEND=spillway");
  variables.emplace_back("SPILLWAY_LAB_HOOK=");
  variables.push_back(fmt::format("SPILLWAY_CARRIER={}", carrier));
  variables.emplace_back("SPILLWAY_TCP_CONGESTION=");  // the host's, which the lab sets
  const std::string flat = name == "spillway" ? "spillway-flat" : "";
  return {std::move(name),    title, "spillway",          kCubic, "",
          std::move(control), flat,  std::move(variables)};
}

const std::vector<Transport>& known_transports() {
  static const std::vector<Transport> kTransports = {
      over_gloo("tcp", kCubic, "", "tcp"),
      over_gloo("tcp-bbr", "bbr", "", "tcp"),
      over_gloo("tcp-fp16", kCubic, "fp16", "tcp-fp16"),
      over_gloo("tcp-powersgd", kCubic, "powersgd", "tcp-powersgd"),
      over_spillway("spillway-exact", "tcp", "udp", {"SPILLWAY_MODE=exact"}),
      over_spillway(
          "spillway-16", "tcp-fp16", "udp",
          {"SPILLWAY_MODE=tolerant", "SPILLWAY_PRECISION=16", "SPILLWAY_GATHER_PRECISION=16"}),
      over_spillway("spillway", "spillway-over-tcp", "udp", {"SPILLWAY_MODE=tolerant"}),
      over_spillway("spillway-flat", "spillway-over-tcp", "udp",
                    {"SPILLWAY_MODE=tolerant", "SPILLWAY_PRIORITY=0"}),
      over_spillway("spillway-over-tcp", "spillway-over-tcp", "tcp", {"SPILLWAY_MODE=tolerant"})};
  return kTransports;
}

base::Result<Transport> find_transport(std::string_view name) {
  std::string known;
  for (const Transport& transport : known_transports()) {
    if (transport.name == name) {
      return transport;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", transport.name);
  }
  return base::invalid_argument(fmt::format("unknown transport '{}'; known are {}", name, known));
}

using Replacement = std::pair<std::string_view, std::string_view>;

// The placeholder at the beginning of `text`, or null.
const Replacement* placeholder_at(std::string_view text, std::span<const Replacement> all) {
  const auto found = std::find_if(all.begin(), all.end(), [text](const Replacement& one) {
    return text.starts_with(one.first);
  });
  return found == all.end() ? nullptr : &*found;
}

// In one pass, so that inserted text is not replaced again.
std::string replaced(std::string_view word, std::span<const Replacement> replacements) {
  std::string result;
  while (!word.empty()) {
    if (const Replacement* one = placeholder_at(word, replacements); one != nullptr) {
      result += one->second;
      word.remove_prefix(one->first.size());
    } else {
      result += word.front();
      word.remove_prefix(1);
    }
  }
  return result;
}

}  // namespace

base::Result<std::vector<Transport>> parse_transports(std::string_view names) {
  std::vector<Transport> transports;
  while (true) {
    const std::size_t comma = names.find(',');
    base::Result<Transport> transport = find_transport(names.substr(0, comma));
    if (!transport.ok()) {
      return transport.status();
    }
    const std::string& name = transport->name;
    if (std::any_of(transports.begin(), transports.end(),
                    [&name](const Transport& other) { return other.name == name; })) {
      return base::invalid_argument(fmt::format("transport '{}' is named twice", name));
    }
    transports.push_back(std::move(transport).value());
    if (comma == std::string_view::npos) {
      return transports;
    }
    names.remove_prefix(comma + 1);
  }
}

std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const Transport& transport, const std::string& log) {
  const Replacement replacements[] = {
      {"{backend}", transport.backend}, {"{transport}", transport.name}, {"{log}", log}};
  std::vector<std::string> words;
  for (const std::string& word : command) {
    words.push_back(replaced(word, replacements));
  }
  return words;
}

bool tells_transports_apart(const std::vector<std::string>& command) {
  return std::any_of(command.begin(), command.end(), [](const std::string& word) {
    return word.find("{backend}") != std::string::npos ||
           word.find("{transport}") != std::string::npos;
  });
}

}  // namespace spillway::compare
