// Numbers for people, as klock's text has them (analyze/src/output/units.rs).

const threeDigits = (/** @type {number} */ v) => {
  const a = Math.abs(v);
  return v.toFixed(a < 9.995 ? 2 : a < 99.95 ? 1 : 0);
};

/** @param {number} value @param {[number, string][]} units */
function scaled(value, units) {
  const fitting = units.find(([unit]) => Number(threeDigits(Math.abs(value) / unit)) < 1000) ?? units[units.length - 1];
  return threeDigits(value / fitting[0]) + fitting[1];
}

/** Nanoseconds in three digits. @param {number} ns @returns {string} */
export function duration(ns) {
  if (ns === 0) return "0";
  if (ns < 0) return `-${duration(-ns)}`;
  if (ns < 1000) return `${ns} ns`;
  if (ns >= 99_999.5e9) return `${threeDigits(ns / 3600e9)} h`;
  return scaled(ns, [[1e3, " µs"], [1e6, " ms"], [1e9, " s"]]);
}

/** Nanoseconds as seconds with every digit. @param {number} ns */
export function timestamp(ns) {
  const abs = Math.abs(ns);
  return `${ns < 0 ? "-" : ""}${Math.floor(abs / 1e9)}.${String(abs % 1e9).padStart(9, "0")}`;
}

/** A number of things. @param {number} n */
export function count(n) {
  if (Math.abs(n) < 1e6) return n.toLocaleString("en-US");
  return scaled(n, [[1e6, " M"], [1e9, " G"], [1e12, " T"]]);
}

/** A value of a column, as text. @param {number} value @param {string} kind @param {string[]} strings */
export function show(value, kind, strings) {
  if (kind === "text" || kind === "site") return Number.isNaN(value) ? "" : strings[value];
  if (Number.isNaN(value)) return "-";
  switch (kind) {
    case "timestamp": case "period": return timestamp(value);
    case "duration": return duration(value);
    case "ppm": return `${(value / 1e4).toFixed(1)} %`;
    case "percent": return (value / 1e4).toFixed(1);
    default: return count(value);
  }
}

/** A mean number of tasks, from thousandths. @param {number} thousandths @returns {string} */
export const mean = thousandths => (thousandths / 1000).toFixed(thousandths % 1000 === 0 ? 0 : thousandths < 100 ? 3 : 1);
