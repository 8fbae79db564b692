// What several pages use: figures, states, values that are asked for again and again, and rows as they are emitted.
import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import * as api from "./api.js";
import { Fault } from "./editor.js";
import { RowTable, TimePlot } from "./tables.js";

const MOST_ROWS = 20000;

export const link = (kind, name) => `#/${kind}/${encodeURIComponent(name)}`;
export const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
export const Figures = ({ pairs }) => html`<div class="figures">${pairs.map(([name, value]) => html`<div><b>${value}</b><span>${name}</span></div>`)}</div>`;
export const State = ({ state }) => html`<span class=${`badge ${state}`}>${state}</span>`;

// Ask now and every so often, less often while nobody looks.
export function usePolled(ask, every, on, fail) {
  const [told, set] = useState(null);
  useEffect(() => {
    let ended = false, timer;
    set(null);
    const look = async () => {
      try { const now = await ask(); if (!ended) { set(now); fail?.(null); } } catch (error) { if (!ended) fail?.(error); }
      if (!ended) timer = setTimeout(look, document.hidden ? every * 5 : every);
    };
    look();
    return () => { ended = true; clearTimeout(timer); };
  }, on);
  return told;
}

// What has come since the last time, by key.
export function useRates(counts, now) {
  const last = useRef(null), rates = useRef({});
  if (counts && now !== last.current?.now) {
    const passed = last.current ? now - last.current.now : 0;
    const before = last.current?.counts ?? {};
    rates.current = Object.fromEntries(Object.entries(counts).map(([key, value]) => [key, passed > 0 && key in before ? Math.max(0, value - before[key]) / passed : undefined]));
    last.current = { now, counts };
  }
  return rates.current;
}

export function Live({ name, known }) {
  const [rows, set] = useState([]);
  const [error, fail] = useState(null);
  const [held, hold] = useState(false);
  const kept = useRef([]), count = useRef(0);
  useEffect(() => {
    const ending = new AbortController();
    kept.current = []; count.current = 0;
    set([]); fail(null);
    const follow = (since) => api.follow(name, since, (more) => { kept.current = [...kept.current, ...more].slice(-MOST_ROWS); count.current += more.length; }, ending.signal)
      .then((again) => again !== undefined && setTimeout(() => follow(again), 500), (problem) => problem.name !== "AbortError" && fail(problem));
    follow();
    const timer = setInterval(() => set((before) => (kept.current === before ? before : kept.current)), 300);
    return () => { ending.abort(); clearInterval(timer); };
  }, [name]);
  const seen = useRef(rows);
  if (!held) seen.current = rows;
  return html`<section><h2>Rows of <a href=${link("queries", name)}>${name}</a> <small role="status">${rows.length ? `${count.current.toLocaleString("en")} since you look` : "waiting for rows"}</small></h2>
    ${rows.length > 0 && html`<div class="row"><button aria-pressed=${held} onClick=${() => hold(!held)}>${held ? "Continue" : "Hold still"}</button></div>`}
    <${Fault} error=${error}/><${TimePlot} rows=${seen.current} known=${known}/><${RowTable} rows=${seen.current} none=""/></section>`;
}

// Rows that pass somewhere, from now on.
export function Monitor({ title, ask, on, close, known }) {
  const [error, fail] = useState(null);
  const rows = usePolled(ask, 1000, on, fail);
  return html`<section><h2>${title} <small role="status">${rows === null ? "" : rows.length ? `the latest ${rows.length}` : "waiting for rows"}</small></h2>
    ${close && html`<div class="row"><button onClick=${close}>Close</button></div>`}<${Fault} error=${error}/>
    ${rows && html`<${TimePlot} rows=${rows} known=${known}/><${RowTable} rows=${rows} none=""/>`}</section>`;
}
