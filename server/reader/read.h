// SPDX-License-Identifier: Apache-2.0
// The protocol between the reader and the broker: one header for both ends of their socket.
//
// The configuration file, and the folders that its templates show, may be readable by root only. The broker, which
// has dropped root, gets both from the reader, a root process that runs for one reading. The spawner starts it
// (SPAWN_READ) with the names of the file and of the state directory, which are fixed at the broker's start. So a
// compromised broker can have the same file read again, and no other.
//
//   reader  --struct read_report, with the file and the policies (sealed memfds)--> broker   what the file names, as root sees it
//   broker  --struct read_order-----------------------------------> reader     templates that need a root
//   reader  --struct spawn_root, with layers--> spawner             each, in turn: it opens and makes the layers
//   reader  --struct read_answer--------------> broker              and says the root's number
//   end of file                                                     from either side
//
// The reader parses the file, too, because it has to know which folders to open. The broker parses the same bytes
// with the same code, and uses its own result.
#pragma once

#include <stdint.h>

#include "proto/err.h"
#include "server/spawner/ops.h"

enum {
    READ_BROKER_FD = 3,
    READ_SPAWNER_FD = 4,
    READ_TEMPLATES_MAX = 16, // templates of a file
    READ_SECONDS = 60,       // then an alarm of its own ends the reader
};

struct read_template {
    char name[64];
    char disabled[256]; // why the template cannot be used; "": it can
    uint64_t folders;   // changes if one of its paths leads to another folder than before
};

// Comes with the file, unless err says that it could not be read, or there is no file (`file` is ""); and with the policies, packed as
// stockade.v1.PolicyFiles, unless policy_n is 0: then nobody could read them, because the file has errors.
struct read_report {
    struct err err;
    uint32_t policy_n; // bytes of the policies, and one
    uint32_t zero;
    char file[SPAWN_PATH_MAX];
    uint32_t templates_n; // 0 also if the file has errors, which the broker finds out itself
    uint32_t reserved;
    struct read_template template[READ_TEMPLATES_MAX];
};

struct read_order {
    uint32_t templates; // bits by template
    uint32_t go_on;     // 1: continue after a root that cannot be made
};

// One for each template of the order, in ascending order.
struct read_answer {
    uint32_t template;
    uint32_t root;
    uint32_t ok; // then err.text is a warning, or ""
    struct err err;
};
