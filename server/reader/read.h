// SPDX-License-Identifier: Apache-2.0
// What the reader and the broker say to each other: the one header that both ends of their socket agree on.
//
// The configuration file may be root's alone, and so may the folders that its templates show. The broker, which has given
// root up, gets both from the reader: a process of root's that lives for one reading. The spawner starts it (SPAWN_READ)
// with the name of the file and of the state directory, both as they were at the broker's start, so a broker that was taken
// over can have the same file read again, and nothing else.
//
//   reader  --struct read_report, with the file (a sealed memfd)--> broker     what the file names, as root sees it
//   broker  --struct read_order-----------------------------------> reader     templates that need a root
//   reader  --struct spawn_root, with layers--> spawner             each, in turn: it opens and makes the layers
//   reader  --struct read_answer--------------> broker              and says the root's number
//   end of file                                                     from either side
//
// The reader parses the file, too, since it has to know which folders to open; who parses it for good is the broker, with
// the same code and the same bytes.
#pragma once

#include <stdint.h>

#include "proto/err.h"
#include "server/spawner/ops.h"

enum {
    READ_BROKER_FD = 3,
    READ_SPAWNER_FD = 4,
    READ_TEMPLATES_MAX = 16, // of a file
    READ_SECONDS = 60,       // then the reader is killed by its own alarm
};

struct read_template {
    char name[64];
    char disabled[256]; // why it cannot be used; "": it can
    uint64_t folders;   // changes when one of its paths is another folder than before
};

// One descriptor comes with it, unless err says that the file could not be read, or there is none (`file` is "").
struct read_report {
    struct err err;
    char file[SPAWN_PATH_MAX];
    uint32_t templates_n; // 0 also where the file is wrong: the broker finds that out itself
    uint32_t reserved;
    struct read_template template[READ_TEMPLATES_MAX];
};

struct read_order {
    uint32_t templates; // bits
    uint32_t go_on;     // 1: one that cannot be made does not end it
};

// One for each template of the order, in rising order.
struct read_answer {
    uint32_t template;
    uint32_t root;
    uint32_t ok; // err.text is a remark, or ""
    struct err err;
};
