export { acceptCompletion, autocompletion } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { PostgreSQL, SQLDialect, schemaCompletionSource } from "@codemirror/lang-sql";
export { bracketMatching, syntaxHighlighting } from "@codemirror/language";
export { setDiagnostics } from "@codemirror/lint";
export { Compartment, Prec } from "@codemirror/state";
export { EditorView, keymap } from "@codemirror/view";
export { classHighlighter } from "@lezer/highlight";
