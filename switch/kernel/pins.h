// SPDX-License-Identifier: Apache-2.0
//
// Keeps maps and programs when their user-space process has ended: a folder of the kernel's BPF
// file system per switch, and per interface with a fix-up. Names are plain words, so that a name
// cannot be a path to elsewhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/system_call.h"

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
