// Drives a headless Chromium over its debugging pipe, without a library: JSON messages that end with a NUL byte.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Opens a file in a new browser. Collects console errors and requests. */
export async function open(program, file, { width = 1400, height = 1000, dark = false } = {}) {
  const profile = mkdtempSync(join(tmpdir(), "klock-page-"));
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--remote-debugging-pipe", `--user-data-dir=${profile}`, `--window-size=${width},${height}`, "about:blank"];
  const child = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"], detached: true });
  const waiting = new Map();
  const errors = [];
  const requests = [];
  const events = new Map();
  let session;
  let rest = Buffer.alloc(0);
  child.stdio[4].on("data", (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
      const message = JSON.parse(rest.subarray(0, end).toString());
      rest = rest.subarray(end + 1);
      if (message.id) {
        const { resolve, reject } = waiting.get(message.id);
        waiting.delete(message.id);
        if (message.error) reject(new Error(message.error.message));
        else resolve(message.result);
        continue;
      }
      const { method, params } = message;
      if (method === "Runtime.exceptionThrown") errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
      if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) errors.push(JSON.stringify(params.args));
      if (method === "Log.entryAdded" && params.entry.level === "error") errors.push(params.entry.text);
      if (method === "Page.javascriptDialogOpening") errors.push(`dialog: ${params.message}`);
      if (method === "Network.requestWillBeSent") requests.push(params.request.url);
      events.get(method)?.(params);
    }
  });
  let last = 0;
  const send = (method, params = {}) => new Promise((resolve, reject) => {
    last += 1;
    waiting.set(last, { resolve, reject });
    child.stdio[3].write(`${JSON.stringify({ id: last, method, params, ...(session ? { sessionId: session } : {}) })}\0`);
  });
  // The first tab may not be there yet.
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  session = (await send("Target.attachToTarget", { targetId, flatten: true })).sessionId;
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(`${domain}.enable`);
  await send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  const scheme = (value) => send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
  await scheme(dark ? "dark" : "light");
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  await send("Page.navigate", { url: `file://${file}` });
  const until = Date.now() + 300_000;
  while (!(await evaluate("document.documentElement?.dataset.ready ?? ''"))) {
    if (errors.length || Date.now() > until) throw new Error(`the page is not ready: ${errors.join("; ")}`);
    await new Promise((next) => setTimeout(next, 20));
  }
  const frame = () => evaluate("new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(() => next(0))))");
  const mouse = (type, x, y, more = {}) => send("Input.dispatchMouseEvent", { type, x, y, button: "none", ...more });
  return {
    errors, requests, evaluate, frame, scheme, mouse,
    async click(x, y) {
      await mouse("mousePressed", x, y, { button: "left", clickCount: 1 });
      await mouse("mouseReleased", x, y, { button: "left", clickCount: 1 });
      await frame();
    },
    async key(key, code = key) {
      const text = key.length === 1 ? key : key === "Enter" ? "\r" : undefined;
      await send("Input.dispatchKeyEvent", { type: "keyDown", key, code, text });
      await send("Input.dispatchKeyEvent", { type: "keyUp", key, code });
      await frame();
    },
    async screenshot(full = false) {
      const { data } = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: full });
      return Buffer.from(data, "base64");
    },
    async close() {
      const ended = new Promise((next) => child.once("exit", next));
      await send("Browser.close").catch(() => {});
      child.kill();
      await ended;
      // The browser's helpers are in its process group. They may outlive it, and write into the profile until they end.
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch (error) {
        if (error.code !== "ESRCH") throw error;
      }
      for (;;) {
        try {
          return rmSync(profile, { recursive: true, force: true });
        } catch (error) {
          if (error.code !== "ENOTEMPTY") throw error;
          await new Promise((next) => setTimeout(next, 100));
        }
      }
    },
  };
}
