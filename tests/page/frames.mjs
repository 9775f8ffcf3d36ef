// Opens a page in Chromium, moves its timeline in every frame, and prints as JSON when it was painted and how long its frames took.
// Arguments: the browser, the page.
import { open } from "./browser.mjs";

const FRAMES = 240;
const [program, file] = process.argv.slice(2);
const page = await open(program, file);
await page.evaluate("document.querySelector('canvas').scrollIntoView()");
await page.frame();

/** Moves what is shown by a 300th in every frame, there and back. */
const move = () => page.evaluate(`(async () => {
  const { state, frames, show } = klock.timeline;
  const step = (state.to - state.from) / 300;
  frames.draws.length = 0;
  const times = [];
  for (let i = 0; i < ${FRAMES}; i++) {
    const by = i < ${FRAMES / 2} ? step : -step;
    show(state.from + by, state.to + by);
    times.push(await new Promise(requestAnimationFrame));
  }
  const draws = [...frames.draws].sort((a, b) => a - b);
  const at = (share) => draws[Math.min(draws.length - 1, Math.floor(draws.length * share))];
  return { median: at(0.5), p99: at(0.99), in_time: draws.filter((ms) => ms <= 1000 / 60).length / draws.length,
    per_second: (times.length - 1) * 1000 / (times.at(-1) - times[0]) };
})()`);

const found = { moves: {} };
// Half of the trace, the first kept window, and a hundredth of that.
await page.evaluate("klock.timeline.show(0, klock.timeline.state.to / 2)");
found.moves.half = await move();
await page.evaluate("(() => { const { from_ns, to_ns } = klock.timeline.windows[0]; klock.timeline.show(from_ns, from_ns + (to_ns - from_ns) * 0.9); })()");
found.moves.window = await move();
await page.evaluate("(() => { const { from_ns, to_ns } = klock.timeline.windows[0]; klock.timeline.show(from_ns, from_ns + (to_ns - from_ns) / 100); })()");
found.moves.part = await move();
found.locks = await page.evaluate("klock.timeline.state.rows.length");
found.kept = await page.evaluate("klock.timeline.intervals.count");
found.left_out = await page.evaluate("klock.timeline.intervals.leftOut");
found.hint = await page.evaluate("document.querySelector('.panel .hint').textContent");
found.paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime");
found.ready = Number(await page.evaluate("document.documentElement.dataset.ready"));
found.errors = page.errors;
console.log(JSON.stringify(found));
await page.close();
