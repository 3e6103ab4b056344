// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <string>

#include "emulate/synthesize/llm_step.h"
#include "emulate/trace/chakra.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/emulate_model.h"

namespace spillway::cli {
namespace {

// `spillway emulate synthesize`: writes the trace of a step that nobody ran.

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

void check_model(const emulate::LlmStepOptions& options) {
  if (const base::Status status = emulate::validate(options); !status.ok()) {
    throw CLI::ValidationError("the model", status.message());
  }
}

void add_llm_options(CLI::App& command, emulate::LlmStepOptions& options) {
  const auto add = [&command](const char* name, std::uint32_t& value, const char* text) {
    command.add_option(name, value, text)
        ->capture_default_str()
        ->check(whole_number(1, emulate::kMaxModelNumber))
        ->group("Model");
  };
  add("--tensor", options.tensor, "Tensor-parallel ranks");
  add("--data", options.data, "Data-parallel ranks");
  add("--pipeline", options.pipeline, "Pipeline stages");
  add("--expert", options.expert,
      "Expert-parallel ranks, among the data-parallel ones; 1: no experts");
  add("--layers", options.layers, "Layers of the transformer");
  add("--hidden", options.hidden, "Width of a layer");
  add("--sequence", options.sequence, "Tokens of a sequence");
  add("--vocabulary", options.vocabulary, "Tokens there are");
  add("--micro-batch", options.micro_batch, "Sequences of a micro-batch");
  add("--micro-batches", options.micro_batches, "Of a step, at each data-parallel rank");
  add("--experts", options.experts, "Of a layer");
  add("--experts-per-token", options.experts_per_token, "That a token goes to");
  add("--value-bytes", options.value_bytes, "Of an activation");
  add("--gradient-bytes", options.gradient_bytes, "Of a gradient");
  add("--steps", options.steps, "Training steps, one after another");
  command
      .add_option("--flops", options.flops, "Operations that a rank does in a second, in practice")
      ->capture_default_str()
      ->group("Model");
}

void add_emulate_synthesize(CLI::App& noun) {
  const auto options = std::make_shared<EmulateSynthesizeOptions>();
  CLI::App* command = noun.add_subcommand(
      "synthesize", "The trace of a training step of a language model, by its shape");
  command->add_option("out", options->out, "The prefix of the files to write: OUT.0.et, ...")
      ->required();
  command->add_flag("--gzip", options->gzip, "Write OUT.0.et.gz, ...");
  add_llm_options(*command, options->model);
  command->footer(
      "What a step is made of: docs/emulate.md.\n"
      "Example:\n  spillway emulate synthesize traces/small --tensor 2 --data 4 --pipeline 2 "
      "--layers 8 --micro-batches 4");
  command->callback([options] { synthesize_trace(*options); });
}

}  // namespace spillway::cli
