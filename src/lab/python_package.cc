// SPDX-License-Identifier: Apache-2.0
#include "lab/python_package.h"

#include <system_error>

#include "lab/environment.h"

namespace spillway::lab {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFoldersUp = 4;
constexpr const char* kLibrary = "libspillway.so.0";  // of the interface's major version

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool holds_package(const fs::path& folder) {
  return is_there(folder / "spillway" / "__init__.py");
}

// Empty: Python has to find it by itself.
fs::path package_folder(const fs::path& tool) {
  const fs::path prefix = tool.parent_path().parent_path();
  const fs::path installed = prefix / "lib/python3/dist-packages";
  if (prefix != "/usr" && holds_package(installed)) {
    return installed;
  }
  fs::path folder = tool.parent_path();
  for (int i = 0; i < kMostFoldersUp; ++i, folder = folder.parent_path()) {
    if (holds_package(folder / "python")) {
      return folder / "python";
    }
  }
  return {};
}

fs::path library_path(const fs::path& tool) {
  const fs::path prefix = tool.parent_path().parent_path();
  for (const char* folder : {"lib", "lib64"}) {
    if (is_there(prefix / folder / kLibrary)) {
      return prefix / folder / kLibrary;
    }
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", error)) {
    if (entry.path().filename().string().ends_with("-linux-gnu") &&
        is_there(entry.path() / kLibrary)) {
      return entry.path() / kLibrary;
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> python_variables(const fs::path& tool,
                                          const std::vector<std::string>& environment) {
  std::vector<std::string> variables;
  if (!tool.is_absolute()) {
    return variables;  // not known
  }
  const auto add = [&](const std::string& key, const fs::path& path) {
    if (!path.empty() && !is_set(key, environment)) {
      variables.push_back(key + "=" + path.string());
    }
  };
  add("PYTHONPATH", package_folder(tool));
  add("SPILLWAY_LIBRARY", library_path(tool));
  return variables;
}

fs::path path_of_this_tool() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

}  // namespace spillway::lab
