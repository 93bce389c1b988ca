// SPDX-License-Identifier: Apache-2.0
// What programs import from "stockade". The protocol's own messages are in "stockade/schema".
export { Approval } from "./approvals.js";
export { AuditLog } from "./audit.js";
export type { AuditFilterOptions, AuditKind, AuditPhase, AuditRecord } from "./audit.js";
export type { ApprovalCreateOptions, ApprovalInfo, ApprovalState, ApprovalVote, ApproveOptions } from "./approvals.js";
export { Batch, batch } from "./batch.js";
export type { BatchJob, BatchOptions, BatchResult, BatchSource } from "./batch.js";
export type { CallOptions } from "./call.js";
export { Client, DEFAULT_ADDRESS } from "./client.js";
export type { ClientOptions } from "./client.js";
export { CodeResult, Context, runCode } from "./code.js";
export type {
  CellOptions,
  CodeFailure,
  ContextInfo,
  ContextOptions,
  Execution,
  FreshCellOptions,
  Language,
  SandboxCellOptions,
} from "./code.js";
export * from "./errors.js";
export { Output } from "./events.js";
export type { Gap, LineCallback, ProcessEvent } from "./events.js";
export { FileWatch } from "./file_watch.js";
export type { FileEvent } from "./file_watch.js";
export { Files } from "./files.js";
export type { ArchiveOptions, Contents, FileInfo, FilePath, FolderOptions } from "./files.js";
export type { RangeOptions, WriteOptions } from "./files.js";
export type { Framing } from "./frame.js";
export { Findings } from "./findings.js";
export type { Acknowledgement, Finding, FindingOptions, FindingSeverity, Silence, SilenceOptions } from "./findings.js";
export { Forward } from "./forward.js";
export type { ForwardOptions } from "./forward.js";
export { info, serving } from "./info.js";
export type { BrokerInfo, QuotaUse, TemplateInfo } from "./info.js";
export { defaultClient, run, start } from "./jobs.js";
export type {
  CallControl,
  CommandOptions,
  FreshSandbox,
  OneShotOptions,
  OneShotStartOptions,
  RunOptions,
  SandboxRunOptions,
  StartOptions,
} from "./jobs.js";
export { ApiKeys, Tokens } from "./keys.js";
export type {
  ExchangeOptions,
  KeyCreateOptions,
  KeyForm,
  KeyInfo,
  MintOptions,
  NewKey,
  NewToken,
  SigningKey,
} from "./keys.js";
export type { Limits, LimitsInForce } from "./limits.js";
export type { Checkpoint } from "./live.js";
export type { Network, NetworkPolicy } from "./network.js";
export { Policy } from "./policy.js";
export type {
  DestinationSet,
  ExplainOptions,
  PolicyDecision,
  PolicyInfo,
  PolicyLayerInfo,
  PolicyLimits,
  PolicyQuestion,
  PolicyShowOptions,
  PolicyStep,
  Verdict,
} from "./policy.js";
export { Process } from "./process.js";
export type { Stdin, TerminalSize } from "./process.js";
export { Schema } from "./reflection.js";
export type { MethodInfo } from "./reflection.js";
export { JobError, RunResult } from "./result.js";
export type { Bill, Figure, LimitHit, Outcome } from "./result.js";
export { Rules } from "./rules.js";
export type {
  RuleEvent,
  RuleFile,
  RuleFinding,
  RuleInfo,
  RuleList,
  RuleOptions,
  RuleOrigin,
  RuleSeverity,
  RuleText,
} from "./rules.js";
export { Sandbox } from "./sandbox.js";
export type { CreateOptions } from "./sandbox.js";
export type { ProcessInfo, SandboxInfo, SleepInfo } from "./described.js";
export type { Change, ChangedFile, CopyOptions, SnapshotInfo } from "./snapshots.js";
export type { Simulate, SimulatedConnection, SimulatedRefusal, Simulation } from "./simulations.js";
export { Transaction } from "./transactions.js";
export type { TransactionInfo, TransactionOutcome, TransactionPolicy } from "./transactions.js";
export { deleteTemplate, loadTemplate, pushTemplate, templates } from "./templates.js";
export type { SandboxTemplate } from "./templates.js";
export { MessageStream } from "./stream.js";
export { events, record, usage } from "./telemetry.js";
export type { EventOptions, UsageOptions } from "./telemetry.js";
export type { TlsOptions } from "./tls.js";
export { attenuateToken, inspectToken, sealToken, TokenError, verifyToken } from "./tokens.js";
export type { TokenCaveats, TokenInfo, Tool } from "./tokens.js";
export { dialSocket, parseAddress } from "./transport.js";
export type { Address, Dial, Transport, TransportEvents } from "./transport.js";
export type { Duration, Size } from "./units.js";
export { Volume } from "./volumes.js";
export type { VolumeInfo, VolumeOptions } from "./volumes.js";
