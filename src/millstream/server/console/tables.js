// Rows as a table, and as a plot over time with matches and windows marked.
import { html, useEffect, useRef } from "./vendor/preact.js";
import uPlot from "./vendor/uplot.js";

const shown = (value) => (value === null || value === undefined ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value));

export function RowTable({ rows, most = 200, none = "No rows." }) {
  if (!rows.length) return html`<p class="row">${none}</p>`;
  const names = Object.keys(rows[0]);
  return html`<div class="scroll" tabindex="0" aria-label="rows"><table>
    <thead><tr>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.slice(-most).reverse().map((row) => html`<tr>${names.map((name) => html`<td
      class=${row[name] === null ? "null" : typeof row[name] === "number" ? "number" : ""}>${shown(row[name])}</td>`)}</tr>`)}</tbody>
  </table></div>${rows.length > most && html`<p>The latest ${most} of ${rows.length.toLocaleString("en")} rows.</p>`}`;
}

const isTime = (value) => typeof value === "string" && /^\d{4}-\d\d-\d\d([ T]\d\d:|$)/.test(value);
const seconds = (value) => (typeof value === "number" ? value : isTime(value) ? Date.parse(value.replace(" ", "T") + (value.length < 11 || /[zZ]|[+-]\d\d:?\d\d$/.test(value) ? "" : "Z")) / 1000 : NaN);

// Times are text that looks like one, the column that orders the stream, or a number whose name says so.
function roles(rows, known = {}) {
  if (!rows.length) return null;
  const names = Object.keys(rows[0]), first = (name) => rows.find((row) => row[name] !== null)?.[name];
  const times = names.filter((name) => isTime(first(name)) || (typeof first(name) === "number" && (known.times?.includes(name) || /^(t|ts|time|valid_from|valid_to|window_(start|end))$/i.test(name))));
  const time = times.find((name) => known.times?.includes(name)) ?? times.find((name) => /end$/i.test(name)) ?? times[0];
  const numbers = names.filter((name) => !times.includes(name) && name !== known.match && typeof first(name) === "number");
  if (!time || !numbers.length) return null;
  const values = (name) => new Set(rows.map((row) => row[name]));
  const key = [...(known.keys ?? []), ...names.filter((name) => name !== known.variable && typeof first(name) === "string" && !times.includes(name))].find((name) => values(name).size > 1 && values(name).size <= 6);
  return { time, times, key, numbers: numbers.slice(0, key ? 1 : 4), match: known.match, variable: known.variable, keys: known.keys ?? [] };
}

// Where a match or a window begins and ends.
function bandsOf(rows, what) {
  const found = new Map();
  const [begin, end] = what.times.length > 1 ? [what.times.find((name) => /start|first|from|begin/i.test(name)) ?? what.times[0], what.times.find((name) => /end|last|to$|until/i.test(name)) ?? what.times[1]] : [];
  rows.forEach((row, i) => {
    if (what.match && row[what.match] !== null && (!what.variable || row[what.variable] !== null)) {
      const key = [...what.keys.map((name) => row[name]), row[what.match]].join("\u0000"), at = seconds(row[what.time]);
      const band = found.get(key) ?? { from: at, to: at };
      found.set(key, { from: Math.min(band.from, at), to: Math.max(band.to, at) });
    } else if (!what.match && begin && end && begin !== end) {
      const [from, to] = [seconds(row[begin]), seconds(row[end])];
      if (from <= to) found.set(`${from} ${to}`, { from, to });
    }
  });
  return [...found.values()];
}

const COLOURS = ["#c2571a", "#7d5fc0", "#2c8a4b", "#b8336a", "#8a7000"];
const BANDS = ["#54aeff", "#f5b13d", "#7bc96f", "#c297ff"];

export function TimePlot({ rows, known }) {
  const place = useRef(null);
  const what = roles(rows, known);
  const bands = what ? bandsOf(rows.slice(-5000), what) : [];
  useEffect(() => {
    if (!what || !place.current) return undefined;
    const sorted = rows.slice(-5000).filter((row) => row[what.time] !== null).sort((a, b) => seconds(a[what.time]) - seconds(b[what.time]));
    const parts = what.key ? [...new Set(sorted.map((row) => row[what.key]))].map((value) => [`${value}`, (row) => (row[what.key] === value ? row[what.numbers[0]] : undefined)]) : what.numbers.map((name) => [name, (row) => row[name]]);
    const data = [sorted.map((row) => seconds(row[what.time])), ...parts.map(([, value]) => sorted.map(value))];
    const style = getComputedStyle(place.current), ink = style.color, colours = [style.getPropertyValue("--main"), ...COLOURS];
    const axis = { stroke: ink, grid: { stroke: "#8883" }, ticks: { stroke: "#8883" } };
    const mark = (plot) => bands.forEach(({ from, to }, i) => {
      const inside = (at) => Math.min(Math.max(plot.valToPos(at, "x", true), plot.bbox.left), plot.bbox.left + plot.bbox.width);
      plot.ctx.fillStyle = BANDS[i % BANDS.length] + "40";
      plot.ctx.fillRect(inside(from) - 1, plot.bbox.top, inside(to) - inside(from) + 2, plot.bbox.height);
    });
    const plot = new uPlot({
      width: place.current.clientWidth, height: 240, axes: [axis, axis], hooks: { drawClear: [mark] }, legend: { live: false },
      tzDate: (moment) => uPlot.tzDate(new Date(moment * 1e3), "Etc/UTC"),
      scales: { x: { time: sorted.some((row) => isTime(row[what.time])) } },
      series: [{ label: what.time }, ...parts.map(([label], i) => ({ label, stroke: colours[i % colours.length], width: 1.5, spanGaps: true, points: { size: 4 } }))],
    }, data, place.current);
    const sized = new ResizeObserver(() => plot.setSize({ width: place.current.clientWidth, height: 240 }));
    sized.observe(place.current);
    return () => { sized.disconnect(); plot.destroy(); };
  }, [rows, place.current]);
  return what && html`<div ref=${place} class="plot" role="img" aria-label="plot of ${what.numbers.join(", ")} over ${what.time}"></div>
    ${bands.length > 0 && html`<p class="faint">${bands.length.toLocaleString("en")} ${what.match ? (bands.length === 1 ? "match" : "matches") : bands.length === 1 ? "span" : "spans"} marked</p>`}`;
}
