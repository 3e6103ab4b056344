// SPDX-License-Identifier: Apache-2.0
//
// Metrics in a file, for node-exporter's textfile collector: written when it starts, then every
// period, and once more at the end. Readers see a whole text or the one before, because it is
// written beside the file under another name and then renamed.
//
// One thread of its own, from which `render` is called; destroying it ends that. A file that cannot
// be written is warned of once, until it can be again.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/units.h"

namespace spillway::runtime {

// Puts `text` in the place of the file, in one step.
base::Status replace_file(const std::string& path, const std::string& text);

class MetricsFile {
 public:
  MetricsFile(std::string path, base::Duration period, std::function<std::string()> render);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

 private:
  void run();
  void write();

  const std::string path_;
  const base::Duration period_;
  const std::function<std::string()> render_;
  bool warned_ = false;  // the thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace spillway::runtime
