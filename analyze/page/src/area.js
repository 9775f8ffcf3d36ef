// What is in a selected area of the timeline: sums by lane, and who waited for whom.
import { el } from "./dom.js";
import { HOLD, inRange, OFF_CPU } from "./intervals.js";
import { duration, timestamp } from "./units.js";

/** Rows of a list. */
const MOST = 12;

/**
 * Adds up the intervals of lanes, cut at the edges of a range of time. `pairs` has the waiting by thread and holder.
 * @param {any} all @param {number[]} lanes @param {number} from @param {number} to
 */
export function sums(all, lanes, from, to) {
  const pairs = new Map();
  const rows = lanes.map((lane) => {
    const row = { lane, held: 0, holds: 0, waited: 0, waits: 0, off: 0 };
    for (const list of [...all.lanes[lane].above, all.lanes[lane].below]) inRange(all, list, from, to, (i) => {
      const length = Math.min(to, all.start[i] + all.length[i]) - Math.max(from, all.start[i]);
      if (all.kind[i] === OFF_CPU) row.off += length;
      else if (all.kind[i] === HOLD) { row.held += length; row.holds++; }
      else {
        row.waited += length;
        row.waits++;
        const key = `${all.task[i]} ${all.holder_task[i]} ${all.lock[i]}`;
        const pair = pairs.get(key) ?? { i, waited: 0, seen: new Set() };
        // A wait is in the lanes of its lock and of its thread.
        if (!pair.seen.has(i)) pair.waited += length;
        pair.seen.add(i);
        pairs.set(key, pair);
      }
    });
    return row;
  });
  return { rows, pairs: [...pairs.values()].sort((a, b) => b.waited - a.waited) };
}

/**
 * Returns the panel of a selected area.
 * @param {any} all @param {string[]} names @param {any[]} windows @param {{from: number, to: number, lanes: number[]}} area
 * @param {(i: number) => void} select
 */
export function areaPanel(all, names, windows, { from, to, lanes }, select) {
  const { rows, pairs } = sums(all, lanes, from, to);
  const ranked = rows.filter((row) => row.holds + row.waits + row.off > 0).sort((a, b) => b.waited - a.waited || b.held - a.held || b.off - a.off);
  const time = (ns) => ns > 0 ? duration(Math.round(ns)) : "";
  const number = (n) => n > 0 ? n.toLocaleString("en-US") : "";
  const row = (of) => [
    el("tr", {}, el("th", { class: "text", colspan: 5, scope: "rowgroup" }, names[of.lane])),
    el("tr", {}, ...[time(of.waited), number(of.waits), time(of.held), number(of.holds), time(of.off)].map((text) => el("td", { class: "number" }, text))),
  ];
  const isWhole = windows.some((w) => w.from_ns <= from && to <= w.to_ns);
  const more = (/** @type {any[]} */ list) => list.length > MOST ? [el("p", { class: "hint" }, `${list.length - MOST} more are not shown.`)] : [];
  const head = (/** @type {string[]} */ texts, words = 1) => el("tr", {}, ...texts.map((text, at) => el("th", { class: at < words ? "text" : "number" }, text)));
  return [
    el("h3", {}, `${duration(Math.round(to - from))} from ${timestamp(Math.round(from))} s, ${lanes.length === 1 ? "1 row" : `${lanes.length} rows`}`),
    ...isWhole ? [] : [el("p", { class: "hint" }, "Only what is in the green windows is added up.")],
    el("table", { class: "sums" }, head(["waited", "waits", "held", "holds", "off-CPU"], 0),
      ...ranked.slice(0, MOST).flatMap(row)),
    ...more(ranked),
    ...pairs.length ? [el("h3", {}, "Who waited for whom"), el("table", { class: "sums pairs" }, head(["thread, holder, lock", "waited"]),
      ...pairs.slice(0, MOST).map(({ i, waited }) => {
        const holder = Number.isNaN(all.holder_task[i]) ? "no known holder" : names[all.locks + all.holder_task[i]];
        const text = `${names[all.locks + all.task[i]]} for ${holder}: ${names[all.lock[i]]}`;
        return el("tr", {}, el("td", {}, el("button", { class: "link", onclick: () => select(i) }, text)), el("td", { class: "number" }, time(waited)));
      })), ...more(pairs)] : [],
  ];
}
