// The console: an overview, an SQL editor, the queries that run, streams, and what queries share.
import { html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import * as api from "./api.js";
import { Fault } from "./editor.js";
import { OperatorGraph, ServerGraph, count, perSecond } from "./graphs.js";
import { Figures, State, link, usePolled, useRates } from "./parts.js";
import { OneQuery, Progress } from "./query.js";
import { Sql } from "./sql.js";
import { Entries, OneStream } from "./streams.js";

const PAGES = [["overview", "Overview"], ["sql", "SQL"], ["queries", "Queries"], ["streams", "Streams"], ["sharing", "Sharing"]];

const here = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);

function useHash() {
  const [parts, set] = useState(here());
  useEffect(() => {
    const moved = () => set(here());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return parts;
}

// What the server does, asked every two seconds; rates are what has come since the last time.
function useOverview(search, uses, fail) {
  const told = usePolled(() => api.overview(search, uses), 2000, [search, uses], fail);
  const last = useRef(null);
  if (told) last.current = told;
  const now = last.current;
  const counts = now && Object.fromEntries([...now.streams.map((s) => [`s:${s.name}`, s.rows]), ...now.queries.map((q) => [`q:${q.name}`, q.rows]), ...now.groups.map((g) => [`g:${g.uses}`, g.rows])]);
  const rates = useRates(counts, now?.uptime);
  return now && { ...now, rates };
}

function Overview({ told, zoom, uses }) {
  const [all, showAll] = useState(false);
  const sum = (kind) => Object.entries(told.rates).filter(([key]) => key.startsWith(kind)).reduce((total, [, rate]) => total + (rate ?? 0), 0);
  return html`<section><h2>Now</h2><${Figures} pairs=${[["rows in", perSecond(sum("s:"))], ["rows emitted", perSecond(sum("g:"))], ["queries", count(told.count)], ["late rows", count(told.late)], ["rejected rows", count(told.rejected)]]}/></section>
    <section><h2>Streams and the queries that read them</h2>
      ${uses !== undefined && html`<div class="row"><button onClick=${() => zoom(undefined)}>All queries</button><span>Queries over ${uses.split(",").join(", ")}</span></div>`}
      ${told.count || told.streams.length ? html`<${ServerGraph} told=${told} rates=${told.rates} zoom=${zoom}/>` : html`<p>Nothing yet. Declare a stream on the page <a href="#/sql">SQL</a>.</p>`}
      ${uses !== undefined && html`<${QueryTable} told=${told}/>`}
      ${told.count > 0 && html`<div class="row"><button aria-expanded=${all} onClick=${() => showAll(!all)}>${all ? "Hide all operators" : "Show all operators"}</button></div>`}
      ${all && html`<${AllOperators}/>`}</section>`;
}

function AllOperators() {
  const [error, fail] = useState(null);
  const told = usePolled(async () => ({ ...(await api.operators()), now: performance.now() / 1000 }), 2000, [], fail);
  const found = told?.operators ?? [];
  const rates = useRates(told && Object.fromEntries(found.map((each) => [each.id, each.rows])), told?.now);
  const busy = useRates(told && Object.fromEntries(found.map((each) => [each.id, each.seconds])), told?.now);
  return html`<${Fault} error=${error}/>${found.length > 0 && html`<${OperatorGraph} operators=${found} rates=${rates} busy=${busy}/>`}
    ${told && told.count > found.length && html`<p>The first ${found.length} of ${count(told.count)} operators.</p>`}`;
}

const QueryTable = ({ told }) => html`<div class="scroll" tabindex="0" aria-label="queries"><table><thead><tr><th>name</th><th>state</th><th>rows</th><th>rate</th><th>SQL</th></tr></thead>
    <tbody>${told.queries.map((query) => html`<tr><td><a href=${link("queries", query.name)}>${query.name}</a></td><td><${State} state=${query.state}/></td>
      <td class="number">${count(query.rows)}</td><td class="number">${perSecond(told.rates[`q:${query.name}`])}</td><td class="sql" title=${query.sql}>${query.sql}</td></tr>`)}</tbody></table></div>
    ${told.found > told.queries.length && html`<p>The first ${told.queries.length} of ${count(told.found)}.</p>`}`;

const Queries = ({ told, sought, seek }) => html`<section><h2>Queries <small>${count(told.count)}</small></h2>
    <p><input type="search" placeholder="Search names and SQL" aria-label="search" value=${sought} onInput=${(event) => seek(event.target.value)}/></p><${QueryTable} told=${told}/></section>`;

// What runs once for several queries, the largest first.
function Sharing() {
  const [error, fail] = useState(null);
  const rows = usePolled(async () => ((await api.execute("SHOW SHARING")).rows ?? []).sort((a, b) => b.queries - a.queries), 15000, [], fail);
  const most = Math.max(1, ...(rows ?? []).map((row) => row.queries));
  return html`<section><h2>What queries share <small>operators and templates that run once for several queries</small></h2><${Fault} error=${error}/>
    ${rows && !rows.length && html`<p>No operator works for more than one query.</p>`}
    ${rows?.slice(0, 100).map((row) => html`<div class="shared"><div class="bar"><span style=${`width: ${Math.max(1, (100 * row.queries) / most)}%`}></span></div>
      <b>${count(row.queries)} queries</b> <span class="faint">${row.how}</span><pre class="plan wrapped">${row.operator}</pre><p class="faint">${row.names}</p></div>`)}</section>`;
}

function Login({ enter, error }) {
  const field = useRef(null);
  return html`<form class="login" onSubmit=${(event) => { event.preventDefault(); api.token.set(field.current.value); enter(); }}>
    <section><h2>Millstream</h2><label>Token of your account<input ref=${field} type="password" autocomplete="current-password" autofocus/></label>
    <button class="main">Enter</button>${error && api.token.get() && html`<${Fault} error=${error}/>`}</section></form>`;
}

// 1 to 5 open pages, / goes to the search.
function shortcuts(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, [contenteditable]")) return;
  if (PAGES[event.key - 1]) location.hash = `#/${PAGES[event.key - 1][0]}`;
  else if (event.key === "/") { event.preventDefault(); location.hash = "#/queries"; setTimeout(() => document.querySelector("input[type=search]")?.focus(), 50); }
}
addEventListener("keydown", shortcuts);

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("millstream-theme", (root.dataset.theme = dark ? "light" : "dark"));
}
if (localStorage.getItem("millstream-theme")) document.documentElement.dataset.theme = localStorage.getItem("millstream-theme");

function Console() {
  const [error, fail] = useState(null);
  const [sought, seek] = useState("");
  const [uses, zoom] = useState(undefined);
  const [page = "overview", name] = useHash();
  const current = page || "overview";
  const told = useOverview(current === "queries" && !name ? sought : "", current === "overview" ? uses : undefined, fail);
  if (error?.status === 401) return html`<${Login} error=${error} enter=${() => location.reload()}/>`;
  if (!told) return html`<main><p role="status">${error ? `The server does not answer: ${error.message}` : "Connecting…"}</p></main>`;
  const shown = { sql: () => html`<${Sql}/>`, queries: () => (name ? html`<${OneQuery} name=${name} starting=${told.starting}/>` : html`<${Queries} told=${told} sought=${sought} seek=${seek}/>`),
    streams: () => (name ? html`<${OneStream} key=${name} name=${name}/>` : html`<${Entries}/>`), sharing: () => html`<${Sharing}/>` }[current] ?? (() => html`<${Overview} told=${told} zoom=${zoom} uses=${uses}/>`);
  return html`<header><h1>Millstream</h1><nav aria-label="pages">${PAGES.map(([key, title], i) => html`<a href=${`#/${key}`} title=${`key ${i + 1}`} aria-current=${current === key ? "page" : undefined}>${title}</a>`)}</nav>
      <span class="state" role="status">${error ? "not connected, trying again" : `up ${count(Math.round(told.uptime))} s, as ${told.account} (${told.role})`}</span>
      <button onClick=${theme} title="light or dark" aria-label="light or dark">◐</button>${api.token.get() && html`<button onClick=${() => { api.token.clear(); location.reload(); }}>Leave</button>`}</header>
    <main>${Object.entries(told.starting).map(([each, progress]) => html`<${Progress} name=${each} progress=${progress}/>`)}${shown()}</main>`;
}

render(html`<${Console}/>`, document.getElementById("app"));
