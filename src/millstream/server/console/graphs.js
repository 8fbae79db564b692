// Boxes and arrows: the whole server (streams and the queries that read them), and the plan of one query.
import { html } from "./vendor/preact.js";

const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const WIDTH = 230, HEIGHT = 44, GAP = 14;
const MOST = 60;

export const perSecond = (rate) => (rate === undefined ? "" : rate >= 1e6 ? `${(rate / 1e6).toFixed(1)} M/s` : rate >= 1e3 ? `${(rate / 1e3).toFixed(1)} K/s` : `${rate.toFixed(rate < 10 ? 1 : 0)}/s`);

function Box({ x, y, title, under, kind = "", href }) {
  const box = html`<g class=${kind}><rect x=${x} y=${y} width=${WIDTH} height=${HEIGHT} rx="6"/>
    <text x=${x + 10} y=${y + 18}>${cut(title, 32)}</text><text class="faint" x=${x + 10} y=${y + 35}>${cut(under, 36)}</text>
    <title>${title}</title></g>`;
  return href ? html`<a href=${href}>${box}</a>` : box;
}

const arrow = (x1, y1, x2, y2) => html`<path d=${`M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`} marker-end="url(#tip)"/>`;
const tip = html`<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8"/></marker></defs>`;

export function ServerGraph({ told, rates }) {
  const queries = told.queries.slice(0, MOST);
  const used = new Set(queries.flatMap((query) => query.uses));
  const streams = told.streams.filter((stream) => used.has(stream.name) || told.queries.length <= MOST);
  const at = (i) => 10 + i * (HEIGHT + GAP);
  const height = Math.max(at(Math.max(streams.length, queries.length)), 70);
  const place = new Map(streams.map((stream, i) => [stream.name.toLowerCase(), at(i) + HEIGHT / 2]));
  const right = 380;
  return html`<div class="scroll"><svg class="graph" viewBox=${`0 0 ${right + WIDTH + 10} ${height}`} style=${`min-width: 34rem; max-height: ${height}px`} role="img" aria-label="streams and the queries that read them">${tip}
    ${queries.flatMap((query, i) => query.uses.filter((name) => place.has(name.toLowerCase())).map((name) => arrow(10 + WIDTH, place.get(name.toLowerCase()), right, at(i) + HEIGHT / 2)))}
    ${streams.map((stream, i) => html`<${Box} kind="stream" x=${10} y=${at(i)} title=${stream.name} under=${`${stream.rows.toLocaleString()} rows  ${perSecond(rates[`s:${stream.name}`])}`}/>`)}
    ${queries.map((query, i) => html`<${Box} kind=${query.state} x=${right} y=${at(i)} title=${query.name} href=${`#/queries/${encodeURIComponent(query.name)}`}
      under=${`${query.state}, ${query.rows.toLocaleString()} rows  ${perSecond(rates[`q:${query.name}`])}`}/>`)}
  </svg></div>${told.queries.length > MOST && html`<p>The first ${MOST} of ${told.queries.length.toLocaleString()} queries.</p>`}`;
}

// A plan as EXPLAIN prints it is a tree by its indentation.
export function planTree(text) {
  const part = text.split(/\n\n/).find((each) => each.startsWith("physical plan:")) ?? text;
  const nodes = [];
  for (const line of part.split("\n").slice(1)) {
    const depth = line.search(/[^\s│└├─]/);
    if (depth < 0) continue;
    let parent = nodes.length - 1;
    while (parent >= 0 && nodes[parent].depth >= depth) parent = nodes[parent].parent;
    nodes.push({ depth, parent, text: line.slice(depth) });
  }
  return nodes;
}

export function PlanGraph({ text }) {
  const nodes = planTree(text);
  if (!nodes.length) return null;
  const level = (node) => (node.parent < 0 ? 0 : 1 + level(nodes[node.parent]));
  const deepest = Math.max(...nodes.map(level));
  let rows = 0;
  const places = nodes.map((node, i) => {
    const first = i > 0 && nodes[i - 1] === nodes[node.parent];
    if (i > 0 && !first) rows += 1;
    return { x: 10 + (deepest - level(node)) * (WIDTH + 50), y: 10 + rows * (HEIGHT + GAP) };
  });
  const width = (deepest + 1) * (WIDTH + 50), height = 20 + (rows + 1) * (HEIGHT + GAP);
  return html`<div class="scroll"><svg class="graph" viewBox=${`0 0 ${width} ${height}`} style=${`min-width: ${Math.min(width, 1200) * 0.7}px; max-height: ${height}px`} role="img" aria-label="the plan as boxes and arrows">${tip}
    ${nodes.map((node, i) => node.parent >= 0 && arrow(places[i].x + WIDTH, places[i].y + HEIGHT / 2, places[node.parent].x, places[node.parent].y + HEIGHT / 2))}
    ${nodes.map((node, i) => {
      const [, word, rest] = node.text.match(/^(\S+)\s*(.*)$/);
      return html`<${Box} kind=${word === "Source" ? "stream" : ""} x=${places[i].x} y=${places[i].y} title=${word} under=${rest || " "}/>`;
    })}
  </svg></div>`;
}
