// SPDX-License-Identifier: Apache-2.0
// Detection rules (stockade/v1/detection.proto): read from YAML, and compared with events.
//
//   files --detect_read()--> struct detect --+--detect_event()--> a finding, for each rule that fires
//   event --detect_fill()--> detect_event ---+
//
// The broker, and the command for its offline checks, use the same code. All memory is allocated when the rules are read: an event
// allocates nothing. Each rule has a table of counts of fixed size. The set of a key depends on its job (sandbox, tenant), so that one job
// which invents keys displaces its own counts first; each count that was displaced while it mattered is counted, and the first one
// of a window is a finding. One thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "stockade/v1/detection.pb-c.h"

enum {
    DETECT_FILES_MAX = 64,
    DETECT_FILE_BYTES_MAX = 512 * 1024, // also of all files of a host together
    DETECT_DIGEST = 32,
    DETECT_TEXT = 256, // of a finding, with its NUL
    DETECT_LABELS_MAX = 32,
    DETECT_STEPS_MAX = 8,
    DETECT_WAYS = 8,     // counts of one set in a table
    DETECT_WAYS_BY = 32, // the same, of a rule with `by`
    DETECT_ONCE = 8,     // findings of a count that are known, with `once_for`
    // What rules of the host may ask of the kernel together (bpf/net.h, bpf/watch.h).
    DETECT_MARKS = 64,          // matches about destinations
    DETECT_MARK_PREFIXES = 256, // of them all
    DETECT_MARK_RANGES = 8,     // of ports, that one address may have
    DETECT_CALLS = 32,
};

// The fields of an event: texts, then numbers. The address and the port come from the destination.
enum detect_field {
    DETECT_EXECUTABLE,
    DETECT_COMM,
    DETECT_PATH,
    DETECT_ARGUMENTS,
    DETECT_CWD,
    DETECT_OPERATION,
    DETECT_DESTINATION,
    DETECT_NAME,
    DETECT_PROTOCOL,
    DETECT_REASON,
    DETECT_CALL,
    DETECT_RULE,
    DETECT_TEMPLATE,
    DETECT_SANDBOX_NAME,
    DETECT_TENANT,
    DETECT_TEXTS,
    DETECT_ADDRESS = DETECT_TEXTS,
    DETECT_PORT,
    DETECT_UID,
    DETECT_ERROR,
    DETECT_FLAGS,
    DETECT_SIGNAL,
    DETECT_CODE,
    DETECT_BYTES,
    DETECT_IN_BYTES,
    DETECT_UNNAMED,
    DETECT_LABELS, // none of its own: those of the sandbox
    DETECT_ON_SOCKET,
    DETECT_UNNAMED_ARGUMENT,
    DETECT_UNPROFILED,
    DETECT_OWN_TOOL,
    DETECT_UNSEEN,
    DETECT_FIRST_REFUSAL,
    DETECT_INODE,
    DETECT_PROFILE,
    DETECT_TIME,
    DETECT_FIELDS,
};

// An event as rules see it. Everything is borrowed.
struct detect_event {
    uint32_t kind; // Stockade__V1__EventKind
    uint64_t has;  // bits by field
    uint64_t now_ns;
    uint64_t times;            // events that it stands for. 0: itself
    bool ruled;                // a call that only a rule asks for: other rules do not see it
    const char *job, *sandbox; // ids; job "": none
    const char *text[DETECT_TEXTS];
    uint64_t number[DETECT_FIELDS - DETECT_TEXTS];
    uint8_t address[16];  // IPv4 as ::ffff:a.b.c.d
    char host[64];        // the name in a destination that is none
    char called[48];      // arguments of a system call
    const char *sentence; // of a tripwire: the event in words. NULL: none
    // Of a tripwire that counts different ones: these. NULL: not known.
    const char *values;
    size_t labels_n;
    const char *label_key[DETECT_LABELS_MAX], *label_value[DETECT_LABELS_MAX];
};

// Fills it from an event of the broker; it borrows from m.
void detect_fill(const Stockade__V1__Event *m, uint64_t now_ns, struct detect_event *out);

struct detect;

// What the rules may cost.
struct detect_bounds {
    uint32_t rules;
    uint32_t steps;     // comparisons for one event, of all rules of its kind, in the worst case
    size_t table_bytes; // of all counts
    uint64_t work;      // comparisons of all tests, for which the reader waits
};
extern const struct detect_bounds detect_bounds_host, detect_bounds_tenant;

struct detect_file {
    const char *name, *text;
    size_t n;
};

// Reads rules and runs their tests. INVALID_ARGUMENT names file, line and column. The files are copied. seed: of the hashes; in the
// broker a random one, so that nobody can choose keys that share a set.
int detect_read(const struct detect_file *files, size_t n, const struct detect_bounds *bounds,
                const uint8_t seed[16], struct detect **out, struct err *e);
void detect_free(struct detect *d); // accepts NULL

enum detect_why {
    DETECT_FOUND,    // a finding
    DETECT_REPEATED, // the same again within its window: only the response is due
    DETECT_CROWDED,  // counts had to be given up
};

struct detect_finding {
    uint32_t index; // of the rule
    const Stockade__V1__DetectionRule *rule;
    enum detect_why why;
    uint64_t score, threshold;
    const char *text; // valid UTF-8 without control bytes, if the event's are
};
typedef void detect_found_fn(void *cookie, const struct detect_finding *f);

// Compares an event with the rules, and calls `found` for each that fires. NULL d: nothing.
void detect_event(struct detect *d, const struct detect_event *ev, detect_found_fn *found,
                  void *cookie);

// Compares events of a test with all rules, and calls `tried` before each and `found` as above. INVALID_ARGUMENT; RESOURCE_EXHAUSTED (RULE_TEST_WORK): more
// work than the bounds allow.
struct detect_trial {
    void (*tried)(void *cookie);
    detect_found_fn *found;
    void *cookie;
};
int detect_try(struct detect *d, const struct detect_bounds *bounds,
               Stockade__V1__DetectionEvent *const *events, size_t n,
               const struct detect_trial *trial, struct err *e);

struct detect_view {
    const Stockade__V1__DetectionRule *rule;
    const char *file;
    uint32_t line;
    bool enabled;
    bool tripwire; // detect_tripwires() has it, and detect_event() not
    bool builtin;  // the broker's own code decides
    Stockade__V1__DetectionFunction function;
    int of;             // enum detect_field; -1: none
    bool in_kernel;     // the kernel reports only events that match, or finds and counts them
    bool never;         // it needs events that nothing reports
    bool needs_calls;   // it needs events that are reported only while system calls are watched
    const char *why;    // who decides does so: static
    uint32_t steps;     // comparisons for one event in the worst case
    size_t table_bytes; // of its counts
    uint64_t window_ms, threshold;
    uint32_t kernel_paths;                      // detect_paths() has them
    uint32_t kernel_destinations, kernel_calls; // detect_kernel() has them
    uint64_t measured_ns; // to compare and count an event, the mean of one in 256; 0: not measured
    uint64_t looked_at, matched, excepted, findings, displaced;
    // Events that it is about and that were lost; not if a counter of the kernel stands for them.
    uint64_t missed;
    // Until then a count may be too low: events were lost, or counts given up. 0: all is there.
    uint64_t incomplete_ns;
};

// All rules together, since they were read: events compared with a rule, and counts that were displaced.
struct detect_totals {
    uint64_t compared, displaced;
};
struct detect_totals detect_totals(const struct detect *d); // NULL: zeros

// Whether the programs report this system call, as DANGEROUS_CALL or IO_URING.
bool detect_reports_call(const char *name);

// Events of these kinds (bits, of the first 64) were lost, so the counts of enabled rules about them, other than tripwires, are incomplete
// for a window. Writes their ids, as far as they fit. Returns their number. *missed: events, for each rule for which no counter of the
// kernel stands. NULL d: none.
struct detect_lost {
    uint64_t kinds, events, now_ns;
};
uint32_t detect_lost(struct detect *d, const struct detect_lost *lost, char *out, size_t n,
                     uint64_t *missed);
// An event was compared with no rule.
void detect_skip(struct detect *d, uint64_t now_ns);

// Whether a rule is about events of this kind.
bool detect_wants(const struct detect *d, uint32_t kind);

// BLAKE2b of names and texts of the files. NULL d: zeros.
void detect_digest(const struct detect *d, uint8_t out[DETECT_DIGEST]);

// The tripwires of the broker: the file that ships. The broker reads it first, so that it needs no file.
struct detect_file detect_tripwire_file(void);

// Calls `each` for each tripwire whose condition the event fulfils, and none of its exceptions; it counts and decides. NULL d: none.
typedef void detect_tripwire_fn(void *cookie, const struct detect *d, uint32_t i,
                                const struct detect_event *ev);
void detect_tripwires(struct detect *d, const struct detect_event *ev, detect_tripwire_fn *each,
                      void *cookie);
bool detect_has_tripwires(const struct detect *d, uint32_t kind);
// Of tripwire i: what the finding is about, the hash of a field, and the finding's sentence.
uint64_t detect_tripwire_subject(const struct detect *d, uint32_t i, const struct detect_event *ev);
uint64_t detect_tripwire_value(const struct detect *d, uint32_t i, const struct detect_event *ev);
const char *detect_tripwire_text(const struct detect *d, uint32_t i, const struct detect_event *ev,
                                 uint64_t score, uint64_t window_ms, char out[DETECT_TEXT]);
// Compares an event with the tripwires as detect_event() does with the others, for dry runs.
void detect_tripwires_dry(struct detect *d, const struct detect_event *ev, detect_found_fn *found,
                          void *cookie);

// The fields of an event beside those of its message. NULL or "": the event does not have it.
void detect_set_text(struct detect_event *ev, enum detect_field field, const char *text);
void detect_set_number(struct detect_event *ev, enum detect_field field, uint64_t number);

// Calls `each` for the paths that a rule needs the kernel to report: opens, and other uses, of exactly this path, or (below) of anything
// below it. Only enabled rules that are no tripwires. NULL d: none.
typedef void detect_path_fn(void *cookie, const char *path, bool below);
void detect_paths(const struct detect *d, detect_path_fn *each, void *cookie);

// What enabled rules of the host, that are no tripwires, ask of the kernel. Prefixes are those of IPv6, with IPv4 as ::ffff:0:0/96; each
// has the ranges of all prefixes that contain it.
struct detect_mark_range {
    uint16_t first, last; // ports
    uint8_t protocol;     // IPPROTO_TCP, IPPROTO_UDP; 0: both
    bool connect, denied; // events
    bool any;             // of every address: also of names
    uint8_t mark;
};
struct detect_mark_prefix {
    uint8_t address[16];
    uint32_t bits, n;
    struct detect_mark_range range[DETECT_MARK_RANGES];
};
struct detect_kernel {
    uint32_t marks_n, prefixes_n, calls_n;
    uint32_t mark_rule[DETECT_MARKS];
    struct detect_mark_prefix prefix[DETECT_MARK_PREFIXES];
    const char *call[DETECT_CALLS]; // names
};
// NULL: rules of a tenant, or none.
const struct detect_kernel *detect_kernel(const struct detect *d);

// Calls `each` for the system calls that this rule names, if the kernel reports some of them because of that. Returns the number of these.
typedef void detect_call_fn(void *cookie, const char *name);
uint32_t detect_rule_calls(const struct detect *d, uint32_t i, detect_call_fn *each, void *cookie);

// Events that the kernel has counted for a rule, and whose events were lost: ev->times of them. Compares with rule `rule`, -1: with all,
// if the kernel's counter can stand for its events.
void detect_counted(struct detect *d, int rule, const struct detect_event *ev,
                    detect_found_fn *found, void *cookie);
// Fills the kind, the destination (out: its text, 80 bytes) and the protocol of such an event. False: the counter of this mark cannot stand for events.
bool detect_mark_destination(const struct detect *d, uint32_t mark, struct detect_event *ev,
                             char *out, size_t n);

// The rules in the order of the files. False: there is no such rule.
bool detect_view(const struct detect *d, uint32_t i, struct detect_view *out);
// A rule as it counts, without its tests, in YAML. Writes at most n bytes with the end, and returns the length of the whole text.
size_t detect_definition(const struct detect *d, uint32_t i, char *out, size_t n);
size_t detect_bytes(const struct detect *d);   // of memory. NULL: 0
uint32_t detect_count(const struct detect *d); // NULL: 0
// The last one with this id.
int detect_find(const struct detect *d, const char *id); // -1: there is no such rule
uint32_t detect_tests(const struct detect *d);
// The rules find nothing, or again something. Its counts are forgotten.
void detect_enable(struct detect *d, uint32_t i, bool enabled);
