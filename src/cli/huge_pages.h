// SPDX-License-Identifier: Apache-2.0
//
// Large simulations touch more memory than the processor's page tables cache: with huge pages they
// run up to 1.6 times as fast. glibc gives them to a process that asks before it starts, so the
// tool starts itself again with the request in its environment.
#pragma once

namespace spillway::cli {

// Returns where huge pages were asked for already, or cannot be; otherwise does not return.
void restart_with_huge_pages(char** argv);

}  // namespace spillway::cli
