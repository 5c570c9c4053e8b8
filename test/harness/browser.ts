import { type Browser, type Page, launch } from "puppeteer-core";

/** A page in a headless Chromium, with what it did that it must not do. */
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
  /** Command that runs Chromium in its place, such as one that enters a network namespace. */
  readonly executablePath?: string;
}

/** Opens a page in Debian's Chromium. */
export async function look(url: string, options: LookOptions = {}): Promise<Looked> {
  const { dark = false, width = 1400, height = 1000, executablePath = "/usr/bin/chromium" } = options;
  const browser: Browser = await launch({
    executablePath,
    pipe: true,
    // Tests run as root, in a container: Chromium's own sandbox cannot be had there.
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--no-first-run",
      "--disable-background-networking",
    ],
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
  return { page, faults, requests, [Symbol.asyncDispose]: () => browser.close() };
}
