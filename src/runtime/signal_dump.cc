// SPDX-License-Identifier: Apache-2.0
#include "runtime/signal_dump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <optional>
#include <utility>

#include "net/system_error.h"
#include "runtime/debug_log.h"
#include "runtime/path_pattern.h"
#include "runtime/recorder_registry.h"

namespace spillway::runtime {
namespace {

constexpr int kNoSignal = 0;
constexpr std::array<std::pair<std::string_view, int>, 5> kSignals = {{{"NONE", kNoSignal},
                                                                       {"USR1", SIGUSR1},
                                                                       {"USR2", SIGUSR2},
                                                                       {"HUP", SIGHUP},
                                                                       {"QUIT", SIGQUIT}}};

// What the handler needs. Written before it is installed, never after.
struct HandlerState {
  struct sigaction before {};
  std::string file;
};
HandlerState& handler_state() {
  static auto* state = new HandlerState;  // a signal may come while the process takes itself apart
  return *state;
}
HandlerState* installed = nullptr;

void dump_to(const std::string& file) {
  const int fd = file.empty()
                     ? STDERR_FILENO
                     : ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  dump_recorders(fd < 0 ? STDERR_FILENO : fd);
  if (fd > STDERR_FILENO) {
    ::close(fd);
  }
}

void call(const struct sigaction& handler, int signal, siginfo_t* info, void* context) {
  if ((handler.sa_flags & SA_SIGINFO) != 0) {
    handler.sa_sigaction(signal, info, context);
  } else if (handler.sa_handler != SIG_DFL && handler.sa_handler != SIG_IGN) {
    handler.sa_handler(signal);
  }
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  dump_to(installed->file);
  errno = saved_errno;
  call(installed->before, signal, info, context);
}

bool has_handler(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

// Interrupts calls where the handler before did so: its owner may wait for that.
struct sigaction action_before(const struct sigaction& before) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags =
      SA_SIGINFO | SA_ONSTACK | (has_handler(before) ? before.sa_flags & SA_RESTART : SA_RESTART);
  action.sa_mask = before.sa_mask;
  return action;
}

base::Status install(const DumpSettings& settings) {
  HandlerState& state = handler_state();
  state.file = settings.file;
  installed = &state;
  if (::sigaction(settings.signal, nullptr, &state.before) == 0) {
    const struct sigaction action = action_before(state.before);
    if (::sigaction(settings.signal, &action, nullptr) == 0) {
      return {};
    }
  }
  return net::system_error(fmt::format("handle signal {}", settings.signal), errno,
                           "set SPILLWAY_DUMP_SIGNAL to another one, or to NONE");
}

std::optional<int> signal_named(std::string_view text) {
  text.remove_prefix(text.starts_with("SIG") ? 3 : 0);
  int number = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && stop == text.data() + text.size();
  if (is_number && number >= SIGRTMIN && number <= SIGRTMAX) {
    return number;
  }
  for (const auto& [name, signal] : kSignals) {
    if (text == name || (is_number && number == signal)) {
      return signal;
    }
  }
  return std::nullopt;
}

}  // namespace

DumpSettings dump_settings(const Environment& environment) {
  const std::string text = environment.get_or("SPILLWAY_DUMP_SIGNAL", "USR2");
  const auto signal = signal_named(text);
  if (!signal) {
    log_warn(
        "SPILLWAY_DUMP_SIGNAL={} is not USR1, USR2, HUP, QUIT, a real-time signal's number or "
        "NONE: USR2 is used",
        text);
  }
  return {.signal = signal.value_or(SIGUSR2),
          .file = expand_path(environment.get_or("SPILLWAY_FLIGHT_FILE", ""), nullptr)};
}

base::Status install_signal_dump(const DumpSettings& settings) {
  static std::once_flag once;
  base::Status status;
  if (settings.signal != kNoSignal) {
    std::call_once(once, [&] { status = install(settings); });
  }
  return status;
}

}  // namespace spillway::runtime
