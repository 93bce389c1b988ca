// SPDX-License-Identifier: Apache-2.0
// API.md from the doc comments of what "stockade" exports.
//
//   node scripts/docs.mjs           writes it
//   node scripts/docs.mjs --check   fails where an export or a member has no comment, where a promise does not say what
//                                   it rejects with, or where API.md is not what would be written
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const config = ts.getParsedCommandLineOfConfigFile(join(root, "tsconfig.json"), {}, ts.sys);
const program = ts.createProgram(config.fileNames, config.options);
const checker = program.getTypeChecker();
const entry = program.getSourceFile(join(root, "src/index.ts"));
const problems = [];

function docOf(symbol) {
  return ts.displayPartsToString(symbol.getDocumentationComment(checker)).replace(/\s*\n\s*/g, " ").trim();
}

function tagOf(symbol, name) {
  const tag = symbol.getJsDocTags(checker).find((t) => t.name === name);
  return tag === undefined ? undefined : ts.displayPartsToString(tag.text ?? []);
}

function hasTag(symbol, name) {
  return symbol.getJsDocTags(checker).some((t) => t.name === name);
}

function isHidden(symbol) {
  const declaration = symbol.declarations?.[0];
  const modifiers = declaration === undefined ? 0 : ts.getCombinedModifierFlags(declaration);
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  return (modifiers & hidden) !== 0 || symbol.name.startsWith("__#") || hasTag(symbol, "internal");
}

// The source text of a declaration, without its body and comments.
function signatureOf(declaration) {
  const file = declaration.getSourceFile();
  const end = declaration.body === undefined ? declaration.getEnd() : declaration.body.getStart(file);
  let text = file.text.slice(declaration.getStart(file), end).trim();
  text = text.replace(/\/\*\*[\s\S]*?\*\/\s*/g, "").replace(/;$/, "");
  text = text.replace(/\s*\n\s*/g, " ").replace(/\( /g, "(").replace(/,? \)/g, ")");
  return text.replace(/^(export|async|static|readonly) /, "").replace(/^(async|readonly) /, "");
}

function isStatic(symbol) {
  return (ts.getCombinedModifierFlags(symbol.declarations[0]) & ts.ModifierFlags.Static) !== 0;
}

function checkComment(where, symbol, declaration) {
  const doc = docOf(symbol);
  const callable = !ts.isClassDeclaration(declaration) && !ts.isInterfaceDeclaration(declaration);
  if (doc === "") {
    problems.push(`${where}: no comment`);
  }
  const promises = callable && /\): (Promise|AsyncGenerator)</.test(signatureOf(declaration));
  if (promises && !/Error|[Rr]ejects|Never rejects/.test(doc)) {
    problems.push(`${where}: the comment does not say what it rejects with`);
  }
  return doc;
}

function membersOf(symbol) {
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  const declared = [...(symbol.members?.values() ?? []), ...(symbol.exports?.values() ?? [])];
  return declared.filter((m) => {
    const declaration = m.declarations?.[0];
    const ours = declaration !== undefined && m.name !== "prototype" && !ts.isTypeParameterDeclaration(declaration);
    return ours && type !== undefined && !isHidden(m) && !isPrivateName(declaration) && !isPlumbing(m, declaration);
  });
}

function isPrivateName(declaration) {
  return declaration.name !== undefined && ts.isPrivateIdentifier(declaration.name);
}

// Constructors without a comment, and the iteration methods that every iterable has.
function isPlumbing(symbol, declaration) {
  if (ts.isConstructorDeclaration(declaration)) {
    return docOf(symbol) === "" || (ts.getCombinedModifierFlags(declaration) & ts.ModifierFlags.Private) !== 0;
  }
  return declaration.name?.getText() === "[Symbol.asyncIterator]" && docOf(symbol) === "";
}

function memberLine(owner, symbol) {
  const declaration = symbol.declarations[0];
  const signature = signatureOf(declaration).replace(/ ?\{$/, "");
  const doc = checkComment(`${owner}.${symbol.name}`, symbol, declaration);
  const prefix = isStatic(symbol) ? `${owner}.` : "";
  const text = ts.isGetAccessor(declaration) ? signature.replace(/^get /, "").replace("():", ":") : signature;
  return `- \`${prefix}${text}\`  \n  ${doc}`;
}

function section(symbol) {
  const declaration = symbol.declarations[0];
  const doc = checkComment(symbol.name, symbol, declaration);
  const out = [`### ${symbol.name}`, ""];
  if (ts.isFunctionDeclaration(declaration)) {
    out.push("```ts", signatureOf(declaration).replace(/ ?\{$/, ""), "```", "");
  } else if (ts.isTypeAliasDeclaration(declaration)) {
    out.push("```ts", signatureOf(declaration), "```", "");
  } else if (ts.isClassDeclaration(declaration)) {
    const base = declaration.heritageClauses?.map((h) => h.getText()).join(" ") ?? "";
    out.push(`class ${symbol.name}${base === "" ? "" : ` ${base}`}`, "");
  } else if (ts.isInterfaceDeclaration(declaration)) {
    const base = declaration.heritageClauses?.map((h) => h.getText()).join(" ") ?? "";
    out.push(`interface ${symbol.name}${base === "" ? "" : ` ${base}`}`, "");
  }
  out.push(doc, "");
  const example = tagOf(symbol, "example");
  if (example !== undefined) {
    out.push("```ts", example.trim(), "```", "");
  }
  if (ts.isClassDeclaration(declaration) || ts.isInterfaceDeclaration(declaration)) {
    const lines = membersOf(symbol).map((m) => memberLine(symbol.name, m));
    out.push(...lines, ...(lines.length > 0 ? [""] : []));
  }
  return out.join("\n");
}

function groupOf(symbol) {
  const declaration = symbol.declarations[0];
  const file = declaration.getSourceFile().fileName;
  if (file.endsWith("/errors.ts") || symbol.name.endsWith("Error")) {
    return "Errors";
  }
  if (ts.isFunctionDeclaration(declaration)) {
    return "Functions";
  }
  return ts.isClassDeclaration(declaration) ? "Classes" : "Types and constants";
}

function write() {
  const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(entry)).map((s) =>
    (s.flags & ts.SymbolFlags.Alias) !== 0 ? checker.getAliasedSymbol(s) : s,
  );
  const out = [
    "# What `stockade` exports",
    "",
    "Made from the doc comments by `npm run docs`. Durations are seconds where they are numbers, sizes are bytes.",
    "",
  ];
  for (const group of ["Functions", "Classes", "Errors", "Types and constants"]) {
    const members = exported.filter((s) => groupOf(s) === group).sort((a, b) => (a.name < b.name ? -1 : 1));
    out.push(`## ${group}`, "", ...members.map(section));
  }
  return `${out.join("\n").trimEnd()}\n`;
}

const text = write();
const path = join(root, "API.md");
if (!process.argv.includes("--check")) {
  writeFileSync(path, text);
} else if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
  problems.push("API.md is not up to date: run `npm run docs`");
}
for (const problem of problems) {
  process.stderr.write(`${problem}\n`);
}
process.exit(problems.length > 0 ? 1 : 0);
