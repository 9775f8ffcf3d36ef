// The timeline: what it shows, and what keys and the mouse do. `rows.js` draws it.
import { scaleLinear } from "d3-scale";
import { areaPanel } from "./area.js";
import { taskColours, theme } from "./colours.js";
import { unpack } from "./data.js";
import { button, el } from "./dom.js";
import { chain, HOLD, inRange, intervals, OFF_CPU, SLOTS, WAIT } from "./intervals.js";
import { ABOVE, MAP, painter, ROW, SLOT, TOP } from "./rows.js";
import { duration, mean, timestamp } from "./units.js";

/** Shortest range, in ns. */
const SHORTEST = 20;
/** Locks above the threads. */
const FIRST_LOCKS = 6;

/** @param {any} data @param {() => void} changed is called after what is shown has changed */
export function timelineView(data, changed) {
  const { strings, bytes, timeline } = data;
  const ids = unpack(bytes, timeline.lock_ids);
  const locks = ids.length;
  const texts = (packed) => Array.from(unpack(bytes, packed), (at) => strings[at]);
  const names = [...texts(timeline.locks), ...texts(timeline.threads)];
  const unpacked = (level) => ({ ...level, held: unpack(bytes, level.held), waiting: unpack(bytes, level.waiting), off: unpack(bytes, level.off) });
  const levels = timeline.levels.map(unpacked);
  const threadLevel = unpacked(timeline.thread_level);
  const threadSums = { waited: unpack(bytes, timeline.thread_waited), off: unpack(bytes, timeline.thread_off) };
  const all = intervals(timeline.intervals, bytes, locks, names.length - locks);
  const span = timeline.span_ns;
  const windows = timeline.windows;
  const state = {
    from: 0, to: span, top: 0, lanes: locks ? "both" : "threads", words: "", rows: /** @type {number[]} */ ([]), selected: /** @type {number | null} */ (null),
    pointed: /** @type {number | null} */ (null), hover: -1, area: /** @type {any} */ (null),
  };
  const frames = { draws: /** @type {number[]} */ ([]) };

  const canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": "Timeline of locks and threads. Arrow keys move, plus and minus zoom, N goes to the next kept window, Enter follows a wait to its holder, question mark shows all keys." });
  const tip = el("div", { class: "tip", role: "tooltip", hidden: true });
  const panel = el("aside", { class: "panel", "aria-live": "polite", "aria-label": "Details" });
  const range = el("span", { class: "range" });
  const spacer = el("div");
  const bar = el("div", { class: "bar", tabindex: -1, onscroll: () => { if (bar.scrollTop !== Math.round(state.top)) scroll(bar.scrollTop - state.top); } }, spacer);
  const context = canvas.getContext("2d");
  const size = { width: 0, height: 0, gutter: 0, ratio: 1 };
  const paint = painter(context, { names, levels, threadLevel, threadSums, all, strings, span, windows }, state, size);
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
    scroll(0);
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
  /** Scrolls the rows; false if they are at their end. @param {number} by */
  function scroll(by) {
    const before = state.top;
    state.top = Math.max(0, Math.min(state.top + by, state.rows.length * ROW - rowsHeight()));
    redraw();
    return state.top !== before;
  }

  function draw() {
    pending = 0;
    if (!(size.width > 0 && size.height > 0)) return;
    const begun = performance.now();
    paint(theme());
    range.textContent = `${timestamp(Math.round(state.from))} s to ${timestamp(Math.round(state.to))} s (${duration(Math.round(state.to - state.from))})`;
    spacer.style.height = `${state.rows.length * ROW - rowsHeight() + bar.clientHeight}px`;
    bar.scrollTop = state.top;
    frames.draws.push(performance.now() - begun);
    if (frames.draws.length > 600) frames.draws.shift();
    changed();
  }

  const rowAt = (py) => Math.floor((py - TOP - MAP + state.top) / ROW);

  /** Returns the lane and the interval at a point of the canvas. @param {number} px @param {number} py */
  function at(px, py) {
    const lane = state.rows[rowAt(py)];
    if (py < TOP + MAP || lane === undefined) return { lane: -1, interval: null, time: 0 };
    const time = scale().invert(px);
    if (px < size.gutter || !windows.some((w) => time >= w.from_ns && time < w.to_ns)) return { lane, interval: null, time };
    const y = (py - TOP - MAP + state.top) % ROW;
    const near = (state.to - state.from) / (size.width - size.gutter) * 2;
    let interval = /** @type {number | null} */ (null);
    let distance = Infinity;
    const nearest = (i) => {
      const d = Math.max(all.start[i] - time, time - all.start[i] - all.length[i], 0);
      if (d < distance) [interval, distance] = [i, d];
    };
    const { above, below } = all.lanes[lane];
    // Waits are drawn over the time off-CPU in them.
    if (y < ABOVE + 3) [...above].reverse().forEach((list) => inRange(all, list, time - near, time + near, nearest));
    else inRange(all, below, time - near, time + near, (i) => {
      if (all.slot[i] === Math.min(SLOTS - 1, Math.floor((y - ABOVE - 4) / SLOT))) nearest(i);
    });
    return { lane, interval, time };
  }

  const thread = (task) => names[locks + task];

  /** Returns the lines that describe an interval. @param {number} i */
  function describe(i) {
    const first = { [HOLD]: "held", [WAIT]: "waited for" }[all.kind[i]];
    const holder = all.kind[i] !== WAIT ? [] : [Number.isNaN(all.holder_task[i]) ? "no holder is known" : `for ${thread(all.holder_task[i])}`];
    const times = `${duration(all.length[i])}, from ${timestamp(all.start[i])} s`;
    return [
      ...first ? [`${thread(all.task[i])} ${first} ${names[all.lock[i]]}`, `${times}, ${strings[all.mode[i]]}, ${strings[all.state[i]]}`]
        : [`${thread(all.task[i])} was off-CPU: ${strings[all.state[i]]}`, times],
      ...holder,
      `at ${strings[all.site[i]]}`,
      ...(all.stacks[all.stack[i]] ?? []).map((frame) => `  ${strings[frame]}`),
    ];
  }

  /** Brings an interval into sight. @param {number} i */
  function centre(i) {
    const seen = () => [locks + all.task[i], all.lock[i]].map((lane) => state.rows.indexOf(lane)).filter((row) => row >= 0);
    if (!seen().length) filter("");
    for (const row of seen().slice(0, 1)) {
      const y = row * ROW;
      if (y < state.top || y + ROW > state.top + rowsHeight()) scroll(y - state.top - rowsHeight() / 2 + ROW / 2);
    }
    const middle = all.start[i] + all.length[i] / 2;
    const length = Math.max(state.to - state.from > all.length[i] * 50 ? all.length[i] * 8 : state.to - state.from, all.length[i] * 1.3, SHORTEST);
    show(middle - length / 2, middle + length / 2);
  }

  /** @param {number | null} i @param {boolean} [centred] */
  function select(i, centred = false) {
    Object.assign(state, { selected: i, area: null });
    redraw();
    if (i === null) return panel.replaceChildren(...overall());
    const link = (to, text) => el("button", { class: "link", "data-interval": to, onclick: () => select(to, true) }, text);
    const links = chain(all, i);
    const waiters = all.waitersOf.get(i) ?? [];
    const step = (to) => el("li", {}, link(to, `${thread(all.task[to])} ${all.kind[to] === HOLD ? "holds" : "waits for"} ${names[all.lock[to]]}, ${duration(all.length[to])}`));
    panel.replaceChildren(
      el("pre", {}, describe(i).join("\n")),
      ...(links.length > 1 ? [el("h3", {}, "Chain"), el("ol", { class: "chain" }, ...links.slice(1).map(step))] : []),
      ...(waiters.length ? [el("h3", {}, waiters.length === 1 ? "1 wait began in it" : `${waiters.length} waits began in it`), el("ol", { class: "waiters" }, ...waiters.slice(0, 20).map(step))] : []));
    panel.scrollTop = 0;
    if (centred) centre(i);
  }

  /** Selects rows in a range of time, and shows their sums. */
  function selectArea(from, to, first, last) {
    const area = { from: Math.max(0, from), to: Math.min(span, to), first: Math.max(0, first), last: Math.min(last, state.rows.length - 1) };
    Object.assign(state, { selected: null, area });
    panel.replaceChildren(...areaPanel(all, names, windows, { ...area, lanes: state.rows.slice(area.first, area.last + 1) }, (i) => select(i, true)));
    panel.scrollTop = 0;
    redraw();
  }

  /** What the panel says if nothing is selected. */
  function overall() {
    const kept = `The page keeps every hold and wait in the green ${windows.length === 1 ? "window" : "windows"}: ${all.count.toLocaleString("en-US")} intervals.`;
    const thin = all.leftOut ? ` ${all.leftOut.toLocaleString("en-US")} shorter ones were left out; klock html --intervals N keeps more.` : "";
    const isWhole = windows.length === 1 && windows[0].from_ns === 0 && windows[0].to_ns >= span;
    const rest = isWhole ? "" : ` Elsewhere rows have sums of ${duration(levels[1].period_ns)} or more; klock html --window FROM..TO keeps other windows.`;
    return [el("p", { class: "hint" }, "Click an interval for its details. Drag over rows for their sums. ? shows all keys."), el("p", { class: "hint" }, kept + thin + rest)];
  }

  /** Shows the rows whose names have the words. @param {string} text @param {string} [lanes] */
  function filter(text, lanes = state.lanes) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = names.map((_, lane) => lane).filter((lane) => words.every((word) => names[lane].toLowerCase().includes(word)));
    const [ofLocks, ofThreads] = [matches.filter((lane) => lane < locks), matches.filter((lane) => lane >= locks)];
    const rows = { locks: ofLocks, threads: ofThreads, both: [...ofLocks.slice(0, FIRST_LOCKS), ...ofThreads] };
    Object.assign(state, { rows: rows[lanes], lanes, words: text, top: 0, area: null });
    search.value = text;
    choice.value = lanes;
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
    const { offsetX: x, offsetY: y } = event;
    drag = { x, y, from: state.from, to: state.to, top: state.top, moved: false, map: y < MAP && x > size.gutter, pans: event.shiftKey || event.button === 1 || x < size.gutter };
    if (drag.map) jump(x);
  });
  function jump(px) {
    const time = scaleLinear([size.gutter, size.width], [0, span])(px);
    const half = (state.to - state.from) / 2;
    show(time - half, time + half);
  }
  canvas.addEventListener("pointermove", (event) => {
    const { offsetX, offsetY } = event;
    if (drag?.map) return jump(offsetX);
    if (drag) {
      drag.moved ||= Math.abs(offsetX - drag.x) + Math.abs(offsetY - drag.y) > 4;
      if (!drag.moved) return;
      tip.hidden = true;
      if (!drag.pans) {
        const [from, to] = [drag.x, Math.max(size.gutter, offsetX)].sort((a, b) => a - b).map((px) => scale().invert(px));
        const [first, last] = [drag.y, Math.max(TOP + MAP, offsetY)].sort((a, b) => a - b).map(rowAt);
        return selectArea(from, to, first, last);
      }
      const by = (offsetX - drag.x) * (drag.to - drag.from) / (size.width - size.gutter);
      const begin = Math.min(Math.max(0, drag.from - by), span - (drag.to - drag.from));
      [state.from, state.to] = [begin, begin + drag.to - drag.from];
      state.top = drag.top;
      scroll(drag.y - offsetY);
      return;
    }
    const { lane, interval, time } = at(offsetX, offsetY);
    if (state.hover !== lane || state.pointed !== interval) { Object.assign(state, { hover: lane, pointed: interval }); redraw(); }
    const lines = interval !== null ? describe(interval) : lane >= 0 && offsetX > size.gutter ? period(lane, time) : lane >= 0 ? [names[lane]] : [];
    tip.hidden = lines.length === 0;
    tip.textContent = lines.join("\n");
    const box = canvas.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(offsetX + 14, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${offsetY + 18}px`;
  });
  /** @param {number} lane @param {number} time */
  function period(lane, time) {
    const level = lane >= locks ? threadLevel : lane < levels[1].locks ? levels[1] : levels[0];
    const row = lane >= locks ? lane - locks : lane;
    if (row >= level.locks || time < 0 || time >= span) return [names[lane]];
    const p = Math.min(level.periods - 1, Math.floor(time / level.period_ns));
    const value = (of) => level[of][row * level.periods + p];
    const share = (of) => `${(Math.min(1000, value(of)) / 10).toFixed(1)} %`;
    const off = lane >= locks && threadLevel.off.some((part) => part > 0) ? `, off-CPU ${share("off")}` : "";
    const waiting = lane >= locks ? `waiting ${share("waiting")}${off}` : `${mean(value("waiting"))} waiting`;
    return [names[lane], `${timestamp(p * level.period_ns)} s, ${duration(level.period_ns)}: held ${share("held")}, ${waiting}`];
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
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; Object.assign(state, { hover: -1, pointed: null }); redraw(); });
  canvas.addEventListener("dblclick", (event) => zoom(0.25, scale().invert(event.offsetX)));
  // The wheel scrolls the page. It zooms with Ctrl, moves with Shift, and scrolls the rows of a timeline that was clicked, up to their ends.
  canvas.addEventListener("wheel", (event) => {
    const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const isZoom = event.ctrlKey || event.metaKey || event.altKey;
    if (!isZoom && !isSideways && !(document.activeElement === canvas && scroll(event.deltaY))) return;
    event.preventDefault();
    tip.hidden = true;
    if (isZoom) zoom(Math.exp(event.deltaY / 400), scale().invert(Math.max(size.gutter, event.offsetX)));
    else if (isSideways) pan((event.deltaX || event.deltaY) / size.width);
  }, { passive: false });
  const follow = () => {
    const to = state.selected === null ? null : chain(all, state.selected)[1];
    if (to !== null && to !== undefined) select(to, true);
  };
  const fit = () => {
    const { area, selected: i } = state;
    if (area) show(area.from, area.to);
    else if (i !== null) show(all.start[i] - all.length[i] * 0.1, all.start[i] + all.length[i] * 1.1);
  };
  const KEYS = {
    ArrowLeft: () => pan(-0.2), a: () => pan(-0.2), ArrowRight: () => pan(0.2), d: () => pan(0.2), ArrowUp: () => scroll(-ROW), ArrowDown: () => scroll(ROW),
    PageUp: () => scroll(-rowsHeight()), PageDown: () => scroll(rowsHeight()), "+": () => zoom(0.5), "=": () => zoom(0.5), w: () => zoom(0.5), "-": () => zoom(2), s: () => zoom(2),
    Home: () => show(0, span), 0: () => show(0, span), f: fit, n: () => visit(1), p: () => visit(-1), Enter: follow, Escape: () => select(null),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  const search = el("input", { type: "search", class: "search", placeholder: "Find locks and threads", "aria-label": "Find locks and threads", oninput: (event) => filter(event.target.value) });
  const choice = el("select", { "aria-label": "Rows", onchange: () => filter(search.value, choice.value) },
    ...[["both", "Locks and threads"], ...locks ? [["locks", `Locks (${locks})`]] : [], ...names.length > locks ? [["threads", `Threads (${names.length - locks})`]] : []]
      .map(([value, text]) => el("option", { value }, text)));
  const tools = el("div", { class: "tools" }, search, choice, button("−", "Zoom out (-)", () => zoom(2)), button("+", "Zoom in (+)", () => zoom(0.5)),
    button("All", "Show all of the trace (0)", () => show(0, span)), button("Next window", "Go to the next kept window (n)", () => visit(1)), range);
  const legend = el("p", { class: "legend" });
  /** Says what the colours mean, in those of the theme. */
  function relabel() {
    const c = theme();
    const hue = taskColours(all).values().next().value ?? c.others;
    const hasOff = all.kind.includes(OFF_CPU) || threadLevel.off.some((part) => part > 0);
    const colours = [
      ...locks ? [[hue, "a lock is held, a colour per thread; below a thread: the locks that it holds"], [hue, "below a lock: waits, in the colour of the holder", "0.6"], [c.waiting, "a thread waits for a lock"]] : [],
      ...hasOff ? [[c.asleep, "it sleeps"], [c.ready, "it waits for a CPU"], [c.lane, "it runs, or does what was not recorded"]] : [],
    ];
    legend.replaceChildren(...colours.map(([colour, text, opacity]) => {
      const swatch = el("i");
      Object.assign(swatch.style, { background: colour, opacity: opacity ?? "1" });
      return el("span", {}, swatch, text);
    }), ...locks ? ["An arrow leads from a wait to the hold that it waits for."] : []);
    redraw();
  }
  filter("");
  select(null);
  relabel();
  new ResizeObserver(resize).observe(canvas);
  const beside = el("div", { class: "beside" }, el("div", { class: "canvas" }, canvas, bar, tip), panel);
  beside.style.setProperty("--rows", `${MAP + TOP + names.length * ROW + 2}px`);
  return {
    node: el("div", { class: "timeline" }, tools, legend, beside),
    redraw: relabel, show, select, selectArea, filter, state, frames, intervals: all, windows,
    /** Shows the row of a lock. @param {number} id */
    showLock(id) {
      const lane = ids.indexOf(id);
      if (lane < 0) return;
      filter("", state.lanes === "both" && lane < FIRST_LOCKS ? "both" : "locks");
      scroll(state.rows.indexOf(lane) * ROW);
      state.hover = lane;
      canvas.focus();
      canvas.scrollIntoView({ block: "nearest" });
    },
  };
}
