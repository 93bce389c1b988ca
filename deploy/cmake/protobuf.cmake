# SPDX-License-Identifier: Apache-2.0
# The public .proto files import nothing but google's own and ours. What protobuf-c alone wants is added to a copy at
# build time: `const_strings` (char const *) and short names for our own messages.
set(STOCKADE_PROTO_PUBLIC options wire record limits sandbox_service process_service system_service anomaly_service
    telemetry_service metrics_service snapshot_service template_service template_definition transaction_service simulation file_service code_service volume_service access_service approval_service token policy policy_service detection rules_service audit audit_service)
find_program(PROTOC protoc REQUIRED)
find_program(PROTOC_GEN_C protoc-gen-c REQUIRED)
find_program(XXD xxd REQUIRED)
