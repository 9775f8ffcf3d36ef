// The part of the address behind #: what the page shows, so that a link or a bookmark leads back to it.

/** Returns what an address asks for. Numbers that are none are missing. @param {string} hash */
export function parse(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (/** @type {string} */ name) => {
    const text = given.get(name);
    return text !== null && /^\d{1,18}$/.test(text) ? Number(text) : null;
  };
  const area = given.get("area")?.split("-").map(Number) ?? [];
  const word = (/** @type {string} */ name, /** @type {string[]} */ known) => known.find((of) => of === given.get(name)) ?? null;
  return {
    from: number("from"), to: number("to"), interval: number("interval"), top: number("top"), find: given.get("find") ?? "",
    rows: word("rows", ["both", "locks", "threads"]), tab: given.get("tab"), theme: word("theme", ["light", "dark"]),
    area: area.length === 4 && area.every((of) => Number.isFinite(of)) ? area : null,
  };
}

/** Returns the address of a state. @param {any} state @param {{span: number, tab: string, first: string}} page */
export function format(state, { span, tab, first }) {
  const all = new URLSearchParams();
  if (state.from > 0 || state.to < span) {
    all.set("from", String(Math.round(state.from)));
    all.set("to", String(Math.round(state.to)));
  }
  if (state.lanes !== "both") all.set("rows", state.lanes);
  if (state.words) all.set("find", state.words);
  if (state.top > 0) all.set("top", String(Math.round(state.top)));
  if (state.selected !== null) all.set("interval", String(state.selected));
  if (state.area) all.set("area", [state.area.from, state.area.to, state.area.first, state.area.last].map(Math.round).join("-"));
  if (tab !== first) all.set("tab", tab);
  const { theme } = document.documentElement.dataset;
  if (theme) all.set("theme", theme);
  return `#${all}`;
}

/** Shows what an address asks for in a timeline. @param {any} timeline @param {ReturnType<typeof parse>} wanted */
export function restore(timeline, { from, to, interval, top, find, rows, area }) {
  const { state, intervals } = timeline;
  timeline.filter(find, rows ?? (state.lanes === "threads" && !intervals.locks ? "threads" : "both"));
  timeline.show(from ?? 0, to ?? Infinity);
  timeline.select(interval !== null && interval < intervals.count ? interval : null);
  if (area) timeline.selectArea(area[0], area[1], area[2], area[3]);
  state.top = top ?? 0;
}
