// The page: reads the data, puts the parts together, keeps the theme and the address.
import { isDark } from "./colours.js";
import { read } from "./data.js";
import { button, el } from "./dom.js";
import { flameView } from "./flame.js";
import { help } from "./help.js";
import { format, parse, restore } from "./link.js";
import { tableView } from "./tables.js";
import { timelineView } from "./timeline.js";
import { duration } from "./units.js";
import { verdictsView } from "./verdicts.js";

/** Makes the tabs of the tables. @param {any} data @param {(id: number) => void} onLock @param {(id: string) => void} opened */
function tableTabs(data, onLock, opened) {
  const views = data.tables.map((table) => ({ table, view: /** @type {any} */ (null) }));
  const holder = el("div", { role: "tabpanel" });
  const tabs = el("div", { role: "tablist", class: "tabs" });
  const open = (at) => {
    const entry = views[at];
    entry.view ??= tableView(entry.table, data, onLock);
    holder.replaceChildren(entry.view);
    [...tabs.children].forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === at));
      tab.setAttribute("tabindex", i === at ? "0" : "-1");
    });
    opened(entry.table.id);
  };
  tabs.append(...views.map(({ table }, at) => el("button", { role: "tab", id: `tab-${table.id}`, onclick: () => open(at) }, table.title)));
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const at = ([...tabs.children].indexOf(/** @type {any} */ (document.activeElement)) + step + views.length) % views.length;
    open(at);
    /** @type {any} */ (tabs.children[at]).focus();
  });
  return { tabs, holder, openTab: (id) => open(Math.max(0, views.findIndex(({ table }) => table.id === id))) };
}

async function main() {
  const data = await read();
  const { strings, about } = data;
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  const root = document.documentElement;
  document.title = `klock: ${strings[about.file]}`;

  let [tab, pending, isReady] = ["report", 0, false];
  const remember = () => {
    clearTimeout(pending);
    // Not at once: a browser refuses many changes of its address in a second.
    pending = setTimeout(() => {
      const address = format(timeline.state, { span: data.timeline.span_ns, tab, first: data.tables[0]?.id ?? "report" });
      if (isReady && address !== (location.hash || "#")) history.replaceState(null, "", address);
    }, 250);
  };
  const timeline = timelineView(data, () => remember());
  const onLock = (/** @type {number} */ id) => timeline.showLock(id);
  const { tabs, holder, openTab } = tableTabs(data, onLock, (id) => { tab = id; remember(); });

  const pictures = data.pictures.map((picture) => ({ picture, image: el("img", { alt: picture.title, class: "screen" }) }));
  const flames = data.flames.map((flame) => flameView(flame, data));
  // Numbers of locks lead nowhere in a page.
  const source = (svg) => `data:image/svg+xml,${encodeURIComponent(svg.replaceAll(/>#\d+ (?=[^<])/g, ">"))}`;
  const paint = () => {
    for (const { picture, image } of pictures) image.src = source(isDark() ? picture.dark : picture.light);
    for (const flame of flames) flame.draw();
    timeline.redraw();
  };
  const toggle = button("Light / dark", "Light or dark (t)", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    paint();
  });
  toggle.id = "theme";
  const dialog = help();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  const start = new Date(about.realtime_ns / 1e6);
  const facts = [
    ["host", strings[about.host]], ["kernel", strings[about.kernel]], ["recorded", strings[about.command]],
    ["start", about.realtime_ns ? start.toISOString().replace("T", " ").slice(0, 19) + " UTC" : ""],
    ["length", duration(about.span_ns)], ["events", about.events.toLocaleString("en-US")],
    ["locks", data.timeline.locks_total.toLocaleString("en-US")],
  ].filter(([, value]) => value);
  const parts = [
    ["why", "Verdicts", ...verdictsView(data, onLock)],
    ["timeline", "Timeline", ...timeline.intervals.lanes.length ? [timeline.node] : []],
    ...data.tables.length ? [["tables", "Tables", tabs, holder]] : [],
    ["flames", "Flame graphs", ...flames.map((flame) => flame.node)],
    ["pictures", "Pictures", ...pictures.map(({ picture, image }) => el("figure", {}, image, el("img", { alt: picture.title, class: "print", src: source(picture.light) })))],
    ["trust", "What the numbers hold", el("ul", {}, ...about.trust.map((at) => el("li", {}, strings[at])))],
  ].filter((part) => part.length > 2);
  page.replaceChildren(
    el("header", {},
      el("h1", {}, "klock ", el("span", {}, strings[about.file])),
      el("div", { class: "tools" }, button("?", "Keys and mouse (?)", () => dialog.showModal()), toggle),
      el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
      el("nav", {}, ...parts.map(([id, title]) => el("button", { class: "link", onclick: () => document.getElementById(id)?.scrollIntoView() }, title)))),
    ...about.warnings.map((at) => el("p", { class: "warning", role: "alert" }, strings[at])),
    ...parts.map(([id, title, ...children]) => el("section", { id }, el("h2", {}, title), ...children)),
    el("footer", {}, `klock ${about.klock}. ? shows all keys.`), dialog);

  const follow = () => {
    const wanted = parse(location.hash);
    if (wanted.theme) root.dataset.theme = wanted.theme;
    if (data.tables.length) openTab(wanted.tab ?? data.tables[0].id);
    paint();
    // The size of the timeline is known after the first layout.
    requestAnimationFrame(() => restore(timeline, wanted));
  };
  follow();
  addEventListener("hashchange", follow);
  document.addEventListener("keydown", (event) => {
    const target = /** @type {any} */ (event.target);
    if (target.matches?.("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "t") toggle.click();
    if (event.key === "?") dialog.showModal();
    if (event.key === "/") {
      event.preventDefault();
      /** @type {any} */ (holder.querySelector("input[type=search]"))?.focus();
    }
  });
  Object.assign(window, { klock: { timeline } });
  requestAnimationFrame(() => {
    isReady = true;
    root.dataset.ready = String(Math.round(performance.now()));
  });
}

main().catch((error) => {
  const message = `cannot show the trace: ${error.message}; use a browser of 2023 or later`;
  document.getElementById("page")?.replaceChildren(el("p", { class: "warning" }, message));
  throw error;
});
