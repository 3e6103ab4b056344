// SPDX-License-Identifier: Apache-2.0
//
// Files in places that other users of the host can reach: job tickets, metrics, compiled kernels.
// All of them are created and read here. So other users cannot read a secret, redirect a write
// through a symbolic link, or substitute a file of their own.
//
// Invariants: a file is replaced by writing a new one under a random name (O_EXCL, which follows no
// link) and renaming it, so readers see all of it or nothing. A file is read only if it is a
// regular file of this user or of root that nobody else may use; the check uses the descriptor that
// is read. A folder is used only if this user owns it, nobody else may write to it, and it is not a
// link.
//
// Growing files, such as logs, are opened in place, because their users follow them by name. Names
// chosen by this user always work: /dev/stdout, /dev/null, a named pipe, a link. Files, links and
// pipes that another user may have planted are refused (open_own_file).
//
// Limits: the parents of such a folder are the user's choice and are not checked. If others can
// remove this user's links from a folder (writable for them, not sticky), they can swap a link
// between its check and its use. Stateless; any thread. Signal handlers may call only
// open_own_file().
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/environment.h"
#include "base/status.h"

namespace spillway::base {

enum class Readers {
  kOwner,     // mode 600
  kEveryone,  // mode 644: for files without secrets that others collect, such as metrics
};

// Replaces the file by one with this content. On an error the old file stays and no temporary file
// is left.
Status replace_file(const std::string& path, std::string_view content,
                    Readers readers = Readers::kOwner);

enum class Opening {
  kAppend,
  kTruncate,  // pipes and devices are left unchanged
  kKeep,      // the caller truncates it, for example once it holds the lock
};

// Returns a descriptor for writing, close-on-exec, or -1 with errno. A missing file is created
// (kEveryone: reduced by the umask); an existing one keeps its mode.
//
// Fails with EPERM for another user's file, pipe or link, unless that user is root or owns the
// folder, who could place anything there anyway. Also fails with EPERM for a file with several
// names, one of which another user may have added. The target of an accepted link is not checked.
// Opening a pipe without a reader waits for one. Async-signal-safe.
int open_own_file(const char* path, Opening opening, Readers readers = Readers::kOwner) noexcept;

// The error for an open_own_file() that failed with this errno. `hint` says what to do about it.
Status not_opened(const std::string& path, int error, std::string_view hint = {});

// Opens the file, replaces its content and closes it.
Status write_own_file(const std::string& path, std::string_view content, Readers readers);

// Refuses a regular file that another user owns or that others may use. `where` names it. A file
// without a name (a memfd, a deleted file) passes: others cannot open it, whatever its mode.
Status check_is_own(const struct stat& file, const std::string& where);

// Reads a file that check_is_own() accepts. The last component must not be a link; more than
// `limit` bytes are an error.
Result<std::string> read_own_file(const std::string& path, std::size_t limit);

// Creates the folder (mode 700) and its parents if missing. Refuses a folder that others may write
// to.
Status prepare_own_folder(const std::string& path);

// The folder for files of this user's running programs: /run/spillway for root, else
// XDG_RUNTIME_DIR/spillway, else /tmp/spillway-UID. The first whose parent is writable is used.
// Prepare it before use.
std::string runtime_folder(const Environment& environment);

}  // namespace spillway::base
