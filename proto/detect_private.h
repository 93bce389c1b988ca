// SPDX-License-Identifier: Apache-2.0
// The parts of proto/detect*.c: rules as they are compared with events.
#pragma once

#include <string.h>

#include "detect.h"

struct arena;
struct config_reader;
struct yaml;
struct yaml_node;

enum {
    DETECT_KINDS = 128,
    DETECT_BUCKETS = 10,     // parts of a window
    DETECT_SLOTS = 1024,     // of the index
    DETECT_LENGTH_MAX = 63,  // of a beginning or an end in the index
    DETECT_GRAM = 4,         // bytes of a pattern in the index
    DETECT_PAIR_WORDS = 17,  // of 64 rules each: those of a host, and one more
    DETECT_LINE = 64,        // bytes of a cache line
    DETECT_CLEAR_BYTES = 64, // of a table that are cleared while one comparison is made
};

// A list of plain texts, sorted by length and bytes.
struct detect_words {
    size_t n;
    const char **word;
    uint32_t *length;
};

struct detect_network {
    uint8_t address[16];
    uint32_t bits;
};

// What one field must be.
struct detect_part {
    uint32_t field; // enum detect_field; DETECT_LABELS: those of the sandbox
    struct detect_words exact;
    size_t prefix_n, suffix_n, glob_n, networks_n, numbers_n;
    const char **prefix, **suffix, **glob;
    struct detect_network *network;
    const uint64_t *number;
    bool has_range;
    uint64_t min, max;
};

// All parts must match.
struct detect_parts {
    uint32_t n, steps;
    struct detect_part *part;
};

struct detect_match {
    uint64_t kinds[DETECT_KINDS / 64];
    uint32_t all_n, any_n, not_n, steps;
    struct detect_parts *all, *any, *not ;
    bool calls; // it needs calls that are reported because it names them
};

// One count, in one cache line. The tenths of the window, the numbers of a distinct count, and the times of a sequence are elsewhere in
// the table.
struct detect_slot {
    uint64_t key, scope;
    uint64_t at, end_ns;  // this tenth: its number, and when it ends
    uint64_t sum, before; // of this tenth; of the nine before it. Each is at most UINT64_MAX
    uint64_t last_ns, quiet_ns;
};
_Static_assert(sizeof(struct detect_slot) == DETECT_LINE, "a cache line each");

// A finding of a count, with `once_for`.
struct detect_once {
    uint64_t subject, until_ns;
};

struct detect_seen {
    uint32_t hash, at; // tenths of the window, 0: free
};

struct detect_table {
    struct detect_slot *slot;
    uint32_t last; // the slot of the last event
    uint32_t sets, ways;
    uint32_t more_n;                       // of each slot: numbers of a distinct count, or steps
    uint64_t (*tenth)[DETECT_BUCKETS - 1]; // of each slot, those before this one
    struct detect_seen *seen;
    uint64_t *step_ns;
    struct detect_once *once; // DETECT_ONCE of each slot. NULL: without once_for
    uint64_t crowded_ns;      // end of the time in which it is not reported again
    size_t bytes;
};

// What each event reads comes first: of a plain count it is the first cache line.
struct detect_rule {
    _Alignas(DETECT_LINE) uint64_t event; // the last one that was compared
    bool enabled;
    bool counts; // an event counts as one
    Stockade__V1__DetectionScope per;
    int by;             // enum detect_field; -1: none
    uint32_t matches_n; // 1, or those of a sequence
    uint64_t threshold;
    uint64_t looked_at, matched;
    struct detect_table table;
    uint64_t window_ns;
    uint32_t exceptions_n, once_n;
    Stockade__V1__DetectionFunction function;
    int of;                                // enum detect_field; -1: none
    const struct detect_part *key, *other; // in the index. NULL: none
    struct detect_match match[DETECT_STEPS_MAX];
    struct detect_parts *exception;
    uint64_t excepted, findings, displaced;
    uint64_t missed, incomplete_ns; // lost events; until when a count may be too low
    uint64_t timed, timed_ns;       // events that were timed
    const Stockade__V1__DetectionRule *m;
    const char *file, *message;
    uint32_t line, index, steps;
    // detect_compile(): networks and calls that the kernel reports for it. counted: its counter can stand for lost events.
    uint32_t destinations, calls;
    bool compiled, counted, no_room;
    int once[4]; // enum detect_field
};

// What an event must have for a rule to be compared with it: a whole text, its beginning or its end, or four bytes anywhere.
enum detect_how { DETECT_WHOLE, DETECT_BEGINS, DETECT_ENDS, DETECT_HAS, DETECT_HOWS };

struct detect_entry {
    uint32_t field, how, length;
    uint32_t rules_n, room;
    const char *value;
    struct detect_pointer *rule;
    // Bits of rules: the value is a whole one of the key, and the rest is one more part, which is in the other index of the kind. NULL: none
    uint64_t *pair;
    struct detect_entry *next;
};

// A rule of an entry, of those that are no pairs.
struct detect_pointer {
    uint32_t rule;
    // The value is a whole one of the rule's key: only the rest of the rule is left to compare.
    bool whole;
    bool only; // and there is no rest
};

struct detect_index {
    uint32_t fields[DETECT_HOWS];                      // bits: fields of the index
    uint64_t begins[DETECT_TEXTS], ends[DETECT_TEXTS]; // bits: lengths in the index
    struct detect_entry *slot[DETECT_SLOTS];
};

// Rules that may match events of a kind.
struct detect_kind {
    uint32_t rules_n;
    uint32_t *rule; // to compare with each event
    uint32_t tripwires_n;
    uint32_t *tripwire;         // apart from the others
    bool written;               // there are others
    struct detect_index key;    // of each rule that has one
    struct detect_index *other; // the other parts of pairs. NULL: there are none
    uint32_t steps;
};

struct detect {
    struct arena *arena;
    uint8_t seed[16], digest[DETECT_DIGEST];
    uint32_t rules_n, tests_n, trees_n;
    struct detect_rule *rule;
    struct detect_kind *kind[DETECT_KINDS]; // NULL: no rules
    struct yaml *tree[DETECT_FILES_MAX + 1];
    struct detect_kernel *kernel; // NULL: rules of a tenant
    uint64_t events, skipped_ns;  // when an event was not compared at all
    struct detect_totals totals;
    // Of the current event: hashes by DetectionScope, 0: not computed; and of fields that have a bit.
    uint64_t scope[4];
    uint64_t valued, value[DETECT_FIELDS];
};

// detect_event.c
extern const char *const detect_field_name[DETECT_FIELDS];
int detect_field_find(const char *name, size_t n); // -1: there is none
// "10.0.0.1" or "::1"; IPv4 as ::ffff:10.0.0.1. *v4: it was IPv4. False: not an address.
bool detect_read_address(const char *text, uint8_t out[16], bool *v4);
// The finding's sentence. Returns out.
struct detect_said {
    const struct detect_event *event;
    uint64_t score, window_ns;
};
const char *detect_write(const struct detect_rule *r, const struct detect_said *said,
                         char out[DETECT_TEXT]);
// Checks the {words} of a message; NULL: it is fine; otherwise the first wrong one.
const char *detect_wrong_word(const char *message, bool tripwire, size_t *n);

// detect_match.c
bool detect_part_matches(const struct detect_part *p, const struct detect_event *ev);
bool detect_parts_match(const struct detect_parts *p, const struct detect_event *ev);
// known: one of its parts, which matches. NULL: none is known.
bool detect_matches(const struct detect_match *m, const struct detect_event *ev,
                    const struct detect_part *known);

// detect_make.c: a rule of a file, without its table. `node` is its mapping.
int detect_make_rule(const struct config_reader *file, struct arena *a,
                     const Stockade__V1__DetectionDocument *doc,
                     const Stockade__V1__DetectionRule *m, struct yaml_node *node,
                     struct detect_rule *out);
struct yaml_node *detect_node(struct yaml_node *n, const char *key);

// detect_fields.c: refuses a rule that needs a field which none of its kinds of events has.
int detect_check_fields(const struct config_reader *file, const struct detect_rule *r,
                        struct yaml_node *node);

// detect_tripwire.c: what a tripwire of a later file does not say is as in the earlier one.
int detect_inherit(const struct config_reader *file, struct arena *a,
                   const struct detect_rule *earlier, struct yaml_node *node,
                   struct detect_rule *out);

// detect_index.c
uint32_t detect_pair_words(const struct detect *d); // of 64 rules each
int detect_index(struct detect *d, struct err *e);
// The bytes of an entry, in its slot.
uint32_t detect_index_hash(uint32_t how, uint32_t field, const char *bytes, size_t n);
// Calls `each` for all values that an event has: their rules may match it. A rule may be of several.
typedef void detect_each_fn(void *cookie, const struct detect_entry *e);
void detect_index_find(const struct detect_index *x, const struct detect_event *ev,
                       detect_each_fn *each, void *cookie);

// detect_table.c
// Allocates zeroed memory that begins with a cache line. NULL: beyond the maximum.
void *detect_lines(struct arena *a, size_t bytes);
size_t detect_table_size(const struct detect_rule *r, struct detect_table *t);
int detect_table_make(struct detect_rule *r, struct arena *a);
void detect_table_clear(struct detect_rule *r);
// Counts an event that matches (step: of a sequence).
void detect_table_count(struct detect *d, struct detect_rule *r, uint32_t step,
                        const struct detect_event *ev, detect_found_fn *found, void *cookie);

// detect_kernel.c: finds out what the kernel can do for the rules of a host. Negative: out of memory.
int detect_compile(struct detect *d);

// detect_event.c: a network in words, with ports ("": none).
void detect_write_network(const struct detect_network *network, const char *ports, char *out,
                          size_t n);

// detect_decide.c: fills in_kernel, never, why, and what the kernel does for it.
void detect_decide(const struct detect_rule *r, struct detect_view *out);

// detect_test.c: runs the tests of a rule, alone. *work: comparisons that are left for tests.
int detect_test_rule(const struct config_reader *file, struct detect *d, struct detect_rule *r,
                     struct yaml_node *node, uint64_t *work);

uint64_t detect_subject(const struct detect *d, const struct detect_rule *r,
                        const struct detect_event *ev);
// 0: the event does not have the field.
uint64_t detect_value(const struct detect *d, int field, const struct detect_event *ev);

// Another event is compared: what is known of the one before is forgotten.
static inline void
detect_begin(struct detect *d)
{
    memset(d->scope, 0, sizeof d->scope);
    d->valued = 0;
    d->events++;
}

// detect.c: whether one of its exceptions fits; compares an event with one rule. known: as detect_matches() has it.
bool detect_is_excepted(const struct detect_rule *r, const struct detect_event *ev);
void detect_compare(struct detect *d, struct detect_rule *r, const struct detect_event *ev,
                    const struct detect_part *known, detect_found_fn *found, void *cookie);
