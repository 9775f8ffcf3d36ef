// The timeline: what it shows, and what keys and the mouse do. `rows.js` draws it.
import { scaleLinear } from "d3-scale";
import { theme } from "./colours.js";
import { unpack } from "./data.js";
import { el } from "./dom.js";
import { chain, HOLD, inRange, intervals, SLOTS, WAIT } from "./intervals.js";
import { HOLDS, MAP, painter, ROW, SLOT, TOP } from "./rows.js";
import { duration, mean, timestamp } from "./units.js";

/** Shortest range, in ns. */
const SHORTEST = 20;

/** @param {any} data */
export function timelineView(data) {
  const { strings, bytes, timeline } = data;
  const ids = unpack(bytes, timeline.lock_ids);
  const names = Array.from(unpack(bytes, timeline.locks), (at) => strings[at]);
  const levels = timeline.levels.map((level) => ({ ...level, held: unpack(bytes, level.held), waiting: unpack(bytes, level.waiting) }));
  const all = intervals(timeline.intervals, bytes, names.length);
  const span = timeline.span_ns;
  const windows = timeline.windows;
  const state = { from: 0, to: span, top: 0, rows: names.map((_, at) => at), selected: /** @type {number | null} */ (null), hover: -1 };
  const frames = { draws: /** @type {number[]} */ ([]) };

  const canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": "Timeline of locks. Arrow keys move, plus and minus zoom, N goes to the next kept window, Enter follows a wait to its holder." });
  const tip = el("div", { class: "tip", role: "tooltip", hidden: true });
  const panel = el("aside", { class: "panel", "aria-live": "polite" });
  const range = el("span", { class: "range" });
  const context = canvas.getContext("2d", { alpha: false });
  const size = { width: 0, height: 0, gutter: 0, ratio: 1 };
  const paint = painter(context, { names, levels, all, strings, span, windows }, state, size);
  let pending = 0;

  const scale = () => scaleLinear([state.from, state.to], [size.gutter, size.width]);
  const rowsHeight = () => size.height - TOP - MAP;
  const redraw = () => { pending ||= requestAnimationFrame(draw); };

  function resize() {
    const box = canvas.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    Object.assign(size, { width: box.width, height: box.height, gutter: Math.min(280, Math.round(box.width * 0.28)), ratio });
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    redraw();
  }

  /** @param {number} from @param {number} to */
  function show(from, to) {
    const length = Math.min(span, Math.max(SHORTEST, to - from));
    const begin = Math.min(Math.max(0, from + (to - from - length) / 2), span - length);
    [state.from, state.to] = [begin, begin + length];
    redraw();
  }
  const zoom = (factor, at = (state.from + state.to) / 2) => show(at - (at - state.from) * factor, at + (state.to - at) * factor);
  const pan = (share) => { const by = (state.to - state.from) * share; show(state.from + by, state.to + by); };
  function scroll(by) {
    state.top = Math.max(0, Math.min(state.top + by, state.rows.length * ROW - rowsHeight()));
    redraw();
  }

  function draw() {
    pending = 0;
    if (!(size.width > 0 && size.height > 0)) return;
    const begun = performance.now();
    paint(theme());
    range.textContent = `${timestamp(Math.round(state.from))} s to ${timestamp(Math.round(state.to))} s (${duration(Math.round(state.to - state.from))})`;
    frames.draws.push(performance.now() - begun);
    if (frames.draws.length > 600) frames.draws.shift();
  }

  /** Returns the row and the interval at a point of the canvas. @param {number} px @param {number} py */
  function at(px, py) {
    const row = state.rows[Math.floor((py - TOP - MAP + state.top) / ROW)];
    if (py < TOP + MAP || row === undefined) return { row: -1, interval: null, time: 0 };
    const time = scale().invert(px);
    if (px < size.gutter || !windows.some((w) => time >= w.from_ns && time < w.to_ns)) return { row, interval: null, time };
    const y = (py - TOP - MAP + state.top) % ROW;
    const near = (state.to - state.from) / (size.width - size.gutter) * 2;
    let interval = /** @type {number | null} */ (null);
    let distance = Infinity;
    const nearest = (i) => {
      const d = Math.max(all.start[i] - time, time - all.start[i] - all.length[i], 0);
      if (d < distance) [interval, distance] = [i, d];
    };
    if (y < HOLDS + 3) inRange(all, all.byLock[row].holds, time - near, time + near, nearest);
    else inRange(all, all.byLock[row].waits, time - near, time + near, (i) => {
      if (all.slot[i] === Math.min(SLOTS - 1, Math.floor((y - HOLDS - 4) / SLOT))) nearest(i);
    });
    return { row, interval, time };
  }

  /** Returns the lines that describe an interval. @param {number} i */
  function describe(i) {
    const kind = all.kind[i] === HOLD ? "held" : "waited for";
    const holder = all.kind[i] !== WAIT ? [] : [Number.isNaN(all.holder_task[i]) ? "no holder is known" : `for ${strings[all.holder_task[i]]}`];
    return [
      `${strings[all.task[i]]} ${kind} ${names[all.lock[i]]}`,
      `${duration(all.length[i])}, from ${timestamp(all.start[i])} s, ${strings[all.mode[i]]}, ${strings[all.state[i]]}`,
      ...holder,
      `at ${strings[all.site[i]]}`,
      ...(all.stacks[all.stack[i]] ?? []).map((frame) => `  ${strings[frame]}`),
    ];
  }

  /** @param {number | null} i @param {boolean} [centre] */
  function select(i, centre = false) {
    state.selected = i;
    if (i === null) {
      panel.replaceChildren(el("p", { class: "hint" }, hint()));
      return redraw();
    }
    const link = (to, text) => el("button", { class: "link", "data-interval": to, onclick: () => select(to, true) }, text);
    const links = chain(all, i);
    const waiters = all.waitersOf.get(i) ?? [];
    const step = (to) => el("li", {}, link(to, `${strings[all.task[to]]} ${all.kind[to] === HOLD ? "holds" : "waits for"} ${names[all.lock[to]]}, ${duration(all.length[to])}`));
    panel.replaceChildren(
      el("pre", {}, describe(i).join("\n")),
      ...(links.length > 1 ? [el("h3", {}, "Chain"), el("ol", { class: "chain" }, ...links.slice(1).map(step))] : []),
      ...(waiters.length ? [el("h3", {}, `${waiters.length} waits began in it`), el("ol", { class: "waiters" }, ...waiters.slice(0, 20).map(step))] : []));
    if (centre) {
      const row = state.rows.indexOf(all.lock[i]);
      if (row < 0) filter("");
      const y = state.rows.indexOf(all.lock[i]) * ROW;
      if (y < state.top || y + ROW > state.top + rowsHeight()) scroll(y - state.top - rowsHeight() / 2 + ROW / 2);
      const middle = all.start[i] + all.length[i] / 2;
      const length = Math.max(state.to - state.from > all.length[i] * 50 ? all.length[i] * 8 : state.to - state.from, all.length[i] * 1.3, SHORTEST);
      show(middle - length / 2, middle + length / 2);
    }
    redraw();
  }

  const hint = () => {
    const thin = all.leftOut ? ` ${all.leftOut.toLocaleString("en-US")} shorter ones were left out; klock html --intervals N keeps more.` : "";
    return `Blue above: share of time held. Orange below: tasks waiting. Green marks the windows in which the page keeps every hold and wait (${all.count.toLocaleString("en-US")}).${thin} Elsewhere there are periods of ${duration(levels[1].period_ns)} (${levels[1].locks} locks) or ${duration(levels[0].period_ns)}. klock html --window FROM..TO chooses other windows.`;
  };

  /** Shows the locks whose names have the words. @param {string} text */
  function filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    state.rows = names.map((_, row) => row).filter((row) => words.every((word) => names[row].toLowerCase().includes(word)));
    state.top = 0;
    redraw();
  }

  let visited = -1;
  function visit(step) {
    if (!windows.length) return;
    visited = (visited + step + windows.length) % windows.length;
    const { from_ns, to_ns } = windows[visited];
    show(from_ns, to_ns);
  }

  let drag = /** @type {any} */ (null);
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.offsetX, y: event.offsetY, from: state.from, to: state.to, top: state.top, moved: false, map: event.offsetY < MAP && event.offsetX > size.gutter };
    if (drag.map) jump(event.offsetX);
  });
  function jump(px) {
    const time = scaleLinear([size.gutter, size.width], [0, span])(px);
    const half = (state.to - state.from) / 2;
    show(time - half, time + half);
  }
  canvas.addEventListener("pointermove", (event) => {
    if (drag?.map) return jump(event.offsetX);
    if (drag) {
      const by = (event.offsetX - drag.x) * (drag.to - drag.from) / (size.width - size.gutter);
      drag.moved ||= Math.abs(event.offsetX - drag.x) + Math.abs(event.offsetY - drag.y) > 4;
      if (drag.moved) {
        const begin = Math.min(Math.max(0, drag.from - by), span - (drag.to - drag.from));
        [state.from, state.to] = [begin, begin + drag.to - drag.from];
        state.top = drag.top;
        scroll(drag.y - event.offsetY);
        tip.hidden = true;
      }
      return;
    }
    const { row, interval, time } = at(event.offsetX, event.offsetY);
    if (state.hover !== row) { state.hover = row; redraw(); }
    const lines = interval !== null ? describe(interval) : row >= 0 && event.offsetX > size.gutter ? period(row, time) : row >= 0 ? [names[row]] : [];
    tip.hidden = lines.length === 0;
    tip.textContent = lines.join("\n");
    const box = canvas.getBoundingClientRect();
    tip.style.left = `${Math.min(event.offsetX + 14, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${event.offsetY + 18}px`;
  });
  /** @param {number} row @param {number} time */
  function period(row, time) {
    const level = row < levels[1].locks ? levels[1] : levels[0];
    if (row >= level.locks || time < 0 || time >= span) return [names[row]];
    const p = Math.min(level.periods - 1, Math.floor(time / level.period_ns));
    const value = (of) => level[of][row * level.periods + p];
    return [names[row], `${timestamp(p * level.period_ns)} s, ${duration(level.period_ns)}: held ${(value("held") / 10).toFixed(1)} %, ${mean(value("waiting"))} waiting`];
  }
  canvas.addEventListener("pointerup", (event) => {
    const click = drag && !drag.moved && !drag.map;
    drag = null;
    if (!click) return;
    const { interval } = at(event.offsetX, event.offsetY);
    // A second click on a wait goes on to its holder.
    if (interval !== null && interval === state.selected) follow();
    else select(interval);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; state.hover = -1; redraw(); });
  canvas.addEventListener("dblclick", (event) => zoom(0.25, scale().invert(event.offsetX)));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    tip.hidden = true;
    if (event.ctrlKey || event.metaKey || event.altKey || event.offsetX > size.gutter && !event.shiftKey && Math.abs(event.deltaY) > Math.abs(event.deltaX)) zoom(Math.exp(event.deltaY / 400), scale().invert(Math.max(size.gutter, event.offsetX)));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / size.width);
    else scroll(event.deltaY);
  }, { passive: false });
  const follow = () => {
    const to = state.selected === null ? null : chain(all, state.selected)[1];
    if (to !== null && to !== undefined) select(to, true);
  };
  const KEYS = {
    ArrowLeft: () => pan(-0.2), a: () => pan(-0.2), ArrowRight: () => pan(0.2), d: () => pan(0.2), ArrowUp: () => scroll(-ROW), ArrowDown: () => scroll(ROW),
    PageUp: () => scroll(-rowsHeight()), PageDown: () => scroll(rowsHeight()), "+": () => zoom(0.5), "=": () => zoom(0.5), w: () => zoom(0.5), "-": () => zoom(2), s: () => zoom(2),
    Home: () => show(0, span), 0: () => show(0, span), n: () => visit(1), p: () => visit(-1), Enter: follow, Escape: () => select(null),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  const button = (text, title, onclick) => el("button", { title, onclick }, text);
  const search = el("input", { type: "search", class: "search", placeholder: "Find locks", "aria-label": "Find locks", oninput: (event) => filter(event.target.value) });
  const tools = el("div", { class: "tools" }, search, button("−", "Zoom out (-)", () => zoom(2)), button("+", "Zoom in (+)", () => zoom(0.5)),
    button("All", "Show all of the trace (0)", () => show(0, span)), button("Next window", "Go to the next kept window (n)", () => visit(1)), range);
  select(null);
  new ResizeObserver(resize).observe(canvas);
  return {
    node: el("div", { class: "timeline" }, tools, el("div", { class: "canvas" }, canvas, tip), panel),
    redraw, show, select, state, frames, intervals: all, windows,
    /** Shows the row of a lock. @param {number} id */
    showLock(id) {
      const row = ids.indexOf(id);
      if (row < 0) return;
      search.value = "";
      filter("");
      scroll(row * ROW);
      state.hover = row;
      canvas.focus();
      canvas.scrollIntoView({ block: "nearest" });
    },
  };
}
