import { type IncomingMessage, type ServerResponse, createServer, request } from "node:http";
import { rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { pipeline } from "node:stream";
import { buffer } from "node:stream/consumers";
import { type ProxySockets, type RuntimeProxy, createTrap } from "./runtime-proxy.ts";

/** Starts a proxy to a Docker Engine. Its moments are named by calls that change something: `CreateSandbox`, `StopContainer` …,
 *  `PullImage`.
 *  @param onCall is told of every call, as the agent makes it.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/ */
export async function startDockerProxy(
  { socket, upstream }: ProxySockets,
  onCall: (method: string, url: string) => void = () => {},
): Promise<RuntimeProxy> {
  rmSync(socket, { force: true });
  const { at, stopAt } = createTrap();
  const callOf = callNames();
  const connections = new Set<Socket>();
  const server = createServer((asked, answer) => {
    onCall(asked.method ?? "", asked.url ?? "");
    const call = callOf(asked);
    passCall(upstream, { asked, answer, call, at: (when) => at(`${when} ${call.name}`) }).catch(() => answer.destroy());
  });
  // The engine's own limits hold: a wait or an event stream may say nothing for hours.
  server.requestTimeout = 0;
  server.on("connection", (connection) => {
    connections.add(connection);
    connection.once("close", () => connections.delete(connection));
  });
  server.on("upgrade", (asked, near: Socket, head) => {
    onCall(asked.method ?? "", asked.url ?? "");
    splice(upstream, { asked, near, head }).catch(() => near.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(socket, resolve);
  });
  return {
    socket,
    stopAt,
    async [Symbol.asyncDispose]() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const connection of connections) connection.destroy();
      await closed;
      rmSync(socket, { force: true });
    },
  };
}

/** A call by its name, empty for those that change nothing; `made` is told what it made. */
interface Call {
  readonly name: string;
  made(body: Buffer): void;
}

const verbs: Readonly<Record<string, string>> = {
  "POST create": "Create",
  "POST start": "Start",
  "POST stop": "Stop",
  "DELETE ": "Remove",
};

/** Names calls. Which containers are sandboxes is remembered from their making, by their names. */
function callNames(): (asked: IncomingMessage) => Call {
  const sandboxes = new Set<string>();
  const made = (body: Buffer): void => {
    const { Id } = JSON.parse(body.toString()) as { Id?: string };
    if (Id) sandboxes.add(Id);
  };
  const nothing = (): void => {};
  return ({ method = "", url = "" }) => {
    const { pathname, searchParams } = new URL(url, "http://engine");
    const [subject, first = "", second = ""] = pathname
      .replace(/^\/v\d+\.\d+/, "")
      .slice(1)
      .split("/");
    if (subject === "images" && first === "create" && method === "POST") return { name: "PullImage", made: nothing };
    if (subject !== "containers") return { name: "", made: nothing };
    const verb = verbs[`${method} ${first === "create" ? first : second}`];
    if (verb === undefined) return { name: "", made: nothing };
    const isSandbox = first === "create" ? searchParams.get("name")?.startsWith("k8s_POD_") : sandboxes.has(first);
    return isSandbox
      ? { name: `${verb}Sandbox`, made: verb === "Create" ? made : nothing }
      : { name: `${verb}Container`, made: nothing };
  };
}

interface Passing {
  readonly asked: IncomingMessage;
  readonly answer: ServerResponse;
  readonly call: Call;
  readonly at: (when: "before" | "during" | "after") => Promise<boolean>;
}

/** A caller that goes away takes its call with it, as it does on a socket of its own. */
async function passCall(upstream: string, { asked, answer, call, at }: Passing): Promise<void> {
  if (call.name !== "" && (await at("before"))) return void answer.destroy();
  const body = await buffer(asked);
  const onward = request({
    socketPath: upstream,
    method: asked.method ?? "GET",
    path: asked.url ?? "/",
    headers: asked.headers,
    agent: false,
  });
  answer.once("close", () => onward.destroy());
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    onward.once("response", resolve);
    onward.once("error", reject);
  });
  // In one piece: the engine may answer, and close the connection, while an end that says nothing is still to be written.
  onward.end(body);
  if (call.name === "") return passOn(await answered, answer);
  // Awaited once the answer is there: while the moment passes it may fail with the caller that has gone.
  const settled = answered.then(
    async (response) => ({ response, body: await buffer(response) }),
    () => undefined,
  );
  await at("during");
  const whole = await settled;
  if (!whole) return void answer.destroy();
  if (whole.response.statusCode === 201) call.made(whole.body);
  if (await at("after")) return void answer.destroy();
  answer.writeHead(whole.response.statusCode ?? 502, whole.response.headers).end(whole.body);
}

function passOn(response: IncomingMessage, answer: ServerResponse): void {
  answer.writeHead(response.statusCode ?? 502, response.headers);
  answer.flushHeaders();
  pipeline(response, answer, () => response.destroy());
}

interface Upgrade {
  readonly asked: IncomingMessage;
  readonly near: Socket;
  readonly head: Buffer;
}

/** Commands and attachments: after the handshake the connection is a stream of its own, with two halves. */
async function splice(upstream: string, { asked, near, head }: Upgrade): Promise<void> {
  const far = connect({ path: upstream, allowHalfOpen: true });
  near.allowHalfOpen = true;
  const lines = [`${asked.method} ${asked.url} HTTP/1.1`];
  for (let at = 0; at + 1 < asked.rawHeaders.length; at += 2)
    lines.push(`${asked.rawHeaders[at]}: ${asked.rawHeaders[at + 1]}`);
  far.write(`${lines.join("\r\n")}\r\n\r\n`);
  far.write(await buffer(asked));
  far.write(head);
  pipeline(near, far, () => {});
  pipeline(far, near, () => {});
  near.once("error", () => far.destroy());
  far.once("error", () => near.destroy());
}
