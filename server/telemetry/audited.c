// SPDX-License-Identifier: Apache-2.0
// What the audit log says about a job: how it ended, what the kernel saw and did not, and the digest of the whole record.
#include "private.h"

#include "proto/audit.h"
#include "server/audit/audit.h"

static void
add_record(Stockade__V1__AuditJob *m, const Stockade__V1__Record *r)
{
    m->denials = r->denials_total;
    m->executed = r->executed_total;
    m->findings = r->findings_total;
    const Stockade__V1__Completeness *c = r->completeness;
    if (c == NULL)
        return;
    m->complete = c->complete;
    m->missing = c->missing;
    m->n_missing = c->n_missing;
    for (size_t i = 0; i < c->n_lost; i++)
        m->lost += c->lost[i]->events;
}

void
telemetry_audit(struct telemetry *t, const struct job *j, const uint8_t *bytes, size_t n)
{
    uint8_t digest[AUDIT_HASH];
    Stockade__V1__AuditRecord record = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditJob m = STOCKADE__V1__AUDIT_JOB__INIT;
    const struct job_result *result = job_result(j);
    m.process_id = job_id(j);
    m.sandbox_id = job_sandbox(j)->id.id;
    m.tenant = job_tenant(j);
    m.template_ = job_sandbox(j)->spec.template->name;
    m.outcome = (uint32_t)result->outcome;
    m.exit_code = result->exit_code;
    m.signal = result->signal;
    m.simulated = job_sandbox(j)->simulation != NULL;
    if (bytes != NULL && result->record != NULL) {
        audit_hash(bytes, n, digest);
        m.record = (ProtobufCBinaryData){sizeof digest, digest};
        add_record(&m, result->record);
    }
    record.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_JOB;
    record.job = &m;
    audit_write(t->srv->audit, &record, true);
}
