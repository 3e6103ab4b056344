// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "emulate/stage/calibration.h"
#include "emulate/stage/stage.h"
#include "launch/launch.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/emulate_options.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

// `spillway emulate calibrate`: measures collectives on the network of this process.

using nlohmann::json;

constexpr std::uint64_t kMostCalibrated = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostAtOnce = std::uint64_t{256} << 20;  // every rank holds them in memory

struct EmulateCalibrateOptions {
  std::string out;
  std::vector<std::string> kinds = {"all_reduce", "all_gather", "broadcast", "barrier"};
  std::vector<std::uint64_t> bytes = {64, 4096, 65'536, 1'048'576, 8'388'608};
  std::uint32_t members = 0;  // 0: all ranks
  std::uint32_t stride = 1;
  std::uint32_t repeats = 9;
  std::string like;
  std::string rest = "5ms";
  std::string patience = "60s";
  EmulateLabOptions lab;
  std::uint32_t ranks = 0;
};

emulate::CollectiveKind kind_named(const std::string& name) {
  const auto kind = chakra::parse_collective_kind(name);
  if (!kind) {
    throw CLI::ValidationError("--kinds", fmt::format("'{}' is no collective", name));
  }
  return *kind;
}

std::vector<emulate::CollectiveShape> shapes_of(const EmulateCalibrateOptions& options,
                                                std::uint32_t world) {
  const std::uint32_t members = options.members == 0 ? world : options.members;
  std::vector<emulate::CollectiveShape> shapes;
  for (const std::string& name : options.kinds) {
    const emulate::CollectiveKind kind = kind_named(name);
    for (const std::uint64_t bytes : options.bytes) {
      const bool has_size = kind != emulate::CollectiveKind::kBarrier;
      shapes.push_back({kind, members, options.stride, has_size ? bytes : 0});
      if (!has_size) {
        break;
      }
    }
  }
  return shapes;
}

// Reads shapes, leaving out those that cannot be measured: single ranks, and sizes above
// kMostCalibrated.
std::vector<emulate::CollectiveShape> shapes_in(const json& list) {
  std::vector<emulate::CollectiveShape> shapes;
  for (const json& shape : list) {
    const auto bytes = shape.at("bytes").get<std::uint64_t>();
    const auto ranks = shape.at("ranks").get<std::uint32_t>();
    const auto stride = shape.at("stride").get<std::uint32_t>();
    if (ranks > 1 && stride > 0 && bytes <= kMostCalibrated) {
      shapes.push_back({kind_named(shape.at("kind").get<std::string>()), ranks, stride, bytes});
    }
  }
  return shapes;
}

// Reads the shapes that a staged run called, those in flight at once, and its real ranks.
void read_report(const std::string& report, std::uint32_t world,
                 emulate::CalibrationOptions& calibration, emulate::MemoryOptions& memory) {
  std::ifstream file(report);
  const json read = json::parse(file, nullptr, false);
  try {
    calibration.shapes = shapes_in(read.at("shapes"));
    memory.at_once = shapes_in(read.at("at_once"));
    memory.real = read.at("real").get<std::vector<std::uint32_t>>();
  } catch (const json::exception&) {
    throw CommandError(fmt::format("--like: {} is no report of `spillway emulate stage`", report));
  }
  std::uint64_t bytes = 0;
  std::erase_if(memory.at_once, [&bytes](const emulate::CollectiveShape& shape) {
    return (bytes += shape.bytes) > kMostAtOnce;
  });
  if (calibration.shapes.empty()) {
    throw CommandError(fmt::format("--like: {} has no collectives of several ranks", report));
  }
  const emulate::StageConfig staged{.world = world, .real = memory.real};
  if (const base::Status status = emulate::validate_stage(staged); !status.ok()) {
    throw CommandError(fmt::format("--like: {}: {}", report, status.message()));
  }
}

emulate::CalibrationOptions calibration_of(const EmulateCalibrateOptions& options) {
  emulate::CalibrationOptions made;
  made.repeats = options.repeats;
  made.rest = parsed("--rest", base::parse_duration(options.rest));
  made.patience = parsed("--patience", base::parse_duration(options.patience));
  return made;
}

// Becomes `spillway lab run` with the same command at every host.
[[noreturn]] void calibrate_in_lab(const EmulateCalibrateOptions& options) {
  if (options.ranks < 2) {
    throw CLI::ValidationError("--ranks", "with --preset it is how many hosts the lab has");
  }
  std::vector<std::string> words = {
      own_program(), "emulate",
      "calibrate",   std::filesystem::absolute(options.out).string(),
      "--repeats",   std::to_string(options.repeats),
      "--rest",      options.rest,
      "--patience",  options.patience,
      "--kinds",     fmt::format("{}", fmt::join(options.kinds, ",")),
      "--bytes",     fmt::format("{}", fmt::join(options.bytes, ","))};
  if (options.members != 0) {
    words.insert(words.end(), {"--members", std::to_string(options.members), "--stride",
                               std::to_string(options.stride)});
  }
  if (!options.like.empty()) {
    words.insert(words.end(), {"--like", std::filesystem::absolute(options.like).string()});
  }
  run_command(lab_command(options.lab, options.ranks, words));
}

void calibrate_network(const EmulateCalibrateOptions& options) {
  emulate::CalibrationOptions calibration = calibration_of(options);
  if (!options.lab.preset.empty()) {
    calibrate_in_lab(options);
  }
  if (!launch::is_launched(base::Environment::of_process())) {
    throw CommandError(
        "no launcher started this as one of several ranks: say --preset NAME --ranks N for a lab, "
        "or use one of `spillway lab run -- ...`, mpirun, srun and torchrun --no-python");
  }
  const auto everybody = value_or_throw(comm::Communicator::create({}));
  emulate::MemoryOptions memory{.patience = calibration.patience};
  if (options.like.empty()) {
    calibration.shapes = shapes_of(options, everybody->world());
  } else {
    read_report(options.like, everybody->world(), calibration, memory);
  }
  std::optional<emulate::MeasuredMemory> held;
  if (!memory.at_once.empty()) {  // first, before duration measurements use memory
    held = value_or_throw(emulate::measure_memory(*everybody, memory));
  }
  const bool speaks = everybody->rank() == 0;
  if (speaks) {
    calibration.on_row = [](const emulate::MeasuredRow& row) {
      fmt::print("{} of {} bytes among {} ranks, {} apart: {:.1f} us\n",
                 chakra::collective_kind_name(row.kind), row.bytes, row.ranks, row.stride,
                 base::microseconds_of(row.duration));
    };
  }
  emulate::MeasuredTable table = value_or_throw(emulate::calibrate(*everybody, calibration));
  table.memory = held;
  if (!speaks) {
    return;
  }
  if (table.memory) {
    fmt::print("memory of the library for ranks that are not real: {:.1f} MiB\n",
               static_cast<double>(table.memory->bytes) / (1 << 20));
  }
  table.about = fmt::format("{} ranks, {} times each", everybody->world(), options.repeats);
  write_output(options.out, emulate::table_text(table));
}

}  // namespace

void add_emulate_calibrate(CLI::App& noun) {
  const auto options = std::make_shared<EmulateCalibrateOptions>();
  CLI::App* command = noun.add_subcommand(
      "calibrate", "Measures collectives on the network it is in: a table for emulate stage");
  command->add_option("out", options->out, "The table's file")->required();
  command->add_option("--kinds", options->kinds, "Collectives")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--bytes", options->bytes, "Sizes, of what a rank hands in")
      ->delimiter(',')
      ->capture_default_str()
      ->check(whole_number(1, kMostCalibrated));
  command
      ->add_option("--members", options->members,
                   "Ranks of a group; groups divide the world and run at once; else one group")
      ->check(whole_number(0, 65'536));
  command->add_option("--stride", options->stride, "Distance between the ranks of a group")
      ->capture_default_str()
      ->check(whole_number(1, 65'536));
  command->add_option(
      "--like", options->like,
      "A report of `spillway emulate stage`: the kinds and sizes that it called, and "
      "what memory they take");
  command->add_option("--repeats", options->repeats, "Runs of each call; their mean counts")
      ->capture_default_str()
      ->check(whole_number(1, 100'000));
  command->add_option("--rest", options->rest, "Before each")->capture_default_str();
  command->add_option("--patience", options->patience, "With each")->capture_default_str();
  add_lab_options(*command, options->lab, "Start the ranks in");
  command->add_option("--ranks", options->ranks, "Hosts of that lab")
      ->check(whole_number(2, kMaxJobRanks));
  command->footer(
      "Examples:\n"
      "  spillway emulate calibrate clean8.json --preset clean --ranks 8\n"
      "  mpirun -n 16 spillway emulate calibrate cluster16.json --bytes 4096,26214400");
  command->callback([options] { calibrate_network(*options); });
}

}  // namespace spillway::cli
