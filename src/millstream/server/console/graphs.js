// Boxes and arrows: streams and groups of queries, the operators of a query, and plans that do not run yet.
import { html, useMemo } from "./vendor/preact.js";
import { Graph as Layout, layout } from "./vendor/dagre.js";

const WIDTH = 210, HEIGHT = 48, GAP = 18, LABEL = { width: 64, height: 34, labelpos: "c" };

const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const scaled = (value, steps) => { const [size, unit] = steps.find(([each]) => value >= each) ?? steps.at(-1); return `${(value / size).toFixed(value / size < 10 && size !== 1 ? 1 : 0)} ${unit}`; };
export const perSecond = (rate) => (rate === undefined ? "" : rate > 0 && rate < 10 ? `${rate.toFixed(1)}/s` : scaled(rate, [[1e6, "M/s"], [1e3, "K/s"], [1, "/s"]]).replace(" /s", "/s"));
export const bytes = (size) => scaled(size, [[1 << 30, "GB"], [1 << 20, "MB"], [1024, "KB"], [1, "B"]]);
export const count = (number) => Number(number).toLocaleString("en");
const act = (work) => (event) => { if (event.type === "click" || event.key === "Enter" || event.key === " ") { event.preventDefault(); work(); } };

function Box({ x, y, node }) {
  const box = html`<g class=${`box ${node.kind ?? ""}`} tabindex=${node.open ? 0 : undefined} role=${node.open ? "button" : undefined} aria-label=${node.open ? node.title : undefined}
      onClick=${node.open && act(node.open)} onKeyDown=${node.open && act(node.open)}>
    <rect x=${x} y=${y} width=${WIDTH} height=${HEIGHT} rx="6"/>
    <svg x=${x} y=${y} width=${WIDTH - 8} height=${HEIGHT}><text x="10" y="19">${cut(node.title, 40)}</text><text class="faint" x="10" y="37">${cut(node.under ?? "", 50)}</text></svg>
    <title>${node.told ?? node.title}</title></g>`;
  return node.href ? html`<a href=${node.href} aria-label=${node.title}>${box}</a>` : box;
}

function Arrow({ way, edge }) {
  const [first, ...rest] = way.points;
  const path = rest.reduce((done, to, i) => { const from = way.points[i], middle = (from.x + to.x) / 2; return `${done} C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`; }, `M${first.x} ${first.y}`);
  return html`<g class=${`arrow ${edge.kind ?? ""}`} tabindex=${edge.open ? 0 : undefined} role=${edge.open ? "button" : undefined} aria-label=${edge.open ? edge.told : undefined}
      onClick=${edge.open && act(edge.open)} onKeyDown=${edge.open && act(edge.open)}>
    <path class="wide" d=${path}/><path d=${path} marker-end="url(#tip)"/>
    ${edge.label && html`<text class="faint" text-anchor="middle" x=${way.x} y=${way.y - 6}>${edge.label}</text>`}
    ${edge.under && html`<text class="faint" text-anchor="middle" x=${way.x} y=${way.y + 16}>${edge.under}</text>`}<title>${edge.told ?? ""}</title></g>`;
}

// Where boxes are, and the ways of arrows between them: from the middle of one side to the middle of the other.
function places(nodes, edges) {
  const graph = new Layout({ multigraph: true }).setGraph({ rankdir: "LR", nodesep: GAP, edgesep: GAP, ranksep: 52, marginx: 10, marginy: 10 });
  for (const id of nodes) graph.setNode(id, { width: WIDTH, height: HEIGHT });
  edges.forEach(([from, to], i) => graph.setEdge(from, to, { ...LABEL }, String(i)));
  layout(graph);
  const at = new Map(nodes.map((id) => { const { x, y } = graph.node(id); return [id, { x: x - WIDTH / 2, y: y - HEIGHT / 2 }]; }));
  const ways = edges.map(([from, to], i) => {
    const { points, x, y } = graph.edge(from, to, String(i)), begin = at.get(from), end = at.get(to);
    // straight where the label is
    const inner = points.slice(1, -1).flatMap((point) => (Math.abs(point.x - x) < 1 ? [-1, 1].map((side) => ({ x: x + (side * LABEL.width) / 2, y })) : [point]));
    return { x, y, points: [{ x: begin.x + WIDTH, y: begin.y + HEIGHT / 2 }, ...inner, { x: end.x, y: end.y + HEIGHT / 2 }] };
  });
  return { at, ways, width: graph.graph().width, height: graph.graph().height };
}

export function Graph({ nodes, edges, label }) {
  const ids = new Set(nodes.map((node) => node.id));
  const shown = edges.filter((edge) => ids.has(edge.from) && ids.has(edge.to));
  const shape = [[...ids], shown.map((edge) => [edge.from, edge.to])];
  const { at, ways, width, height } = useMemo(() => places(...shape), [JSON.stringify(shape)]);
  return html`<div class="scroll graphs" tabindex="0" aria-label=${label}><svg class="graph" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="group" aria-label=${label}>
    <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8"/></marker></defs>
    ${shown.map((edge, i) => html`<${Arrow} way=${ways[i]} edge=${edge}/>`)}
    ${nodes.map((node) => html`<${Box} ...${at.get(node.id)} node=${node}/>`)}
  </svg></div>`;
}

// The whole server: streams and the queries that read them. Many queries over the same streams are one box to zoom into.
const FEW = 12;
export function ServerGraph({ told, rates, zoom }) {
  const shown = told.found <= FEW ? told.queries.map((query) => ({ id: `q:${query.name}`, title: query.name, kind: query.state, uses: query.uses, href: `#/queries/${encodeURIComponent(query.name)}`,
    under: `${query.state}, ${count(query.rows)} rows  ${perSecond(rates[`q:${query.name}`])}` }))
    : told.groups.map((group) => ({ id: `g:${group.uses}`, title: `${count(group.queries)} ${group.queries === 1 ? "query" : "queries"}`, kind: "group", uses: group.uses, open: () => zoom(group.uses.join(",")),
      under: `${count(group.rows)} rows  ${perSecond(rates[`g:${group.uses}`])}`, told: `Queries over ${group.uses.join(", ")}: open` }));
  const streams = told.streams.map((stream) => ({ id: `s:${stream.name.toLowerCase()}`, title: stream.name, kind: "stream", href: `#/streams/${encodeURIComponent(stream.name)}`, under: `${count(stream.rows)} rows` }));
  const known = new Set(streams.map((each) => each.id));
  const tables = [...new Set(shown.flatMap((each) => each.uses))].filter((name) => !known.has(`s:${name.toLowerCase()}`)).map((name) => ({ id: `s:${name.toLowerCase()}`, title: name, kind: "stream", under: "table, view or function" }));
  const edges = shown.flatMap((each) => each.uses.map((name) => ({ from: `s:${name.toLowerCase()}`, to: each.id, label: perSecond(rates[`s:${name}`]) })));
  return html`<${Graph} nodes=${[...streams, ...tables, ...shown]} edges=${edges} label="streams and the queries that read them"/>`;
}

// Operators that run: rows on the edges with rate and lag; state and work in the boxes. An edge opens its monitor.
export function OperatorGraph({ operators, rates, busy, watched, watch, passed }) {
  const nodes = operators.map((each) => {
    const [, word, rest] = /^(Stream \S+|\S+)\s*(.*)$/s.exec(each.label);
    const seen = passed?.[each.id];
    return { id: each.id, title: word.startsWith("Stream ") ? word.slice(7) : word, told: each.label + (each.queries > 1 ? `\nshared by ${count(each.queries)} queries` : ""),
      kind: `${each.error ? "failed" : word.startsWith("Stream ") ? "stream" : ""} ${seen ? "passed" : ""} ${each.id === watched ? "watched" : ""}`, open: watch && (() => watch(each.id)),
      under: [each.state === null ? "" : bytes(each.state), busy[each.id] >= 0.005 ? `${Math.round(busy[each.id] * 100)} % busy` : "", each.queries > 1 ? `${count(each.queries)} queries` : "", rest].filter(Boolean).join(" · ") };
  });
  const by = new Map(operators.map((each) => [each.id, each]));
  const edges = operators.flatMap((each) => each.inputs.filter((id) => by.has(id)).map((id) => {
    const from = by.get(id), lag = from.behind ? `${from.behind < 10 ? +from.behind.toFixed(1) : count(Math.round(from.behind))} ${from.unit ?? ""} behind` : "";
    return { from: id, to: each.id, kind: `${id === watched ? "watched" : ""} ${passed?.[id] ? "passed" : ""}`, label: passed ? (passed[id] ? `${passed[id].length} ${passed[id].length === 1 ? "row" : "rows"}` : "") : rates[id] ? perSecond(rates[id]) : count(from.rows), under: lag,
      open: watch && (() => watch(id)), told: `${count(from.rows)} rows, time ${from.upto ?? "not known"}: show the rows on this arrow` };
  }));
  return html`<${Graph} nodes=${nodes} edges=${edges} label="operators; open one to see its rows"/>`;
}

// The automata and row patterns of a query, as the server draws them.
export const Picture = ({ svg }) => svg?.startsWith("<svg") && html`<section><h2>Automaton</h2><div class="scroll"><img class="paper" alt="the automaton of this query" src=${`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`}/></div></section>`;

// A plan as EXPLAIN prints it is a tree by its indentation.
export function PlanGraph({ text }) {
  const part = text.split(/\n\n/).find((each) => each.startsWith("physical plan:")) ?? "";
  const nodes = [], edges = [];
  for (const line of part.split("\n").slice(1)) {
    const depth = line.search(/[^\s│└├─]/);
    if (depth < 0) continue;
    let parent = nodes.length - 1;
    while (parent >= 0 && nodes[parent].depth >= depth) parent = nodes[parent].parent;
    const [, word, rest] = line.slice(depth).match(/^(\S+)\s*(.*)$/);
    nodes.push({ id: String(nodes.length), depth, parent, title: word, under: rest, told: line.slice(depth), kind: word === "Source" ? "stream" : "" });
    if (parent >= 0) edges.push({ from: String(nodes.length - 1), to: String(parent) });
  }
  return nodes.length > 0 && html`<${Graph} nodes=${nodes} edges=${edges} label="the plan as boxes and arrows"/>`;
}
