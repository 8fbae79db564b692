// Writes src/millstream/server/console/vendor: each file of entries/ as one module, and the licences of all packages in them.
// Run `npm ci && npm run build` here after a change of a version. The results are committed, so nobody else needs node.
import { build } from "esbuild";
import { copyFileSync, existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const TO = "../../src/millstream/server/console/vendor";
const entries = readdirSync("entries");
const { metafile } = await build({
  entryPoints: entries.map((name) => `entries/${name}`), outdir: TO, bundle: true, minify: true, format: "esm", target: "es2022", legalComments: "none", metafile: true,
});
copyFileSync("node_modules/uplot/dist/uPlot.min.css", `${TO}/uplot.css`);

const packageOf = (path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1];
const used = new Map();
for (const [file, { inputs }] of Object.entries(metafile.outputs)) {
  for (const name of new Set(Object.entries(inputs).filter(([, { bytesInOutput }]) => bytesInOutput).map(([path]) => packageOf(path)).filter(Boolean))) used.set(name, [...(used.get(name) ?? []), file.split("/").at(-1)]);
}
used.set("@dagrejs/graphlib", used.get("@dagrejs/dagre")); // is inside dagre's file

const told = [...used].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, files]) => {
  const at = `node_modules/${name}`, { version, license } = JSON.parse(readFileSync(`${at}/package.json`, "utf8"));
  const text = ["LICENSE", "LICENSE.md", "LICENSE.txt"].map((each) => `${at}/${each}`).find(existsSync);
  if (!text) throw new Error(`${name} has no licence`);
  return { name, version, license, files, text: readFileSync(text, "utf8").trim() };
});
writeFileSync(`${TO}/LICENSES.md`, `# Code of others in this folder

Built from published packages by \`tools/console/build.js\`, so that the console needs no network and no node.

| package | licence | in |
|---|---|---|
${told.map(({ name, version, license, files }) => `| ${name} ${version} | ${license} | ${files.join(", ")} |`).join("\n")}

${told.map(({ name, text }) => `## ${name}\n\n\`\`\`\n${text}\n\`\`\`\n`).join("\n")}`);
