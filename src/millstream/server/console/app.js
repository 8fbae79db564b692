// The console: an overview, an SQL editor, the queries that run, and what they share.
import { html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import * as api from "./api.js";
import { Editor, Fault } from "./editor.js";
import { PlanGraph, ServerGraph, perSecond } from "./graphs.js";
import { RowTable, TimePlot } from "./tables.js";

const PAGES = [["overview", "Overview"], ["sql", "SQL"], ["queries", "Queries"], ["catalog", "Streams & tables"], ["sharing", "Sharing"]];
const MOST_ROWS = 20000;

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
function useOverview(fail) {
  const [told, set] = useState(null);
  const last = useRef(null);
  useEffect(() => {
    let ended = false;
    const look = async () => {
      try {
        const now = await api.overview();
        const counts = Object.fromEntries([...now.streams.map((s) => [`s:${s.name}`, s.rows]), ...now.queries.map((q) => [`q:${q.name}`, q.rows])]);
        const passed = last.current ? now.uptime - last.current.uptime : 0;
        const rates = Object.fromEntries(Object.entries(counts).map(([key, count]) => [key, passed > 0 ? Math.max(0, count - (last.current.counts[key] ?? 0)) / passed : undefined]));
        last.current = { uptime: now.uptime, counts };
        if (!ended) { set({ ...now, rates }); fail(null); }
      } catch (error) {
        if (!ended) fail(error);
      }
      if (!ended) timer = setTimeout(look, document.hidden ? 10000 : 2000);
    };
    let timer = setTimeout(look, 0);
    return () => { ended = true; clearTimeout(timer); };
  }, []);
  return told;
}

const Figures = ({ pairs }) => html`<div class="figures">${pairs.map(([name, value]) => html`<div><b>${value}</b><span>${name}</span></div>`)}</div>`;

function Overview({ told }) {
  const sum = (kind) => Object.entries(told.rates).filter(([key]) => key.startsWith(kind)).reduce((all, [, rate]) => all + (rate ?? 0), 0);
  return html`<section><h2>Now</h2><${Figures} pairs=${[["rows in", perSecond(sum("s:"))], ["rows emitted", perSecond(sum("q:"))], ["queries", told.queries.length.toLocaleString()],
      ["late rows", told.late.toLocaleString()], ["rejected rows", told.rejected.toLocaleString()]]}/></section>
    <section><h2>Streams and the queries that read them</h2>${told.queries.length || told.streams.length ? html`<${ServerGraph} told=${told} rates=${told.rates}/>` : html`<p>Nothing yet. Declare a stream on the page <a href="#/sql">SQL</a>.</p>`}</section>`;
}

const FIRST = `-- Ctrl+Enter runs it
CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts`;

function Sql({ names }) {
  const [text, change] = useState(sessionStorage.getItem("millstream-sql") ?? FIRST);
  const [result, set] = useState({});
  const [busy, setBusy] = useState(false);
  useEffect(() => sessionStorage.setItem("millstream-sql", text), [text]);
  const attempt = async (work) => {
    setBusy(true);
    try { set(await work()); } catch (error) { set({ error }); }
    setBusy(false);
  };
  const run = () => attempt(async () => ({ done: true, ...(await api.execute(text)) }));
  return html`<section><h2>SQL <small>Ctrl+Enter runs, Tab completes</small></h2>
      <${Editor} text=${text} change=${change} run=${run} error=${result.error} names=${names}/>
      <div class="row"><button class="main" disabled=${busy} onClick=${run}>Run</button>
        <button disabled=${busy} onClick=${() => attempt(async () => ({ plan: await api.explainText(text) }))}>Explain</button></div>
      <${Fault} error=${result.error}/>
      ${result.done && !result.rows && !result.query && html`<p role="status">Done.</p>`}</section>
    ${result.plan && html`<section><h2>Plan</h2><${PlanGraph} text=${result.plan}/><pre class="plan">${result.plan}</pre></section>`}
    ${result.rows && html`<section><h2>Rows</h2><${TimePlot} rows=${result.rows}/><${RowTable} rows=${result.rows}/></section>`}
    ${result.query && html`<${Live} name=${result.query.name}/>`}`;
}

// Rows of a query as they are emitted.
function Live({ name }) {
  const [rows, set] = useState([]);
  const [error, fail] = useState(null);
  const [held, hold] = useState(false);
  const kept = useRef([]);
  useEffect(() => {
    const ending = new AbortController();
    kept.current = [];
    set([]);
    fail(null);
    api.follow(name, (more) => { kept.current = [...kept.current, ...more].slice(-MOST_ROWS); }, ending.signal).catch((problem) => problem.name !== "AbortError" && fail(problem));
    const timer = setInterval(() => set((before) => (kept.current === before ? before : kept.current)), 300);
    return () => { ending.abort(); clearInterval(timer); };
  }, [name]);
  const seen = useRef(rows);
  if (!held) seen.current = rows;
  return html`<section><h2>Rows of <a href=${`#/queries/${encodeURIComponent(name)}`}>${name}</a> <small role="status">${rows.length ? `${rows.length.toLocaleString()} since you look` : "waiting for rows"}</small></h2>
    <div class="row"><button aria-pressed=${held} onClick=${() => hold(!held)}>${held ? "Continue" : "Hold still"}</button></div>
    <${Fault} error=${error}/><${TimePlot} rows=${seen.current}/><${RowTable} rows=${seen.current}/></section>`;
}

function Queries({ told }) {
  const [sought, seek] = useState("");
  const found = told.queries.filter((query) => (query.name + query.sql).toLowerCase().includes(sought.toLowerCase()));
  return html`<section><h2>Queries <small>${told.queries.length.toLocaleString()}</small></h2>
    <input type="search" placeholder="Search names and SQL" aria-label="search" value=${sought} onInput=${(event) => seek(event.target.value)}/>
    <div class="scroll"><table><thead><tr><th>name</th><th>state</th><th>rows</th><th>rate</th><th>SQL</th></tr></thead>
    <tbody>${found.slice(0, 500).map((query) => html`<tr><td><a href=${`#/queries/${encodeURIComponent(query.name)}`}>${query.name}</a></td><td><${State} state=${query.state}/></td>
      <td class="number">${query.rows.toLocaleString()}</td><td class="number">${perSecond(told.rates[`q:${query.name}`])}</td><td class="sql" title=${query.sql}>${query.sql}</td></tr>`)}</tbody></table></div>
    ${found.length > 500 && html`<p>The first 500 of ${found.length.toLocaleString()}.</p>`}</section>`;
}

const State = ({ state }) => html`<span class=${`badge ${state}`}>${state}</span>`;

function OneQuery({ name, names }) {
  const [told, set] = useState(null);
  const [plan, setPlan] = useState("");
  const [picture, setPicture] = useState("");
  const [held, setHeld] = useState(null);
  const [error, fail] = useState(null);
  const [changed, change] = useState(null);
  const [dry, setDry] = useState("");
  const look = () => api.query(name).then(set, fail);
  useEffect(() => {
    set(null); fail(null); setPlan(""); setPicture(""); setHeld(null); change(null); setDry("");
    look();
    api.explain(name).then(setPlan, () => {});
    api.automaton(name).then(setPicture, () => {});
  }, [name]);
  const act = async (work) => { try { fail(null); await work(); await look(); } catch (problem) { fail(problem); } };
  const quoted = `"${name.replaceAll('"', '""')}"`;
  if (!told) return html`<section><h2>${name}</h2><${Fault} error=${error}/></section>`;
  return html`<section><h2>${name} <${State} state=${told.state}/></h2>
      <${Figures} pairs=${Object.entries(told.metrics).map(([key, value]) => [key, Number(value).toLocaleString()])}/>
      <pre class="plan">${told.sql}</pre>
      <div class="row">
        ${told.state === "paused" ? html`<button onClick=${() => act(() => api.execute(`RESUME ${quoted}`))}>Resume</button>` : html`<button onClick=${() => act(() => api.execute(`PAUSE ${quoted}`))}>Pause</button>`}
        <button onClick=${() => change(changed === null ? told.sql : null)}>Change…</button>
        <button onClick=${() => act(async () => setHeld(await api.snapshot(name)))}>Snapshot</button>
        <button class="danger" onClick=${() => confirm(`Stop ${name}? Rows that were not fetched are lost.`) && act(() => api.stop(name).then(() => { location.hash = "#/queries"; }))}>Stop</button></div>
      <${Fault} error=${error}/>
      ${changed !== null && html`<${Editor} text=${changed} change=${change} run=${() => {}} error=${error} names=${names}/>
        <div class="row"><button onClick=${() => act(async () => setDry(await api.explainText(`ALTER QUERY ${quoted} AS ${changed}`)))}>Dry run</button>
        <button class="main" onClick=${() => act(async () => { await api.execute(`ALTER QUERY ${quoted} AS ${changed}`); change(null); setDry(""); setPlan(await api.explain(name)); })}>Change it</button></div>
        ${dry && html`<pre class="plan">${dry}</pre>`}`}</section>
    ${held && html`<section><h2>Current content</h2><${RowTable} rows=${held}/></section>`}
    <${Live} name=${name}/>
    ${picture.startsWith("<svg") && html`<section><h2>Automaton</h2><img alt="the automaton of this query" style="max-width: 100%; background: white" src=${`data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture)}`}/></section>`}
    <section><h2>Plan</h2><${PlanGraph} text=${plan}/><pre class="plan">${plan}</pre></section>`;
}

function CatalogPage() {
  const [entries, set] = useState(null);
  const [error, fail] = useState(null);
  const [peeked, peek] = useState(null);
  useEffect(() => { api.catalog().then(set, fail); }, []);
  useEffect(() => () => { if (peeked) api.stop(peeked).catch(() => {}); }, [peeked]);
  const look = async (name) => {
    const own = `peek_${Math.random().toString(36).slice(2, 8)}`;
    try { await api.start(`SELECT * FROM "${name.replaceAll('"', '""')}"`, own); peek(own); } catch (problem) { fail(problem); }
  };
  return html`<section><h2>Streams, tables and views</h2><${Fault} error=${error}/><div class="scroll"><table>
    <thead><tr><th>name</th><th>kind</th><th>columns</th><th></th></tr></thead>
    <tbody>${(entries ?? []).map((entry) => html`<tr><td>${entry.name}</td><td>${entry.kind}</td><td class="sql">${entry.columns.map((c) => `${c.name} ${c.type}`).join(", ")}</td>
      <td>${["stream", "derived"].includes(entry.kind) && html`<button onClick=${() => look(entry.name)}>Peek</button>`}</td></tr>`)}</tbody></table></div></section>
    ${peeked && html`<${Live} name=${peeked}/>`}`;
}

function Sharing() {
  const [rows, set] = useState([]);
  const [error, fail] = useState(null);
  useEffect(() => { api.execute("SHOW SHARING").then((told) => set(told.rows ?? []), fail); }, []);
  return html`<section><h2>Queries that share work</h2><${Fault} error=${error}/><${RowTable} rows=${rows}/></section>`;
}

function Login({ enter, error }) {
  const field = useRef(null);
  return html`<form class="login" onSubmit=${(event) => { event.preventDefault(); api.token.set(field.current.value); enter(); }}>
    <section><h2>Millstream</h2><label>Token of your account<input ref=${field} type="password" autocomplete="current-password" autofocus/></label>
    <button class="main">Enter</button>${error && api.token.get() && html`<${Fault} error=${error}/>`}</section></form>`;
}

function Console() {
  const [error, fail] = useState(null);
  const told = useOverview(fail);
  const [page = "overview", name] = useHash();
  const current = page || "overview";
  const theme = () => { const root = document.documentElement; const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; root.dataset.theme = dark ? "light" : "dark"; };
  if (error?.status === 401) return html`<${Login} error=${error} enter=${() => location.reload()}/>`;
  if (!told) return html`<main><p role="status">${error ? `The server does not answer: ${error.message}` : "Connecting…"}</p></main>`;
  const names = [...told.streams.map((s) => s.name), ...told.queries.slice(0, 1000).map((q) => q.name)];
  return html`<header><h1>Millstream</h1><nav aria-label="pages">${PAGES.map(([key, title]) => html`<a href=${`#/${key}`} aria-current=${current === key ? "page" : undefined}>${title}</a>`)}</nav>
      <span class="state" role="status">${error ? "not connected, trying again" : `up ${Math.round(told.uptime).toLocaleString()} s, as ${told.account} (${told.role})`}</span>
      <button onClick=${theme} title="light or dark">◐</button>${api.token.get() && html`<button onClick=${() => { api.token.clear(); location.reload(); }}>Leave</button>`}</header>
    <main>${current === "sql" ? html`<${Sql} names=${names}/>` : current === "queries" && name ? html`<${OneQuery} name=${name} names=${names}/>` : current === "queries" ? html`<${Queries} told=${told}/>`
      : current === "catalog" ? html`<${CatalogPage}/>` : current === "sharing" ? html`<${Sharing}/>` : html`<${Overview} told=${told}/>`}</main>`;
}

render(html`<${Console}/>`, document.getElementById("app"));
