// Draws the timeline: a lane per lock and per thread on a canvas. Outside of the kept windows, lanes show shares of time, in periods;
// inside, once they are wide enough, every hold, wait and time off-CPU.
import { scaleLinear } from "d3-scale";
import { taskColours } from "./colours.js";
import { movingGround } from "./ground.js";
import { chain, firstOf, HOLD, inRange, inSteps, OFF_CPU, SLOTS, WAIT } from "./intervals.js";
import { duration, mean } from "./units.js";

export const ROW = 44;
/** Height of the upper band: the holds of a lock, the states of a thread. */
export const ABOVE = 14;
export const SLOT = 4;
/** Height of the times above the rows. */
export const TOP = 26;
/** Height of the map above these. */
export const MAP = 34;
/** Pixels from which on the intervals of a window are drawn one by one. */
const WIDE = 24;
/** Pixels from which on an interval has a name. */
const NAMED = 60;
/** Waits in sight up to which each has an arrow. */
const ARROWS = 40;

/**
 * Returns what draws a timeline.
 * @param {any} context
 * @param {{names: string[], levels: any[], threadLevel: any, threadSums: any, all: any, strings: string[], span: number, windows: any[]}} timeline
 * @param {any} state
 * @param {{width: number, height: number, gutter: number, ratio: number}} size
 */
export function painter(context, { names, levels, threadLevel, threadSums, all, strings, span, windows }, state, size) {
  const colours = taskColours(all);
  const ground = movingGround();
  const { locks } = all;
  const isLock = (lane) => lane < locks;
  const peak = new Float64Array(names.length);
  /** Waiters of all locks, by period; without any, threads off-CPU. */
  let waitingOfAll = new Float64Array(levels[0].periods);
  for (let lane = 0; lane < levels[0].locks; lane++) {
    for (let p = 0; p < levels[0].periods; p++) {
      const waiting = levels[0].waiting[lane * levels[0].periods + p];
      peak[lane] = Math.max(peak[lane], waiting);
      waitingOfAll[p] += waiting;
    }
  }
  const hasWaits = waitingOfAll.some((of) => of > 0);
  if (!hasWaits) waitingOfAll = waitingOfAll.map((_, p) => {
    let sum = 0;
    for (let row = 0; row < threadLevel.locks; row++) sum += threadLevel.off[row * threadLevel.periods + p] ?? 0;
    return sum;
  });
  const mostOfAll = waitingOfAll.reduce((most, of) => Math.max(most, of), 1);
  /** The second line of a lane's label. */
  const labels = names.map((_, lane) => {
    if (isLock(lane)) return lane >= levels[0].locks ? "only in the windows" : peak[lane] > 0 ? `up to ${mean(peak[lane])} waiting` : "never waited for";
    const at = lane - locks;
    if (at >= threadLevel.locks) return "only in the windows";
    const [waited, off] = [threadSums.waited[at], threadSums.off[at]];
    return waited > 0 ? `waited ${duration(waited)}` : off > 0 ? `off-CPU ${duration(off)}` : "never waited";
  });
  /** @param {{from: number, to: number}} view */
  const axis = (view) => scaleLinear([view.from, view.to], [size.gutter, size.width]);
  const rowTop = (at) => TOP + MAP + at * ROW - state.top;

  /** Draws everything, in the colours `c`. @param {any} c */
  function draw(c) {
    const { width, height, gutter, ratio } = size;
    const wanted = { from: state.from, to: state.to, left: gutter, width, height, ratio, look: [c, state.top, state.rows] };
    const view = ground.show(wanted, (context, view, left, right) => drawGround(context, c, view, left, right));
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(ground.canvas, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = c.paper;
    context.fillRect(0, 0, width, TOP + MAP);
    context.fillRect(0, 0, gutter, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    drawMap(c);
    drawAxis(c, axis(view));
    context.save();
    clip(context, 0, TOP + MAP, width, height - TOP - MAP);
    const x = axis(view);
    const shown = { x, kept: drawnWindows(x, view), ...places(view) };
    eachRow((lane, y) => drawWords(c, shown, lane, y));
    clip(context, gutter, TOP + MAP, width - gutter, height);
    drawArrows(c, shown, view);
    drawArea(c, x);
    context.restore();
  }

  function clip(context, left, top, width, height) {
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
  }

  /** Calls `each` with the lanes that are seen and their tops. @param {(lane: number, y: number) => void} each */
  function eachRow(each) {
    for (let at = Math.max(0, Math.floor(state.top / ROW)); at < state.rows.length && rowTop(at) <= size.height; at++) each(state.rows[at], rowTop(at));
  }

  /** What moves with time: the grid and the lanes without words, between two pixels. */
  function drawGround(context, c, view, left, right) {
    const x = axis(view);
    context.fillStyle = c.paper;
    context.fillRect(left, 0, right - left, size.height);
    context.fillStyle = c.grid;
    for (const tick of ticks(x)) context.fillRect(Math.round(x(tick)), MAP + TOP, 1, size.height);
    const kept = drawnWindows(x, view);
    eachRow((lane, y) => drawLane(context, c, x, view, kept, lane, y, left, right));
  }

  /** All of the trace, the windows in it and what is shown. @param {any} c */
  function drawMap(c) {
    const x = scaleLinear([0, span], [size.gutter, size.width]);
    const { periods, period_ns } = levels[0];
    context.fillStyle = c.lane;
    context.fillRect(size.gutter, 0, size.width - size.gutter, MAP - 6);
    context.fillStyle = hasWaits ? c.waiting : c.asleep;
    for (let p = 0; p < periods; p++) {
      const height = waitingOfAll[p] ? Math.max(1, (MAP - 8) * waitingOfAll[p] / mostOfAll) : 0;
      if (height) context.fillRect(x(p * period_ns), MAP - 6 - height, Math.max(1, x(period_ns) - x(0)), height);
    }
    context.fillStyle = c.window;
    for (const w of windows) context.fillRect(x(w.from_ns), 0, Math.max(2, x(w.to_ns) - x(w.from_ns)), MAP - 6);
    context.strokeStyle = c.ink;
    context.strokeRect(x(state.from) + 0.5, 0.5, Math.max(2, x(state.to) - x(state.from) - 1), MAP - 7);
    context.fillStyle = c.faint;
    context.textAlign = "left";
    context.fillText(fitting(hasWaits ? `all locks: up to ${mean(mostOfAll)} waiting` : `threads: up to ${mean(mostOfAll)} off-CPU`, size.gutter - 12), 4, (MAP - 6) / 2);
  }

  const ticks = (x) => x.ticks(Math.max(2, Math.floor((size.width - size.gutter) / 150)));

  /** @param {any} c @param {any} x */
  function drawAxis(c, x) {
    const all = ticks(x);
    const step = all.length > 1 ? all[1] - all[0] : 1;
    const digits = Math.max(0, Math.min(9, Math.ceil(9 - Math.log10(Math.max(1, step)) - 1e-9)));
    context.textAlign = "center";
    for (const tick of all) {
      context.fillStyle = c.grid;
      context.fillRect(Math.round(x(tick)), MAP + TOP - 6, 1, 6);
      context.fillStyle = c.faint;
      const text = `${(tick / 1e9).toFixed(digits)} s`;
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.max(size.gutter + half, Math.min(size.width - half, x(tick))), MAP + TOP / 2 - 2);
    }
  }

  /** Returns the windows whose intervals are drawn one by one, and their edges. */
  const drawnWindows = (x, view) => windows
    .filter((w) => w.to_ns > view.from && w.from_ns < view.to && x(w.to_ns) - x(w.from_ns) >= WIDE)
    .map((w) => ({ w, from: Math.max(view.from, w.from_ns), to: Math.min(view.to, w.to_ns) }));

  /** A lane without words, between two pixels. */
  function drawLane(context, c, x, view, kept, lane, y, left, right) {
    context.fillStyle = c.grid;
    context.fillRect(left, y + ROW - 1, right - left, 1);
    drawLevel(context, c, x, lane, y, left, right);
    for (const { w } of kept) {
      const [begin, end] = [Math.max(left, x(w.from_ns)), Math.min(right, x(w.to_ns))];
      if (begin >= end) continue;
      context.save();
      clip(context, begin, y, end - begin, ROW - 1);
      context.fillStyle = c.paper;
      context.fillRect(begin, y, end - begin, ROW - 1);
      context.fillStyle = c.window;
      context.fillRect(begin, y, end - begin, ROW - 1);
      drawIntervals(context, c, view, lane, y, x.invert(begin), x.invert(end));
      context.restore();
    }
    context.fillStyle = c.window;
    for (const w of windows) if (!kept.some((of) => of.w === w)) context.fillRect(x(w.from_ns), y, Math.max(1, x(w.to_ns) - x(w.from_ns)), ROW - 1);
  }

  /** Returns what is written on an interval of the upper band. */
  const caption = (lane, i) => isLock(lane) ? names[locks + all.task[i]] : all.kind[i] === WAIT ? names[all.lock[i]] : strings[all.state[i]];

  /** The words of a lane, and a frame around what is selected. */
  function drawWords(c, { x, kept, ends, drawn, perPixel }, lane, y) {
    const { gutter, width } = size;
    context.fillStyle = c.grid;
    context.fillRect(0, y + ROW - 1, gutter, 1);
    context.textAlign = "left";
    context.fillStyle = isLock(lane) ? c.held : c.faint;
    context.fillRect(0, y, 3, ROW - 1);
    context.fillStyle = state.hover === lane ? c.held : c.ink;
    context.fillText(fitting(names[lane], gutter - 16), 8, y + 13);
    context.fillStyle = c.faint;
    context.fillText(fitting(labels[lane], gutter - 16), 8, y + 30);
    const chosen = state.selected;
    const isChosen = chosen !== null && (lane === all.lock[chosen] || lane === locks + all.task[chosen]);
    const { above, longest } = all.lanes[lane];
    if (!isChosen && longest / perPixel <= NAMED) return;
    for (const { from, to } of kept) {
      context.save();
      clip(context, x(from), y, x(to) - x(from), ROW - 1);
      if (longest / perPixel > NAMED) for (const list of above) inSteps(all, list, from, to, (i) => {
        const [left, right] = ends(i);
        const at = Math.max(left, gutter) + 4;
        const room = Math.min(right, width) - at - 4;
        context.fillStyle = all.kind[i] === OFF_CPU ? c.ink : "#ffffff";
        // A wait is drawn over the time off-CPU in it.
        if (all.kind[i] === OFF_CPU && hasWait(lane, i)) return drawn(right);
        // In steps, so that few texts are measured while their room changes.
        if (right - left > NAMED && room > 8) context.fillText(fitting(caption(lane, i), Math.floor(room / 4) * 4), at, y + 3 + ABOVE / 2);
        return drawn(right);
      });
      if (isChosen) {
        const [left, right] = ends(chosen);
        if (isAbove(lane, chosen)) outline(c, left, y + 2, right - left, ABOVE);
        else outline(c, left, slotTop(y, all.slot[chosen]), right - left, SLOT - 1);
      }
      context.restore();
    }
  }

  /** Whether a thread waits for a lock while it is off-CPU. */
  function hasWait(lane, i) {
    let found = false;
    inRange(all, all.lanes[lane].above[1], all.start[i] + 1, all.start[i] + all.length[i] - 1, () => { found = true; });
    return found;
  }

  /** Whether an interval is in the upper band of a lane. */
  const isAbove = (lane, i) => isLock(lane) === (all.kind[i] === HOLD);

  /** The middle of an interval in its lane, if the lane is shown: that of its thread, or else that of its lock. */
  function height(i) {
    for (const lane of [locks + all.task[i], all.lock[i]]) {
      const at = state.rows.indexOf(lane);
      if (at >= 0) return rowTop(at) + (isAbove(lane, i) ? 2 + ABOVE / 2 : 5 + ABOVE + all.slot[i] * SLOT);
    }
    return null;
  }

  /** Arrows from waits to the holds that they began in: of the chain that is selected or pointed at, and of all waits in sight if they are few. */
  function drawArrows(c, { x, kept }, view) {
    const chains = [state.selected, state.pointed].filter((i) => i !== null).flatMap((i) => chain(all, i));
    const strong = new Set(chains.filter((i) => all.kind[i] === WAIT));
    const found = new Set(strong);
    eachRow((lane) => {
      if (!isLock(lane)) for (const { from, to } of kept) inRange(all, all.lanes[lane].above[1], from, to, (i) => { if (found.size <= ARROWS) found.add(i); });
    });
    const shown = found.size <= ARROWS ? found : strong;
    for (const i of shown) {
      const holder = all.holder[i];
      const [begin, end] = Number.isNaN(holder) ? [null, null] : [height(i), height(holder)];
      if (begin === null || end === null || all.start[i] < view.from || all.start[i] > view.to) continue;
      const at = x(all.start[i]);
      context.globalAlpha = strong.has(i) ? 1 : 0.35;
      context.strokeStyle = context.fillStyle = c.select;
      context.beginPath();
      context.moveTo(at, begin);
      context.bezierCurveTo(at - 18, begin, at - 18, end, at - 5, end);
      context.stroke();
      context.beginPath();
      context.moveTo(at + 1, end);
      context.lineTo(at - 6, end - 4);
      context.lineTo(at - 6, end + 4);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  /** The selected area. */
  function drawArea(c, x) {
    const { area } = state;
    if (!area) return;
    const [top, bottom] = [rowTop(area.first), rowTop(area.last + 1)];
    context.fillStyle = c.area;
    context.fillRect(x(area.from), top, Math.max(1, x(area.to) - x(area.from)), bottom - top);
    context.strokeStyle = c.held;
    context.strokeRect(x(area.from) + 0.5, top + 0.5, Math.max(1, x(area.to) - x(area.from) - 1), bottom - top - 1);
  }

  const widths = new Map();
  /** @param {string} text @param {number} width */
  function fitting(text, width) {
    const key = `${width} ${text}`;
    let short = widths.get(key);
    if (short === undefined) {
      short = text;
      if (context.measureText(text).width > width) {
        const length = firstOf(text.length, (n) => context.measureText(`${text.slice(0, n + 1)}…`).width > width);
        short = `${text.slice(0, length)}…`;
      }
      widths.set(key, short);
    }
    return short;
  }

  /** The periods of a lane, between two pixels. */
  function drawLevel(context, c, x, lane, y, left, right) {
    const pixels = (level) => x(level.period_ns) - x(0);
    // Periods are at least a pixel wide.
    const level = !isLock(lane) ? threadLevel : lane < levels[1].locks && pixels(levels[1]) >= 1 ? levels[1] : levels[0];
    const row = isLock(lane) ? lane : lane - locks;
    if (row >= level.locks) return;
    const { periods, period_ns, held, waiting, off } = level;
    const first = Math.max(0, Math.floor(x.invert(left) / period_ns));
    const last = Math.min(periods - 1, Math.floor(x.invert(right) / period_ns));
    const [origin, width] = [x(0), pixels(level)];
    // One outline for all periods: a rectangle each takes ten times as long.
    const area = (of, colour, base, sign, full, room) => {
      context.fillStyle = colour;
      context.beginPath();
      context.moveTo(origin + first * width, base);
      for (let p = first; p <= last; p++) {
        const value = of[row * periods + p];
        const top = base + sign * (value > 0 ? Math.max(1, room * Math.min(1, value / full)) : 0);
        context.lineTo(origin + p * width, top);
        context.lineTo(origin + (p + 1) * width, top);
      }
      context.lineTo(origin + (last + 1) * width, base);
      context.fill();
    };
    if (isLock(lane)) {
      area(held, c.held, y + 2 + ABOVE, -1, 1000, ABOVE);
      area(waiting, c.waiting, y + 4 + ABOVE, 1, Math.max(peak[lane], 1), SLOTS * SLOT);
      return;
    }
    area(off, c.asleep, y + 2 + ABOVE, -1, 1000, ABOVE);
    area(waiting, c.waiting, y + 2 + ABOVE, -1, 1000, ABOVE);
    area(held, c.held, y + 4 + ABOVE, 1, 1000, SLOTS * SLOT);
  }

  /** Returns the edges of intervals, and the end of the last pixel that is drawn up to an edge. */
  function places(view) {
    const perPixel = (view.to - view.from) / (size.width - size.gutter);
    const origin = size.gutter - view.from / perPixel;
    const ends = (i) => {
      const left = origin + all.start[i] / perPixel;
      return [left, Math.max(left + 1, left + all.length[i] / perPixel)];
    };
    return { perPixel, ends, drawn: (right) => (Math.ceil(right) - origin) * perPixel };
  }

  const slotTop = (y, slot) => y + 4 + ABOVE + slot * SLOT;

  /** The intervals of a lane in a range of time. */
  function drawIntervals(context, c, view, lane, y, from, to) {
    const { above, slots } = all.lanes[lane];
    const { ends, drawn } = places(view);
    const ofThread = (i) => all.kind[i] === WAIT ? c.waiting : strings[all.state[i]] === "run queue" ? c.ready : c.asleep;
    const upper = isLock(lane) ? (i) => colours.get(all.task[i]) ?? c.others : ofThread;
    for (const list of above) inSteps(all, list, from, to, (i) => {
      const [left, right] = ends(i);
      context.fillStyle = upper(i);
      context.fillRect(left, y + 2, right - left, ABOVE);
      return drawn(right);
    });
    context.globalAlpha = isLock(lane) ? 0.6 : 1;
    const tasks = isLock(lane) ? all.holder_task : all.task;
    slots.forEach((list, slot) => inSteps(all, list, from, to, (i) => {
      const [left, right] = ends(i);
      context.fillStyle = colours.get(tasks[i]) ?? c.others;
      context.fillRect(left, slotTop(y, slot), right - left, SLOT - 1);
      return drawn(right);
    }));
    context.globalAlpha = 1;
  }

  function outline(c, left, top, width, height) {
    context.strokeStyle = c.select;
    context.lineWidth = 2;
    context.strokeRect(left - 1, top - 1, Math.max(2, width) + 2, height + 2);
    context.lineWidth = 1;
  }

  return draw;
}
