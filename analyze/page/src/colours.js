// Colours of the timeline: those of klock's pictures (analyze/src/plot/draw/theme.rs), distinct for colour-blind readers.

const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];
const THEMES = {
  light: { paper: "#ffffff", ink: "#222222", faint: "#5a5a5a", frame: "#aaaaaa", grid: "#e2e2e2", lane: "#f6f6f6", others: "#888888", held: "#0072b2", waiting: "#d55e00", asleep: "#c4cad4", ready: "#e8c95c", window: "rgba(0,158,115,0.10)", area: "rgba(0,98,160,0.16)", select: "#000000" },
  dark: { paper: "#181a1e", ink: "#e8e8e8", faint: "#acaeb2", frame: "#606268", grid: "#36393f", lane: "#22252a", others: "#888888", held: "#56b4e9", waiting: "#e0701a", asleep: "#4a505c", ready: "#a8882a", window: "rgba(0,200,145,0.10)", area: "rgba(111,192,240,0.22)", select: "#ffffff" },
};

/** Whether the page is dark. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Returns the colours of the theme that the page shows. */
export const theme = () => THEMES[isDark() ? "dark" : "light"];

/** Returns a colour per thread: those that held longest have hues, the others are grey. @param {any} intervals */
export function taskColours(intervals) {
  const sums = new Map();
  for (let i = 0; i < intervals.count; i++) {
    if (intervals.kind[i] === 0) sums.set(intervals.task[i], (sums.get(intervals.task[i]) ?? 0) + intervals.length[i] + 1);
  }
  const ranked = [...sums].sort((a, b) => b[1] - a[1]).slice(0, HUES.length);
  return new Map(ranked.map(([task], at) => [task, HUES[at]]));
}

/** Returns a colour for a text: equal texts have equal colours. @param {string} text */
export function textColour(text) {
  let hash = 7;
  for (const c of text) hash = (hash * 31 + (c.codePointAt(0) ?? 0)) >>> 0;
  const [hue, shade] = [15 + hash % 40, (hash >>> 8) % 16];
  return isDark() ? `hsl(${hue} 55% ${28 + shade}%)` : `hsl(${hue} 85% ${66 + shade}%)`;
}
