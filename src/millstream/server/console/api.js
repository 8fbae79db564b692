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

const json = async (method, path, body) => (await asked(method, path, body)).json();
const rows = async (method, path, body) => lines(await (await asked(method, path, body)).text());

export const overview = (search = "", uses) => json("GET", `/v1/overview?${new URLSearchParams({ search, ...(uses === undefined ? {} : { uses }) })}`);
export const catalog = () => json("GET", "/v1/catalog");
export const query = (name) => json("GET", `/v1/queries/${place(name)}`);
export const explain = async (name) => (await json("GET", `/v1/queries/${place(name)}/explain`)).plan;
export const automaton = async (name) => (await json("GET", `/v1/queries/${place(name)}/explain?format=svg`)).plan;
export const explainText = async (sql, format = "text") => (await json("POST", "/v1/explain", { sql, format })).plan;
export const snapshot = (name) => rows("GET", `/v1/queries/${place(name)}/snapshot`);
export const stop = (name) => asked("DELETE", `/v1/queries/${place(name)}`);
export const operators = (name) => json("GET", name === undefined ? "/v1/operators" : `/v1/queries/${place(name)}/operators`);
export const peek = (name, id) => rows("GET", `/v1/queries/${place(name)}/operators/${place(id)}/peek`);
export const stream = (name) => json("GET", `/v1/streams/${place(name)}`);
export const peekStream = (name, side) => rows("GET", `/v1/streams/${place(name)}/peek?side=${side}`);
export const copy = async (name) => (await json("POST", `/v1/queries/${place(name)}/copies`)).copy;
export const step = (copy, body) => json("POST", `/v1/copies/${place(copy)}/step`, body);
export const closeCopy = (copy) => asked("DELETE", `/v1/copies/${place(copy)}`);

// One statement or several. A query that was started is told by its name; rows are a list.
export async function execute(sql) {
  const answer = await asked("POST", "/v1/execute", { sql });
  if (answer.headers.get("content-type").startsWith("application/x-ndjson")) return { rows: lines(await answer.text()) };
  const told = await answer.json();
  return told.name ? { query: told } : {};
}

// Rows as they are emitted, from a position on: server-sent events. `take` gets lists of rows; aborting the signal ends
// it. When the server restarts or the connection is lost, it returns the position to go on at.
export async function follow(name, since, take, signal) {
  let position = since ?? -1;
  try {
    const answer = await fetch(`/v1/queries/${place(name)}/rows${position < 0 ? "" : `?since=${position}`}`, { headers: headers({ Accept: "text/event-stream" }), signal });
    if (!answer.ok) throw new ServerError(answer.status, await answer.json().catch(() => ({})));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return position;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const told = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/s, 2)));
        if (told.id) { position = Number(told.id); take(JSON.parse(told.data)); }
        else if (told.event === "error") throw new ServerError(400, JSON.parse(told.data));
        else if (told.event === "end" && JSON.parse(told.data).reason === "query") return undefined;
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || (error instanceof ServerError && error.status !== 503)) throw error;
    return position;
  }
}
