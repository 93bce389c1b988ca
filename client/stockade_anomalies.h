// SPDX-License-Identifier: Apache-2.0
// libstockade: findings, that is, suspicious behaviour in sandboxes, and profiles of templates. A part of stockade.h, which
// includes it and describes calls, threads and ownership. proto/stockade/v1/anomaly_service.proto and record.proto describe
// the fields.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum stockade_severity {
    STOCKADE_SEVERITY_ANY = 0,
    STOCKADE_SEVERITY_INFO = 1,
    STOCKADE_SEVERITY_NOTICE = 2,
    STOCKADE_SEVERITY_WARNING = 3,
    STOCKADE_SEVERITY_CRITICAL = 4,
};

struct stockade_finding {
    uint64_t sequence;
    int64_t time_ms; // since 1970
    const char *rule;
    uint32_t severity; // enum stockade_severity
    const char *text;
    double score, threshold;
    const char *response; // "log", "alert", "throttle", "pause", "kill"
    const char *sandbox_id;
    const char *process_id; // "": the sandbox as a whole
    const char *template_name;
    const void *message; // for stockade_json()
};

struct stockade_findings {
    const struct stockade_finding *items; // oldest first
    size_t n;
    uint64_t last_sequence; // after_sequence of the next request
    bool more;
    uint64_t forgotten;   // findings after after_sequence that are no longer kept
    const char *instance; // the run of the broker that the numbers belong to
};

struct stockade_findings_options {
    size_t size;
    uint64_t after_sequence; // 0: start with the oldest
    const char *sandbox_id;  // NULL: any
    const char *rule;        // NULL: any
    uint32_t severity;       // this severity or higher
    const char *tenant;      // NULL: the caller's own; for root also "uid:1000", "*"
    uint32_t page_size;      // 0: 100
    uint32_t wait_ms;        // if there is none, wait for one; at most 30,000
    const char *instance;    // the run that after_sequence belongs to; NULL: the current one
};
#define STOCKADE_FINDINGS_OPTIONS_INIT STOCKADE_INIT(stockade_findings_options)

struct stockade_rule {
    const char *name, *meaning;
    bool enabled;
    uint32_t severity; // enum stockade_severity
    uint64_t threshold, window_ms;
    const char *response;
};

struct stockade_rules {
    const struct stockade_rule *items;
    size_t n;
};

enum stockade_profile_state {
    STOCKADE_PROFILE_UNKNOWN = 0,
    STOCKADE_PROFILE_OFF = 1,
    STOCKADE_PROFILE_LEARNING = 2,
    STOCKADE_PROFILE_FROZEN = 3,
};

struct stockade_executable {
    const char *path;
    uint64_t inode, size, execs;
    bool profiled;
    uint32_t sequences;
    uint64_t looked_at, unseen, windows, alerts;
};

struct stockade_profile {
    const char *template_name;
    uint32_t state; // enum stockade_profile_state
    uint32_t version, runs, runs_wanted;
    int64_t frozen_ms; // since 1970; 0: not frozen
    bool own_files;
    uint64_t left_out;
    const struct stockade_executable *executables;
    size_t executables_n;
    const char *learnt_from; // the other template that an imported file was made of; or ""
};

struct stockade_profiles {
    const struct stockade_profile *items;
    size_t n;
};

STOCKADE_API int stockade_findings(struct stockade *s, const struct stockade_findings_options *o,
                                   const struct stockade_findings **out, struct stockade_error *e);
// The rules with their settings for a template (NULL: "default").
STOCKADE_API int stockade_rules(struct stockade *s, const char *template_name,
                                const struct stockade_rules **out, struct stockade_error *e);
// The profile of a template with its executables, or (NULL) of all templates without. This function and the following ones
// require root.
STOCKADE_API int stockade_profiles(struct stockade *s, const char *template_name,
                                   const struct stockade_profiles **out, struct stockade_error *e);
STOCKADE_API int stockade_profile_export(struct stockade *s, const char *template_name,
                                         const struct stockade_bytes **out,
                                         struct stockade_error *e);
STOCKADE_API int stockade_profile_import(struct stockade *s, const char *template_name,
                                         const void *bytes, size_t n, struct stockade_error *e);
// learn: learn for this number of runs; 0: the number in the broker's configuration.
STOCKADE_API int stockade_profile_reset(struct stockade *s, const char *template_name,
                                        uint32_t learn, struct stockade_error *e);
STOCKADE_API int stockade_profile_freeze(struct stockade *s, const char *template_name,
                                         struct stockade_error *e);

#ifdef __cplusplus
}
#endif
