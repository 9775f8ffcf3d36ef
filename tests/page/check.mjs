// Opens a page in Chromium and uses it as a person does; prints what it finds as JSON. Arguments: the browser, the page.
import { open } from "./browser.mjs";

const [program, file] = process.argv.slice(2);
const page = await open(program, file);
const $ = (selector) => `document.querySelector(${JSON.stringify(selector)})`;
const texts = (selector) => page.evaluate(`[...document.querySelectorAll(${JSON.stringify(selector)})].map((e) => e.textContent)`);
const state = () => page.evaluate("(({from, to, selected, rows}) => ({from, to, selected, rows: rows.length}))(klock.timeline.state)");
const type = (selector, text) => page.evaluate(`(() => { const e = ${$(selector)}; e.value = ${JSON.stringify(text)}; e.dispatchEvent(new Event("input", {bubbles: true})); })()`);
const found = {};

found.sums = await page.evaluate(`Object.fromEntries([...document.querySelectorAll("tfoot td[data-sum]")].map((e) => [e.dataset.sum, Number(e.dataset.ns)]))`);
found.names = await texts("#table-report tbody td.name");
await page.evaluate($(`#table-report [data-column="name"], #table-report thead th:last-child button`) + ".click()");
found.sorted = await texts("#table-report tbody td.name");
await type("#table-report input[type=search]", found.names[0].split(" ")[0]);
found.searched = await texts("#table-report tbody td.name");
await type("#table-report input[type=search]", "");
await type('#table-report [data-filter="count"]', ">1");
found.filtered = await texts("#table-report tbody td.name");
await page.evaluate("document.querySelector('#tab-blame')?.click()");
found.blame = (await texts("#table-blame tbody tr")).length;

// The timeline: keys, hover, a click on a wait and on to its holder.
await page.evaluate("document.querySelector('canvas').focus(); document.querySelector('canvas').scrollIntoView()");
const all = await state();
await page.key("+");
found.zoomed = await state();
await page.key("ArrowRight");
found.panned = await state();
await page.key("0");
found.whole = { before: all, after: await state() };
const wait = await page.evaluate(`(() => { const a = klock.timeline.intervals; for (let i = 0; i < a.count; i++) if (a.kind[i] === 1 && !Number.isNaN(a.holder[i])) return i; return -1; })()`);
if (wait >= 0) {
  await page.evaluate(`klock.timeline.select(${wait}, true)`);
  await page.frame();
  const box = await page.evaluate(`(() => { const b = document.querySelector('canvas').getBoundingClientRect(); const s = klock.timeline.state; const a = klock.timeline.intervals;
    const gutter = Math.min(280, Math.round(b.width * 0.28)); const i = ${wait}; const x = b.left + gutter + (a.start[i] + a.length[i] / 2 - s.from) / (s.to - s.from) * (b.width - gutter);
    return { x, y: b.top + 60 + s.rows.indexOf(a.lock[i]) * 44 - s.top + 18 + a.slot[i] * 4 + 1 }; })()`);
  await page.evaluate("klock.timeline.select(null)");
  await page.mouse("mouseMoved", box.x, box.y);
  await page.frame();
  found.tip = await page.evaluate($(".tip") + ".textContent");
  await page.click(box.x, box.y);
  found.clicked = { wait, ...(await state()), panel: await page.evaluate($(".panel") + ".textContent") };
  const holder = await page.evaluate(`klock.timeline.intervals.holder[${wait}]`);
  await page.key("Enter");
  found.followed = { holder, ...(await state()) };
}
await page.evaluate(`klock.timeline.show(0, 1)`);
found.closest = await state();
await page.key("0");
await type(".timeline input[type=search]", found.names[0].split(" ")[0]);
found.found = await state();

// Frames: the page's own times of drawing while it moves.
await type(".timeline input[type=search]", "");
await page.key("n");
found.frames = await page.evaluate(`(async () => { const t = klock.timeline; t.frames.draws.length = 0; const { from, to } = t.state; const times = [];
  for (let i = 0; i < 60; i++) { t.show(from + (to - from) * i / 300, to + (to - from) * i / 300); times.push(await new Promise(requestAnimationFrame)); }
  const draws = [...t.frames.draws].sort((a, b) => a - b); return { draws: draws.length, median: draws[draws.length >> 1], worst: draws.at(-1), fps: 59000 / (times.at(-1) - times[0]) }; })()`);

// What moves is shifted, and looks like what is drawn anew.
if (wait >= 0) {
  found.shifted = await page.evaluate(`(async () => { const { state, show, redraw, intervals: a } = klock.timeline; const canvas = document.querySelector("canvas");
    const drawn = async () => { await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.slice(); };
    const box = canvas.getBoundingClientRect(); const gutter = Math.min(280, Math.round(box.width * 0.28));
    const length = a.length[${wait}] * 3; const pixel = length / (box.width - gutter); let from = a.start[${wait}] - length / 3;
    show(from, from + length);
    const before = await drawn();
    for (const pixels of [40, 3, -150, 1, 60]) { from += pixels * pixel; show(from, from + length); await drawn(); }
    const shifted = await drawn();
    state.rows = [...state.rows];
    redraw();
    const anew = await drawn();
    const others = (x, y) => { let count = 0; for (let i = 0; i < x.length; i += 4) if ([0, 1, 2].some((at) => Math.abs(x[i + at] - y[i + at]) > 8)) count++; return count; };
    return { pixels: anew.length / 4, moved: others(before, shifted), wrong: others(shifted, anew) }; })()`);
}

// Rows, areas, links, help, the wheel.
await page.evaluate("document.querySelector('#timeline').scrollIntoView()");
await type(".timeline input[type=search]", "");
await page.key("0");
await page.evaluate("(() => { const e = document.querySelector('.timeline select'); e.value = 'threads'; e.dispatchEvent(new Event('change')); })()");
found.threads = await page.evaluate("({ rows: klock.timeline.state.rows.length, waits: [...klock.timeline.intervals.lanes].slice(klock.timeline.intervals.locks).reduce((sum, lane) => sum + lane.above[1].index.length, 0), all: klock.timeline.intervals.kind.filter((kind) => kind === 1).length })");
await page.evaluate("(() => { const e = document.querySelector('.timeline select'); e.value = 'both'; e.dispatchEvent(new Event('change')); })()");
const canvas = await page.evaluate("(() => { const { left, top, width } = document.querySelector('canvas').getBoundingClientRect(); return { left, top, width }; })()");
const gutter = Math.min(280, Math.round(canvas.width * 0.28));
await page.mouse("mousePressed", canvas.left + gutter + 1, canvas.top + 70, { button: "left", clickCount: 1 });
await page.mouse("mouseMoved", canvas.left + canvas.width - 2, canvas.top + 75, { button: "left" });
await page.mouse("mouseReleased", canvas.left + canvas.width - 2, canvas.top + 75, { button: "left", clickCount: 1 });
await page.frame();
found.area = await page.evaluate(`(() => { const { state, intervals: a } = klock.timeline; if (!state.area) return null; let waited = 0;
  for (let i = 0; i < a.count; i++) if (a.kind[i] === 1 && a.lock[i] === state.rows[0]) waited += Math.max(0, Math.min(state.area.to, a.start[i] + a.length[i]) - Math.max(state.area.from, a.start[i]));
  return { first: state.area.first, last: state.area.last, waited, shown: document.querySelector(".panel .sums td")?.textContent, panel: document.querySelector(".panel").textContent }; })()`);
await new Promise((next) => setTimeout(next, 400));
found.hash = await page.evaluate("location.hash");
await page.key("Escape");
await page.evaluate("location.hash = '#from=0&to=1000&rows=threads&find=' + encodeURIComponent('<img src=x onerror=window.attacked=1>')");
await page.frame();
await page.frame();
found.linked = await page.evaluate("(({from, to, lanes, words}) => ({from, to, lanes, words}))(klock.timeline.state)");
await page.evaluate("location.hash = '#from=x&to=-1&rows=1&interval=1e9&area=1-2'");
await page.frame();
await page.frame();
found.mislinked = await state();
await page.evaluate("document.activeElement?.blur()");
await page.key("?");
found.help = await page.evaluate("document.querySelector('dialog').open && document.querySelector('dialog').textContent");
await page.key("Escape");
await page.evaluate("document.querySelector('dialog').close(); document.activeElement?.blur(); scrollTo(0, 0)");
await page.evaluate("document.querySelector('#timeline').scrollIntoView()");
const scrolled = () => page.evaluate("scrollY");
const [was, view] = [await scrolled(), await state()];
await page.mouse("mouseWheel", canvas.left + canvas.width / 2, 200, { deltaX: 0, deltaY: 120 });
for (let i = 0; i < 100 && (await scrolled()) === was; i++) await page.frame();
found.wheel = { moved: (await scrolled()) - was, same: JSON.stringify(view) === JSON.stringify(await state()) };
await page.mouse("mouseWheel", canvas.left + canvas.width / 2, 200, { deltaX: 0, deltaY: -120, modifiers: 2 });
await page.frame();
found.pinched = await state();

// What the page says and shows beside the timeline.
found.cards = await texts("#why article");
found.others = await texts("#why .others button");
found.legend = await page.evaluate(`[...document.querySelectorAll(".legend i")].map(({style}) => style.background + " " + style.opacity)`);
found.flames = await texts(".flamegraph h3");
if (found.flames.length) {
  await type(".flamegraph input[type=search]", await page.evaluate("document.querySelector('.frame:last-child').textContent"));
  found.flame = await page.evaluate("(() => { const m = document.querySelectorAll('.frame.match'); return { matches: m.length, status: document.querySelector('.flamegraph .status').textContent }; })()");
}

const paper = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
found.light = await paper();
await page.scheme("dark");
found.dark = await paper();
await page.evaluate("document.querySelector('#theme').click()");
found.switched = await paper();
found.attacked = await page.evaluate("'attacked' in window");
found.scripts = await page.evaluate("document.scripts.length");
// The policy: a script that is added is refused. The refusal is an error of the console, so errors are read before.
found.errors = [...page.errors];
found.requests = page.requests.filter((url) => !url.startsWith("data:"));
await page.evaluate("(() => { const s = document.createElement('script'); s.textContent = 'window.attacked = 1'; document.body.append(s); document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.attacked = 1\"><a href=\"javascript:window.attacked=1\" id=js>x</a>'); document.querySelector('#js').click(); })()");
await page.frame();
found.afterInjection = await page.evaluate("'attacked' in window");
found.paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime");
found.ready = Number(await page.evaluate("document.documentElement.dataset.ready"));
console.log(JSON.stringify(found));
await page.close();
