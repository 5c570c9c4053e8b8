import type { TestPod } from "../../fakes/pods.ts";
import type { IncomingHttpHeaders } from "node:http";
import { type RequestOptions, request } from "node:https";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { noTracer } from "../../../src/lib/tracer.ts";
import { createVerbosity } from "../../../src/lib/verbosity.ts";
import type { Reloading } from "../../../src/lib/reloading.ts";
import type { PodStatus } from "../../../src/objects.ts";
import type { KubeletServerDeps, ServedRuntime, ServerConfig } from "../../../src/server/ports.ts";
import { createKubeletApi } from "../../../src/server/app.ts";
import { type KubeletServer, createKubeletServer } from "../../../src/server/server.ts";
import {
  createUnauthenticatedConnections,
  processConnectionLimits,
} from "../../../src/server/unauthenticated-connections.ts";
import { fakeHost } from "../../fakes/host.ts";
import { unmeasured } from "../../fakes/measures.ts";

/** A value that a test can change. */
export function settable<T>(initial: T): Reloading<T> & { set(next: T): void } {
  const listeners = new Set<() => void>();
  let value = initial;
  return {
    current: () => value,
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    set(next) {
      value = next;
      for (const listener of listeners) listener();
    },
  };
}

const unused = (name: string) => () =>
  Promise.reject(new CodedError("unimplemented", `the test does not expect ${name}`));

export function runtimeOf(parts: Partial<ServedRuntime>): ServedRuntime {
  return {
    exec: unused("exec"),
    attach: unused("attach"),
    portForward: unused("portForward"),
    listPodSandbox: () => Promise.resolve([]),
    listContainers: () => Promise.resolve([]),
    containerStatus: unused("containerStatus"),
    execSync: unused("execSync"),
    ...parts,
  };
}

export const config: ServerConfig = {
  address: "127.0.0.1",
  port: 0,
  nodeName: "node",
  anonymous: false,
  enableDebuggingHandlers: true,
  tlsMinVersion: "",
  tlsCipherSuites: [],
  enableSystemLogHandler: true,
  enableSystemLogQuery: false,
  enableDebugFlagsHandler: true,
  enableProfilingHandler: true,
  rootDir: "/var/lib/kubelet",
  splitLogStreams: false,
  flagz: true,
  statusz: true,
};

export interface World {
  readonly config?: Partial<ServerConfig>;
  readonly pods?: readonly TestPod[];
  readonly statuses?: ReadonlyMap<string, PodStatus>;
  readonly deps?: Partial<KubeletServerDeps>;
}

export interface Running extends AsyncDisposable {
  readonly port: number;
  readonly server: KubeletServer;
  /** All log lines. */
  readonly logged: () => string;
  readonly stop: () => Promise<void>;
}

export interface Answer {
  readonly status: number;
  readonly body: string;
  readonly bytes: Buffer;
  readonly headers: IncomingHttpHeaders;
}

/** The token of user `admin`. */
export const adminToken = "let-me-in";

const serving = await makeSelfSigned("node", ["127.0.0.1"], Date.now());

/** A kubelet API on a free port of loopback; `admin` by token, and everything allowed, unless `deps` override it. */
export async function start({
  config: changed = {},
  pods = [],
  statuses = new Map(),
  deps = {},
}: World = {}): Promise<Running> {
  let logged = "";
  const server = createKubeletServer({
    config: { ...config, ...changed },
    certificate: settable(serving),
    clientCA: settable<string | undefined>(undefined),
    authenticator: {
      byToken: (token) => Promise.resolve(token === adminToken ? { name: "admin", groups: [] } : undefined),
    },
    authorizer: { allowed: () => Promise.resolve(true) },
    kubeletApi: createKubeletApi(),
    unauthenticated: createUnauthenticatedConnections(processConnectionLimits),
    verbosity: createVerbosity(5),
    profiles: { take: unused("a profile") },
    tracer: noTracer,
    desired: {
      get: (uid) => pods.find((pod) => pod.metadata.uid === uid),
      byName: (namespace, name) =>
        pods.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name),
      list: () => pods,
    },
    podsKnown: Promise.resolve(),
    status: { get: (uid) => statuses.get(uid) },
    podCache: { get: () => undefined, list: () => [] },
    runtime: runtimeOf({}),
    logs: { read: unused("logs") },
    syncLoop: () => undefined,
    configz: () => ({}),
    flags: {},
    files: fakeHost({ clock: systemClock() }).fs,
    podLogsDir: "/var/log/pods",
    spawn: unused("a command"),
    stats: { summary: unused("the summary"), resource: unused("its metrics"), cadvisor: unused("cAdvisor's metrics") },
    metrics: {
      text: unused("metrics"),
      probes: unused("metrics of probes"),
      slis: unused("metrics of health"),
      resetSlis: () => undefined,
    },
    serving: unmeasured.serving,
    health: unmeasured.health,
    clock: systemClock(),
    targetClock: systemClock(),
    log: createLogger(5, { write: (line: string) => void (logged += line) }),
    ...deps,
  });
  const stopped = new AbortController();
  const done = server.run(stopped.signal);
  await Promise.race([server.ready(stopped.signal), done]);
  const stop = async () => {
    stopped.abort();
    await done;
  };
  return { port: server.address()?.port ?? 0, server, logged: () => logged, stop, [Symbol.asyncDispose]: stop };
}

/** Sends one request on a new connection, with the admin's token unless `headers` override it. */
export function ask(
  { port }: { readonly port: number },
  path: string,
  options: RequestOptions = {},
  body?: string,
): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const sent = request({
    host: "127.0.0.1",
    port,
    path,
    rejectUnauthorized: false,
    agent: false,
    headers: { authorization: `Bearer ${adminToken}` },
    ...options,
  });
  sent.once("error", reject);
  sent.once("response", (response) => {
    response.toArray().then((parts) => {
      const bytes = Buffer.concat(parts);
      resolve({ status: response.statusCode ?? 0, body: bytes.toString(), bytes, headers: response.headers });
    }, reject);
  });
  sent.end(body);
  return promise;
}
