// Flame graphs: the width of a frame is time. Threads are at the bottom; a click on a frame shows it alone.
import { textColour } from "./colours.js";
import { unpack } from "./data.js";
import { button, el } from "./dom.js";
import { duration } from "./units.js";

/** Frames narrower than this share of the width are left out. */
const NARROW = 0.0015;
const HEIGHT = 19;

/** @typedef {{name: string, ns: number, depth: number, begin: number, up: Frame | null, children: Map<string, Frame>}} Frame */

/** Adds up stacks from the bottom. @param {any} flame @param {any} data @returns {Frame} */
function tree({ stacks, weights }, { strings, bytes }) {
  const frame = (name, up) => ({ name, ns: 0, depth: up ? up.depth + 1 : 0, begin: 0, up, children: new Map() });
  const root = frame("all", null);
  unpack(bytes, weights).forEach((ns, at) => {
    let top = root;
    top.ns += ns;
    for (const name of stacks[at].map((text) => strings[text])) {
      if (!top.children.has(name)) top.children.set(name, frame(name, top));
      top = top.children.get(name);
      top.ns += ns;
    }
  });
  const place = (/** @type {Frame} */ of) => {
    let begin = of.begin;
    for (const child of [...of.children.values()].sort((a, b) => a.name < b.name ? -1 : 1)) {
      child.begin = begin;
      begin += child.ns;
      place(child);
    }
  };
  place(root);
  return root;
}

/** Makes the view of a flame graph. @param {any} flame @param {any} data */
export function flameView(flame, data) {
  const root = tree(flame, data);
  let shown = root;
  let words = "";
  const graph = el("div", { class: "flame" });
  const status = el("span", { class: "status", "aria-live": "polite" });
  const share = (/** @type {number} */ ns) => `${(ns * 100 / root.ns).toFixed(1)} %`;

  function draw() {
    const nodes = /** @type {any[]} */ ([]);
    let [narrow, depth, found] = [0, 0, 0];
    const add = (/** @type {Frame} */ frame, isFound) => {
      const isBelow = frame.depth < shown.depth;
      const [left, width] = isBelow ? [0, 1] : [(frame.begin - shown.begin) / shown.ns, frame.ns / shown.ns];
      if (width < NARROW) { narrow++; return; }
      const isMatch = words !== "" && frame.name.toLowerCase().includes(words);
      if (isMatch && !isFound) found += frame.ns;
      depth = Math.max(depth, frame.depth);
      const node = el("button", {
        class: `frame${isMatch ? " match" : ""}${isBelow ? " below" : ""}`, title: `${frame.name}\n${duration(frame.ns)}, ${share(frame.ns)} of all`,
        onclick: () => { shown = frame; draw(); },
      }, frame.name);
      const place = { left: `${left * 100}%`, width: `${width * 100}%`, bottom: `${frame.depth * HEIGHT}px`, background: isMatch ? "" : textColour(frame.name) };
      Object.assign(node.style, place);
      nodes.push(node);
      if (isBelow) return;
      for (const child of frame.children.values()) add(child, isFound || isMatch);
    };
    for (let below = shown.up; below; below = below.up) add(below, false);
    add(shown, false);
    graph.replaceChildren(...nodes);
    graph.style.height = `${(depth + 1) * HEIGHT}px`;
    status.textContent = `${duration(shown.ns)} shown of ${duration(root.ns)}`
      + (words ? `; ${duration(found)} (${share(found)}) in frames with the word` : "")
      + (narrow ? `; ${narrow} narrower frames are left out: click a frame to see more` : "");
  }
  const search = el("input", { type: "search", class: "search", placeholder: "Find functions and locks", "aria-label": `Find in ${flame.title}`, oninput: (event) => { words = event.target.value.trim().toLowerCase(); draw(); } });
  const tools = el("div", { class: "tools" }, search, button("All", "Show all stacks", () => { shown = root; draw(); }), status);
  const node = el("figure", { class: "flamegraph" }, el("h3", {}, flame.title),
    el("p", { class: "hint" }, `Width is time. From the bottom up: the thread, the functions that it called, ${flame.is_off_cpu ? "then -- and the waker" : "the lock"}. A click on a frame shows it alone.`), tools, graph);
  draw();
  return { node, draw };
}
