// SPDX-License-Identifier: Apache-2.0
// The messages and services of the protocol, as made from its .proto files: for `Client.unary` and `Client.stream`.
export * from "./gen/stockade/v1/access_service_pb.js";
export * from "./gen/stockade/v1/anomaly_service_pb.js";
export * from "./gen/stockade/v1/approval_service_pb.js";
export * from "./gen/stockade/v1/audit_pb.js";
export * from "./gen/stockade/v1/audit_service_pb.js";
export * from "./gen/stockade/v1/file_service_pb.js";
export * from "./gen/stockade/v1/code_service_pb.js";
export * from "./gen/stockade/v1/limits_pb.js";
export * from "./gen/stockade/v1/metrics_service_pb.js";
export * from "./gen/stockade/v1/options_pb.js";
export * from "./gen/stockade/v1/policy_pb.js";
export * from "./gen/stockade/v1/policy_service_pb.js";
export * from "./gen/stockade/v1/process_service_pb.js";
export * from "./gen/stockade/v1/rules_service_pb.js";
export * from "./gen/stockade/v1/detection_pb.js";
export * from "./gen/stockade/v1/sandbox_service_pb.js";
export * from "./gen/stockade/v1/simulation_pb.js";
export * from "./gen/stockade/v1/snapshot_service_pb.js";
export * from "./gen/stockade/v1/template_service_pb.js";
export * from "./gen/stockade/v1/transaction_service_pb.js";
export * from "./gen/stockade/v1/record_pb.js";
export * from "./gen/stockade/v1/system_service_pb.js";
export * from "./gen/stockade/v1/telemetry_service_pb.js";
export * from "./gen/stockade/v1/volume_service_pb.js";
export * from "./gen/stockade/v1/token_pb.js";
export * from "./gen/stockade/v1/wire_pb.js";
