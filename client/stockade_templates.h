// SPDX-License-Identifier: Apache-2.0
// libstockade: templates of sandboxes. A part of stockade.h, which includes it and describes calls, threads and ownership.
// proto/stockade/v1/template_service.proto describes the fields.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// One job whose files a template holds, as the broker saw it.
struct stockade_template_step {
    const char *command;
    const char *digest; // of the layer with what it wrote
    const char *const *destinations;
    size_t destinations_n;
    uint64_t connections;
    int64_t ended_ms; // since 1970
    uint32_t outcome; // enum stockade_outcome
    uint32_t exit_code;
};

struct stockade_sandbox_template {
    const char *name;
    bool of_host;
    const char *base, *made_on, *sandbox_id, *snapshot;
    int64_t created_ms; // since 1970; 0: of the host
    uint64_t bytes, inodes;
    bool user_root, root_writable;
    const struct stockade_pair *env;
    size_t env_n;
    const char *workdir, *network;
    const struct stockade_template_step *steps;
    size_t steps_n;
    uint64_t steps_omitted;
    const char *digest, *principal;
    bool unreadable; // its data key was forgotten; it can be deleted
    // from an archive, whose word made_on, principal, network and steps are; "": it was made here
    const char *loaded_by;
};

struct stockade_sandbox_templates {
    const struct stockade_sandbox_template *items; // those of the host first; without steps
    size_t n;
    const char *next_page; // "" on the last page
};

struct stockade_template_options {
    size_t size;
    const char *snapshot; // of the sandbox; NULL: its files as they are now, and no job may run
    bool stop;            // cancel the jobs that run first
    const struct stockade_pair *env;
    size_t env_n;
    const char *workdir;
    // one of this name, when the new one is on the disk; after a failure it is as it was
    bool replace;
};
#define STOCKADE_TEMPLATE_OPTIONS_INIT STOCKADE_INIT(stockade_template_options)

// Makes a template from the files of a sandbox (its id or its name). o may be NULL.
STOCKADE_API int stockade_template_create(struct stockade *s, const char *name, const char *sandbox,
                                          const struct stockade_template_options *o,
                                          const struct stockade_sandbox_template **out,
                                          struct stockade_error *e);
STOCKADE_API int stockade_template_get(struct stockade *s, const char *name,
                                       const struct stockade_sandbox_template **out,
                                       struct stockade_error *e);
// page: next_page of the previous page, or NULL.
STOCKADE_API int stockade_template_list(struct stockade *s, const char *page,
                                        const struct stockade_sandbox_templates **out,
                                        struct stockade_error *e);
// Sandboxes of it keep their files.
STOCKADE_API int stockade_template_delete(struct stockade *s, const char *name,
                                          struct stockade_error *e);

#ifdef __cplusplus
}
#endif
