// SPDX-License-Identifier: Apache-2.0
// The kernel program of javascript: cells run in one context of node. server/code/kernel.h has the protocol.
//
// The inspector's Runtime.evaluate in REPL mode runs a cell: it allows top-level await, lets const and let be declared again,
// and returns the value of the last expression. SIGINT terminates a cell that computes (breakOnSigint), and abandons one
// that awaits. Between cells timers and promises go on; what they print belongs to the next cell.
'use strict';
const fs = require('fs');
const vm = require('vm');
const util = require('util');
const inspector = require('inspector');
const FRAME_MAX = 40 * 1024;
const TEXT_MAX = 1024 * 1024;
const session = new inspector.Session();
session.connect();
let run = 0;
let count = 0;
let stop = null; // ends a cell that awaits

function writeAll(bytes) {
  for (let at = 0; at < bytes.length;) at += fs.writeSync(3, bytes, at);
}

function send(kind, payload, ...words) {
  writeAll(Buffer.concat([Buffer.from([kind, run, payload.length, ...words].join(' ') + '\n'), payload]));
}

function pieces(bytes) {
  const list = [];
  for (let at = 0; at < bytes.length || at === 0; at += FRAME_MAX) list.push(bytes.subarray(at, at + FRAME_MAX));
  return list;
}

function takeStream(stream, name) {
  stream.write = (chunk, encoding, done) => {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(chunk);
    if (bytes.length > 0) for (const piece of pieces(bytes)) send(name, piece);
    const call = typeof encoding === 'function' ? encoding : done;
    if (call) process.nextTick(call);
    return true;
  };
}

function cut(text, most) {
  const bytes = Buffer.from(String(text).replaceAll('\0', '?'));
  return bytes.length <= most ? bytes : Buffer.from(bytes.subarray(0, most).toString().replace(/\uFFFD+$/, '') + ' ...');
}

function sendError(name, value, trace) {
  const nul = Buffer.from([0]);
  send('error', Buffer.concat([cut(name, 200), nul, cut(value, 8000), nul, cut(trace, 30000)]));
}

function report(error) {
  if (error instanceof Error || (error && typeof error.stack === 'string')) sendError(error.name, error.message, error.stack);
  else sendError('Error', util.inspect(error), util.inspect(error));
}

function sendBundle(bundle, main) {
  const forms = Object.entries(bundle).filter(([mime]) => /^[A-Za-z0-9.+_-]+\/[A-Za-z0-9/.+_-]+$/.test(mime) && mime.length <= 100);
  forms.forEach(([mime, form], i) => {
    const binary = mime.startsWith('image/') && mime !== 'image/svg+xml' || mime === 'application/pdf';
    let bytes = Buffer.isBuffer(form) ? form : typeof form === 'string' ? Buffer.from(form, binary ? 'base64' : 'utf8') : Buffer.from(JSON.stringify(form) ?? 'null');
    if (bytes.length > TEXT_MAX && mime === 'text/plain') bytes = cut(form, TEXT_MAX);
    const list = pieces(bytes);
    list.forEach((piece, k) => {
      const more = k < list.length - 1;
      send('result', piece, (main ? 'm' : 'd') + (more ? '+' : '') + (!more && i === forms.length - 1 ? '.' : ''), mime);
    });
  });
}

function show(value, main) {
  const bundle = { 'text/plain': util.inspect(value) };
  const methods = { 'text/html': '_toHtml', 'image/png': '_toPng', 'image/svg+xml': '_toSvg', 'text/markdown': '_toMarkdown', 'application/json': '_toJson' };
  if (value !== null && typeof value === 'object')
    for (const [mime, name] of Object.entries(methods)) if (typeof value[name] === 'function') bundle[mime] = value[name]();
  sendBundle(bundle, main);
}

const keep = Symbol('kept');
globalThis[keep] = { value: undefined };
globalThis.display = (...values) => values.forEach((value) => show(value, false));
Object.defineProperty(globalThis, 'require', { value: require('module').createRequire(process.cwd() + '/'), writable: true, configurable: true });

// The value behind a remote object of the inspector.
function valueOf(remote) {
  if (remote.type === 'undefined') return undefined;
  let value;
  globalThis.__stockade_take = (v) => { value = v; };
  session.post('Runtime.callFunctionOn', {
    functionDeclaration: 'function (v) { __stockade_take(v); }',
    arguments: [remote.objectId ? { objectId: remote.objectId } : remote.unserializableValue ? { unserializableValue: remote.unserializableValue } : { value: remote.value }],
    executionContextId: remote.objectId ? undefined : 1,
    objectId: remote.objectId,
  });
  delete globalThis.__stockade_take;
  return value;
}

function evaluate(text) {
  return new Promise((resolve) => {
    const finish = (error, answer) => resolve({ error, answer });
    stop = () => resolve({ interrupted: true });
    globalThis.__stockade_post = () => session.post('Runtime.evaluate', {
      expression: text + '\n//# sourceURL=cell-' + count, replMode: true, awaitPromise: true, userGesture: false }, finish);
    try {
      new vm.Script('__stockade_post()').runInThisContext({ breakOnSigint: true });
    } catch (error) {
      resolve(error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? { interrupted: true } : { error });
    }
  });
}

async function runCell(text) {
  const { error, answer, interrupted } = await evaluate(text);
  stop = null;
  if (interrupted) {
    sendError('KeyboardInterrupt', 'the cell was interrupted', 'the cell was interrupted');
    return 'interrupted';
  }
  if (error) {
    report(error);
    return 'error';
  }
  if (answer.exceptionDetails) {
    const thrown = answer.exceptionDetails.exception;
    if (thrown && (thrown.objectId || 'value' in thrown)) report(valueOf(thrown));
    else sendError('Error', answer.exceptionDetails.text, thrown ? thrown.description : answer.exceptionDetails.text);
    return 'error';
  }
  const value = valueOf(answer.result);
  if (value !== undefined) show(value, true);
  session.post('Runtime.releaseObjectGroup', { objectGroup: '' });
  return 'ok';
}

let kept = Buffer.alloc(0);
const buffer = Buffer.alloc(64 * 1024);

function readMore(then) {
  fs.read(3, buffer, 0, buffer.length, null, (error, n) => {
    if (error || n === 0) process.reallyExit(0);
    kept = Buffer.concat([kept, buffer.subarray(0, n)]);
    then();
  });
}

async function serve() {
  const end = kept.indexOf(10);
  if (end < 0) return readMore(serve);
  const [kind, number, size] = kept.subarray(0, end).toString().split(' ');
  const whole = end + 1 + Number(size);
  if (kept.length < whole) return readMore(serve);
  const text = kept.subarray(end + 1, whole).toString();
  kept = Buffer.from(kept.subarray(whole));
  if (kind === 'run') {
    run = Number(number);
    count += 1;
    let status = 'error';
    try {
      status = await runCell(text);
    } catch (error) {
      report(error);
    }
    send('done', Buffer.alloc(0), count, status);
  }
  setImmediate(serve);
}

takeStream(process.stdout, 'stdout');
takeStream(process.stderr, 'stderr');
process.on('SIGINT', () => { if (stop) stop(); });
process.on('uncaughtException', (error) => { process.stderr.write(util.inspect(error) + '\n'); });
process.on('unhandledRejection', (error) => { process.stderr.write('Unhandled rejection: ' + util.inspect(error) + '\n'); });
send('ready', Buffer.alloc(0), 1);
serve();
