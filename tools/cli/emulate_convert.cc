// SPDX-License-Identifier: Apache-2.0
//
// `spillway emulate convert` and `synthesize`: write traces, from other traces or from a model.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "emulate/llm_step.h"
#include "emulate/trace/reader.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/emulate_options.h"

namespace spillway::cli {

// ------------------------------------------------------------------ spillway emulate convert

namespace {

struct EmulateConvertOptions {
  std::vector<std::string> traces;
  std::string out;
  bool among = false;
  bool gzip = false;
};

// Writes one file per rank, in the order in which ranks arrive.
class RankFiles final : public emulate::NodeSink {
 public:
  RankFiles(std::string prefix, bool gzip) : prefix_(std::move(prefix)), gzip_(gzip) {}

  void set_default_rank(std::uint32_t rank) { default_rank_ = rank; }
  base::Status on_rank(const emulate::RankInfo& info) override {
    if (base::Status status = finish(); !status.ok()) {
      return status;
    }
    emulate::RankInfo named = info;
    named.rank = info.rank.value_or(default_rank_);
    base::Result<std::unique_ptr<emulate::ChakraWriter>> made = emulate::ChakraWriter::create(
        fmt::format("{}.{}.et{}", prefix_, *named.rank, gzip_ ? ".gz" : ""));
    if (!made.ok()) {
      return made.status();
    }
    writer_ = std::move(made).value();
    ++ranks_;
    return writer_->on_rank(named);
  }
  base::Status on_node(const emulate::Node& node) override {
    ++nodes_;
    return writer_->on_node(node);
  }
  base::Status finish() {
    base::Status status = writer_ ? writer_->finish() : base::Status();
    writer_.reset();
    return status;
  }
  std::uint64_t ranks() const { return ranks_; }
  std::uint64_t nodes() const { return nodes_; }

 private:
  std::string prefix_;
  bool gzip_;
  std::uint32_t default_rank_ = 0;
  std::unique_ptr<emulate::ChakraWriter> writer_;
  std::uint64_t ranks_ = 0;
  std::uint64_t nodes_ = 0;
};

void convert_trace(const EmulateConvertOptions& options) {
  RankFiles files(options.out, options.gzip);
  for (const emulate::TraceFile& file :
       value_or_throw(emulate::find_trace_files(options.traces.front()))) {
    files.set_default_rank(file.rank);
    throw_unless_ok(emulate::read_trace_file(file.path, files));
    throw_unless_ok(files.finish());
  }
  fmt::print("{} ranks, {} nodes: {}.*.et{}\n", files.ranks(), files.nodes(), options.out,
             options.gzip ? ".gz" : "");
}

std::uint32_t ranks_of_trace(const std::vector<emulate::TraceFile>& files) {
  emulate::RankCounter counter;
  for (const emulate::TraceFile& file : files) {
    counter.set_default_rank(file.rank);
    throw_unless_ok(emulate::read_trace_file(file.path, counter));
  }
  return counter.ranks();
}

// Several jobs as one trace, for one network at once.
void merge_traces(const EmulateConvertOptions& options) {
  std::vector<std::vector<emulate::TraceFile>> jobs;
  std::vector<std::uint32_t> ranks;
  for (const std::string& trace : options.traces) {
    jobs.push_back(value_or_throw(emulate::find_trace_files(trace)));
    ranks.push_back(ranks_of_trace(jobs.back()));
  }
  RankFiles written(options.out, options.gzip);
  emulate::JobMerger merger(
      ranks, options.among ? emulate::MergeOrder::kInterleaved : emulate::MergeOrder::kConsecutive,
      written);
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    for (const emulate::TraceFile& file : jobs[job]) {
      merger.set_source(job, file.rank);
      throw_unless_ok(emulate::read_trace_file(file.path, merger));
      throw_unless_ok(written.finish());
    }
  }
  fmt::print("{} jobs, {} ranks, {} nodes: {}.*.et{}\n", jobs.size(), written.ranks(),
             written.nodes(), options.out, options.gzip ? ".gz" : "");
}

void convert_or_merge(const EmulateConvertOptions& options) {
  if (options.traces.size() > 1) {
    merge_traces(options);
    return;
  }
  if (options.among) {
    throw CLI::ValidationError("--among", "needs the traces of several jobs");
  }
  convert_trace(options);
}

}  // namespace

void add_emulate_convert(CLI::App& noun) {
  const auto options = std::make_shared<EmulateConvertOptions>();
  CLI::App* command = noun.add_subcommand(
      "convert", "Write a trace of any readable kind as Chakra; merge the traces of several jobs");
  command->add_option("trace", options->traces, kTracePlace)->required();
  command->add_option("--out", options->out, "The prefix of the files to write: OUT.0.et, ...")
      ->required();
  command->add_flag("--among", options->among,
                    "Several jobs: rank 0 of each, then rank 1 of each, and so on, instead of one "
                    "job behind the other");
  command->add_flag("--gzip", options->gzip, "Write OUT.0.et.gz, ...");
  command->footer(
      "Nodes are handed on one by one: files of any length take the memory of one node.\n"
      "Groups of several jobs are named by their job: 1/dp is the second job's dp, 1/ all of its\n"
      "ranks.\n"
      "Examples:\n"
      "  spillway emulate convert ring.goal --out traces/ring\n"
      "  spillway emulate convert traces/llama traces/resnet --out traces/both\n"
      "  spillway emulate convert traces/llama traces/resnet --out traces/shared --among\n"
      "  spillway emulate run --trace traces/shared --ranks-here 2 --preset congested\n"
      "                                                  two jobs share every host");
  command->callback([options] { convert_or_merge(*options); });
}

// ------------------------------------------------------------------ spillway emulate synthesize

namespace {

struct EmulateSynthesizeOptions {
  std::string out;
  bool gzip = false;
  emulate::LlmStepOptions model;
};

void synthesize_trace(const EmulateSynthesizeOptions& options) {
  check_model(options.model);
  const std::filesystem::path folder = std::filesystem::path(options.out).parent_path();
  std::error_code error;
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, error);
  }
  for (std::uint32_t rank = 0; rank < options.model.world(); ++rank) {
    const auto writer = value_or_throw(emulate::ChakraWriter::create(
        fmt::format("{}.{}.et{}", options.out, rank, options.gzip ? ".gz" : "")));
    throw_unless_ok(emulate::synthesize_rank(options.model, rank, *writer));
    throw_unless_ok(writer->finish());
  }
  fmt::print("{} ranks: {}.*.et{}\n", options.model.world(), options.out,
             options.gzip ? ".gz" : "");
}

}  // namespace

void add_emulate_synthesize(CLI::App& noun) {
  const auto options = std::make_shared<EmulateSynthesizeOptions>();
  CLI::App* command = noun.add_subcommand(
      "synthesize", "Write the trace of a language model's training step, from the model's shape");
  command->add_option("out", options->out, "The prefix of the files to write: OUT.0.et, ...")
      ->required();
  command->add_flag("--gzip", options->gzip, "Write OUT.0.et.gz, ...");
  add_llm_options(*command, options->model);
  command->footer(
      "docs/emulate.md describes the step.\n"
      "Example:\n  spillway emulate synthesize traces/small --tensor 2 --data 4 --pipeline 2 "
      "--layers 8 --micro-batches 4");
  command->callback([options] { synthesize_trace(*options); });
}

}  // namespace spillway::cli
