// SPDX-License-Identifier: Apache-2.0
// The options of commands for files, snapshots, templates and volumes. Help, completion and the manual show their texts.
#include "option_tables.h"

const struct option_row copy_options[] = {
    {"zstd", 'z', OPTION_FLAG, AT(zstd), NULL,
     "compress folders on the way; with - as TO, write a .tar.zst", NULL},
    {"unpack", 0, OPTION_FLAG, AT(unpack), NULL,
     "FROM is a .tar or .tar.zst, or - : unpack it into the folder TO", NULL},
    {"ratio", 0, OPTION_COUNT, AT(ratio), "N",
     "refuse a compressed archive that becomes more than N times as large (default: 1000)", NULL},
    {0},
};

const struct option_row files_options[] = {
    {"recursive", 'r', OPTION_FLAG, AT(recursive), NULL,
     "ls: show everything below; rm: remove a folder with everything in it; watch: also the "
     "folders below it",
     NULL},
    {"glob", 0, OPTION_TEXT, AT(glob), "PATTERN",
     "ls: show only names that match; with / compare the path below the folder", NULL},
    {"parents", 'p', OPTION_FLAG, AT(parents), NULL, "make the folders that are missing", NULL},
    {"mode", 0, OPTION_TEXT, AT(mode), "OCTAL", "permissions, such as 644", NULL},
    {"no-clobber", 0, OPTION_FLAG, AT(no_clobber), NULL,
     "write, mv: fail if the file exists, instead of replacing it", NULL},
    {0},
};

const struct option_row snapshot_options[] = {
    {"stop", 0, OPTION_FLAG, AT(stop), NULL,
     "with create and restore: cancel the jobs that run in the sandbox first", NULL},
    {"patch", 'p', OPTION_FLAG, AT(patch), NULL,
     "with diff: print the differences of text files, as input of patch(1)", NULL},
    {"path", 0, OPTION_TEXT, AT(path), "PATH",
     "with diff: only this file or folder, and what it holds", NULL},
    {"keep", 0, OPTION_FLAG, AT(keep), NULL, "with create: let it outlast the sandbox", NULL},
    {"copy", 0, OPTION_FLAG, AT(copy), NULL,
     "with create: while jobs run: freeze them, copy the files, and let them go on", NULL},
    {"copy-max", 0, OPTION_BYTES, AT(copy_max), "SIZE",
     "with --copy: refuse to copy more (default: 256M)", NULL},
    {"copy-time", 0, OPTION_DURATION, AT(copy_ms), "TIME",
     "with --copy: give up after this time, at most 1m (default: 5s)", NULL},
    {0},
};

const struct option_row transaction_options[] = {
    {"stop", 0, OPTION_FLAG, AT(stop), NULL,
     "with begin and commit: cancel the jobs that run first", NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "with begin: time after which it is discarded (default: that of the sandbox)", NULL},
    {"patch", 'p', OPTION_FLAG, AT(patch), NULL,
     "with diff: print the differences of text files, as input of patch(1)", NULL},
    {"path", 0, OPTION_TEXT, AT(path), "PATH",
     "with diff: only this file or folder, and what it holds", NULL},
    {0},
};

const struct option_row fork_options[] = {
    {"count", 'n', OPTION_COUNT, AT(count), "N", "number of forks, at most 100 (default: 1)", NULL},
    {"snapshot", 0, OPTION_TEXT, AT(snapshot), "NAME",
     "begin with the files of this snapshot, instead of those of now", NULL},
    {"stop", 0, OPTION_FLAG, AT(stop), NULL, "cancel the jobs that run in the sandbox first", NULL},
    {"copy", 0, OPTION_FLAG, AT(copy), NULL,
     "while jobs run: freeze them, copy the files, and let them go on", NULL},
    {"copy-max", 0, OPTION_BYTES, AT(copy_max), "SIZE",
     "with --copy: refuse to copy more (default: 256M)", NULL},
    {"copy-time", 0, OPTION_DURATION, AT(copy_ms), "TIME",
     "with --copy: give up after this time, at most 1m (default: 5s)", NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "time after which the broker deletes the forks (default: that of the sandbox)", NULL},
    {0},
};

const struct option_row checkpoint_options[] = {
    {"context", 0, OPTION_TEXT, AT(context), "ID",
     "with create, restore and fork: this context (default: the sandbox's default one of python)",
     NULL},
    {0},
};

const struct option_row template_options[] = {
    {"from", 0, OPTION_TEXT, AT(source), "SANDBOX",
     "with create: the sandbox whose files it gets, or SANDBOX:SNAPSHOT", NULL},
    {"stop", 0, OPTION_FLAG, AT(stop), NULL,
     "with create: cancel the jobs that run in the sandbox first", NULL},
    {"replace", 0, OPTION_FLAG, AT(replace), NULL,
     "with create and load: replace the template of this name; after a failure it is as it was",
     NULL},
    {"env", 'e', OPTION_ENV, AT(env), "NAME[=VALUE]",
     "with create: set an environment variable of its jobs", NULL},
    {"workdir", 'w', OPTION_PATH, AT(workdir), "PATH", "with create: working directory of its jobs",
     NULL},
    {"name", 0, OPTION_TEXT, AT(name), "NAME",
     "with build and load: name of the template (default: that of FILE, up to its first dot; that in the "
     "archive)",
     NULL},
    {"no-cache", 0, OPTION_FLAG, AT(no_cache), NULL,
     "with build: run every step, and keep none for other builds", NULL},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "with build: show no progress", NULL},
    {"older-than", 0, OPTION_DURATION, AT(older_ms), "TIME",
     "with prune: only steps that were kept longer ago (default: all)", NULL},
    {0},
};

const struct option_row volume_options[] = {
    {"size", 0, OPTION_BYTES, AT(size), "SIZE", "with create: bytes of its files (default: 1G)",
     NULL},
    {"inodes", 0, OPTION_COUNT, LIMIT(inodes), "N",
     "with create: files and folders (default: one for every 16K)", NULL},
    {"force", 0, OPTION_FLAG, AT(force), NULL, "with rm: remove the sandboxes that have it, too",
     NULL},
    {0},
};
