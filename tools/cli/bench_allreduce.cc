// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench allreduce`: all-reduces on the communicator that applications use, in the layout
// of nccl-tests, beside Gloo and Open MPI in the same run.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <memory>

#include "base/text.h"
#include "base/version.h"
#include "codec/plane_code.h"
#include "comm/communicator.h"
#include "launch/launch.h"
#include "tools/bench/allreduce/measure.h"
#include "tools/bench/allreduce/ranks.h"
#include "tools/bench/allreduce/rivals.h"
#include "tools/bench/progress.h"
#include "tools/cli/allreduce_report.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

using collective::Algorithm;
using collective::Codec;
using collective::DataType;
using collective::ReduceOp;

constexpr const char* kRankMark = "--started-as-rank";
constexpr std::size_t kMaxSizes = 1000;
constexpr std::uint8_t kLevelBits = 4;  // default of the codec levels
constexpr double kLossBound = 0.01;

constexpr const char* kExact = "exact";
const std::map<std::string, Codec> kCodecs = {{"planes", Codec::kPlanes},
                                              {"levels", Codec::kLevels},
                                              {"blocks", Codec::kBlocks},
                                              {"entropy", Codec::kEntropy},
                                              {"sketch", Codec::kSketch}};

struct BenchAllreduceOptions {
  bench::AllreduceWork work;
  std::string min_bytes = "32M";
  std::string max_bytes = "32M";
  std::string step_bytes = "1M";
  unsigned step_factor = 1;
  bool per_iteration = false;
  std::string json_file;
  bool json = false;
  std::string codec = kExact;
  collective::Tolerance tolerance;   // unless exact
  std::optional<std::uint8_t> bits;  // unset: the codec's default
  std::optional<double> loss_bound;
  bool has_name = false;  // of the tensor
  std::vector<std::string> rivals;
  std::string python = "/usr/bin/python3";
  std::optional<unsigned> threads;
  std::optional<unsigned> ranks;
  unsigned servers = 0;
  bool is_started_here = false;
};

// ------------------------------------------------------------------ what to measure

std::size_t bytes_of(const std::string& text, const char* option) {
  const base::Result<base::Bytes> bytes = base::parse_bytes(text);
  if (!bytes.ok()) {
    throw CLI::ValidationError(option, bytes.status().message());
  }
  return static_cast<std::size_t>(bytes->count());
}

std::vector<std::size_t> sizes_of(const BenchAllreduceOptions& options) {
  const std::size_t element = collective::element_size(options.work.type);
  const std::size_t least = bytes_of(options.min_bytes, "--minbytes");
  const std::size_t most = bytes_of(options.max_bytes, "--maxbytes");
  const std::size_t step = bytes_of(options.step_bytes, "--stepbytes");
  if (least < element || most < least) {
    throw CLI::ValidationError(
        "--minbytes",
        fmt::format("must be at least one element ({} bytes) and at most --maxbytes", element));
  }
  if (options.step_factor == 1 && step == 0) {
    throw CLI::ValidationError("--stepbytes", "must be greater than 0");
  }
  std::vector<std::size_t> sizes;
  for (std::size_t size = least; size <= most;
       size = options.step_factor > 1 ? size * options.step_factor : size + step) {
    sizes.push_back(size / element * element);
    if (sizes.size() > kMaxSizes) {
      throw CLI::ValidationError("--stepbytes",
                                 fmt::format("more than {} sizes: take longer steps", kMaxSizes));
    }
  }
  return sizes;
}

bench::AllreduceWork work_of(const BenchAllreduceOptions& options) {
  bench::AllreduceWork work = options.work;
  work.sizes = sizes_of(options);
  if (options.codec != kExact) {
    const Codec codec = kCodecs.at(options.codec);
    work.tolerance = options.tolerance;
    work.tolerance->codec = codec;
    if (codec == Codec::kLevels) {
      work.tolerance->precision = kLevelBits;
    }
    work.tolerance->precision = options.bits.value_or(work.tolerance->precision);
    // Coded numbers arrive whole by default; --loss-bound overrides that.
    const bool is_coded = collective::uses_entropy(codec);
    const double bound = options.loss_bound.value_or(is_coded ? 0.0 : kLossBound);
    work.tolerance->loss_bound_ppm = static_cast<std::uint32_t>(std::lround(bound * 1e6));
    work.tolerance->feedback_tensor = options.has_name ? 1 : 0;
  }
  return work;
}

// ------------------------------------------------------------------ output

std::string introduction(const BenchAllreduceOptions& options, const bench::AllreduceWork& work,
                         unsigned world) {
  const bool by_factor = options.step_factor > 1;
  return fmt::format(
      "# spillway {}\n"
      "# Collective test starting: all_reduce_perf\n"
      "# nRanks {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} validation: {}\n"
      "# codec: {} algorithm: {} priority: {} in flight: {}\n",
      base::kVersion, world, work.sizes.front(), work.sizes.back(),
      by_factor ? std::to_string(options.step_factor) : options.step_bytes,
      by_factor ? "factor" : "bytes", work.warmup, work.iterations, work.checks, options.codec,
      collective::algorithm_name(work.algorithm), work.priority, work.in_flight);
}

// ------------------------------------------------------------------ one rank

std::vector<std::unique_ptr<bench::AllreduceRival>> rivals_of(const BenchAllreduceOptions& options,
                                                              const bench::RivalContext& context) {
  std::vector<std::unique_ptr<bench::AllreduceRival>> rivals;
  for (const std::string& name : options.rivals) {
    rivals.push_back(name == "gloo" ? bench::make_gloo_rival(context)
                                    : bench::make_mpi_rival(context));
  }
  return rivals;
}

// The benchmark at one rank; rank 0 also prints the results.
class RankRun {
 public:
  RankRun(const BenchAllreduceOptions& options, bench::AllreducePeers& peers)
      : options_(options),
        work_(work_of(options)),
        peers_(peers),
        data_(work_.type),
        rivals_(rivals_of(options, {work_, peers_, options.python, options.is_started_here})) {}

  // True if all elements were right.
  bool run();

 private:
  MeasuredSize measure(std::size_t bytes);
  void show(const std::string& lines) const;
  void show_size(const MeasuredSize& size) const;
  void show_end(const std::vector<MeasuredSize>& sizes) const;
  bool shows() const { return peers_.rank() == 0; }

  const BenchAllreduceOptions& options_;
  const bench::AllreduceWork work_;
  bench::AllreducePeers& peers_;
  const bench::AllreduceData data_;
  std::vector<std::unique_ptr<bench::AllreduceRival>> rivals_;
};

void RankRun::show(const std::string& lines) const {
  if (shows() && !options_.json) {
    fmt::print("{}", lines);
    std::fflush(stdout);
  }
}

MeasuredSize RankRun::measure(std::size_t bytes) {
  std::optional<bench::Progress> progress;
  if (shows()) {
    progress.emplace(1 + rivals_.size());
  }
  const auto step = [&](const char* what) {
    if (progress) {
      progress->step(fmt::format("{} bytes, {}", bytes, what));
    }
  };
  MeasuredSize size;
  step("Spillway");
  size.row = bench::measure_allreduce(work_, bytes, data_, peers_);
  for (const std::unique_ptr<bench::AllreduceRival>& rival : rivals_) {
    step(rival->name());
    size.rivals.push_back({rival->name(), rival->measure(bytes)});
  }
  return size;
}

void RankRun::show_size(const MeasuredSize& size) const {
  const TableStyle style{peers_.world(), options_.per_iteration};
  std::string lines = table_row(size.row, work_, style);
  for (const RivalRow& rival : size.rivals) {
    lines += rival_line(rival, size.row, style);
  }
  show(lines);
}

void RankRun::show_end(const std::vector<MeasuredSize>& sizes) const {
  if (!shows()) {
    return;
  }
  for (const std::unique_ptr<bench::AllreduceRival>& rival : rivals_) {
    show(rival->note().empty() ? "" : "# " + rival->note() + "\n");
  }
  if (work_.tolerance && work_.checks > 0) {
    const bool agree = std::all_of(sizes.begin(), sizes.end(), [](const MeasuredSize& size) {
      return size.row.replicas_agree.value_or(true);
    });
    show(agree ? "# All ranks ended with the same bytes\n"
               : "# Ranks ended with different bytes\n");
  }
  show(table_footer(totals_of(sizes, peers_.world())));
  const std::string json = allreduce_json(work_, sizes, peers_.world());
  if (!options_.json_file.empty()) {
    write_output(options_.json_file, json, "-J: ");
  }
  if (options_.json) {
    fmt::print("{}", json);
  }
}

bool RankRun::run() {
  show(introduction(options_, work_, peers_.world()));
  show(table_header({peers_.world(), options_.per_iteration}));
  std::vector<MeasuredSize> sizes;
  for (const std::size_t bytes : work_.sizes) {
    sizes.push_back(measure(bytes));
    show_size(sizes.back());
  }
  show_end(sizes);
  return totals_of(sizes, peers_.world()).wrong == 0.0;
}

void run_as_rank(const BenchAllreduceOptions& options) {
  comm::CommunicatorConfig config;
  config.name = "bench";
  config.threads = options.threads;
  // A slow rival keeps rank 0 busy for long; dead ranks are detected anyway.
  config.operation_timeout = base::seconds(3600);
  const std::unique_ptr<comm::Communicator> communicator =
      value_or_throw(comm::Communicator::create(config));
  bench::AllreducePeers peers(*communicator);
  bool all_right = false;
  try {
    all_right = RankRun(options, peers).run();
  } catch (const CommandError& error) {
    throw CommandError(fmt::format("rank {}: {}", peers.rank(), error.what()));
  }
  if (!all_right) {
    throw CommandExit{kExitFailure};
  }
}

void run(const BenchAllreduceOptions& options) {
  work_of(options);  // reports usage errors once, not at every rank
  const bool is_rank = options.is_started_here ||
                       (!options.ranks && launch::is_launched(base::Environment::of_process()));
  if (is_rank) {
    if (options.servers > 0 && !options.is_started_here) {
      throw CLI::ValidationError(
          "--servers",
          "belongs to ranks that this command starts; under a launcher start "
          "`spillway server` and set SPILLWAY_SERVERS");
    }
    run_as_rank(options);
    return;
  }
  const int code = bench::run_ranks_here({options.ranks.value_or(2), options.servers}, kRankMark);
  if (code != kExitOk) {
    throw CommandExit{code};
  }
}

// ------------------------------------------------------------------ the command line

template <typename T>
using Names = std::map<std::string, T>;

// Accepts a value by its name. CLI11 would print the values in the help, as characters, and report
// an unknown name only as a failed conversion.
template <typename T>
CLI::Validator one_of(const Names<T>& names) {
  std::vector<std::string> keys;
  for (const auto& [name, value] : names) {
    keys.push_back(name);
  }
  const auto look_up = [keys, by_name = CLI::Transformer(names)](std::string& name) {
    return std::find(keys.begin(), keys.end(), name) != keys.end()
               ? by_name(name)
               : fmt::format("'{}' is none of {}", name, fmt::join(keys, ", "));
  };
  return {look_up, fmt::format("{{{}}}", fmt::join(keys, ","))};
}

void add_sizes(CLI::App& verb, BenchAllreduceOptions& options) {
  verb.add_option("-b,--minbytes", options.min_bytes, "Smallest size: 8, 64K, 25M")
      ->capture_default_str();
  verb.add_option("-e,--maxbytes", options.max_bytes, "Largest size")->capture_default_str();
  verb.add_option("-i,--stepbytes", options.step_bytes, "From one size to the next")
      ->capture_default_str();
  verb.add_option("-f,--stepfactor", options.step_factor, "The same as a factor, where above 1")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
}

void add_work(CLI::App& verb, bench::AllreduceWork& work) {
  verb.add_option("-n,--iters", work.iterations, "Timed iterations of a size")
      ->check(whole_number(1, 100'000))
      ->capture_default_str();
  verb.add_option("-w,--warmup_iters", work.warmup, "Iterations before them")
      ->check(whole_number(0, 100'000))
      ->capture_default_str();
  verb.add_option("-c,--check", work.checks, "Checked iterations behind them; 0: no check")
      ->check(whole_number(0, 1000))
      ->capture_default_str();
  verb.add_option("-d,--datatype", work.type,
                  "float, double, half, bfloat16, int32 or int64 (float)")
      ->transform(one_of(Names<DataType>{{"float", DataType::kFloat32},
                                         {"double", DataType::kFloat64},
                                         {"half", DataType::kFloat16},
                                         {"bfloat16", DataType::kBfloat16},
                                         {"int32", DataType::kInt32},
                                         {"int64", DataType::kInt64}}));
  verb.add_option("-o,--op", work.op, "sum, avg, min or max (sum)")
      ->transform(one_of(Names<ReduceOp>{{"sum", ReduceOp::kSum},
                                         {"avg", ReduceOp::kAverage},
                                         {"min", ReduceOp::kMin},
                                         {"max", ReduceOp::kMax}}));
  verb.add_option(
          "--algorithm", work.algorithm,
          "auto, direct, ring, tree, or switch with a codec whose packets can be added (auto)")
      ->transform(one_of(Names<Algorithm>{{"auto", Algorithm::kAutomatic},
                                          {"direct", Algorithm::kDirect},
                                          {"ring", Algorithm::kRing},
                                          {"switch", Algorithm::kSwitch},
                                          {"tree", Algorithm::kTree}}));
  verb.add_option("--priority", work.priority, "0 to 7, 7 the most urgent")
      ->check(whole_number(0, 7))
      ->default_str(std::to_string(work.priority));
  verb.add_option("--in-flight", work.in_flight, "Operations of the size at once")
      ->check(whole_number(1, 256))
      ->capture_default_str();
}

void add_codec_options(CLI::App& verb, BenchAllreduceOptions& options) {
  const CLI::Validator bits = whole_number(1, codec::kMaxPlanes);
  CLI::Option* codec = verb.add_option(
      "--codec", options.codec,
      "exact, planes, levels, blocks, entropy or sketch; switches can add levels and blocks");
  codec->capture_default_str()->check(
      CLI::IsMember({"exact", "planes", "levels", "blocks", "entropy", "sketch"}));
  collective::Tolerance& tolerance = options.tolerance;
  for (CLI::Option* option :
       {verb.add_option("--bits", options.bits,
                        "Bits sent per value, 1 to 32 (16); with levels 2, 3, 4 or 8 (4)")
            ->check(bits),
        verb.add_option("--bits-back", tolerance.gather_precision,
                        "Bits per value of the sums that come back")
            ->check(bits)
            ->default_str(std::to_string(tolerance.gather_precision)),
        verb.add_option("--loss-bound", options.loss_bound,
                        "Share of a contribution's packets that may stay missing")
            ->check(CLI::Range(0.0, 1.0))
            ->default_str(fmt::format("{:g}", kLossBound)),
        verb.add_option("--least-contributors", tolerance.least_contributors,
                        "Share of the ranks after which late ones are not waited for")
            ->check(CLI::Range(0.0, 1.0))
            ->capture_default_str(),
        verb.add_flag("--feedback", options.has_name,
                      "Error feedback, and codecs that learn from one iteration to the next")}) {
    option->needs(codec)->group("With a --codec that is not exact");
  }
}

void add_running(CLI::App& verb, BenchAllreduceOptions& options) {
  verb.add_option("--ranks", options.ranks,
                  "Processes on loopback, where no launcher has started this one (2)")
      ->check(whole_number(1, 256));
  verb.add_option("--servers", options.servers,
                  "Parameter servers beside them, as processes too: all-reduces go through these")
      ->check(whole_number(0, 64));
  verb.add_option("--threads", options.threads,
                  "Threads that calculate, in each rank; by default as the machine allows")
      ->check(whole_number(0, 256));
  verb.add_option("--compare", options.rivals, "gloo, mpi: measured in turns, in the same place")
      ->delimiter(',')
      ->check(CLI::IsMember({"gloo", "mpi"}));
  verb.add_option("--python", options.python, "An interpreter that has torch, for gloo")
      ->capture_default_str();
  verb.add_flag("-I", options.per_iteration, "Columns about single iterations, p99 among them");
  verb.add_option("-J", options.json_file, "Write JSON to this file");
  verb.add_flag("--json", options.json, "Print JSON instead of the table");
  verb.add_flag(kRankMark, options.is_started_here)->group("");
}

}  // namespace

void add_bench_allreduce(CLI::App& bench) {
  const auto options = std::make_shared<BenchAllreduceOptions>();
  CLI::App* verb = bench.add_subcommand(
      "allreduce", "All-reduces as nccl-tests measures them, beside Gloo and Open MPI");
  add_sizes(*verb, *options);
  add_work(*verb, options->work);
  add_codec_options(*verb, *options);
  add_running(*verb, *options);
  verb->footer(
      "Starts its ranks itself, or is one rank under torchrun, mpirun, srun or `spillway lab "
      "run`.\n"
      "The slowest rank's time counts. NMSE is of at most 4 million elements of a result.\n"
      "Exit codes: 0 done, 1 failed or wrong elements, 2 wrong usage.\n"
      "Examples:\n"
      "  spillway bench allreduce -b 8 -e 64M -f 8\n"
      "  spillway bench allreduce --ranks 4 -b 25M -e 25M -I --compare gloo,mpi\n"
      "  spillway bench allreduce --codec planes --bits 8 --loss-bound 0.01 -J result.json\n"
      "  spillway bench allreduce --ranks 4 --servers 2 -b 25M -e 25M\n"
      "  spillway lab run --preset clean --hosts 4 --aggregate -- spillway bench allreduce -b 4M "
      "-e 4M --codec levels --algorithm switch\n"
      "  spillway lab run --preset incast -- spillway bench allreduce -e 25M -b 25M --compare "
      "gloo");
  verb->callback([options] { run(*options); });
}

}  // namespace spillway::cli
