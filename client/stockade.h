// SPDX-License-Identifier: Apache-2.0
// libstockade: run code in Stockade's sandboxes from C.
//
//   struct stockade *s;
//   struct stockade_error e;
//   if (stockade_open(&s, NULL, &e) < 0) { fprintf(stderr, "%s\n", e.text); ... }
//   const char *args[] = {"python3", "-c", "print(6 * 7)", NULL};
//   struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
//   o.command.args = args;
//   struct stockade_handlers h = {.on_output = print};
//   const struct stockade_result *r = NULL;
//   if (stockade_run(s, &o, &h, &r, &e) == 0) { ... r->exit_code, r->bill.cpu_user_ns.value ... }
//   stockade_free(r);
//   stockade_close(s);
//
// Calls are synchronous; stockade_poll.h has the same for a program with a poll loop. A function that can fail returns 0 on success; on failure it returns a negative errno, fills in *e
// and leaves out-parameters unchanged. Error and out-parameters may be NULL, except `out` of stockade_open(). Any other NULL
// where a value is required fails with INVALID_ARGUMENT. Returned objects are const; release each with stockade_free().
//
// Threads. Any number of threads may use a handle at the same time, except in stockade_close(): their calls share one
// connection and run concurrently. The library starts no threads: a thread that waits for its own call also serves the others.
// Handlers run on the thread that made their call, without a lock, so they may make further calls on the handle. Meanwhile the
// stream is paused (the job waits, as with a pipe), and other calls continue while a thread waits. After fork(2) only the parent may use the handle.
//
// Connection. The first call connects. When the connection was lost, the next call connects again. A call fails with
// STOCKADE_UNAVAILABLE and the reason "CONNECTION_LOST" if its connection breaks: the broker may or may not have executed it, and
// the library never sends it again. stockade_create() sends a random idempotency key. To repeat another call that changes something,
// set a key in struct stockade_call_options and repeat it with the same key.
//
// Deadlines. A call fails with STOCKADE_DEADLINE_EXCEEDED at the deadline in its call options. The default is 60 s, or less if
// the method has a shorter maximum (deadline_ms_max in the .proto files). Streams (run, start, attach, events, forward) have
// no default deadline, and stockade_wait() has a parameter for it.
//
// New members are added at the end of structures only. A structure that a program fills in starts with `size`, which the
// *_INIT macros set, in C and C++.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Initial value of a structure that a program fills in: all zero, except for its size.
#ifdef __cplusplus
template <class T>
static inline T
stockade_init()
{
    T t = T();
    t.size = sizeof t;
    return t;
}
#define STOCKADE_INIT(type) stockade_init<struct type>()

extern "C" {
#else
#define STOCKADE_INIT(type)                                                                        \
    {                                                                                              \
        .size = sizeof(struct type)                                                                \
    }
#endif

#define STOCKADE_API             __attribute__((visibility("default")))

#define STOCKADE_ADDRESS_DEFAULT "ipc:///run/stockade/stockade.sock"

struct stockade;
struct stockade_record;

// google.rpc.Code.
enum stockade_code {
    STOCKADE_OK = 0,
    STOCKADE_CANCELLED = 1,
    STOCKADE_UNKNOWN = 2,
    STOCKADE_INVALID_ARGUMENT = 3,
    STOCKADE_DEADLINE_EXCEEDED = 4,
    STOCKADE_NOT_FOUND = 5,
    STOCKADE_ALREADY_EXISTS = 6,
    STOCKADE_PERMISSION_DENIED = 7,
    STOCKADE_RESOURCE_EXHAUSTED = 8,
    STOCKADE_FAILED_PRECONDITION = 9,
    STOCKADE_ABORTED = 10,
    STOCKADE_OUT_OF_RANGE = 11,
    STOCKADE_UNIMPLEMENTED = 12,
    STOCKADE_INTERNAL = 13,
    STOCKADE_UNAVAILABLE = 14,
    STOCKADE_DATA_LOSS = 15,
    STOCKADE_UNAUTHENTICATED = 16,
};

// The longest retry_ms. A longer delay that a broker sends is shortened to this one.
#define STOCKADE_RETRY_MS_MAX 3600000u

// Why a call failed. Strings are part of the structure (nothing to release), end with NUL and have no control characters.
struct stockade_error {
    int code;          // enum stockade_code; a newer broker may send others
    int sys;           // errno on this side, or 0
    uint32_t retry_ms; // wait at least this long before a retry; 0: unknown
    char reason[64];   // for programs, such as "LIMIT_ABOVE_MAXIMUM"; or ""
    char subject[256]; // the field, rule, limit or quota that refused the call; or ""
    char hint[512];    // how to fix the call or to request more; or ""
    char text[1024];   // what was attempted and what failed, outermost operation first
    char rule[128];    // LAYER/ID of a policy, or the caveat, right, limit or quota, of a refusal
    char allowed[512]; // which calls would be allowed; or ""
};

struct stockade_options {
    size_t size;
    // ipc:///path, unix:/path, tcp://host:port or tls+tcp://host:port; NULL: $STOCKADE_ADDRESS, or the default
    const char *address;
    // sent as "authorization: Bearer TOKEN"; NULL: $STOCKADE_TOKEN, or none; "": none
    const char *token;
    uint32_t connect_timeout_ms; // 0: 5,000
    // After this time without a frame from the broker, the library sends a PING; 0: 20,000. If the broker does not answer
    // for the same time again, its calls fail with UNAVAILABLE. Frames of an unknown kind do not count.
    uint32_t keepalive_ms;
    // For tls+tcp addresses, each NULL: the environment variable, or none. Files are PEM.
    // Who signs the broker's certificate; $STOCKADE_CA_FILE. None: the CAs of the system.
    const char *ca_file;
    // "sha256//BASE64" of the public key of the broker's certificate, as curl(1) --pinnedpubkey; $STOCKADE_PIN. Without a
    // ca_file nothing else is checked.
    const char *pin;
    // The name in the broker's certificate; $STOCKADE_SERVER_NAME. None: the address's host.
    const char *server_name;
    // The caller's own certificate and its key; $STOCKADE_CERTIFICATE_FILE, $STOCKADE_KEY_FILE.
    const char *certificate_file;
    const char *key_file;
    // W3C trace context, sent with every call that has no "traceparent" in its metadata; jobs appear in that trace. NULL:
    // $TRACEPARENT, unless that is malformed, or none.
    const char *traceparent;
    // The id of an approval that a policy requires, sent with every call; NULL: none. See `approvals` in stockade(1).
    const char *approval;
    // How long a call that needs an approval waits for it, at most 600,000 ms. 0: it fails at once, with the reason
    // APPROVAL_PENDING and the approval's id as `subject`.
    uint32_t approval_wait_ms;
};
#define STOCKADE_OPTIONS_INIT STOCKADE_INIT(stockade_options)

// Creates a handle, and does not connect yet. INVALID_ARGUMENT: the address or the trace context is invalid. Close the handle with
// stockade_close(). o may be NULL.
STOCKADE_API int stockade_open(struct stockade **out, const struct stockade_options *o,
                               struct stockade_error *e);

// Closes the connection and frees the handle. Aborts if a thread is in a call that waits, or in a callback. Accepts NULL.
STOCKADE_API void stockade_close(struct stockade *s);

// Cancels every stream in progress on the handle (run, start, attach, stockade_call with on_message); each ends with
// STOCKADE_CANCELLED soon after. Any thread may call this, but not a signal handler. Accepts NULL.
STOCKADE_API void stockade_interrupt(struct stockade *s);

// Releases an object that the library returned. Accepts NULL.
STOCKADE_API void stockade_free(const void *handed_out);

// Version of the library, such as "0.1.0".
STOCKADE_API const char *stockade_version(void);

// The name of a code, such as "INVALID_ARGUMENT" for 3; "UNKNOWN" for an unknown number.
STOCKADE_API const char *stockade_code_name(int code);

// The address that the handle uses, as passed to stockade_open(). Valid as long as the handle.
STOCKADE_API const char *stockade_address(const struct stockade *s);

// ---- Requests

// Limits; 0 means the template's value. proto/stockade/v1/limits.proto describes each limit.
struct stockade_limits {
    uint64_t memory_bytes;
    uint64_t cpu_millis; // thousandths of one CPU
    uint64_t cpu_weight, cpu_time_ms, wall_ms;
    uint64_t pids, files;
    uint64_t file_size_bytes, disk_bytes;
    uint64_t inodes, output_bytes;
};

struct stockade_pair {
    const char *name;
    const char *value;
};

enum stockade_network {
    STOCKADE_NETWORK_TEMPLATE = 0, // the template's
    STOCKADE_NETWORK_NONE = 1,
    STOCKADE_NETWORK_ALLOWLIST = 2,
    STOCKADE_NETWORK_OPEN = 3,
    STOCKADE_NETWORK_OFF = 4, // no sockets but unix ones, not even for loopback
};

// The network policy of a sandbox; a request may only narrow its template's. A destination has the form
// "HOST[:PORT[-PORT]][/tcp|/udp]": example.com:443, *.example.com, 192.0.2.0/24:80/tcp, [2001:db8::1]:53/udp.
struct stockade_policy {
    enum stockade_network mode;
    const char *const *allow; // ALLOWLIST: destinations; OPEN: further ones in special ranges
    size_t allow_n;
    const char *const
        *inbound; // ports of the sandbox that the caller may connect to: "8080", "9000-9010"
    size_t inbound_n;
    uint64_t egress_bytes_max, ingress_bytes_max; // during its lifetime; 0: no limit
    uint64_t egress_rate, ingress_rate;           // bytes per second; 0: no limit
    uint64_t queries_per_minute;                  // DNS; 0: 600
};

struct stockade_command {
    const char *const *args; // program and arguments, terminated by NULL
    const struct stockade_pair *env;
    size_t env_n;
    const char *workdir; // NULL: the template's
    const void *stdin_bytes;
    size_t stdin_n;
    bool stdin_open;        // leave stdin open for stockade_input()
    uint32_t rows, columns; // both above 0: the job gets a terminal of this size
};

// Options of any call; NULL means all zero.
struct stockade_call_options {
    size_t size;
    uint32_t deadline_ms;        // 0: the method's longest
    const char *idempotency_key; // NULL: none, except a random one in stockade_create()
    const struct stockade_pair *metadata;
    size_t metadata_n;
};
#define STOCKADE_CALL_OPTIONS_INIT STOCKADE_INIT(stockade_call_options)

// A volume (stockade_volumes.h), or a folder of the broker's host that the template lists, mounted in a sandbox.
struct stockade_mount {
    const char *volume; // its name; or the folder's absolute path
    const char *path;   // absolute, inside the sandbox
    bool read_only;
};

struct stockade_run_options {
    size_t size;
    struct stockade_command command;
    const char *template_name; // NULL: "default"
    const char *name;
    struct stockade_limits limits;
    enum stockade_network network;
    const struct stockade_pair *labels;
    size_t labels_n;
    const struct stockade_call_options *call;
    const struct stockade_policy *policy; // instead of `network`, unless NULL
    bool count_syscalls;                  // for the record
    const struct stockade_mount *mounts;
    size_t mounts_n; // at most 8
    // NULL: the job has its effects (stockade_simulation.h)
    const struct stockade_simulate *simulate;
};
#define STOCKADE_RUN_OPTIONS_INIT STOCKADE_INIT(stockade_run_options)

struct stockade_start_options {
    size_t size;
    const char *sandbox; // id or name
    struct stockade_command command;
    struct stockade_limits limits; // wall_ms, cpu_time_ms, files, file_size_bytes, output_bytes
    bool detach;                   // return when the process runs, without output or result
    const struct stockade_call_options *call;
    bool count_syscalls; // for the record
    // Time limits that are not set come from the template. False: the process lives as long as its sandbox.
    bool foreground;
    uint32_t transaction; // enum stockade_transaction_policy
    // with `foreground`, and not with `transaction` or `detach`. NULL: the process has its effects (stockade_simulation.h)
    const struct stockade_simulate *simulate;
};
#define STOCKADE_START_OPTIONS_INIT STOCKADE_INIT(stockade_start_options)

struct stockade_create_options {
    size_t size;
    const char *template_name;
    const char *name;
    struct stockade_limits limits;
    enum stockade_network network;
    const struct stockade_pair *labels;
    size_t labels_n;
    uint64_t ttl_ms; // 0: the broker's default (ttl.default, 300,000)
    const struct stockade_call_options *call;
    const struct stockade_policy *policy; // instead of `network`, unless NULL
    const struct stockade_mount *mounts;
    size_t mounts_n; // at most 8
    // begin with the files of a kept snapshot (stockade_snapshots.h): its name or id
    const char *snapshot;
    uint64_t sleep_after_ms; // fall asleep when idle for so long; 0: as the template says
};
#define STOCKADE_CREATE_OPTIONS_INIT STOCKADE_INIT(stockade_create_options)

// ---- Results

enum stockade_figure_source {
    STOCKADE_SOURCE_UNKNOWN = 0, // the host cannot provide the figure
    STOCKADE_SOURCE_CGROUP = 1,
    STOCKADE_SOURCE_RUSAGE = 2,
    STOCKADE_SOURCE_BROKER = 3,
};

enum stockade_figure_scope {
    STOCKADE_SCOPE_UNKNOWN = 0,
    STOCKADE_SCOPE_JOB = 1,
    STOCKADE_SCOPE_SANDBOX = 2,
};

struct stockade_figure {
    uint64_t value;
    uint32_t source; // enum stockade_figure_source
    uint32_t scope;  // enum stockade_figure_scope
};

// The resources that a job used.
struct stockade_bill {
    struct stockade_figure wall_us, queue_us, setup_us;
    struct stockade_figure cpu_user_ns, cpu_system_ns;
    struct stockade_figure memory_peak_bytes;
    struct stockade_figure faults_minor, faults_major;
    struct stockade_figure io_read_bytes, io_write_bytes;
    struct stockade_figure io_read_ops, io_write_ops;
    struct stockade_figure pids_peak;
    struct stockade_figure switches_voluntary, switches_involuntary;
    struct stockade_figure throttled_ns, output_bytes, output_cut_bytes;
    const char *const *unknown; // one line per figure that the host cannot provide
    size_t unknown_n;
};

enum stockade_outcome {
    STOCKADE_OUTCOME_UNKNOWN = 0,
    STOCKADE_OUTCOME_EXITED = 1,       // see exit_code
    STOCKADE_OUTCOME_SIGNALED = 2,     // see signal
    STOCKADE_OUTCOME_LIMIT = 3,        // limits[0] ended it
    STOCKADE_OUTCOME_REFUSED = 4,      // by a policy: see reason
    STOCKADE_OUTCOME_FAILED = 5,       // Stockade failed: see reason
    STOCKADE_OUTCOME_NOT_EXECUTED = 6, // exit_code is 126 or 127
    STOCKADE_OUTCOME_CANCELLED = 7,
};

struct stockade_limit_hit {
    const char *name; // field of struct stockade_limits, such as "memory_bytes"
    uint64_t value, over;
    bool count; // `over` counts refusals
};

struct stockade_result {
    uint32_t outcome; // enum stockade_outcome
    uint32_t exit_code, signal;
    const char *reason; // or ""
    // limits that it reached; if outcome is LIMIT, the first one ended it
    const struct stockade_limit_hit *limits;
    size_t limits_n;
    struct stockade_bill bill;
    const struct stockade_record *record; // the kernel's record; NULL: the broker sent none
    // of stockade_start() with `transaction` (stockade_transactions.h); otherwise NULL
    const struct stockade_outcome_of_transaction *transaction;
    // of a job that was simulated (stockade_simulation.h); otherwise NULL
    const struct stockade_simulation *simulation;
};

enum stockade_state {
    STOCKADE_STATE_UNKNOWN = 0,
    STOCKADE_STATE_RUNNING = 1,
    STOCKADE_STATE_PAUSED = 2,
    STOCKADE_STATE_DELETING = 3,
    STOCKADE_STATE_ASLEEP = 4, // on the broker's disk; the next call wakes it up
};

// When a sandbox fell asleep, and what it lost with its processes.
struct stockade_sleep {
    int64_t asleep_ms; // since 1970; its files were those of this time
    int64_t awake_ms;  // 0: it is asleep
    bool idle;         // because nobody used it
    bool fell_back;    // it was lost while it was awake: what was written after asleep_ms is lost
    uint64_t bytes, inodes; // on the disk
    uint32_t processes_ended, contexts_ended, operations_ended, connections_closed;
};

struct stockade_sandbox {
    const char *id;
    const char *name; // or ""
    const char *template_name;
    uint32_t state; // enum stockade_state
    struct stockade_limits limits;
    uint32_t network; // enum stockade_network
    const struct stockade_pair *labels;
    size_t labels_n;
    int64_t created_ms; // since 1970
    int64_t expires_ms; // 0: never
    uint32_t processes;
    struct stockade_policy policy; // in force
    const struct stockade_mount *mounts;
    size_t mounts_n;
    uint64_t sleep_after_ms;            // 0: it does not fall asleep by itself
    const struct stockade_sleep *sleep; // the last one; NULL: it never slept
};

struct stockade_sandboxes {
    const struct stockade_sandbox *items;
    size_t n;
    const char *next_page; // "" on the last page
};

struct stockade_process {
    const char *id;
    const char *sandbox_id;
    uint32_t pid;
    const char *const *args;
    size_t args_n;
    int64_t started_ms;
    const struct stockade_result *result; // NULL while it runs
    uint64_t output_bytes;
    bool terminal;
};

struct stockade_processes {
    const struct stockade_process *items;
    size_t n;
    const char *next_page;
};

struct stockade_feature {
    const char *name;
    bool available;
    const char *detail;
};

struct stockade_template {
    const char *name;
    const char *tier;
    struct stockade_limits limits;
    struct stockade_limits limits_max;
    uint32_t pool_size, pool_ready;
    const char *disabled;    // the reason why it cannot be used; "": it can
    uint32_t pool_warm;      // ready ones whose python runs already
    uint64_t warm_bytes;     // memory of one; 0: not known
    const char *warm_failed; // why some are not warm, or lack a module; ""
    bool on_disk;            // the files of its sandboxes are on disk, not in memory
};

// A quota of the tenant. The name ends with its unit: "sandboxes", "cpu_millis", "memory_bytes", "jobs_per_minute"...
struct stockade_quota {
    const char *name;
    uint64_t used;
    uint64_t limit;
    bool unlimited; // there is no limit
};

struct stockade_info {
    const char *version;
    const char *kernel;
    const char *cgroups;
    const char *nng_version;
    const char *const *tiers;
    size_t tiers_n;
    const struct stockade_feature *features;
    size_t features_n;
    const char *const *degraded;
    size_t degraded_n;
    const struct stockade_template *templates;
    size_t templates_n;
    const char *const *listeners;
    size_t listeners_n;
    uint32_t sandboxes_own, sandboxes, processes;
    uint64_t uptime_ms;
    // of the caller
    const char *tenant;
    uint32_t weight; // in the queue for sandboxes
    const struct stockade_quota *quotas;
    size_t quotas_n;
};

// ---- Jobs

enum stockade_stream { STOCKADE_STDOUT = 1, STOCKADE_STDERR = 2 };

// Called while a job runs. Each may be NULL. A handler that returns a value other than 0 cancels the call, which then fails
// with STOCKADE_CANCELLED. Arguments are valid until the handler returns.
struct stockade_handlers {
    int (*on_started)(void *cookie, const char *process_id, const char *sandbox_id, uint32_t pid);
    int (*on_output)(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset);
    // n bytes of output are missing from offset on. limit: the limit output_bytes cut them and all further output.
    int (*on_gap)(void *cookie, uint64_t offset, uint64_t n, bool limit);
    void *cookie;
};

// Runs one job in a fresh sandbox, which is destroyed afterwards. h may be NULL. A job that fails is not a failure of the
// call: see the result.
STOCKADE_API int stockade_run(struct stockade *s, const struct stockade_run_options *o,
                              const struct stockade_handlers *h, const struct stockade_result **out,
                              struct stockade_error *e);

// Starts a process in a sandbox; it keeps running when the caller disconnects. With o->detach *out is
// unchanged, unless its command could not be executed.
STOCKADE_API int stockade_start(struct stockade *s, const struct stockade_start_options *o,
                                const struct stockade_handlers *h,
                                const struct stockade_result **out, struct stockade_error *e);

// Reads the output of a process from an offset up to its end.
STOCKADE_API int stockade_attach(struct stockade *s, const char *process_id, uint64_t offset,
                                 const struct stockade_handlers *h,
                                 const struct stockade_result **out, struct stockade_error *e);

// Writes up to 65,536 bytes to its stdin. RESOURCE_EXHAUSTED: the queue is full and no byte was accepted; try again.
STOCKADE_API int stockade_input(struct stockade *s, const char *process_id, const void *bytes,
                                size_t n, struct stockade_error *e);
STOCKADE_API int stockade_close_input(struct stockade *s, const char *process_id,
                                      struct stockade_error *e);
// group: send the signal to the process group of the main process.
STOCKADE_API int stockade_signal(struct stockade *s, const char *process_id, int signal, bool group,
                                 struct stockade_error *e);
STOCKADE_API int stockade_resize(struct stockade *s, const char *process_id, uint32_t rows,
                                 uint32_t columns, struct stockade_error *e);
// Returns when the process has ended. deadline_ms 0: no deadline.
STOCKADE_API int stockade_wait(struct stockade *s, const char *process_id, uint32_t deadline_ms,
                               const struct stockade_result **out, struct stockade_error *e);
// A page of the processes of a sandbox (NULL: of all sandboxes of the caller). page: next_page of the previous page, or NULL.
STOCKADE_API int stockade_processes(struct stockade *s, const char *sandbox, const char *page,
                                    const struct stockade_processes **out,
                                    struct stockade_error *e);

// ---- Sandboxes (id: its id or its name)

STOCKADE_API int stockade_create(struct stockade *s, const struct stockade_create_options *o,
                                 const struct stockade_sandbox **out, struct stockade_error *e);
STOCKADE_API int stockade_get(struct stockade *s, const char *id,
                              const struct stockade_sandbox **out, struct stockade_error *e);
// A page of the sandboxes that have all of the labels (NULL, 0: all sandboxes).
STOCKADE_API int stockade_list(struct stockade *s, const struct stockade_pair *labels,
                               size_t labels_n, const char *page,
                               const struct stockade_sandboxes **out, struct stockade_error *e);
// ttl_ms 0: unchanged. A label with an empty value is removed.
STOCKADE_API int stockade_update(struct stockade *s, const char *id, uint64_t ttl_ms,
                                 const struct stockade_pair *labels, size_t labels_n,
                                 const struct stockade_sandbox **out, struct stockade_error *e);
// Replaces the whole network policy. When this returns, the policy is in force and connections that it forbids are closed.
STOCKADE_API int stockade_set_policy(struct stockade *s, const char *id,
                                     const struct stockade_policy *policy,
                                     const struct stockade_sandbox **out, struct stockade_error *e);
// Connects to a TCP port of a sandbox; its policy's `inbound` must list the port. on_open is called first, with the
// connection's id for the two functions below. A handler that returns a value other than 0 closes the connection. Returns
// when the connection is closed: 0 if the server closed its side.
struct stockade_forward_handlers {
    int (*on_open)(void *cookie, const char *connection_id);
    int (*on_data)(void *cookie, const void *bytes, size_t n);
    void *cookie;
};
STOCKADE_API int stockade_forward(struct stockade *s, const char *id, uint32_t port,
                                  const struct stockade_forward_handlers *h,
                                  struct stockade_error *e);
// Sends up to 64 KiB. RESOURCE_EXHAUSTED: the queue is full and no byte was accepted; try again.
STOCKADE_API int stockade_forward_input(struct stockade *s, const char *connection_id,
                                        const void *bytes, size_t n, struct stockade_error *e);
// Shuts down the caller's side of the connection.
STOCKADE_API int stockade_forward_close(struct stockade *s, const char *connection_id,
                                        struct stockade_error *e);
// Kills every job in the sandbox and removes it. Returns when nothing of it is left on the host.
STOCKADE_API int stockade_delete(struct stockade *s, const char *id, struct stockade_error *e);
STOCKADE_API int stockade_pause(struct stockade *s, const char *id,
                                const struct stockade_sandbox **out, struct stockade_error *e);
STOCKADE_API int stockade_resume(struct stockade *s, const char *id,
                                 const struct stockade_sandbox **out, struct stockade_error *e);
// Puts a sandbox to sleep: its files go to the broker's disk, its processes end, and their memory is given back. It keeps its id,
// and outlasts the broker and the host. The next call that needs it wakes it up; so does stockade_wake(). `stop`: cancel the jobs
// that run; otherwise FAILED_PRECONDITION while there are any. ABORTED: another call needed it meanwhile.
STOCKADE_API int stockade_sleep(struct stockade *s, const char *id, bool stop,
                                const struct stockade_sandbox **out, struct stockade_error *e);
STOCKADE_API int stockade_wake(struct stockade *s, const char *id,
                               const struct stockade_sandbox **out, struct stockade_error *e);

struct stockade_bytes {
    const void *bytes;
    size_t n;
};

// ---- The broker

STOCKADE_API int stockade_info(struct stockade *s, const struct stockade_info **out,
                               struct stockade_error *e);

// Calls any method by its path, with a serialized request and a serialized response.
struct stockade_request {
    size_t size;
    const char *method; // "/stockade.v1.Service/Method"
    struct stockade_bytes body;
    const struct stockade_call_options *call;
    // Stream: called for each message; a value other than 0 cancels the call. NULL: the call is unary.
    int (*on_message)(void *cookie, const void *bytes, size_t n);
    void *cookie;
};
#define STOCKADE_REQUEST_INIT STOCKADE_INIT(stockade_request)

// *response (may be NULL) gets the response of a unary call; it is unchanged for a stream.
STOCKADE_API int stockade_call(struct stockade *s, const struct stockade_request *r,
                               const struct stockade_bytes **response, struct stockade_error *e);

#ifdef __cplusplus
}
#endif

#include "stockade_anomalies.h"    // findings and profiles
#include "stockade_batch.h"        // many jobs, whose results come as they end
#include "stockade_snapshots.h"    // states of the files of a sandbox
#include "stockade_simulation.h"   // what a job would change and send
#include "stockade_templates.h"    // kinds of sandboxes
#include "stockade_transactions.h" // changes of files together, or not at all
#include "stockade_volumes.h"      // folders that outlive sandboxes
#include "stockade_code.h"         // cells of code in contexts
#include "stockade_poll.h"         // many calls in one thread
#include "stockade_telemetry.h"    // records, events, current resource use
