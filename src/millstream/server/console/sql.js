// The page SQL: statements, rows, plans, and the query that was started.
import { html, useEffect, useState } from "./vendor/preact.js";
import * as api from "./api.js";
import { Editor, Fault } from "./editor.js";
import { Picture, PlanGraph } from "./graphs.js";
import { Live } from "./parts.js";
import { RowTable, TimePlot } from "./tables.js";

const FIRST = `-- Ctrl+Enter runs it
CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts`;

export function Sql() {
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
      <${Editor} text=${text} change=${change} run=${run} error=${result.error} after=${result}/>
      <div class="row"><button class="main" disabled=${busy} onClick=${run}>Run</button>
        <button disabled=${busy} onClick=${() => attempt(async () => ({ plan: await api.explainText(text), picture: await api.explainText(text, "svg").catch(() => "") }))}>Explain</button></div>
      <${Fault} error=${result.error}/>
      ${result.done && !result.rows && !result.query && html`<p role="status">Done.</p>`}</section>
    ${result.plan && html`<section><h2>Plan</h2><${PlanGraph} text=${result.plan}/><details><summary>As text</summary><pre class="plan">${result.plan}</pre></details></section><${Picture} svg=${result.picture}/>`}
    ${result.rows && html`<section><h2>Rows</h2><${TimePlot} rows=${result.rows}/><${RowTable} rows=${result.rows}/></section>`}
    ${result.query && html`<${Live} name=${result.query.name}/>`}`;
}
