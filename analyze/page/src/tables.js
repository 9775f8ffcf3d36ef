// Tables: sorting by a click on a heading, a filter per column, a search in all texts, a choice of columns.
import { unpack } from "./data.js";
import { el } from "./dom.js";
import { show } from "./units.js";

const STEP = 200;
const UNITS = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, "%": 1e4, k: 1e3, m: 1e6 };

/**
 * Returns the test of a filter: `>10ms`, `<=5`, `=3`; other words must occur in the text, `!word` must not.
 * @param {string} text @param {any} column @param {string[]} strings
 * @returns {(value: number) => boolean}
 */
function test(text, column, strings) {
  const found = /^(>=|<=|>|<|=)\s*([-\d.]+)\s*([a-zµ%]*)$/i.exec(text);
  if (found && column.kind !== "text" && column.kind !== "site") {
    const limit = Number(found[2]) * (UNITS[found[3].toLowerCase()] ?? (/ppm|percent/.test(column.kind) ? 1e4 : 1));
    const compare = { ">": (v) => v > limit, "<": (v) => v < limit, ">=": (v) => v >= limit, "<=": (v) => v <= limit, "=": (v) => v === limit };
    return compare[found[1]];
  }
  const isNot = text.startsWith("!");
  const word = (isNot ? text.slice(1) : text).toLowerCase();
  return (value) => show(value, column.kind, strings).toLowerCase().includes(word) !== isNot;
}

/**
 * Makes a table. `onLock` is called with the id of a lock whose name is clicked.
 * @param {any} table @param {any} data @param {(id: number) => void} onLock
 */
export function tableView(table, data, onLock) {
  const { strings, bytes } = data;
  const columns = table.columns.map((c) => ({ ...c, data: unpack(bytes, c.values), filter: "" }));
  const ids = columns.find((c) => c.name === "lock_id");
  const named = columns.filter((c) => c.is_name);
  const isText = (c) => c.kind === "text" || c.kind === "site";
  let sorted = columns.find((c) => c.name === table.sorted_by || c.heading === table.sorted_by) ?? null;
  let isDescending = true;
  // The rows come in their order: deadlocked locks first.
  let isGiven = true;
  let shown = STEP;
  let query = "";
  const root = el("div", { class: "table", id: `table-${table.id}` });
  const status = el("p", { class: "status", "aria-live": "polite" });
  // The name stays in sight while numbers are scrolled.
  const visible = () => [...named, ...columns.filter((c) => c.is_shown && !c.is_name)];

  const rows = () => {
    const tests = columns.filter((c) => c.filter).map((c) => ({ c, test: test(c.filter, c, strings) }));
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const texts = columns.filter((c) => isText(c));
    let found = [...Array(table.rows).keys()].filter((row) =>
      tests.every(({ c, test }) => test(c.data[row])) &&
      words.every((word) => texts.some((c) => show(c.data[row], c.kind, strings).toLowerCase().includes(word))));
    if (sorted && !isGiven) {
      const { data } = sorted;
      const sign = isDescending ? -1 : 1;
      const key = isText(sorted) ? (row) => show(data[row], "text", strings) : (row) => data[row];
      const isMissing = (v) => typeof v === "number" && Number.isNaN(v);
      found = found.map((row) => ({ row, v: key(row) })).sort((a, b) => {
        if (isMissing(a.v) || isMissing(b.v)) return Number(isMissing(a.v)) - Number(isMissing(b.v));
        return a.v < b.v ? -sign : a.v > b.v ? sign : a.row - b.row;
      }).map(({ row }) => row);
    }
    return found;
  };

  const body = el("tbody");
  const foot = el("tfoot");
  const head = el("thead");
  const more = el("button", { class: "more", onclick: () => { shown = Infinity; fill(); } }, "Show all rows");

  function fill() {
    const found = rows();
    const list = visible();
    body.replaceChildren(...found.slice(0, shown).map((row) => el("tr", {}, ...list.map((c) => {
      const text = show(c.data[row], c.kind, strings);
      if (c.is_name && ids && !Number.isNaN(ids.data[row])) {
        const link = el("button", { class: "lock", title: "Show in the timeline", onclick: () => onLock(ids.data[row]) }, text);
        return el("td", { class: "name" }, link);
      }
      return el("td", { class: c.is_name ? "name" : isText(c) ? "text" : "number", title: isText(c) ? text : null }, text);
    }))));
    const sum = (c) => found.reduce((sum, row) => sum + (Number.isNaN(c.data[row]) ? 0 : c.data[row]), 0);
    foot.replaceChildren(el("tr", {}, ...list.map((c) =>
      el("td", { class: c.is_name ? "name" : isText(c) ? "text" : "number", "data-sum": c.sums ? c.name : null, "data-ns": c.sums ? sum(c) : null },
        c.sums ? show(sum(c), c.kind, strings) : c.is_name ? found.length === 1 ? "sum of 1 row" : `sum of ${found.length} rows` : ""))));
    const hidden = table.hidden ? `; ${table.hidden.toLocaleString("en-US")} more are in klock ${table.id}` : "";
    status.textContent = `${found.length} of ${table.rows} rows${hidden}`;
    more.hidden = found.length <= shown;
  }

  function headings() {
    const list = visible();
    const sort = (c) => {
      isDescending = sorted === c ? !isDescending : !isText(c);
      isGiven = false;
      sorted = c;
      headings();
      fill();
    };
    head.replaceChildren(
      el("tr", {}, ...list.map((c) => el("th", {
        class: c.is_name ? "name" : isText(c) ? "text" : "number", scope: "col", title: c.doc,
        "aria-sort": sorted === c ? (isDescending ? "descending" : "ascending") : "none",
      }, el("button", { "data-column": c.name, onclick: () => sort(c) }, c.heading)))),
      el("tr", { class: "filters" }, ...list.map((c) => el("th", { class: c.is_name ? "name" : null }, el("input", {
        "aria-label": `Filter ${c.heading}`, placeholder: isText(c) ? "contains" : c.kind === "duration" ? ">1ms" : ">0", value: c.filter,
        "data-filter": c.name, oninput: (event) => { c.filter = event.target.value.trim(); fill(); },
      })))));
  }

  const choice = el("details", { class: "choice" }, el("summary", {}, "Columns"), el("div", {}, ...columns.filter((c) => !c.is_name && c !== ids).map((c) =>
    el("label", { title: c.doc }, el("input", {
      type: "checkbox", checked: c.is_shown,
      onchange: (event) => { c.is_shown = event.target.checked; headings(); fill(); },
    }), ` ${c.heading}`))));
  const search = el("input", {
    type: "search", class: "search", placeholder: "Search  /", "aria-label": `Search ${table.title}`,
    oninput: (event) => { query = event.target.value; fill(); },
  });
  headings();
  fill();
  root.append(el("div", { class: "tools" }, search, choice, status), el("div", { class: "scroll" }, el("table", {}, head, body, foot)), more);
  return root;
}
