// SPDX-License-Identifier: Apache-2.0
// libstockade: volumes, folders with a quota that outlive sandboxes. A part of stockade.h, which includes it and describes calls,
// threads and ownership. proto/stockade/v1/volume_service.proto describes the fields.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct stockade_volume {
    const char *name;
    uint64_t bytes, inodes; // its quota
    int64_t created_ms;     // since 1970
    uint32_t sandboxes;     // that have it now
    // The next two are known: always with stockade_volume_get(), unless its disk cannot be opened.
    bool measured;
    uint64_t used_bytes, used_inodes;
};

struct stockade_volumes {
    const struct stockade_volume *items; // oldest first
    size_t n;
    const char *next_page; // "" on the last page
};

// bytes 0: 1 GiB; inodes 0: one for every 16 KiB. ALREADY_EXISTS; RESOURCE_EXHAUSTED: a quota, or the host's disk;
// FAILED_PRECONDITION with the reason NO_DISKS: the host cannot enforce quotas.
STOCKADE_API int stockade_volume_create(struct stockade *s, const char *name, uint64_t bytes,
                                        uint64_t inodes, const struct stockade_volume **out,
                                        struct stockade_error *e);
STOCKADE_API int stockade_volume_get(struct stockade *s, const char *name,
                                     const struct stockade_volume **out, struct stockade_error *e);
// page: next_page of the previous page, or NULL.
STOCKADE_API int stockade_volume_list(struct stockade *s, const char *page,
                                      const struct stockade_volumes **out,
                                      struct stockade_error *e);
// Removes it with all that it holds. FAILED_PRECONDITION with the reason VOLUME_IN_USE: a sandbox has it; with `force` those
// sandboxes are deleted first.
STOCKADE_API int stockade_volume_delete(struct stockade *s, const char *name, bool force,
                                        struct stockade_error *e);

#ifdef __cplusplus
}
#endif
