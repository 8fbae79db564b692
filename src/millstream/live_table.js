// What a notebook runs of LiveTable: a table, and buttons to pause it and to end it.
export default {
  render({ model, el }) {
    const made = (name, text = "", parent = null) => {
      const node = document.createElement(name);
      node.textContent = text;
      parent?.append(node);
      return node;
    };
    const press = (name) => () => { model.set(name, !model.get(name)); model.save_changes(); };
    const bar = made("p", "", el);
    const pause = made("button", "", bar);
    const stop = made("button", "Stop", bar);
    const told = made("span", "", bar);
    const scroll = made("div", "", el);
    pause.onclick = press("paused");
    stop.onclick = press("stopped");
    told.setAttribute("role", "status");
    told.style.marginLeft = "1em";
    scroll.style.overflowX = "auto";
    const draw = () => {
      const numbers = model.get("numbers");
      const stopped = model.get("stopped");
      pause.textContent = model.get("paused") ? "Resume" : "Pause";
      pause.hidden = stop.hidden = stopped;
      told.textContent = `${model.get("state")} · ${model.get("count").toLocaleString("en")} rows`;
      const table = document.createElement("table");
      const head = made("tr", "", made("thead", "", table));
      for (const name of model.get("columns")) made("th", name, head);
      const body = made("tbody", "", table);
      for (const row of model.get("rows")) {
        const line = made("tr", "", body);
        row.forEach((cell, place) => { made("td", cell, line).style.textAlign = numbers[place] ? "right" : "left"; });
      }
      scroll.replaceChildren(table);
    };
    const names = ["rows", "count", "state", "paused", "stopped"].map((name) => `change:${name}`).join(" ");
    model.on(names, draw);
    draw();
    return () => model.off(names, draw);
  },
};
