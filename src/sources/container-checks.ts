import type { Container, EnvVar, Probe } from "../objects.ts";
import { quantityNumber } from "../pod/quantity.ts";
import { refused } from "./pod-fields.ts";

export interface ContainerContext {
  /** Path of the container, such as `spec.containers[0]`. */
  readonly at: string;
  readonly volumes: ReadonlySet<string>;
  readonly hostNetwork: boolean;
}

const choices = {
  imagePullPolicy: ["Always", "IfNotPresent", "Never"],
  terminationMessagePolicy: ["File", "FallbackToLogsOnError"],
} as const;

/** @throws CodedError invalid_argument: the first invalid field, and the remedy. */
export function checkContainer(container: Container, place: ContainerContext): void {
  const { at } = place;
  if (!container.image?.trim()) throw refused(`${at}.image`, "is missing: specify an image");
  for (const [field, allowed] of Object.entries(choices)) {
    const value = container[field as keyof typeof choices] ?? "";
    if (!(allowed as readonly string[]).includes(value))
      throw refused(`${at}.${field}`, `${JSON.stringify(value)} is not one of ${allowed.join(", ")}`);
  }
  checkPorts(container, place);
  for (const [index, { name }] of ((container.env ?? []) as readonly Partial<EnvVar>[]).entries()) {
    if (!name || name.includes("=")) throw refused(`${at}.env[${index}].name`, "is missing or contains =");
  }
  checkMounts(container, place);
  checkResources(container, at);
  for (const kind of ["livenessProbe", "readinessProbe", "startupProbe"] as const) {
    const probe = container[kind];
    if (probe) checkProbe(probe, `${at}.${kind}`);
  }
  for (const hook of ["postStart", "preStop"] as const) {
    const handler = container.lifecycle?.[hook];
    if (handler) checkExactlyOne(handler, ["exec", "httpGet", "tcpSocket", "sleep"], `${at}.lifecycle.${hook}`);
  }
}

function isPort(port: unknown): boolean {
  return typeof port === "number" && port >= 1 && port <= 65_535;
}

function checkPorts({ ports = [] }: Container, { at, hostNetwork }: ContainerContext): void {
  for (const [index, port] of ports.entries()) {
    const field = `${at}.ports[${index}]`;
    if (!isPort(port.containerPort)) throw refused(`${field}.containerPort`, "write a number from 1 to 65535");
    if (port.hostPort && !isPort(port.hostPort)) throw refused(`${field}.hostPort`, "write a number from 1 to 65535");
    if (!["TCP", "UDP", "SCTP"].includes(port.protocol ?? ""))
      throw refused(`${field}.protocol`, `${JSON.stringify(port.protocol)} is not TCP, UDP or SCTP`);
    if (hostNetwork && port.hostPort !== port.containerPort)
      throw refused(
        `${field}.hostPort`,
        "differs from containerPort: with hostNetwork both must be equal, or omit hostPort",
      );
  }
}

function checkMounts({ volumeMounts = [] }: Container, { at, volumes }: ContainerContext): void {
  const paths = new Set<string>();
  for (const [index, { name, mountPath, subPath, subPathExpr }] of volumeMounts.entries()) {
    const field = `${at}.volumeMounts[${index}]`;
    if (!volumes.has(name))
      throw refused(`${field}.name`, `there is no volume ${JSON.stringify(name)} in spec.volumes`);
    if (!mountPath) throw refused(`${field}.mountPath`, "is missing: specify a path in the container");
    if (paths.has(mountPath)) throw refused(`${field}.mountPath`, `${mountPath} is already the path of another mount`);
    paths.add(mountPath);
    if (subPath && subPathExpr)
      throw refused(`${field}.subPathExpr`, "is used together with subPath: keep one of them");
    for (const part of [subPath, subPathExpr]) {
      if (part && (part.startsWith("/") || part.split("/").includes("..")))
        throw refused(`${field}.subPath`, "leads out of the volume: use a path within it, without ..");
    }
  }
}

function checkResources({ resources = {} }: Container, at: string): void {
  const { limits = {}, requests = {} } = resources;
  for (const [list, amounts] of Object.entries({ limits, requests })) {
    for (const [name, amount] of Object.entries(amounts)) {
      const field = `${at}.resources.${list}.${name}`;
      if (numberOf(amount, field) < 0) throw refused(field, "is less than 0: set 0 or more");
    }
  }
  for (const [name, amount] of Object.entries(requests)) {
    const limit = limits[name];
    if (limit !== undefined && quantityNumber(amount) > quantityNumber(limit))
      throw refused(`${at}.resources.requests.${name}`, `${amount} is more than the limit ${limit}`);
  }
}

function numberOf(amount: string, field: string): number {
  try {
    return quantityNumber(amount);
  } catch {
    throw refused(
      field,
      `${JSON.stringify(amount)} is not a quantity: write a number with a suffix such as m, Ki or Mi`,
    );
  }
}

function checkProbe(probe: Probe, field: string): void {
  checkExactlyOne(probe, ["exec", "httpGet", "tcpSocket", "grpc"], field);
  for (const name of ["timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] as const) {
    if ((probe[name] ?? 1) < 1) throw refused(`${field}.${name}`, "is less than 1: set 1 or more, or omit it");
  }
  if ((probe.initialDelaySeconds ?? 0) < 0)
    throw refused(`${field}.initialDelaySeconds`, "is less than 0: set 0 or more, or omit it");
  const port = (probe.httpGet ?? probe.tcpSocket ?? probe.grpc)?.port;
  const portless = probe.exec === undefined && (port === undefined || (typeof port === "number" && !isPort(port)));
  if (portless)
    throw refused(`${field}.port`, "is missing or invalid: write a number from 1 to 65535 or a port's name");
}

/** Exactly one of these must be present. */
function checkExactlyOne(handler: object, kinds: readonly string[], field: string): void {
  const given = kinds.filter((kind) => (handler as Record<string, unknown>)[kind] !== undefined);
  if (given.length !== 1)
    throw refused(
      field,
      given.length === 0
        ? `has no action: set one of ${kinds.join(", ")}`
        : `has several actions: keep one of ${given.join(", ")}`,
    );
}
