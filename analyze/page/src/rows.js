// Draws the timeline: a row per lock on a canvas. Outside of the kept windows, rows show the share of time that the lock was held and the
// mean number of waiters, in periods; inside, once they are wide enough, every hold and wait.
import { scaleLinear } from "d3-scale";
import { taskColours } from "./colours.js";
import { movingGround } from "./ground.js";
import { firstOf, HOLD, inSteps, SLOTS } from "./intervals.js";
import { mean } from "./units.js";

export const ROW = 44;
export const HOLDS = 14;
export const SLOT = 4;
/** Height of the times above the rows. */
export const TOP = 26;
/** Height of the map above these. */
export const MAP = 34;
/** Pixels from which on the intervals of a window are drawn one by one. */
const WIDE = 24;
/** Pixels from which on a hold has the name of its task. */
const NAMED = 60;

/**
 * Returns what draws a timeline.
 * @param {any} context
 * @param {{names: string[], levels: any[], all: any, strings: string[], span: number, windows: any[]}} timeline
 * @param {{from: number, to: number, top: number, rows: number[], selected: number | null, hover: number}} state
 * @param {{width: number, height: number, gutter: number, ratio: number}} size
 */
export function painter(context, { names, levels, all, strings, span, windows }, state, size) {
  const colours = taskColours(all);
  const ground = movingGround();
  const peak = new Float64Array(names.length);
  /** Waiters of all locks, by period. */
  const waitingOfAll = new Float64Array(levels[0].periods);
  for (let row = 0; row < levels[0].locks; row++) {
    for (let p = 0; p < levels[0].periods; p++) {
      const waiting = levels[0].waiting[row * levels[0].periods + p];
      peak[row] = Math.max(peak[row], waiting);
      waitingOfAll[p] += waiting;
    }
  }
  const mostOfAll = waitingOfAll.reduce((most, of) => Math.max(most, of), 1);
  /** @param {{from: number, to: number}} view */
  const axis = (view) => scaleLinear([view.from, view.to], [size.gutter, size.width]);

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
    context.beginPath();
    context.rect(0, TOP + MAP, width, height - TOP - MAP);
    context.clip();
    const x = axis(view);
    const shown = { x, kept: drawnWindows(x, view), ...places(view) };
    eachRow((lock, y) => drawWords(c, shown, lock, y));
    context.restore();
  }

  /** Calls `each` with the rows that are seen and their tops. @param {(lock: number, y: number) => void} each */
  function eachRow(each) {
    for (let at = Math.max(0, Math.floor(state.top / ROW)); at < state.rows.length; at++) {
      const y = TOP + MAP + at * ROW - state.top;
      if (y > size.height) break;
      each(state.rows[at], y);
    }
  }

  /** What moves with time: the grid and the rows without words, between two pixels. */
  function drawGround(context, c, view, left, right) {
    const x = axis(view);
    context.fillStyle = c.paper;
    context.fillRect(left, 0, right - left, size.height);
    context.fillStyle = c.grid;
    for (const tick of ticks(x)) context.fillRect(Math.round(x(tick)), MAP + TOP, 1, size.height);
    const kept = drawnWindows(x, view);
    eachRow((lock, y) => drawRow(context, c, x, view, kept, lock, y, left, right));
  }

  /** All of the trace, the windows in it and what is shown. @param {any} c */
  function drawMap(c) {
    const x = scaleLinear([0, span], [size.gutter, size.width]);
    const { periods, period_ns } = levels[0];
    context.fillStyle = c.lane;
    context.fillRect(size.gutter, 0, size.width - size.gutter, MAP - 6);
    context.fillStyle = c.waiting;
    for (let p = 0; p < periods; p++) {
      const height = waitingOfAll[p] ? Math.max(1, (MAP - 8) * waitingOfAll[p] / mostOfAll) : 0;
      if (height) context.fillRect(x(p * period_ns), MAP - 6 - height, Math.max(1, x(period_ns) - x(0)), height);
    }
    context.fillStyle = c.window;
    for (const w of windows) context.fillRect(x(w.from_ns), 0, Math.max(2, x(w.to_ns) - x(w.from_ns)), MAP - 6);
    context.strokeStyle = c.ink;
    context.strokeRect(x(state.from) + 0.5, 0.5, Math.max(2, x(state.to) - x(state.from) - 1), MAP - 7);
    context.fillStyle = c.faint;
    context.textAlign = "right";
    context.fillText(`waiting, all locks (peak ${mean(mostOfAll)})`, size.gutter - 8, (MAP - 6) / 2, size.gutter - 16);
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
      context.fillText(text, Math.min(size.width - context.measureText(text).width / 2, x(tick)), MAP + TOP / 2 - 2);
    }
  }

  /** Returns the windows whose intervals are drawn one by one, and their edges. */
  const drawnWindows = (x, view) => windows
    .filter((w) => w.to_ns > view.from && w.from_ns < view.to && x(w.to_ns) - x(w.from_ns) >= WIDE)
    .map((w) => ({ w, from: Math.max(view.from, w.from_ns), to: Math.min(view.to, w.to_ns) }));

  /** A row without words, between two pixels. */
  function drawRow(context, c, x, view, kept, lock, y, left, right) {
    context.fillStyle = c.grid;
    context.fillRect(left, y + ROW - 1, right - left, 1);
    drawLevel(context, c, x, lock, y, left, right);
    for (const { w } of kept) {
      const [begin, end] = [Math.max(left, x(w.from_ns)), Math.min(right, x(w.to_ns))];
      if (begin >= end) continue;
      context.save();
      context.beginPath();
      context.rect(begin, y, end - begin, ROW - 1);
      context.clip();
      context.fillStyle = c.paper;
      context.fillRect(begin, y, end - begin, ROW - 1);
      context.fillStyle = c.window;
      context.fillRect(begin, y, end - begin, ROW - 1);
      drawIntervals(context, c, view, lock, y, x.invert(begin), x.invert(end));
      context.restore();
    }
    context.fillStyle = c.window;
    for (const w of windows) if (!kept.some((of) => of.w === w)) context.fillRect(x(w.from_ns), y, Math.max(1, x(w.to_ns) - x(w.from_ns)), ROW - 1);
  }

  /** The words of a row, and a frame around what is selected. */
  function drawWords(c, { x, kept, ends, drawn, perPixel }, lock, y) {
    const { gutter, width } = size;
    context.fillStyle = c.grid;
    context.fillRect(0, y + ROW - 1, gutter, 1);
    context.textAlign = "left";
    context.fillStyle = state.hover === lock ? c.held : c.ink;
    context.fillText(fitting(names[lock], gutter - 12), 4, y + 13);
    context.fillStyle = c.faint;
    context.fillText(lock < levels[0].locks ? `up to ${mean(peak[lock])} waiting` : "only in the windows", 4, y + 30, gutter - 12);
    const chosen = state.selected !== null && all.lock[state.selected] === lock ? state.selected : null;
    const { holds, longest } = all.byLock[lock];
    if (chosen === null && longest / perPixel <= NAMED) return;
    for (const { from, to } of kept) {
      context.save();
      context.beginPath();
      context.rect(x(from), y, x(to) - x(from), ROW - 1);
      context.clip();
      context.fillStyle = "#ffffff";
      if (longest / perPixel > NAMED) inSteps(all, holds, from, to, (i) => {
        const [left, right] = ends(i);
        const at = Math.max(left, gutter) + 4;
        const room = Math.min(right, width) - at - 4;
        // In steps, so that few texts are measured while their room changes.
        if (right - left > NAMED && room > 8) context.fillText(fitting(strings[all.task[i]], Math.floor(room / 4) * 4), at, y + 3 + HOLDS / 2);
        return drawn(right);
      });
      if (chosen !== null) {
        const [left, right] = ends(chosen);
        if (all.kind[chosen] === HOLD) outline(c, left, y + 2, right - left, HOLDS);
        else outline(c, left, slotTop(y, all.slot[chosen]), right - left, SLOT - 1);
      }
      context.restore();
    }
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

  /** The periods of a lock, between two pixels. */
  function drawLevel(context, c, x, lock, y, left, right) {
    const pixels = (level) => x(level.period_ns) - x(0);
    // Periods are at least a pixel wide.
    const level = lock < levels[1].locks && pixels(levels[1]) >= 1 ? levels[1] : levels[0];
    if (lock >= level.locks) return;
    const { periods, period_ns, held, waiting } = level;
    const first = Math.max(0, Math.floor(x.invert(left) / period_ns));
    const last = Math.min(periods - 1, Math.floor(x.invert(right) / period_ns));
    const [origin, width] = [x(0), pixels(level)];
    // One outline for all periods: a rectangle each takes ten times as long.
    const area = (of, colour, base, sign, full, room) => {
      context.fillStyle = colour;
      context.beginPath();
      context.moveTo(origin + first * width, base);
      for (let p = first; p <= last; p++) {
        const value = of[lock * periods + p];
        const top = base + sign * (value > 0 ? Math.max(1, room * Math.min(1, value / full)) : 0);
        context.lineTo(origin + p * width, top);
        context.lineTo(origin + (p + 1) * width, top);
      }
      context.lineTo(origin + (last + 1) * width, base);
      context.fill();
    };
    area(held, c.held, y + 2 + HOLDS, -1, 1000, HOLDS);
    area(waiting, c.waiting, y + 4 + HOLDS, 1, Math.max(peak[lock], 1), SLOTS * SLOT);
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

  const slotTop = (y, slot) => y + 4 + HOLDS + slot * SLOT;

  /** The holds and waits of a lock in a range of time. */
  function drawIntervals(context, c, view, lock, y, from, to) {
    const { holds, slots } = all.byLock[lock];
    const { ends, drawn } = places(view);
    inSteps(all, holds, from, to, (i) => {
      const [left, right] = ends(i);
      context.fillStyle = colours.get(all.task[i]) ?? c.others;
      context.fillRect(left, y + 2, right - left, HOLDS);
      return drawn(right);
    });
    context.globalAlpha = 0.6;
    slots.forEach((waits, slot) => inSteps(all, waits, from, to, (i) => {
      const [left, right] = ends(i);
      context.fillStyle = colours.get(all.holder_task[i]) ?? c.others;
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
