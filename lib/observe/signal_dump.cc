// SPDX-License-Identifier: Apache-2.0
#include "observe/signal_dump.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <utility>

#include "base/own_file.h"
#include "net/system_call.h"
#include "observe/flight_recorder.h"
#include "observe/identity.h"

namespace spillway::runtime {
namespace {

constexpr int kNoSignal = 0;
constexpr std::array<std::pair<std::string_view, int>, 5> kSignals = {{{"NONE", kNoSignal},
                                                                       {"USR1", SIGUSR1},
                                                                       {"USR2", SIGUSR2},
                                                                       {"HUP", SIGHUP},
                                                                       {"QUIT", SIGQUIT}}};

// The handler's data. Written before the handler is installed, never after.
struct HandlerState {
  struct sigaction before {};
  std::string file;
};
HandlerState& handler_state() {
  static auto* state = new HandlerState;  // never freed: signals may come during exit
  return *state;
}
HandlerState* installed = nullptr;

void dump_to(const std::string& file) {
  const int fd =
      file.empty() ? STDERR_FILENO : base::open_own_file(file.c_str(), base::Opening::kAppend);
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

// Lets system calls fail with EINTR only if the previous handler did: its owner may rely on it.
struct sigaction action_before(const struct sigaction& before) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags =
      SA_SIGINFO | SA_ONSTACK | (has_handler(before) ? before.sa_flags & SA_RESTART : SA_RESTART);
  action.sa_mask = before.sa_mask;
  return action;
}

base::Status install(const DumpConfig& config) {
  HandlerState& state = handler_state();
  state.file = config.file;
  installed = &state;
  if (::sigaction(config.signal, nullptr, &state.before) == 0) {
    const struct sigaction action = action_before(state.before);
    if (::sigaction(config.signal, &action, nullptr) == 0) {
      return {};
    }
  }
  return net::system_error(fmt::format("handle signal {}", config.signal), errno,
                           "set SPILLWAY_DUMP_SIGNAL to another one, or to NONE");
}

// The table of variables uses these numbers.
static_assert(SIGHUP == 1 && SIGQUIT == 3 && SIGUSR1 == 10 && SIGUSR2 == 12);

// `text` is a name or number that the table allows.
int signal_named(std::string_view text) {
  int number = kNoSignal;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && stop == text.data() + text.size()) {
    return number;
  }
  for (const auto& [name, signal] : kSignals) {
    if (text == name) {
      return signal;
    }
  }
  return kNoSignal;
}

}  // namespace

base::Result<DumpConfig> dump_config(const base::Environment& environment) {
  const base::Result<std::string> signal = environment.checked_text("SPILLWAY_DUMP_SIGNAL");
  if (!signal.ok()) {
    return signal.status();
  }
  return DumpConfig{.signal = signal_named(*signal),
                    .file = expand_path(environment.text("SPILLWAY_FLIGHT_FILE"), nullptr)};
}

base::Status install_signal_dump(const DumpConfig& config) {
  static std::once_flag once;
  base::Status status;
  if (config.signal != kNoSignal) {
    std::call_once(once, [&] { status = install(config); });
  }
  return status;
}

}  // namespace spillway::runtime
