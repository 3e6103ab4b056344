// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "emulate/trace/chakra.h"
#include "emulate/trace/merge.h"
#include "emulate/trace/reader.h"
#include "tools/cli/commands.h"
#include "tools/cli/emulate_network.h"

namespace spillway::cli {
namespace {

// ------------------------------------------------------------------ spillway emulate convert

struct EmulateConvertOptions {
  std::string trace;
  std::string out;
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
  for (const emulate::TraceFile& file : value_or_throw(emulate::find_trace_files(options.trace))) {
    files.set_default_rank(file.rank);
    throw_unless_ok(emulate::read_trace_file(file.path, files));
    throw_unless_ok(files.finish());
  }
  fmt::print("{} ranks, {} nodes: {}.*.et{}\n", files.ranks(), files.nodes(), options.out,
             options.gzip ? ".gz" : "");
}

// ------------------------------------------------------------------ spillway emulate merge

struct EmulateMergeOptions {
  std::string out;
  std::vector<std::string> traces;
  bool among = false;
  bool gzip = false;
};

std::uint32_t ranks_of_trace(const std::vector<emulate::TraceFile>& files) {
  emulate::RankCounter counter;
  for (const emulate::TraceFile& file : files) {
    counter.set_default_rank(file.rank);
    throw_unless_ok(emulate::read_trace_file(file.path, counter));
  }
  return counter.ranks();
}

void merge_traces(const EmulateMergeOptions& options) {
  std::vector<std::vector<emulate::TraceFile>> jobs;
  std::vector<std::uint32_t> ranks;
  for (const std::string& trace : options.traces) {
    jobs.push_back(value_or_throw(emulate::find_trace_files(trace)));
    ranks.push_back(ranks_of_trace(jobs.back()));
  }
  RankFiles written(options.out, options.gzip);
  emulate::JobMerger merger(
      ranks, options.among ? emulate::MergeOrder::kAmong : emulate::MergeOrder::kBehind, written);
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

}  // namespace

void add_emulate_convert(CLI::App& noun) {
  const auto options = std::make_shared<EmulateConvertOptions>();
  CLI::App* command =
      noun.add_subcommand("convert", "A trace of any kind that is read, written as Chakra");
  command->add_option("trace", options->trace, kTracePlace)->required();
  command->add_option("out", options->out, "The prefix of the files to write: OUT.0.et, ...")
      ->required();
  command->add_flag("--gzip", options->gzip, "Write OUT.0.et.gz, ...");
  command->footer(
      "Nodes are handed on one by one: files of any length take the memory of one node.\n"
      "Example:\n  spillway emulate convert ring.goal traces/ring");
  command->callback([options] { convert_trace(*options); });
}

void add_emulate_merge(CLI::App& noun) {
  const auto options = std::make_shared<EmulateMergeOptions>();
  CLI::App* command =
      noun.add_subcommand("merge", "Several jobs as one trace, for one network at once");
  command->add_option("out", options->out, "The prefix of the files to write: OUT.0.et, ...")
      ->required();
  command->add_option("trace", options->traces, "A trace of each job, as for convert")
      ->required()
      ->expected(2, -1);
  command->add_flag("--among", options->among,
                    "Rank 0 of each job, then rank 1 of each, and so on; else one job behind the "
                    "other");
  command->add_flag("--gzip", options->gzip, "Write OUT.0.et.gz, ...");
  command->footer(
      "Groups are named by their job: 1/dp is the second job's dp, 1/ all of its ranks.\n"
      "Examples:\n"
      "  spillway emulate merge traces/both traces/llama traces/resnet\n"
      "  spillway emulate merge traces/shared traces/llama traces/resnet --among\n"
      "  spillway emulate run --trace traces/shared --ranks-here 2 --preset congested\n"
      "                                                  two jobs share every host");
  command->callback([options] { merge_traces(*options); });
}

}  // namespace spillway::cli
