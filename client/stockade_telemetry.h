// SPDX-License-Identifier: Apache-2.0
// libstockade: events in sandboxes, records of jobs, and current resource use. A part of stockade.h, which includes it and
// describes calls, threads and ownership. proto/stockade/v1/record.proto and telemetry_service.proto describe the fields.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct stockade_network_use {
    uint64_t out_bytes, out_packets, in_bytes, in_packets;
    uint64_t connects_allowed, connects_denied, queries;
    bool shared; // the counters cover the whole sandbox
};

enum stockade_agreement {
    STOCKADE_AGREEMENT_YES = 1,
    STOCKADE_AGREEMENT_NO = 2,
    STOCKADE_AGREEMENT_UNKNOWN = 3,
};

// A sandbox's traffic until the end of the job, without DNS, as the kernel counted it and as the relay reported it.
struct stockade_witnesses {
    uint32_t agreement; // enum stockade_agreement
    const char *reason; // why they do not agree, or why that is unknown; or ""
    struct {
        uint64_t connections, resets;
        uint64_t tcp_sent_bytes, tcp_acknowledged_bytes, tcp_received_bytes;
        uint64_t udp_sent_bytes, udp_received_bytes;
    } kernel;
    struct {
        uint64_t connections, reported;
        uint64_t tcp_out_bytes, tcp_left_bytes, tcp_in_bytes, tcp_unsent_bytes;
        uint64_t udp_out_bytes, udp_dropped_bytes, udp_in_bytes;
    } relay;
};

struct stockade_count {
    const char *name;
    uint64_t count;
};

struct stockade_denial {
    int64_t time_ms; // since 1970
    uint32_t pid, rule;
    const char *comm, *operation, *destination, *protocol, *reason;
    const char *hint; // how to request it, such as "--allow 192.0.2.1:443/tcp"; or ""
    uint64_t count;
};

struct stockade_execution {
    int64_t time_ms;
    uint32_t pid;
    const char *path, *args_hash;
    uint64_t inode, count;
    bool unnamed; // a memfd, or a deleted file
};

struct stockade_lost {
    const char *class_name;
    uint64_t events;
    const uint32_t *cpus;
    size_t cpus_n;
};

struct stockade_record {
    const struct stockade_network_use *network; // NULL: not counted
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
    bool cut;      // some entries are not listed
    bool complete; // all hooks were active and nothing was lost
    int64_t start_ms, end_ms;
    const struct stockade_lost *lost;
    const char *const *hooks;
    const char *const *missing;
    size_t lost_n, hooks_n, missing_n;
    const void *message; // for stockade_json()
    // NULL: the traffic had no way out, or the job runs
    const struct stockade_witnesses *witnesses;
};

// Returns an event, a finding or a record as JSON; `message` is the member of its struct. All have the same form: names of
// the .proto files, enums in lower case without their prefix ("job_ended", "warning"), numbers as numbers, times as RFC 3339
// in UTC. Absent messages and unspecified enums are omitted. NULL: out of memory. Release with stockade_free().
STOCKADE_API const char *stockade_json(const void *message);

struct stockade_job {
    struct stockade_process process; // its result, if it has ended, has no record
    struct stockade_record record;
    const char *tenant, *template_name;
};

// The record of a job, while it runs and after it ended. process_id: its id, or at least the first 6 digits of it; NULL: the
// caller's job that ended last.
STOCKADE_API int stockade_inspect(struct stockade *s, const char *process_id,
                                  const struct stockade_job **out, struct stockade_error *e);

struct stockade_pressure {
    bool known;
    uint32_t some_centipercent, full_centipercent; // of the last 10 s, in hundredths of a percent
    uint64_t some_us, full_us;
};

// Current resource use of a sandbox. Totals count from its creation.
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
    const char *const *unknown; // members that the host cannot provide
    size_t unknown_n;
};

struct stockade_usages {
    const struct stockade_usage *items; // oldest first
    size_t n;
    const char *next_page;
};

// A page of the resource use of sandboxes. sandbox: id or name; NULL: all. tenant NULL: the caller's own; for root also
// "uid:1000", "*".
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

// One field of the details of an event, with its name in the .proto file.
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
    const char *kind;  // "EXEC", "DENIED", ...; "KIND_N" if this library does not know it
    uint32_t severity; // enum stockade_severity
    const char *sandbox_id, *process_id, *tenant, *template_name;
    uint32_t pid; // of the host
    const char *comm;
    const struct stockade_fact *facts;
    size_t facts_n;
    const char *instance; // the run of the broker that sequence belongs to
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
    uint32_t severity;      // this severity or higher
    uint64_t from_sequence; // 0: only new events
    bool kept_only;         // return after the last event that has happened
    const struct stockade_call_options *call;
    const char *instance; // the run that from_sequence belongs to; NULL: the current one
    // Continue when the connection breaks or the broker is restarted, without a timeout; on_gap reports missed events.
    bool reconnect;
    // Called with the cookie of the handlers, if `reconnect` is set: with the reason when the connection has broken or the
    // broker does not respond, and with NULL when events arrive again. May be NULL.
    void (*on_connection)(void *cookie, const struct stockade_error *lost);
};
#define STOCKADE_EVENTS_OPTIONS_INIT STOCKADE_INIT(stockade_events_options)

// Each may be NULL. A handler that returns a value other than 0 ends the call with STOCKADE_CANCELLED.
struct stockade_event_handlers {
    int (*on_event)(void *cookie, const struct stockade_event *event);
    // Missed events. count 0: unknown. to_sequence 0: up to the end of an earlier run of the broker ("restarted").
    int (*on_gap)(void *cookie, uint64_t from_sequence, uint64_t to_sequence, uint64_t count,
                  const char *reason);
    void *cookie;
};

// Receives events as they happen, until the broker ends, the connection breaks (unless `reconnect` is set), or
// stockade_interrupt().
STOCKADE_API int stockade_events(struct stockade *s, const struct stockade_events_options *o,
                                 const struct stockade_event_handlers *h, struct stockade_error *e);

enum stockade_metric_type {
    STOCKADE_METRIC_COUNTER = 1,
    STOCKADE_METRIC_GAUGE = 2,
    STOCKADE_METRIC_HISTOGRAM = 3,
};

struct stockade_metric_sample {
    const char *const *labels; // values of the labels of the metric, in their order
    size_t labels_n;
    double value; // of a counter or gauge
    // Of a histogram: number of observations, their sum, and how many fell into each bucket; the last has no bound.
    uint64_t count;
    double sum;
    const uint64_t *buckets;
    size_t buckets_n;
};

struct stockade_metric {
    const char *name, *help;
    const char *unit; // "seconds", "bytes" or ""
    uint32_t type;    // enum stockade_metric_type
    const char *const *labels;
    size_t labels_n;
    const double *bounds; // of a histogram: upper bounds of the buckets but the last
    size_t bounds_n;
    const struct stockade_metric_sample *samples;
    size_t samples_n;
};

struct stockade_metrics {
    const struct stockade_metric *items;
    size_t n;
};

// As stockade_info(), with weight and quotas of another tenant and what it uses of them; NULL: the caller's. For root and the
// broker's own account; others get STOCKADE_PERMISSION_DENIED.
STOCKADE_API int stockade_info_of(struct stockade *s, const char *tenant,
                                  const struct stockade_info **out, struct stockade_error *e);

// What the broker counts about itself. prefix: only metrics whose name begins with it; NULL: all. For root and the
// broker's own account; others get STOCKADE_PERMISSION_DENIED.
STOCKADE_API int stockade_metrics(struct stockade *s, const char *prefix,
                                  const struct stockade_metrics **out, struct stockade_error *e);

#ifdef __cplusplus
}
#endif
