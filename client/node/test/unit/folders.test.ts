// SPDX-License-Identifier: Apache-2.0
// Archives that a sandbox may send: nothing is written outside of the chosen folder.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { DataLossError, InvalidArgumentError } from "../../src/errors.js";
import { pack, Unpacker } from "../../src/folders.js";

const END = Buffer.alloc(1024);

interface Fields {
  type?: string;
  link?: string;
  data?: string;
  size?: number;
  mode?: number;
  checksum?: number;
}

function entry(name: string, fields: Fields = {}): Buffer {
  const data = Buffer.from(fields.data ?? "");
  const block = Buffer.alloc(512);
  const octal = (value: number, size: number): string => value.toString(8).padStart(size - 1, "0");
  block.write(name, 0, 100, "latin1");
  block.write(octal(fields.mode ?? 0o644, 8), 100);
  block.write(octal(fields.size ?? data.length, 12), 124);
  block.write(octal(0, 12), 136);
  block.write(fields.type ?? "0", 156);
  block.write(fields.link ?? "", 157);
  block.write("ustar  ", 257);
  const sum = block.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  block.write(octal(fields.checksum ?? sum, 7), 148);
  return Buffer.concat([block, data, Buffer.alloc((512 - (data.length % 512)) % 512)]);
}

function symlink(name: string, link: string): Buffer {
  return entry(name, { type: "2", link });
}

const whole = (...parts: Buffer[]): Buffer => Buffer.concat([...parts, END]);

const hostile: Readonly<Record<string, Buffer>> = {
  dots: whole(entry("../out", { data: "x" })),
  "dots inside": whole(entry("a/../../out", { data: "x" })),
  absolute: whole(entry("/tmp/out", { data: "x" })),
  "link out": whole(symlink("l", "../x")),
  "absolute link": whole(symlink("l", "/etc")),
  "link out, behind a dot": whole(symlink("./l", "../x")),
  "link out by way of a link": whole(symlink("d/b", ".."), symlink("d/a", "b/../..")),
  "through a link": whole(symlink("l", "d"), entry("d", { type: "5" }), entry("l/f")),
  "through a file": whole(entry("f", { data: "x" }), entry("f/g")),
  "folder in the place of a link": whole(symlink("l", "d"), entry("l", { type: "5" })),
  "hard link": whole(entry("h", { type: "1", link: "/etc/passwd" })),
  device: whole(entry("d", { type: "3" })),
  FIFO: whole(entry("p", { type: "6" })),
  sparse: whole(entry("s", { type: "S" })),
  pax: whole(entry("x", { type: "x", data: "30 path=../out\n" })),
  deep: whole(entry("././@LongLink", { type: "L", data: "a/".repeat(129) + "f" }), entry("f")),
  damaged: Buffer.alloc(512, "x"),
  "wrong checksum": whole(entry("f", { checksum: 1 })),
  "a name without end": whole(entry("././@LongLink", { type: "L", size: 2 ** 32 })),
  "cut in a header": entry("f", { data: "x" }).subarray(0, 100),
  "cut in a file": entry("f", { data: "x".repeat(5000) }).subarray(0, 2000),
  "no end": entry("f", { data: "x" }),
};

async function unpack(folder: string, data: Uint8Array, step: number): Promise<number> {
  const into = await Unpacker.into(folder);
  try {
    for (let at = 0; at < data.length; at += step) {
      await into.feed(data.subarray(at, at + step));
    }
    return into.finish();
  } finally {
    await into.close();
  }
}

async function inFolder(what: (folder: string) => Promise<void>): Promise<void> {
  const folder = fs.mkdtempSync(join(tmpdir(), "stockade-folders-"));
  try {
    await what(folder);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

for (const [name, data] of Object.entries(hostile)) {
  test(`a hostile archive is refused and writes nothing outside: ${name}`, async () => {
    for (const step of [1, 511, 1 << 20]) {
      await inFolder(async (folder) => {
        fs.writeFileSync(join(folder, "x"), "kept");
        await assert.rejects(unpack(join(folder, "in"), data, step), (e) => {
          assert.ok(e instanceof InvalidArgumentError || e instanceof DataLossError, String(e));
          assert.ok(["ARCHIVE_REFUSED", "LINK_LEADS_OUT", "ARCHIVE_CUT"].includes(e.reason), e.reason);
          return true;
        });
        assert.deepEqual(fs.readdirSync(folder).sort(), ["in", "x"]);
        assert.equal(fs.readFileSync(join(folder, "x"), "utf8"), "kept");
        assert.ok(!fs.existsSync("/tmp/out"));
      });
    }
  });
}

test("a link is replaced and not followed", async () => {
  await inFolder(async (folder) => {
    fs.writeFileSync(join(folder, "kept"), "kept");
    fs.mkdirSync(join(folder, "in"));
    fs.symlinkSync("../kept", join(folder, "in/f"));
    assert.equal(await unpack(join(folder, "in"), whole(entry("f", { data: "new", mode: 0o6755 })), 512), 1);
    assert.equal(fs.readFileSync(join(folder, "kept"), "utf8"), "kept");
    assert.equal(fs.readFileSync(join(folder, "in/f"), "utf8"), "new");
    assert.equal(fs.statSync(join(folder, "in/f")).mode & 0o7777, 0o755);
  });
});

test("what is packed comes out the same, also for tar", async () => {
  await inFolder(async (folder) => {
    const long = "n".repeat(200);
    const inner = join(folder, "tree", long, long);
    fs.mkdirSync(inner, { recursive: true });
    fs.writeFileSync(Buffer.concat([Buffer.from(`${inner}/`), Buffer.from([0xff, 0x0a])]), Buffer.alloc(100_001, "x"));
    fs.writeFileSync(join(folder, "tree/empty"), "");
    fs.symlinkSync(`../${long}`, join(folder, "tree", long, "l"));
    execFileSync("mkfifo", [join(folder, "tree/p")]);
    const parts: Uint8Array[] = [];
    for await (const part of pack(join(folder, "tree"))) {
      parts.push(part);
    }
    const data = Buffer.concat(parts);
    assert.equal(await unpack(join(folder, "back"), data, 1000), 5);
    fs.rmSync(join(folder, "tree/p"));
    execFileSync("diff", ["-r", "--no-dereference", join(folder, "tree"), join(folder, "back")]);
    fs.mkdirSync(join(folder, "tar"));
    execFileSync("tar", ["-C", join(folder, "tar"), "-xf", "-"], { input: data });
    execFileSync("diff", ["-r", "--no-dereference", join(folder, "tree"), join(folder, "tar")]);
  });
});
