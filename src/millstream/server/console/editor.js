// The SQL editor: errors are underlined where they are, and names are offered while you type.
import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { catalog } from "./api.js";

const WORDS = ["SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "PARTITION BY", "ORDER BY", "RANGE", "ROWS", "PRECEDING", "UNBOUNDED", "SECONDS", "MINUTES", "HOURS",
  "CREATE STREAM", "CREATE VIEW", "CREATE TABLE", "INSERT INTO", "VALUES", "MATCH_RECOGNIZE", "MEASURES", "PATTERN", "DEFINE", "TUMBLE", "HOP", "SESSION", "OVER", "JOIN",
  "ISTREAM", "DSTREAM", "FILTER", "NEXT", "FOLD", "PUBLISH", "WITH HISTORY", "KEEP", "SLACK", "SHOW QUERIES", "SHOW STREAMS", "SHOW SHARING", "EXPLAIN", "ALTER QUERY", "PAUSE", "RESUME", "STOP", "avg", "count", "sum", "min", "max"];

const underlined = (text, span) => (span ? html`${text.slice(0, span[0])}<mark>${text.slice(span[0], span[1]) || " "}</mark>${text.slice(span[1])}\n` : "");

let known = [];  // names of streams, tables, views and columns

export function Editor({ text, change, run, error, after }) {
  const [names, setNames] = useState(known);
  useEffect(() => { catalog().then((entries) => setNames(known = [...new Set(entries.flatMap((entry) => [entry.name, ...entry.columns.map((column) => column.name)]))]), () => {}); }, [after]);
  const area = useRef(null);
  const span = error?.told?.span && error.told.sql === text ? error.told.span : null;
  const end = area.current?.selectionStart ?? text.length;
  const begun = /[\w$]*$/.exec(text.slice(0, end))[0];
  const offered = begun.length < 2 ? [] : [...names, ...WORDS].filter((word) => word.toLowerCase().startsWith(begun.toLowerCase()) && word.toLowerCase() !== begun.toLowerCase()).slice(0, 8);
  const complete = (word) => {
    const start = end - begun.length;
    change(text.slice(0, start) + word + text.slice(end));
    requestAnimationFrame(() => { area.current.focus(); area.current.setSelectionRange(start + word.length, start + word.length); });
  };
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
    else if (event.key === "Tab" && !event.shiftKey && offered.length) { event.preventDefault(); complete(offered[0]); }
  };
  return html`<div class="editor"><pre aria-hidden="true">${underlined(text, span)}</pre>
      <textarea ref=${area} aria-label="SQL" aria-invalid=${Boolean(span)} spellcheck=${false} autocapitalize="off" value=${text} rows=${Math.min(24, Math.max(6, text.split("\n").length + 1))}
        onInput=${(event) => change(event.target.value)} onKeyDown=${keys}></textarea></div>
    <div class="words" aria-label="completions">${offered.map((word, i) => html`<button type="button" title=${i ? "" : "Tab"} onClick=${() => complete(word)}>${word}</button>`)}</div>`;
}

export const Fault = ({ error }) => error && html`<div class="error" role="alert"><b>${error.message}</b>${error.told?.detail && html`<div>${error.told.detail}</div>`}${error.told?.hint && html`<div>Hint: ${error.told.hint}</div>`}</div>`;
