// Bundles src/ into page.html, one file that loads nothing. Its content security policy names the hashes of its script and style, so
// that nothing else can run. With an argument, writes there instead.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const at = (/** @type {string} */ name) => fileURLToPath(new URL(name, import.meta.url));
const bundle = async (/** @type {string} */ entry) => {
  const options = { bundle: true, minify: true, charset: "utf8", target: "es2022", write: false, legalComments: "none" };
  const built = await build({ ...options, entryPoints: [at(entry)], format: "iife" });
  return built.outputFiles[0].text.trim();
};
const hash = (/** @type {string} */ text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const [script, style] = [await bundle("src/main.js"), await bundle("src/style.css")];
if (script.includes("</script") || style.includes("</style")) throw new Error("the bundle ends its own element");
const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data:; base-uri 'none'; form-action 'none'`;
const parts = { POLICY: policy, STYLE: style, SCRIPT: script };
const page = readFileSync(at("src/page.html"), "utf8").replace(/\{\{(POLICY|STYLE|SCRIPT)\}\}/g, (_, name) => parts[name]);
writeFileSync(process.argv[2] ?? at("page.html"), page);
