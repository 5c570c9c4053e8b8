import type { ChildProcess } from "node:child_process";
import { createServer } from "node:net";
import { type Page, launch } from "puppeteer-core";
import { listen } from "./ports.ts";

/** A page in a headless Chromium, with what it did. */
export interface Looked extends AsyncDisposable {
  readonly page: Page;
  /** Violations of its policy, errors of its script and its console, and failed requests. */
  readonly faults: readonly string[];
  /** Addresses that it asked for. */
  readonly requests: readonly string[];
}

export interface LookOptions {
  readonly dark?: boolean;
  readonly width?: number;
  readonly height?: number;
}

/** Opens a page in Debian's Chromium. */
export async function look(url: string, options: LookOptions = {}): Promise<Looked> {
  const { dark = false, width = 1400, height = 1000 } = options;
  const browser = await launch({
    executablePath: "/usr/bin/chromium",
    pipe: true,
    // Tests run as root, in a container: Chromium's own sandbox cannot be had there.
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"],
  });
  const page = await browser.newPage();
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]);
  const faults: string[] = [];
  const requests: string[] = [];
  page.on("console", (message) => {
    if (["error", "warn"].includes(message.type())) faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("requestfailed", (request) => faults.push(`${request.url()}: ${request.failure()?.errorText ?? "failed"}`));
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(url);
  let closed: Promise<void> | undefined;
  return { page, faults, requests, [Symbol.asyncDispose]: () => (closed ??= browser.close()) };
}

/** What a page shows of the pods, or of other machines: a row each, as far as they are in sight. */
export async function rowsIn(page: Page, section: "pods" | "machines"): Promise<readonly string[]> {
  const rows = `document.querySelectorAll("#${section} .space .row:not([hidden])")`;
  return (await page.evaluate(`[...${rows}].map(({ textContent }) => textContent)`)) as readonly string[];
}

/** The text of an element, its parts' included. */
export async function textOf(page: Page, selector: string): Promise<string> {
  return (await page.evaluate(`document.querySelector(${JSON.stringify(selector)}).textContent`)) as string;
}

/** A port of this machine's loopback that leads to one of the loopback of another network, as `kubectl port-forward` does.
 *  @param spawn runs a program there. */
export async function forwardedPort(
  spawn: (argv: readonly string[]) => ChildProcess,
  port: number,
): Promise<AsyncDisposable & { readonly port: number }> {
  const far = new Set<ChildProcess>();
  const server = createServer((near) => {
    const socat = spawn(["socat", "-", `TCP:127.0.0.1:${port}`]);
    far.add(socat);
    if (!socat.stdin || !socat.stdout) throw new Error("socat has no standard streams");
    near.pipe(socat.stdin).on("error", () => near.destroy());
    socat.stdout.pipe(near).on("error", () => socat.kill());
    near.once("close", () => socat.kill());
    socat.once("close", () => far.delete(socat));
  });
  return {
    port: await listen(server),
    async [Symbol.asyncDispose]() {
      for (const socat of far) socat.kill();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
