// The intervals of the windows, by lane: which are in a range of time, and the chain from a wait to its end. A lane is a row of the
// timeline: of a lock, or of a thread.
import { unpack } from "./data.js";

export const HOLD = 0;
export const WAIT = 1;
export const OFF_CPU = 2;
/** Rows of waits below the holds of a lock, and of holds below the states of a thread. */
export const SLOTS = 5;
const COLUMNS = ["kind", "start", "length", "lock", "task", "mode", "state", "site", "stack", "holder", "holder_task"];

/** @typedef {{index: Uint32Array, ends: Float64Array}} Sorted */
/** @typedef {{above: Sorted[], below: Sorted, slots: Sorted[], longest: number}} Lane */

/** Unpacks the intervals and sorts them into lanes: first those of locks, then those of threads. @param {any} packed @param {Uint8Array} bytes @param {number} locks @param {number} threads */
export function intervals(packed, bytes, locks, threads) {
  const all = /** @type {any} */ (Object.fromEntries(COLUMNS.map((name) => [name, unpack(bytes, packed[name])])));
  const count = packed.count;
  const slot = new Uint8Array(count);
  const lists = Array.from({ length: locks + threads }, () => [[], [], []].map((list) => /** @type {number[]} */ (list)));
  const waitersOf = new Map();
  for (let i = 0; i < count; i++) {
    const kind = all.kind[i];
    if (kind !== OFF_CPU) lists[all.lock[i]][kind].push(i);
    lists[locks + all.task[i]][kind].push(i);
    const holder = all.holder[i];
    if (Number.isNaN(holder)) continue;
    const waiters = waitersOf.get(holder);
    if (waiters) waiters.push(i);
    else waitersOf.set(holder, [i]);
  }
  // The latest end of all intervals before, so that a search by begin misses no long one.
  const sorted = (list) => {
    const index = Uint32Array.from(list);
    const ends = new Float64Array(index.length);
    let end = -Infinity;
    index.forEach((i, at) => { ends[at] = end = Math.max(end, all.start[i] + all.length[i]); });
    return { index, ends };
  };
  const lanes = lists.map((list, lane) => {
    // A lock has its holds above and its waits below, a thread its waits above and its holds below.
    const isLock = lane < locks;
    const below = list[isLock ? WAIT : HOLD];
    const ends = new Float64Array(SLOTS);
    for (const i of below) {
      let free = 0;
      while (free < SLOTS - 1 && ends[free] > all.start[i]) free++;
      slot[i] = free;
      ends[free] = Math.max(ends[free], all.start[i] + all.length[i]);
    }
    const above = isLock ? [list[HOLD]] : [list[OFF_CPU], list[WAIT]];
    const longest = above.flat().reduce((most, i) => Math.max(most, all.length[i]), 0);
    const slots = Array.from({ length: SLOTS }, (_, of) => sorted(below.filter((i) => slot[i] === of)));
    return { above: above.map(sorted), below: sorted(below), slots, longest };
  });
  return { ...all, count, slot, locks, leftOut: packed.left_out, stacks: packed.stacks, waitersOf, lanes };
}

/** Returns the first index from `low` on at which `test` holds; it holds for all after it. @param {number} length @param {(at: number) => boolean} test */
export function firstOf(length, test, low = 0) {
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Calls `each` with the intervals that touch a range. @param {any} all @param {Sorted} sorted @param {number} from @param {number} to @param {(i: number) => void} each */
export function inRange(all, { index, ends }, from, to, each) {
  for (let at = firstOf(index.length, (at) => ends[at] >= from); at < index.length; at++) {
    const i = index[at];
    if (all.start[i] > to) return;
    if (all.start[i] + all.length[i] >= from) each(i);
  }
}

/**
 * Calls `each` with the intervals that touch a range, and goes on with the first that ends after the time that `each` returns: all before it
 * would not be seen. So it costs as much as there are pixels, however many intervals there are.
 * @param {any} all @param {Sorted} sorted @param {number} from @param {number} to @param {(i: number) => number} each
 */
export function inSteps(all, { index, ends }, from, to, each) {
  let at = firstOf(index.length, (at) => ends[at] >= from);
  while (at < index.length && all.start[index[at]] <= to) {
    const i = index[at];
    const until = all.start[i] + all.length[i] >= from ? each(i) : from;
    at++;
    if (at < index.length && ends[at] <= until) at = firstOf(index.length, (at) => ends[at] > until, at);
  }
}

/**
 * Returns the next interval of the chain: of a wait the hold that it began in; of a hold the wait of its task during it, from `time` on.
 * @param {any} all @param {number} i @param {number} time
 */
export function next(all, i, time = all.start[i]) {
  if (all.kind[i] === WAIT) return Number.isNaN(all.holder[i]) ? null : all.holder[i];
  if (all.kind[i] === OFF_CPU) return null;
  const end = all.start[i] + all.length[i];
  const waits = all.lanes[all.locks + all.task[i]].above[1].index;
  const found = waits.find((w) =>
    all.lock[w] !== all.lock[i] && all.start[w] + all.length[w] > time && all.start[w] >= all.start[i] && all.start[w] < end);
  return found ?? null;
}

/** Returns the chain from an interval to its end. @param {any} all @param {number} i */
export function chain(all, i) {
  const links = [i];
  for (let link = next(all, i); link !== null && !links.includes(link) && links.length < 32; link = next(all, link, all.start[i])) links.push(link);
  return links;
}
