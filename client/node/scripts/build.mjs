// SPDX-License-Identifier: Apache-2.0
// Makes the package: messages from proto/ into src/gen, then TypeScript into dist: modules in
// dist/src, CommonJS in dist/cjs.
//
//   node scripts/build.mjs            both
//   node scripts/build.mjs generate   the messages only
//   node scripts/build.mjs tests      both, and the tests
//   node scripts/build.mjs prepare    both; npm calls it for `npm install ./client/node`. The tools that it needs
//                                     (devDependencies) are installed first where they are not there yet.
//
// A package made by `npm pack` holds dist already, and no proto/ is near it: then `prepare` has nothing to do.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const protoDir = process.env.STOCKADE_PROTO_DIR ?? resolve(root, "../../proto");
const require = createRequire(join(root, "package.json"));

function fail(text) {
  process.stderr.write(`stockade: ${text}\n`);
  process.exit(1);
}

function run(program, args) {
  try {
    execFileSync(program, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
  } catch (e) {
    if (e.code === "ENOENT") {
      fail(`${program} was not found. On Debian and Ubuntu: apt-get install protobuf-compiler`);
    }
    fail(`${program} failed (exit code ${e.status ?? "none"})`);
  }
}

function toolPath(name, file) {
  try {
    return join(dirname(require.resolve(`${name}/package.json`)), file);
  } catch {
    return undefined;
  }
}

function toolsAreThere() {
  return toolPath("typescript", "") !== undefined && toolPath("@bufbuild/protoc-gen-es", "") !== undefined;
}

function installTools() {
  if (!toolsAreThere()) {
    run("npm", ["install", "--ignore-scripts", "--include=dev", "--no-save", "--no-package-lock"]);
  }
}

function generate() {
  const dir = join(protoDir, "stockade/v1");
  if (!existsSync(dir)) {
    fail(`no .proto files in ${dir}: build from a checkout of the whole project`);
  }
  const plugin = toolPath("@bufbuild/protoc-gen-es", "bin/protoc-gen-es");
  if (plugin === undefined) {
    fail("@bufbuild/protoc-gen-es is not installed: run `npm install` first");
  }
  const files = readdirSync(dir).filter((f) => f.endsWith(".proto")).sort();
  const out = join(root, "src/gen");
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  run(process.env.PROTOC ?? "protoc", [
    `--plugin=protoc-gen-es=${plugin}`,
    `-I${protoDir}`,
    `--es_out=${out}`,
    "--es_opt=target=ts,import_extension=js",
    ...files.map((f) => `stockade/v1/${f}`),
  ]);
}

function compile(project) {
  rmSync(join(root, "dist"), { recursive: true, force: true });
  run(process.execPath, [toolPath("typescript", "bin/tsc"), "-p", join(root, project)]);
  // Once more for require(): the same sources as CommonJS, with types that say so.
  run(process.execPath, [toolPath("typescript", "bin/tsc"), "-p", join(root, "tsconfig.cjs.json")]);
  writeFileSync(join(root, "dist/cjs/package.json"), '{ "type": "commonjs" }\n');
}

const what = process.argv[2] ?? "all";
if (what === "prepare") {
  if (!existsSync(protoDir) && existsSync(join(root, "dist/src/index.js"))) {
    process.exit(0);
  }
  installTools();
}
generate();
if (what !== "generate") {
  compile(what === "tests" ? "tsconfig.test.json" : "tsconfig.json");
}
