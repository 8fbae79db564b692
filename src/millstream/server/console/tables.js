// Rows as a table, and as a plot over time.
import { html, useEffect, useRef } from "./vendor/preact.js";
import uPlot from "./vendor/uplot.js";

const shown = (value) => (value === null || value === undefined ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value));

export function RowTable({ rows, most = 500 }) {
  if (!rows.length) return html`<p class="row">No rows.</p>`;
  const names = Object.keys(rows[0]);
  return html`<div class="scroll" tabindex="0" aria-label="rows"><table>
    <thead><tr>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.slice(-most).reverse().map((row) => html`<tr>${names.map((name) => html`<td
      class=${row[name] === null ? "null" : typeof row[name] === "number" ? "number" : ""}>${shown(row[name])}</td>`)}</tr>`)}</tbody>
  </table></div>${rows.length > most && html`<p>The latest ${most} of ${rows.length} rows.</p>`}`;
}

const seconds = (value) => (typeof value === "number" ? value : Date.parse(value.replace(" ", "T") + (/[zZ]|[+-]\d\d:?\d\d$/.test(value) ? "" : "Z")) / 1000);
const isTime = (value) => typeof value === "string" && /^\d{4}-\d\d-\d\d[ T]\d\d:/.test(value);

// The column of times, and the numbers to draw: times are text that looks like one, or a number called t, ts or time.
export function plotted(rows) {
  if (!rows.length) return null;
  const names = Object.keys(rows[0]);
  const time = names.find((name) => isTime(rows[0][name])) ?? names.find((name) => /^(t|ts|time|valid_from)$/i.test(name) && typeof rows[0][name] === "number");
  const numbers = names.filter((name) => name !== time && rows.some((row) => typeof row[name] === "number"));
  return time && numbers.length ? { time, numbers: numbers.slice(0, 4) } : null;
}

const COLOURS = ["#0a7d8c", "#c2571a", "#6b4fa3", "#2c7a3f"];

export function TimePlot({ rows }) {
  const place = useRef(null);
  const what = plotted(rows);
  useEffect(() => {
    if (!what || !place.current) return undefined;
    const sorted = rows.slice(-5000).filter((row) => row[what.time] !== null).sort((a, b) => seconds(a[what.time]) - seconds(b[what.time]));
    const data = [sorted.map((row) => seconds(row[what.time])), ...what.numbers.map((name) => sorted.map((row) => row[name]))];
    const ink = getComputedStyle(place.current).color;
    const axis = { stroke: ink, grid: { stroke: "#8883" } };
    const plot = new uPlot({
      width: place.current.clientWidth, height: 240, axes: [axis, axis],
      tzDate: (moment) => uPlot.tzDate(new Date(moment * 1e3), "Etc/UTC"),
      scales: { x: { time: isTime(rows[0][what.time]) } },
      series: [{ label: what.time }, ...what.numbers.map((label, i) => ({ label, stroke: COLOURS[i], points: { size: 4 } }))],
    }, data, place.current);
    return () => plot.destroy();
  }, [rows, place.current]);
  return what && html`<div ref=${place} role="img" aria-label="plot of ${what.numbers.join(", ")} over ${what.time}"></div>`;
}
