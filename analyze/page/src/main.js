// The page: reads the data, puts the parts together, keeps the theme.
import { read } from "./data.js";
import { el } from "./dom.js";
import { tableView } from "./tables.js";
import { timelineView } from "./timeline.js";
import { duration } from "./units.js";

async function main() {
  const data = await read();
  const { strings, about } = data;
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  document.title = `klock: ${strings[about.file]}`;
  const timeline = timelineView(data);
  const onLock = (/** @type {number} */ id) => timeline.showLock(id);

  const pictures = data.pictures.map((picture) => ({ picture, image: el("img", { alt: picture.title, class: "screen" }) }));
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const source = (svg) => `data:image/svg+xml,${encodeURIComponent(svg)}`;
  const paint = () => {
    for (const { picture, image } of pictures) image.src = source(isDark() ? picture.dark : picture.light);
    timeline.redraw();
  };
  const toggle = el("button", {
    id: "theme", title: "Light or dark (t)", onclick: () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      paint();
    },
  }, "Light / dark");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  const verdicts = data.verdicts.map((v) => el("article", {},
    el("h3", {}, el("button", { class: "lock", onclick: () => onLock(v.lock_id) }, strings[v.lock])),
    el("p", { class: "cost" }, `${duration(v.waited_ns)} waited by ${v.waiters} tasks`),
    ...v.findings.map(([verdict, evidence, advice]) => el("div", { class: "finding" },
      el("strong", {}, strings[verdict]), el("p", {}, strings[evidence]), el("p", { class: "advice" }, strings[advice])))));

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
  };
  tabs.append(...views.map(({ table }, at) => el("button", { role: "tab", id: `tab-${table.id}`, onclick: () => open(at) }, table.title)));
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const at = ([...tabs.children].indexOf(/** @type {any} */ (document.activeElement)) + step + views.length) % views.length;
    open(at);
    /** @type {any} */ (tabs.children[at]).focus();
  });
  open(0);

  const start = new Date(about.realtime_ns / 1e6);
  const facts = [
    ["host", strings[about.host]], ["kernel", strings[about.kernel]], ["recorded", strings[about.command]],
    ["start", about.realtime_ns ? start.toISOString().replace("T", " ").slice(0, 19) + " UTC" : ""],
    ["length", duration(about.span_ns)], ["events", about.events.toLocaleString("en-US")],
    ["locks", data.timeline.locks_total.toLocaleString("en-US")],
  ].filter(([, value]) => value);
  const section = (id, title, ...children) => el("section", { id }, el("h2", {}, title), ...children);
  page.replaceChildren(
    el("header", {},
      el("h1", {}, "klock ", el("span", {}, strings[about.file])), toggle,
      el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))))),
    ...about.warnings.map((at) => el("p", { class: "warning", role: "alert" }, strings[at])),
    section("why", "Verdicts", verdicts.length ? el("div", { class: "cards" }, ...verdicts) : el("p", {}, "No task waited for a lock.")),
    section("timeline", "Timeline", timeline.node),
    section("tables", "Tables", tabs, holder),
    section("pictures", "Pictures", ...pictures.map(({ picture, image }) =>
      el("figure", {}, image, el("img", { alt: picture.title, class: "print", src: source(picture.light) })))),
    section("trust", "What the numbers hold", el("ul", {}, ...about.trust.map((at) => el("li", {}, strings[at])))),
    el("footer", {}, `klock ${about.klock}. Keys: / search, t light or dark; in the timeline: arrows move, + and - zoom, 0 all, n next window, Enter follows a wait to its holder.`));
  paint();
  document.addEventListener("keydown", (event) => {
    const target = /** @type {any} */ (event.target);
    if (target.matches?.("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "t") toggle.click();
    if (event.key === "/") {
      event.preventDefault();
      /** @type {any} */ (holder.querySelector("input[type=search]"))?.focus();
    }
  });
  Object.assign(window, { klock: { timeline } });
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

main().catch((error) => {
  const message = `cannot show the trace: ${error.message}; use a browser of 2023 or later`;
  document.getElementById("page")?.replaceChildren(el("p", { class: "warning" }, message));
  throw error;
});
