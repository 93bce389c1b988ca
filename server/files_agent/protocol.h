// SPDX-License-Identifier: Apache-2.0
// The protocol between the broker and stockade-files, the agent program (sandbox/agent.h) that works on the files of a
// sandbox. Private: both ends have the same version. The broker does not trust the program.
//
// Each operation has a socket pair of its own, so that one that waits delays no other, and closing it ends the operation.
//
//   broker                                         stockade-files
//     | on the agent's socket: head, packed request, and the operation's socket ->  |
//     | on that socket:  DATA ...  FINISH ->       |  a transfer only
//     |                  STATE ... FINISH ->       |  a comparison only: a descriptor in each (enum spawn_state_fd)
//     |     <- MESSAGE (a packed response), DATA ..., BUSY, in any order
//     |     <- END (struct err; code 0: success)   |  exactly one; without it the operation was cut off
#pragma once

#include <stdint.h>

enum files_method {
    FILES_STAT,
    FILES_LIST,
    FILES_READ,
    FILES_WRITE, // a transfer; its request is an OpenWrite
    FILES_MAKE_DIR,
    FILES_MOVE,
    FILES_COPY,
    FILES_REMOVE,
    FILES_SET_MODE,
    FILES_UPLOAD, // a transfer
    FILES_DOWNLOAD,
    FILES_DIFF,      // with states (FILES_STATE)
    FILES_DIFF_FILE, // the same
    FILES_WATCH,
    FILES_METHODS_N,
};

enum files_kind {
    FILES_REQUEST = 'R',
    FILES_MESSAGE = 'M',
    FILES_DATA = 'D',
    FILES_FINISH = 'F',
    FILES_STATE = 'S',
    FILES_BUSY = 'B', // it works; at least every FILES_BUSY_MS
    FILES_END = 'E',
};

// At the front of each packet.
struct files_head {
    uint32_t kind;   // enum files_kind
    uint32_t method; // REQUEST: enum files_method; STATE: enum spawn_state_fd; otherwise 0
};

enum {
    FILES_DATA_MAX = 60 * 1024,
    FILES_PACKET_MAX = FILES_DATA_MAX + (int)sizeof(struct files_head),
    FILES_BUSY_MS = 1000,
    FILES_PATH_MAX = 4096, // with its NUL
};
