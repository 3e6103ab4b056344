// SPDX-License-Identifier: Apache-2.0
//
// `spillway env`: every SPILLWAY_* variable with its current value. With --markdown it prints
// docs/environment.md.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/environment.h"
#include "tools/cli/commands.h"

namespace spillway::cli {
namespace {

struct EnvOptions {
  bool json = false;
  bool markdown = false;
};

// A variable's state in this process.
struct VariableInForce {
  bool is_set = false;
  std::optional<std::string> value;  // empty: not set, and there is no default
  base::Status status;
};

VariableInForce in_force(const base::Environment& environment, const base::Variable& variable) {
  const base::Result<base::VariableValue> value = base::value_of(environment, variable);
  VariableInForce found{
      .is_set = !value.ok() || value->is_set, .value = {}, .status = value.status()};
  const std::string text = value.ok() ? value->text : environment.get_or(variable.name, "");
  const bool is_secret = variable.kind == base::VariableKind::kSecret;
  if (!text.empty()) {
    found.value = is_secret ? "(not shown)" : text;
  }
  return found;
}

std::string_view default_text(const base::Variable& variable) {
  return variable.otherwise.empty() ? variable.otherwise_words : variable.otherwise;
}

// ------------------------------------------------------------------ text and JSON

void print_text(const base::Environment& environment) {
  std::string_view topic;
  for (const base::Variable& variable : base::kVariables) {
    if (variable.topic != topic) {
      fmt::print("{}{}\n", topic.empty() ? "" : "\n", variable.topic);
      topic = variable.topic;
    }
    const VariableInForce found = in_force(environment, variable);
    const std::string line =
        fmt::format("  {:<27}  {:<7}  {}", variable.name, found.is_set ? "set" : "default",
                    found.value.value_or(std::string(default_text(variable))));
    fmt::print("{}\n      {}\n", line.substr(0, line.find_last_not_of(' ') + 1), variable.meaning);
    if (!found.status.ok()) {
      fmt::print("      not allowed: it must be {}\n", base::allowed_values(variable));
    }
  }
  const std::vector<base::UnknownVariable> unknown = base::unknown_variables(environment);
  fmt::print("{}", unknown.empty() ? "" : "\nUnknown\n");
  for (const auto& [name, nearest] : unknown) {
    fmt::print("  {}\n      is set, but nothing reads it; the nearest name is {}\n", name, nearest);
  }
}

nlohmann::json words_of(std::string_view list) {
  nlohmann::json words = nlohmann::json::array();
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(", "), list.size());
    words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 2, list.size()));
  }
  return words;
}

nlohmann::json json_of(const base::Environment& environment, const base::Variable& variable) {
  const VariableInForce found = in_force(environment, variable);
  nlohmann::json row = {{"name", variable.name},
                        {"topic", variable.topic},
                        {"value", nullptr},
                        {"from", found.is_set ? "set" : "default"},
                        {"default", default_text(variable)},
                        {"allowed", base::allowed_values(variable)},
                        {"meaning", variable.meaning},
                        {"read_by", words_of(variable.readers)},
                        {"error", nullptr}};
  if (found.value) {
    row["value"] = *found.value;
  }
  if (!found.status.ok()) {
    row["error"] = found.status.message();
  }
  return row;
}

void print_json(const base::Environment& environment) {
  nlohmann::json out = {{"variables", nlohmann::json::array()},
                        {"unknown", nlohmann::json::array()}};
  for (const base::Variable& variable : base::kVariables) {
    out["variables"].push_back(json_of(environment, variable));
  }
  for (const auto& [name, nearest] : base::unknown_variables(environment)) {
    out["unknown"].push_back({{"name", name}, {"nearest", nearest}});
  }
  fmt::print("{}\n", out.dump(2));
}

// ------------------------------------------------------------------ docs/environment.md

constexpr std::string_view kIntroduction =
    "# Environment variables\n"
    "\n"
    "Options that are not arguments of a call or a command line. `spillway env` prints them with "
    "their current values. This\n"
    "page is generated: `spillway env --markdown > docs/environment.md`.\n"
    "\n"
    "- A variable that is set but empty counts as not set.\n"
    "- An invalid value is an error that names the variable, the value and what is allowed, with "
    "the same words everywhere:\n"
    "  when a communicator is created, when PyTorch creates a group, and when the `spillway` tool "
    "starts (exit code 2).\n"
    "- A variable that nothing reads causes a warning once, which names the nearest one.\n"
    "- An argument of a call or an option of a command overrides its variable.\n";

// Escapes bars, which would end a table cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  }
  return escaped;
}

void print_markdown() {
  fmt::print("{}", kIntroduction);
  std::string_view topic;
  for (const base::Variable& variable : base::kVariables) {
    if (variable.topic != topic) {
      topic = variable.topic;
      fmt::print(
          "\n## {}\n\n| variable | meaning | value | default | read by |\n|---|---|---|---|---|\n",
          topic);
    }
    const char* unit = variable.kind == base::VariableKind::kSeconds ? " s" : "";
    const std::string standard = variable.otherwise.empty()
                                     ? cell(variable.otherwise_words)
                                     : fmt::format("`{}`{}", variable.otherwise, unit);
    fmt::print("| `{}` | {} | {} | {} | {} |\n", variable.name, cell(variable.meaning),
               cell(base::allowed_values(variable)), standard, variable.readers);
  }
}

void run(const EnvOptions& options) {
  if (options.markdown) {
    print_markdown();
    return;
  }
  const base::Environment environment = base::Environment::of_process();
  if (options.json) {
    print_json(environment);
  } else {
    print_text(environment);
  }
  check_variables();
}

}  // namespace

void check_variables() {
  const base::Environment environment = base::Environment::of_process();
  const base::Status status = base::check(environment);
  if (!status.ok()) {
    fmt::print(stderr, "spillway: {}\n", status.message());
    throw CommandExit{kExitUsage};
  }
}

void warn_of_unknown_variables() {
  base::warn_of_unknown_variables(base::Environment::of_process(), [](const std::string& warning) {
    fmt::print(stderr, "spillway: {}\n", warning);
  });
}

void add_env(CLI::App& app) {
  const auto options = std::make_shared<EnvOptions>();
  CLI::App* command = app.add_subcommand("env", "Every SPILLWAY_* variable and the value in force");
  CLI::Option* json = command->add_flag("--json", options->json, "Print them as JSON");
  command->add_flag("--markdown", options->markdown, "Print docs/environment.md")->excludes(json);
  command->footer(
      "Names that begin with SPILLWAY_ and that nothing reads are named, too.\n"
      "Exit codes: 0 all values are allowed, 2 one is not.\n"
      "Examples:\n"
      "  spillway env\n"
      "  SPILLWAY_MTU=9000 spillway env --json");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
