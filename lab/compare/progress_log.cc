// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/progress_log.h"

#include <fcntl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>

namespace spillway::compare {
namespace {

using nlohmann::json;

// JSON has no infinity, but 1e999 is read as one.
std::optional<double> number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) {
    return std::nullopt;
  }
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<double> number_from_zero(const json& object, const char* key) {
  const std::optional<double> value = number(object, key);
  return value && *value >= 0 ? value : std::nullopt;
}

std::optional<std::uint64_t> count(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned()
             ? std::optional(found->get<std::uint64_t>())
             : std::nullopt;
}

std::optional<LogStep> step_of(const json& object) {
  const auto step = count(object, "step");
  const auto seconds = number_from_zero(object, "seconds");
  LogStep result;
  result.step_ms = number_from_zero(object, "step_ms");
  result.loss = number(object, "loss");
  const bool is_sensible = step && seconds && (result.step_ms || !object.contains("step_ms")) &&
                           (result.loss || !object.contains("loss") || object["loss"].is_null());
  if (!is_sensible) {
    return std::nullopt;
  }
  result.step = *step;
  result.seconds = *seconds;
  return result;
}

std::optional<LogEvaluation> evaluation_of(const json& object) {
  const auto step = count(object, "step");
  const auto seconds = number_from_zero(object, "seconds");
  const auto accuracy = number_from_zero(object, "accuracy");
  if (!step || !seconds || !accuracy || *accuracy > 1) {
    return std::nullopt;
  }
  return LogEvaluation{*step, *seconds, *accuracy};
}

template <typename Point>
bool keep(std::optional<Point> point, std::vector<Point>& points, std::uint64_t& left_out) {
  if (!point) {
    return false;
  }
  if (points.size() < kMaxPoints) {
    points.push_back(*point);
  } else {
    ++left_out;
  }
  return true;
}

// Returns false if the line is bad.
bool read_line(const std::string& line, ProgressLog& log) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("event") || !object["event"].is_string()) {
    return false;
  }
  const std::string event = object["event"].get<std::string>();
  if (event == "step") {
    return keep(step_of(object), log.steps, log.left_out);
  }
  if (event == "evaluation") {
    return keep(evaluation_of(object), log.evaluations, log.left_out);
  }
  if (event == "hook") {
    log.hook = object.value("by", json()) == "lab" ? HookUse::kUsed : HookUse::kScriptHasOwn;
  }
  log.has_group = log.has_group || event == "group";
  log.has_ended = log.has_ended || event == "end";
  return true;
}

}  // namespace

void ProgressLogReader::feed(std::string_view bytes) {
  for (std::size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    take_part(bytes.substr(0, end));
    end_line();
    bytes.remove_prefix(end + 1);
  }
  take_part(bytes);
}

void ProgressLogReader::finish() {
  end_line();
}

void ProgressLogReader::take_part(std::string_view part) {
  is_too_long_ = is_too_long_ || line_.size() + part.size() > kMaxLineBytes;
  if (is_too_long_) {
    line_.clear();
  } else {
    line_ += part;
  }
}

void ProgressLogReader::end_line() {
  const bool is_blank = !is_too_long_ && line_.find_first_not_of(" \t\r") == std::string::npos;
  if (!is_blank && (is_too_long_ || !read_line(line_, log_))) {
    ++log_.bad_lines;
  }
  line_.clear();
  is_too_long_ = false;
}

bool LogFollower::look() {
  if (!file_.valid()) {
    // O_NONBLOCK: the path may be a pipe that nobody writes to.
    file_ = net::UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  }
  std::array<char, 65536> buffer;
  for (std::size_t taken = 0; taken < kMaxBytesPerRead; taken += buffer.size()) {
    const ssize_t size = file_.valid() ? ::read(file_.get(), buffer.data(), buffer.size()) : 0;
    if (size <= 0) {
      return taken > 0;
    }
    reader_.feed({buffer.data(), static_cast<std::size_t>(size)});
  }
  return true;
}

void LogFollower::finish() {
  while (look()) {
  }
  reader_.finish();
}

}  // namespace spillway::compare
