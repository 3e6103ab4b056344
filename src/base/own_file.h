// SPDX-License-Identifier: Apache-2.0
//
// Files in places that other users of the machine reach as well: tickets of jobs, metrics, compiled
// kernels. One place makes and reads them, so that nobody else can read a secret, lead a write to
// another file by a symbolic link, or hand this user a file of their own.
//
// Invariants: a file is replaced under a drawn name that did not exist (O_EXCL, which follows no
// link) and renamed, so readers see all of it or nothing. A file is read only if it is a regular
// file of this user or of root that nobody else may use, checked at the descriptor that is read. A
// folder is used only if it is this user's, nobody else may write to it, and it is no link.
//
// Files that grow, such as logs, are opened where they are, because their users follow them by
// name. Names that this user chose work whatever they are: /dev/stdout, /dev/null, a named pipe, a
// link. Files, links and pipes that another user may have put there are refused (open_own_file).
//
// Limits: the folders above such a folder are the user's choice and are not checked. In a folder
// where others may remove this user's links (writable to them, and not sticky) a link can be
// exchanged between the check and its use. Stateless; any thread. Signal handlers may call only
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
  kEveryone,  // mode 644: for what holds no secret and others collect, such as metrics
};

// Replaces the file by one with this content. On an error the old file stays and nothing is left
// beside it.
Status replace_file(const std::string& path, std::string_view content,
                    Readers readers = Readers::kOwner);

enum class Opening {
  kAppend,
  kTruncate,  // pipes and devices are left as they are
  kKeep,      // the caller empties it, for instance when it has locked it
};

// A descriptor to write to, close-on-exec; -1 with errno on an error. A file that is missing is
// made (kEveryone: less what the umask takes away); one that exists keeps its mode.
//
// Fails with EPERM for a file, pipe or link of another user, unless that is root or owns the folder
// and so may put there what he likes; and for a file with several names, of which another user may
// have made this one. Behind a link that passes, anything goes. Opening a pipe that nobody reads
// waits for its reader. Async-signal-safe.
int open_own_file(const char* path, Opening opening, Readers readers = Readers::kOwner) noexcept;

// open_own_file() failed with this errno: a sentence that says why. `hint`: what to do about it.
Status not_opened(const std::string& path, int error, std::string_view hint = {});

// Opens the file, replaces its content and closes it.
Status write_own_file(const std::string& path, std::string_view content, Readers readers);

// Refuses a regular file that another user owns, or that others may use. `where` names it. A file
// without a name (a memfd, a deleted file) passes: others cannot open it, whatever its mode.
Status check_is_own(const struct stat& file, const std::string& where);

// The content of a file that check_is_own() accepts. The last component may not be a link; more
// than `limit` bytes are an error.
Result<std::string> read_own_file(const std::string& path, std::size_t limit);

// Makes the folder (mode 700, and its parents) if it is missing, and refuses one that is not this
// user's alone to write to.
Status prepare_own_folder(const std::string& path);

// Where this user's running programs keep files: /run/spillway for root, else
// XDG_RUNTIME_DIR/spillway, else /tmp/spillway-UID; of these the first whose parent can be written
// to. Prepare it before use.
std::string runtime_folder(const Environment& environment);

}  // namespace spillway::base
