// Streams, tables and views; of a stream its figures, its history, and its late and rejected rows.
import { html, useEffect, useState } from "./vendor/preact.js";
import * as api from "./api.js";
import { Fault } from "./editor.js";
import { count } from "./graphs.js";
import { Figures, Monitor, link, quoted, usePolled } from "./parts.js";
import { RowTable, TimePlot } from "./tables.js";

export function Entries() {
  const [entries, set] = useState([]);
  const [error, fail] = useState(null);
  useEffect(() => { api.catalog().then(set, fail); }, []);
  return html`<section><h2>Streams, tables and views</h2><${Fault} error=${error}/><div class="scroll" tabindex="0"><table>
    <thead><tr><th>name</th><th>kind</th><th>columns</th></tr></thead>
    <tbody>${entries.map((entry) => html`<tr><td>${entry.kind === "stream" ? html`<a href=${link("streams", entry.name)}>${entry.name}</a>` : entry.name}</td><td>${entry.kind}</td>
      <td class="sql">${entry.columns.map((c) => `${c.name} ${c.type}`).join(", ")}</td></tr>`)}</tbody></table></div></section>`;
}

const SIDES = [["main", "Rows as they come"], ["late", "Late rows"], ["errors", "Rejected rows"]];

export function OneStream({ name }) {
  const [error, fail] = useState(null);
  const [side, choose] = useState("main");
  const told = usePolled(() => api.stream(name), 2000, [name], fail);
  if (!told) return html`<section><h2>${name}</h2><${Fault} error=${error}/></section>`;
  const title = SIDES.find(([key]) => key === side)[1];
  return html`<section><h2>${name}</h2>
      <${Figures} pairs=${[["accepted", count(told.accepted)], ["late", count(told.late)], ["rejected", count(told.rejected)], ["waiting for order", count(told.waiting)], ["kept", count(told.kept)]]}/>
      <p class="faint">Latest time ${told.latest ?? "not known"}, passed on up to ${told.upto ?? "not known"}</p>
      <div class="row" role="group" aria-label="which rows">${SIDES.map(([key, word]) => html`<button aria-pressed=${side === key} onClick=${() => choose(key)}>${word}</button>`)}</div><${Fault} error=${error}/></section>
    <${Monitor} title=${title} ask=${() => api.peekStream(name, side)} on=${[name, side]} known=${{ times: [told.time] }}/>
    <${History} name=${name} told=${told}/>`;
}

const PAGE = 500;

// The kept rows of a stream, from an instant on, page by page.
function History({ name, told }) {
  const [from, begin] = useState("");
  const [to, end] = useState("");
  const [skip, turn] = useState(0);
  const [found, set] = useState(null);
  const [error, fail] = useState(null);
  const value = (text) => (/^-?\d+$/.test(text.trim()) ? text.trim() : `'${text.replaceAll("'", "''")}'`);
  const look = async (start) => {
    const column = told.time && quoted(told.time);
    const limits = column ? [from && `${column} >= ${value(from)}`, to && `${column} <= ${value(to)}`].filter(Boolean) : [];
    try {
      fail(null); turn(start);
      set((await api.execute(`SELECT * FROM HISTORY(${quoted(name)})${limits.length ? ` WHERE ${limits.join(" AND ")}` : ""}${column ? ` ORDER BY ${column}` : ""} LIMIT ${PAGE} OFFSET ${start}`)).rows ?? []);
    } catch (problem) { fail(problem); }
  };
  if (!told.keeps) return html`<section><h2>History</h2><p>This stream keeps no history. <code>ALTER STREAM ${name} KEEP 1 DAY</code> lets it keep rows from now on.</p></section>`;
  return html`<section><h2>History <small>${count(told.kept)} rows</small></h2>
    <form class="row" onSubmit=${(event) => { event.preventDefault(); look(0); }}>
      <label>from <input value=${from} placeholder="the beginning" onInput=${(event) => begin(event.target.value)}/></label>
      <label>to <input value=${to} placeholder="now" onInput=${(event) => end(event.target.value)}/></label><button class="main">Show</button>
      ${found && html`<button type="button" disabled=${skip === 0} onClick=${() => look(Math.max(0, skip - PAGE))}>Earlier</button><button type="button" disabled=${found.length < PAGE} onClick=${() => look(skip + PAGE)}>Later</button>`}</form>
    <${Fault} error=${error}/>
    ${found && html`<${TimePlot} rows=${found} known=${{ times: [told.time] }}/><${RowTable} rows=${found} most=${PAGE}/>`}</section>`;
}
