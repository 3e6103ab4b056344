// SPDX-License-Identifier: Apache-2.0
//
// How functions of the C interfaces here fail: with a sentence that stays valid until the thread's
// next call, or NULL. Any thread.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "base/status.h"

namespace spillway::experiments {

// `function` returns a Status.
template <typename Function>
const char* guarded(Function&& function) {
  thread_local std::string sentence;
  try {
    const base::Status status = std::forward<Function>(function)();
    if (status.ok()) {
      return nullptr;
    }
    sentence = status.message();
  } catch (const std::exception& error) {
    sentence = error.what();
  }
  return sentence.c_str();
}

}  // namespace spillway::experiments
