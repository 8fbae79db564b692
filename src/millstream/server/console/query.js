// One query: its counters, its rows, its operators with monitors, a copy to step through, and what can be done to it.
import { html, useEffect, useState } from "./vendor/preact.js";
import * as api from "./api.js";
import { Editor, Fault } from "./editor.js";
import { OperatorGraph, Picture, PlanGraph, count } from "./graphs.js";
import { Figures, Live, Monitor, State, quoted, usePolled, useRates } from "./parts.js";
import { RowTable } from "./tables.js";

export function OneQuery({ name, starting }) {
  const [told, set] = useState(null);
  const [picture, setPicture] = useState("");
  const [held, setHeld] = useState(null);
  const [error, fail] = useState(null);
  const [changing, change] = useState(false);
  const look = () => api.query(name).then(set, fail);
  useEffect(() => {
    set(null); fail(null); setPicture(""); setHeld(null); change(false);
    look();
    api.automaton(name).then(setPicture, () => {});
    const timer = setInterval(() => api.query(name).then(set, () => {}), 2000);
    return () => clearInterval(timer);
  }, [name]);
  const act = async (work) => { try { fail(null); await work(); await look(); } catch (problem) { fail(problem); } };
  const stop = () => confirm(`Stop ${name}? Rows that were not fetched are lost.`) && act(() => api.stop(name).then(() => { location.hash = "#/queries"; }));
  if (!told) return html`<section><h2>${name}</h2><${Fault} error=${error}/></section>`;
  return html`<section><h2>${name} <${State} state=${told.state}/></h2>
      <${Figures} pairs=${[...Object.entries(told.metrics).map(([key, value]) => [key, count(value)]), ...(told.coverage[1] ? [["complete from", told.coverage[1]]] : [])]}/>
      <pre class="plan wrapped">${told.sql}</pre>
      <div class="row">
        ${told.state === "paused" ? html`<button onClick=${() => act(() => api.execute(`RESUME ${quoted(name)}`))}>Resume</button>` : html`<button onClick=${() => act(() => api.execute(`PAUSE ${quoted(name)}`))}>Pause</button>`}
        <button aria-expanded=${changing} onClick=${() => change(!changing)}>Change…</button>
        <button onClick=${() => act(async () => setHeld(await api.snapshot(name)))}>Snapshot</button>
        <button class="danger" onClick=${stop}>Stop</button></div>
      <${Fault} error=${error}/>
      ${changing && html`<${Change} name=${name} sql=${told.sql} progress=${starting?.[name]} done=${() => { change(false); look(); }}/>`}</section>
    ${held && html`<section><h2>Current content</h2><${RowTable} rows=${held}/></section>`}
    <${Live} key=${`${name} ${told.columns.map((column) => column.name)}`} name=${name} known=${told.roles}/>
    <${Operators} key=${name} name=${name} sql=${told.sql} paused=${told.state === "paused"}/>
    <${Picture} svg=${picture}/>`;
}

// Another definition: first what it would reuse and compute again, then the change, with how far it has come.
function Change({ name, sql, progress, done }) {
  const [text, change] = useState(sql);
  const [dry, setDry] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, fail] = useState(null);
  const statement = `ALTER QUERY ${quoted(name)} AS ${text}`;
  const attempt = async (work) => { setBusy(true); fail(null); try { await work(); } catch (problem) { fail(problem); } setBusy(false); };
  const before = statement.length - text.length;
  const shifted = error?.told?.span && error.told.sql === statement ? { ...error, message: error.message, told: { ...error.told, sql: text, span: error.told.span.map((at) => at - before) } } : error;
  const dryRun = () => attempt(async () => setDry(await api.explainText(statement)));
  return html`<${Editor} text=${text} change=${change} run=${dryRun} error=${shifted}/>
    <div class="row"><button disabled=${busy} onClick=${dryRun}>Dry run</button>
      <button class="main" disabled=${busy} onClick=${() => attempt(async () => { await api.execute(statement); done(); })}>Change it</button></div>
    ${progress !== undefined && html`<${Progress} name=${name} progress=${progress}/>`}<${Fault} error=${error}/>${dry && html`<pre class="plan" role="status">${dry}</pre>`}`;
}

export const Progress = ({ name, progress }) => html`<p class="row" role="status"><span>${name}: ${Math.round(100 * progress)} % of history</span><progress value=${progress}/></p>`;

function Operators({ name, sql, paused }) {
  const [error, fail] = useState(null);
  const [watched, watch] = useState(null);
  const [copy, setCopy] = useState(null);
  const [plan, setPlan] = useState("");
  useEffect(() => { api.explain(name).then(setPlan, () => {}); watch(null); }, [name, sql]);
  const told = usePolled(async () => ({ ...(await api.operators(name)), now: performance.now() / 1000 }), 1500, [name, sql], fail);
  const found = told?.operators ?? [];
  const rates = useRates(told && Object.fromEntries(found.map((each) => [each.id, each.rows])), told?.now);
  const busy = useRates(told && Object.fromEntries(found.map((each) => [each.id, each.seconds])), told?.now);
  const stepThrough = async () => { try { setCopy(await api.copy(name)); } catch (problem) { fail(problem); } };
  const title = found.find((each) => each.id === watched)?.label;
  return html`<section><h2>Operators <small>rows a second on the arrows; select a box or an arrow to see its rows</small></h2>
      <${Fault} error=${error}/>
      ${found.length ? html`<${OperatorGraph} operators=${found} rates=${rates} busy=${busy} watched=${watched} watch=${(id) => watch(id === watched ? null : id)}/>` : html`<${PlanGraph} text=${plan}/>`}
      <div class="row"><button disabled=${copy !== null} onClick=${stepThrough}>Step through a copy</button></div>
      <details><summary>Plan as text</summary><pre class="plan">${plan}</pre></details></section>
    ${watched && html`<${Monitor} title=${title} ask=${() => api.peek(name, watched)} on=${[name, watched]} close=${() => watch(null)}/>`}
    ${copy && html`<${Steps} key=${copy} copy=${copy} operators=${found} close=${() => setCopy(null)}/>`}`;
}

// A copy of the query takes rows one by one: those that arrive at its streams, or rows that are typed in.
function Steps({ copy, operators, close }) {
  const [told, set] = useState({ passed: {}, waiting: 0 });
  const [error, fail] = useState(null);
  const [shown, show] = useState(null);
  const streams = operators.filter((each) => !each.inputs.length).map((each) => each.id);
  const [chosen, choose] = useState(null);
  const stream = chosen ?? streams[0];
  const [row, type] = useState("");
  useEffect(() => () => { api.closeCopy(copy).catch(() => {}); }, [copy]);
  const step = async (body = {}) => { try { fail(null); set(await api.step(copy, body)); } catch (problem) { fail(problem); } };
  const give = () => { try { step({ stream, row: JSON.parse(row) }); } catch (problem) { fail(problem); } };
  const passed = operators.filter((each) => told.passed[each.id] && (shown === null || shown === each.id));
  return html`<section><h2>A copy to step through <small role="status">${told.waiting ? `${count(told.waiting)} more rows have arrived` : "steps take rows that arrive from now on"}${told.missed ? "; later ones were not kept" : ""}</small></h2>
    <p class="faint">The copy has the state of the query when you made it. The query itself continues, and notices nothing.</p>
    <div class="row"><button class="main" onClick=${() => step()}>Next row</button><button onClick=${close}>Close</button></div>
    <div class="row"><label>Or a row of your own for <select onChange=${(event) => choose(event.target.value)}>${streams.map((each) => html`<option selected=${each === stream}>${each}</option>`)}</select></label>
      <input class="wide mono" aria-label="row as JSON" placeholder=${'{"symbol": "ACME", "price": 1}'} value=${row} onInput=${(event) => type(event.target.value)} onKeyDown=${(event) => event.key === "Enter" && give()}/><button onClick=${give}>Give</button></div>
    <${Fault} error=${error}/>
    <${OperatorGraph} operators=${operators} rates=${{}} busy=${{}} passed=${told.passed} watched=${shown} watch=${(id) => show(id === shown ? null : id)}/>
    ${passed.map((each) => html`<h3>${each.label}</h3><${RowTable} rows=${told.passed[each.id]}/>`)}</section>`;
}
