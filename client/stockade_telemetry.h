// SPDX-License-Identifier: Apache-2.0
// libstockade: what happens in sandboxes, the records of jobs, and what is used now. A part of stockade.h, which includes
// it; what that says of calls, threads and ownership holds here as well. The fields are those of
// proto/stockade/v1/record.proto and telemetry_service.proto, where each has its meaning.
#pragma once

#include "stockade.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stockade_network_use {
    uint64_t out_bytes, out_packets, in_bytes, in_packets;
    uint64_t connects_allowed, connects_denied, queries;
    bool shared; // the figures are those of the whole sandbox
};

struct stockade_count {
    const char *name;
    uint64_t count;
};

struct stockade_denial {
    int64_t time_ms; // since 1970
    uint32_t pid, rule;
    const char *comm, *operation, *destination, *protocol, *reason;
    const char *hint; // how to ask for it, such as "--allow 192.0.2.1:443/tcp"; or ""
    uint64_t count;
};

struct stockade_execution {
    int64_t time_ms;
    uint32_t pid;
    const char *path, *args_hash;
    uint64_t inode, count;
    bool unnamed; // a memfd, or deleted
};

struct stockade_lost {
    const char *class_name;
    uint64_t events;
    const uint32_t *cpus;
    size_t cpus_n;
};

struct stockade_record {
    const struct stockade_network_use *network; // NULL: nothing counted
    uint64_t syscalls, syscalls_failed;
    const struct stockade_count *by_number, *by_error;
    size_t by_number_n, by_error_n;
    uint64_t forks, execs, exits, exits_by_signal, signals;
    uint64_t opens_write, opens_sensitive, unlinks, renames;
    uint64_t io_urings, unnamed_execs, oom_kills;
    const struct stockade_denial *denials;
    const struct stockade_execution *executed;
    const struct stockade_finding *findings;
    size_t denials_n, executed_n, findings_n;
    uint64_t denials_total, executed_total, findings_total;
    bool cut;      // some are not listed
    bool complete; // everything that has to watch did, and nothing was lost
    int64_t start_ms, end_ms;
    const struct stockade_lost *lost;
    const char *const *hooks;
    const char *const *missing;
    size_t lost_n, hooks_n, missing_n;
    const void *message; // for stockade_json()
};

// An event, a finding or a record as JSON; `message` is that of its struct. One form for all of them: the names of the .proto
// files, enums in lower case without their prefix ("job_ended", "warning"), numbers as numbers, times as RFC 3339 in UTC.
// What is absent, and an enum that says nothing, is left out. NULL without memory. Owned: stockade_free().
STOCKADE_API const char *stockade_json(const void *message);

struct stockade_job {
    struct stockade_process process; // its result, where it has ended, is without the record
    struct stockade_record record;
    const char *tenant, *template_name;
};

// The record of a job, while it runs and after it. process_id: its id or the beginning of it (6 digits at least); NULL: the
// caller's job that has ended last.
STOCKADE_API int stockade_inspect(struct stockade *s, const char *process_id,
                                  const struct stockade_job **out, struct stockade_error *e);

struct stockade_pressure {
    bool known;
    uint32_t some_centipercent, full_centipercent; // of the last 10 s, in hundredths of a percent
    uint64_t some_us, full_us;
};

// What a sandbox uses now. Sums are those since it was made.
struct stockade_usage {
    const char *sandbox_id, *name, *tenant, *template_name;
    bool paused;
    uint32_t jobs, pids, pids_limit;
    int64_t time_ms;
    uint64_t cpu_ns, throttled_ns, memory_bytes, memory_limit_bytes;
    uint64_t io_read_bytes, io_write_bytes;
    struct stockade_network_use network;
    uint64_t denials, alerts, forks, execs, lost;
    struct stockade_pressure cpu, memory, io;
    const char *const *unknown; // figures that the host cannot give
    size_t unknown_n;
};

struct stockade_usages {
    const struct stockade_usage *items; // oldest first
    size_t n;
    const char *next_page;
};

// A page. sandbox: id or name; NULL: all. tenant NULL: the caller's own; for root also "uid:1000", "*".
STOCKADE_API int stockade_usage(struct stockade *s, const char *sandbox, const char *tenant,
                                const char *page, const struct stockade_usages **out,
                                struct stockade_error *e);

enum stockade_fact_type {
    STOCKADE_FACT_TEXT = 1,
    STOCKADE_FACT_NUMBER = 2, // number
    STOCKADE_FACT_SIGNED = 3, // number, as int64_t
    STOCKADE_FACT_REAL = 4,
    STOCKADE_FACT_BOOL = 5, // number: 0 or 1
};

// One field of what an event is about, by its name in the .proto file.
struct stockade_fact {
    const char *name;
    uint32_t type;
    const char *text;
    uint64_t number;
    double real;
};

struct stockade_event {
    uint64_t sequence;
    int64_t time_ns;   // since 1970
    const char *kind;  // "EXEC", "DENIED", ...; "KIND_N" where the library is older than the broker
    uint32_t severity; // enum stockade_severity
    const char *sandbox_id, *process_id, *tenant, *template_name;
    uint32_t pid; // of the host
    const char *comm;
    const struct stockade_fact *facts;
    size_t facts_n;
    const char *instance; // of which life of the broker the sequence is
    const void *message;  // for stockade_json()
};

struct stockade_events_options {
    size_t size;
    const char *const *sandboxes; // only these, by id
    size_t sandboxes_n;
    const char *process_id;   // NULL: any
    const char *tenant;       // NULL: the caller's own; for root also "uid:1000", "*"
    const char *const *kinds; // only these, as in struct stockade_event, in any case
    size_t kinds_n;
    uint32_t severity;      // at least this grave
    uint64_t from_sequence; // 0: what is new
    bool kept_only;         // come back after those that have happened
    const struct stockade_call_options *call;
    const char *instance; // of which life of the broker from_sequence is; NULL: of this one
    // Go on when the connection breaks or the broker is restarted, for as long as it takes; on_gap says what was missed.
    bool reconnect;
};
#define STOCKADE_EVENTS_OPTIONS_INIT STOCKADE_INIT(stockade_events_options)

// Each may be NULL. A value other than 0 ends the call, with STOCKADE_CANCELLED.
struct stockade_event_handlers {
    int (*on_event)(void *cookie, const struct stockade_event *event);
    // Events that did not come: count 0 is not known, to_sequence 0 the end of an earlier life of the broker ("restarted").
    int (*on_gap)(void *cookie, uint64_t from_sequence, uint64_t to_sequence, uint64_t count,
                  const char *reason);
    void *cookie;
};

// Events as they happen, until the broker ends, the connection breaks (but see `reconnect`), or stockade_interrupt().
STOCKADE_API int stockade_events(struct stockade *s, const struct stockade_events_options *o,
                                 const struct stockade_event_handlers *h, struct stockade_error *e);

#ifdef __cplusplus
}
#endif
