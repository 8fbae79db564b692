// The SQL editor: errors are underlined where they are, and names and words are offered while you type.
import { html, useEffect, useRef } from "./vendor/preact.js";
import { Compartment, EditorView, PostgreSQL, Prec, SQLDialect, acceptCompletion, autocompletion, bracketMatching, classHighlighter, defaultKeymap, history, historyKeymap, keymap, schemaCompletionSource, setDiagnostics, syntaxHighlighting } from "./vendor/codemirror.js";
import { catalog } from "./api.js";

const WORDS = ["SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "PARTITION BY", "ORDER BY", "RANGE", "ROWS", "PRECEDING", "UNBOUNDED", "SECONDS", "MINUTES", "HOURS", "DISTINCT", "UNION ALL", "LIMIT",
  "CREATE STREAM", "CREATE VIEW", "CREATE TABLE", "CREATE QUERIES", "INSERT INTO", "VALUES", "MATCH_RECOGNIZE", "MEASURES", "PATTERN", "DEFINE", "TUMBLE", "HOP", "SESSION", "OVER", "JOIN", "WITH",
  "ISTREAM", "DSTREAM", "FILTER", "NEXT", "FOLD", "PUBLISH", "WITH HISTORY", "KEEP", "SLACK", "SHOW QUERIES", "SHOW STREAMS", "SHOW SHARING", "EXPLAIN", "ALTER QUERY", "PAUSE", "RESUME", "STOP",
  "VARCHAR", "TIMESTAMP", "DOUBLE", "INTEGER", "BIGINT", "BOOLEAN", "avg", "count", "sum", "min", "max"].map((label) => ({ label, type: "keyword" }));
const OWN = "dstream emit filter fold hop istream keep measures next pattern pause publish queries query range resume rstream session slack stop stream streams subscribe tumble";
const dialect = SQLDialect.define({ ...PostgreSQL.spec, keywords: `${PostgreSQL.spec.keywords} ${OWN}`, caseInsensitiveIdentifiers: true });

// Tables with their columns, also behind an alias and a dot; columns of all tables without one, as they come before FROM.
function language(entries) {
  const columns = [...new Set(entries.flatMap((entry) => entry.columns.map((column) => column.name)))].map((label) => ({ label, type: "property", boost: 2 }));
  const offer = (context) => {
    const word = context.matchBefore(/[\w$]+/);
    return word && !/[."]$/.test(context.state.sliceDoc(Math.max(0, word.from - 1), word.from)) ? { from: word.from, options: [...columns, ...WORDS], validFor: /^[\w$]*$/ } : null;
  };
  const schema = Object.fromEntries(entries.map((entry) => [entry.name, { self: { label: entry.name, type: "type", boost: 3 }, children: entry.columns.map((column) => ({ label: column.name, detail: column.type, type: "property" })) }]));
  return [dialect.extension, ...[schemaCompletionSource({ dialect, schema }), offer].map((autocomplete) => dialect.language.data.of({ autocomplete }))];
}

const names = new Compartment();
let known = [];  // streams, tables and views

// The editor begins with a text; from then on it tells of changes.
export function Editor({ text, change, run, error, after }) {
  const place = useRef(null), view = useRef(null), now = useRef(null);
  now.current = { change, run };
  useEffect(() => {
    const keys = [{ key: "Mod-Enter", run: () => { now.current.run(); return true; } }, { key: "Tab", run: acceptCompletion }];
    view.current = new EditorView({ parent: place.current, doc: text, extensions: [
      Prec.highest(keymap.of(keys)), keymap.of([...historyKeymap, ...defaultKeymap]), history(), bracketMatching(), autocompletion({ icons: false }), EditorView.lineWrapping,
      syntaxHighlighting(classHighlighter), names.of(language(known)), EditorView.contentAttributes.of({ "aria-label": "SQL" }),
      EditorView.updateListener.of((update) => { if (update.docChanged) now.current.change(update.state.doc.toString()); }),
    ] });
    return () => view.current.destroy();
  }, []);
  useEffect(() => { catalog().then((entries) => view.current.dispatch({ effects: names.reconfigure(language(known = entries)) }), () => {}); }, [after]);
  useEffect(() => {
    const span = error?.told?.span && error.told.sql === text && text === view.current.state.doc.toString() ? error.told.span : null;
    const unit = (at) => Array.from(text).slice(0, at).join("").length;  // the server counts characters
    const wrong = span && { from: unit(span[0]), to: unit(span[1]), severity: "error", message: [error.message, error.told.hint].filter(Boolean).join("\n") };
    view.current.dispatch(setDiagnostics(view.current.state, wrong ? [wrong] : []));
  }, [error, text]);
  return html`<div class="editor" ref=${place}></div>`;
}

export const Fault = ({ error }) => error && html`<div class="error" role="alert"><b>${error.message}</b>${error.told?.detail && html`<div>${error.told.detail}</div>`}${error.told?.hint && html`<div>Hint: ${error.told.hint}</div>`}</div>`;
