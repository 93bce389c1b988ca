// The tripwires of one sandbox: what is counted for each rule, in one block of fixed size.
//
// Pure: time comes as an argument, findings go to a function. So the unit tests drive it with the kernel's structs, and
// nothing else.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../bpf/emit.h"
#include "anomaly.h"
#include "anomaly_rates.h"
#include "anomaly_rules.h"

enum {
    BOX_BUCKETS = 10, // a window moves in tenths
    BOX_DISTINCT = 64,
    BOX_TOLD = 64,
    BOX_PLACES = 16, // destinations whose rhythm is watched
    BOX_ZONES = 8,   // DNS domains
    BOX_NAMES = 32,
    BOX_PORT_BITS = 1024,
    BOX_BEATS_MIN = 8,        // connections until a rhythm is one
    BOX_BEAT_MIN_MS = 200,    // what is faster is work
    BOX_FINDINGS_BURST = 32,  // findings of a sandbox per minute, and the first of each rule
    BOX_NAME_LETTERS_MIN = 12 // of a name's part that may carry data
};

// What was counted in each tenth of a window, up to `at` (tenths since boot).
struct box_window {
    int32_t bucket[BOX_BUCKETS];
    uint64_t at;
};

struct box_place {
    uint64_t hash, last_ns;
    uint32_t intervals;
    float mean, squares; // Welford: of intervals in ms
};

struct box_zone {
    uint64_t hash;
    struct box_window window;
};

struct box {
    const struct anomaly_config *policy; // borrowed
    void (*raise)(void *cookie, enum anomaly_rule rule, double score, const char *text);
    void *cookie;
    uint32_t cpu_millis; // its quota
    uint32_t told_n;
    uint64_t told[BOX_TOLD]; // subjects that were told, each once
    uint64_t quiet_ns[ANOMALY_RULES];
    uint64_t minute;     // of the findings below
    uint32_t findings;   // raised in this minute
    uint32_t raised;     // in this minute, bit by rule
    uint64_t suppressed; // not raised: more than BOX_FINDINGS_BURST in a minute
    uint64_t seen
        [ANOMALY_RULES]; // events that a rule looked at, where a counter says how many there were
    struct box_window window[ANOMALY_RULES];
    struct {
        uint64_t hash, at_ns;
    } denied[BOX_DISTINCT];
    struct box_place place[BOX_PLACES];
    struct box_zone zone[BOX_ZONES];
    uint64_t name[BOX_NAMES]; // asked for lately
    uint32_t name_n;
    uint64_t port_bits[BOX_PORT_BITS / 64];
    uint64_t ports, ports_cleared_ns;
    struct anomaly_sums before;
    uint64_t tick_ns; // of `before`; 0: none
    double busy_ms;   // how long it has looked like mining
    struct rates rates;
};

_Static_assert(ANOMALY_RULES <= 32, "a bit each");

// What is known about the executable of an exec event.
enum box_exe {
    BOX_EXE_KNOWN, // or there is nothing to compare with
    BOX_EXE_NEW,   // the template's frozen profile does not know it
};

// `policy` is complete (anomaly_config_inherit).
void box_init(struct box *b, const struct anomaly_config *policy, uint32_t cpu_millis,
              void (*raise)(void *cookie, enum anomaly_rule rule, double score, const char *text),
              void *cookie);

// An event with a body of event->size bytes. One whose size does not suit its kind is left alone.
void box_event(struct box *b, const struct event *event, const void *body, enum box_exe exe);

// A report of the relay.
void box_relay(struct box *b, const struct relay_report *report);

// The last job has ended and its events have all come: what is missing of them was lost.
void box_settled(struct box *b, uint64_t now_ns);

// 100 ms later.
void box_tick(struct box *b, const struct anomaly_sums *sums, uint64_t now_ns);
