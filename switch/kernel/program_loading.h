// SPDX-License-Identifier: Apache-2.0
//
// Explains why the kernel refused a program, and what to do about it. Checks which features this
// kernel has.
//
// libbpf prints the details, and a LoadLog captures them. libbpf's print function is global: use
// one LoadLog at a time; the newest gets the output. All else may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/system_call.h"

struct bpf_program;  // libbpf's

namespace spillway::kernel {

// Fails if this kernel is too old or cannot be identified.
base::Status check_kernel();

class LoadLog {
 public:
  LoadLog();
  ~LoadLog();
  LoadLog(const LoadLog&) = delete;
  LoadLog& operator=(const LoadLog&) = delete;

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// `error` is an errno. `attempt` continues "cannot".
base::Status load_error(std::string_view attempt, int error, const LoadLog& log);

// Frames that span several buffers occur on interfaces with a large MTU. An XDP program runs there
// only if it declares support for them. Declares it for a program that is not loaded yet. Returns
// false if the kernel is too old (before 5.18).
bool allow_fragments(bpf_program* program);

}  // namespace spillway::kernel

// Keeps maps and programs when their user-space process has ended: a folder of the kernel's BPF
// file system per switch, and per interface with a fix-up. Names are plain words, so that a name
// cannot be a path to elsewhere.

namespace spillway::kernel {

enum class PinKind : std::uint8_t { kSwitch, kFixup };

class PinFolder {
 public:
  // Makes a new folder; mounts the BPF file system if necessary. Fails if the name exists: it is
  // attached, or was not detached cleanly.
  static base::Result<PinFolder> make(PinKind kind, const std::string& name);
  // Opens an existing folder.
  static base::Result<PinFolder> open(PinKind kind, const std::string& name);
  static std::vector<std::string> list(PinKind kind);

  base::Status pin(int fd, std::string_view name) const;
  base::Result<net::UniqueFd> get(std::string_view name) const;
  void remove() const;

 private:
  explicit PinFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

}  // namespace spillway::kernel
