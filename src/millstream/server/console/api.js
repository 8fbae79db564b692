// Calls of the server. The token is kept for this tab only.
const KEY = "millstream-token";
export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

export class ServerError extends Error {
  constructor(status, told) {
    super(told.message ?? `status ${status}`);
    Object.assign(this, { status, told });
  }
}

const headers = (more = {}) => ({ ...(token.get() ? { Authorization: `Bearer ${token.get()}` } : {}), ...more });

async function asked(method, path, body, accept) {
  const answer = await fetch(path, {
    method,
    headers: headers({ Accept: accept ?? "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }) }),
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!answer.ok) throw new ServerError(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

const place = (name) => encodeURIComponent(name);
const lines = (text) => text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));

export const overview = async () => (await asked("GET", "/v1/overview")).json();
export const catalog = async () => (await asked("GET", "/v1/catalog")).json();
export const query = async (name) => (await asked("GET", `/v1/queries/${place(name)}`)).json();
export const explain = async (name, mode = "") => (await (await asked("GET", `/v1/queries/${place(name)}/explain?mode=${mode}`)).json()).plan;
export const automaton = async (name) => (await (await asked("GET", `/v1/queries/${place(name)}/explain?format=svg`)).json()).plan;
export const explainText = async (sql) => (await (await asked("POST", "/v1/explain", { sql })).json()).plan;
export const snapshot = async (name) => lines(await (await asked("GET", `/v1/queries/${place(name)}/snapshot`)).text());
export const stop = (name) => asked("DELETE", `/v1/queries/${place(name)}`);

// One statement or several. A query that was started is told by its name; rows are a list.
export async function execute(sql) {
  const answer = await asked("POST", "/v1/execute", { sql });
  if (answer.headers.get("content-type").startsWith("application/x-ndjson")) return { rows: lines(await answer.text()) };
  const told = await answer.json();
  return told.name ? { query: told } : {};
}

export async function start(sql, name) {
  return (await asked("POST", "/v1/sql", { sql, name })).json();
}

// Rows as they are emitted. `take` gets lists of rows; aborting the signal ends it.
export async function follow(name, take, signal) {
  const answer = await fetch(`/v1/queries/${place(name)}/rows`, { headers: headers({ Accept: "application/x-ndjson" }), signal });
  if (!answer.ok) throw new ServerError(answer.status, await answer.json().catch(() => ({})));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    const rows = parts.filter((line) => line.trim()).map((line) => JSON.parse(line));
    if (rows.length) take(rows);
  }
}
