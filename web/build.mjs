// Builds the page into diagnose/web/dist, or into the folder given. The same sources
// give the same files: versions are pinned, and nothing of this machine goes in.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, "../diagnose/web/dist"));

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { main: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
});
await build({ absWorkingDir: here, entryPoints: { main: "src/style.css" }, outdir: out, bundle: true, minify: true, charset: "utf8", logLevel: "warning" });
for (const file of ["index.html", "icon.svg"]) await copyFile(join(here, "src", file), join(out, file));

// What the page is made of, with the licences, which ask for this.
const licences = await Promise.all(["preact", "uplot"].map(async (name) => {
  const text = await readFile(join(here, "node_modules", name, "LICENSE"), "utf8");
  return `${name}\n\n${text.trim()}\n`;
}));
await writeFile(join(out, "licences.txt"), licences.join("\n"));

// Of which sources this is, and that nobody changed it by hand: a test compares.
const sums = [];
const add = async (name, file) => sums.push(createHash("sha256").update(await readFile(file)).digest("hex") + "  " + name + "\n");
for (const [name, dir] of [["src", join(here, "src")], ["dist", out]]) {
  for (const file of await readdir(dir, { recursive: true, withFileTypes: true })) {
    if (file.isFile()) await add(name + "/" + relative(dir, join(file.parentPath ?? file.path, file.name)), join(file.parentPath ?? file.path, file.name));
  }
}
for (const name of ["build.mjs", "package-lock.json"]) await add(name, join(here, name));
await writeFile(join(out, "sums.txt"), sums.sort().join(""));
