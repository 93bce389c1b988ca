// SPDX-License-Identifier: Apache-2.0
// Paths inside the sandbox. Every file is found with openat2(2) from one descriptor of the root, which is that of the sandbox, or
// the folder where a volume is mounted: RESOLVE_IN_ROOT, so that neither `..` nor a symbolic link leads out, and RESOLVE_NO_MAGICLINKS, so that /proc/PID/fd leads nowhere. After that
// only descriptors and single names are used.
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/err.h"
#include "protocol.h"
#include "stockade/v1/file_service.pb-c.h"

// Call once: the folder that is the root of all paths, and where in it relative paths begin.
int path_init(const char *root_at, const char *workdir, struct err *e);

// A path of a request, as text: absolute, without NUL.
struct path {
    char text[FILES_PATH_MAX];
};
int path_read(const ProtobufCBinaryData *from, struct path *out, struct err *e);

// Opens what the path leads to. Returns the descriptor, or a negative errno (with *e).
int path_open(const char *path, int flags, struct err *e);

// Makes the folder and those above it, as far as they are missing.
int path_make_folders(const char *path, struct err *e);

// Its parent folder (O_PATH), and its last name, "." for the root. With `parents` missing folders are made.
struct location {
    int folder; // *owned*
    const char *name;
    char text[FILES_PATH_MAX];
};
int path_locate(const char *path, bool parents, struct location *out, struct err *e);
// Of a request's path.
int path_read_and_locate(const ProtobufCBinaryData *from, bool parents, struct path *path,
                         struct location *out, struct err *e);
void path_leave(struct location *p);

// Both paths of a request that moves or copies, and their locations. After 0 the caller leaves both.
struct path_pair {
    struct path path, to;
    struct location a, b; // of `path`, of `to`
};
int path_pair(const ProtobufCBinaryData *path, const ProtobufCBinaryData *to, bool parents,
              struct path_pair *out, struct err *e);
void path_pair_leave(struct path_pair *p);

// rename(2); with `keep` it fails with EEXIST if the new name exists. 0 or a negative errno.
int path_rename(int from, const char *name, int to, const char *new_name, bool keep);

// Opens the regular file in a folder for reading, without ever waiting for one that is not regular. NOT_REGULAR.
int path_open_regular(int folder, const char *name, struct stat *st, struct err *e);

// A file as a message. The strings belong to the struct.
struct described {
    Stockade__V1__File m;
    Google__Protobuf__Timestamp time;
    char version[20];
    char target[FILES_PATH_MAX];
};
void describe(const struct stat *st, const void *path, size_t path_n, struct described *out);
int describe_at(int folder, const char *name, const char *path, struct described *out,
                struct err *e);
// The version of a file (File.version).
void describe_version(const struct stat *st, char out[20]);
