// SPDX-License-Identifier: Apache-2.0
// What the dashboard may call: the table of gateway.h.
#include <string.h>

#include <protobuf-c/protobuf-c.h>

#include "stockade/v1/anomaly_service.pb-c.h"
#include "stockade/v1/approval_service.pb-c.h"
#include "stockade/v1/metrics_service.pb-c.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/system_service.pb-c.h"
#include "stockade/v1/telemetry_service.pb-c.h"
#include "gateway.h"

#define TYPES(request, response)                                                                   \
    &stockade__v1__##request##__descriptor, &stockade__v1__##response##__descriptor

static const struct gateway_method methods[] = {
    // of all tenants, for operators and the exporter's account
    {"SystemService/Info", TYPES(info_request, info_response), false, false},
    {"MetricsService/Get", TYPES(metrics_service_get_request, metrics_service_get_response), false,
     false},
    {"TelemetryService/ListUsage", TYPES(list_usage_request, list_usage_response), false, false},
    {"TelemetryService/GetRecord", TYPES(get_record_request, get_record_response), false, false},
    {"TelemetryService/Subscribe", TYPES(subscribe_request, subscribe_response), false, true},
    {"AnomalyService/ListFindings", TYPES(list_findings_request, list_findings_response), false,
     false},
    {"AnomalyService/ListRules", TYPES(list_rules_request, list_rules_response), false, false},
    {"AnomalyService/ListAcknowledged",
     TYPES(list_acknowledged_request, list_acknowledged_response), false, false},
    {"AnomalyService/ListSilences", TYPES(list_silences_request, list_silences_response), false,
     false},
    // of the caller
    {"AnomalyService/AcknowledgeFinding",
     TYPES(acknowledge_finding_request, acknowledge_finding_response), true, false},
    {"AnomalyService/CreateSilence", TYPES(create_silence_request, create_silence_response), true,
     false},
    {"AnomalyService/DeleteSilence", TYPES(delete_silence_request, delete_silence_response), true,
     false},
    {"SandboxService/Get", TYPES(sandbox_service_get_request, sandbox_service_get_response), true,
     false},
    {"SandboxService/Pause", TYPES(sandbox_service_pause_request, sandbox_service_pause_response),
     true, false},
    {"SandboxService/Resume",
     TYPES(sandbox_service_resume_request, sandbox_service_resume_response), true, false},
    {"SandboxService/Delete",
     TYPES(sandbox_service_delete_request, sandbox_service_delete_response), true, false},
    {"ProcessService/List", TYPES(process_service_list_request, process_service_list_response),
     true, false},
    {"ProcessService/Signal", TYPES(signal_request, signal_response), true, false},
    {"ProcessService/Attach", TYPES(attach_request, attach_response), true, true},
    {"ApprovalService/List", TYPES(approval_service_list_request, approval_service_list_response),
     true, false},
    {"ApprovalService/Get", TYPES(approval_service_get_request, approval_service_get_response),
     true, false},
    {"ApprovalService/Approve", TYPES(approve_request, approve_response), true, false},
    {"ApprovalService/Deny", TYPES(deny_request, deny_response), true, false},
    {"ApprovalService/Watch",
     TYPES(approval_service_watch_request, approval_service_watch_response), true, true},
};

const struct gateway_method *
gateway_method(const char *path, size_t n)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strlen(methods[i].path) == n && strncmp(methods[i].path, path, n) == 0)
            return &methods[i];
    return NULL;
}
