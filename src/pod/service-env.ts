import { isIPv6 } from "node:net";
import type { Service } from "../objects.ts";

/** Service environment variables: always `default/kubernetes`, and with service links all services of the pod's namespace that have a
 *  cluster IP. Ordered by service name.
 *  @see https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables */
export function serviceEnvironment(
  services: readonly Service[],
  namespace: string,
  serviceLinks: boolean,
): Map<string, string> {
  const visible = new Map<string, Service>();
  for (const service of services) {
    const { name, namespace: home } = service.metadata;
    const own = home === namespace && serviceLinks;
    const master = home === "default" && name === "kubernetes" && !visible.has(name);
    if (hasAddress(service) && (own || master)) visible.set(name, service);
  }
  const names = [...visible.keys()].sort();
  return new Map(names.flatMap((name) => variablesOf(name, visible.get(name)?.spec)));
}

function hasAddress(service: Service): boolean {
  const address = service.spec?.clusterIP;
  return address !== undefined && address !== "" && address !== "None";
}

function variablesOf(serviceName: string, spec: Service["spec"]): [string, string][] {
  const address = spec?.clusterIP ?? "";
  const ports = spec?.ports ?? [];
  const first = ports[0];
  if (!first) return [];
  const prefix = variableName(serviceName);
  const named = ports.filter((port) => port.name);
  return [
    [`${prefix}_SERVICE_HOST`, address],
    [`${prefix}_SERVICE_PORT`, String(first.port)],
    ...named.map((port): [string, string] => [
      `${prefix}_SERVICE_PORT_${variableName(port.name ?? "")}`,
      String(port.port),
    ]),
    [`${prefix}_PORT`, urlOf(address, first)],
    ...ports.flatMap((port) => linkVariables(prefix, address, port)),
  ];
}

/** The format of Docker's container links. */
function linkVariables(prefix: string, address: string, port: { port: number; protocol?: string }): [string, string][] {
  const protocol = port.protocol || "TCP";
  const name = `${prefix}_PORT_${port.port}_${protocol.toUpperCase()}`;
  return [
    [name, urlOf(address, port)],
    [`${name}_PROTO`, protocol.toLowerCase()],
    [`${name}_PORT`, String(port.port)],
    [`${name}_ADDR`, address],
  ];
}

function urlOf(address: string, { port, protocol }: { port: number; protocol?: string }): string {
  return `${(protocol || "TCP").toLowerCase()}://${isIPv6(address) ? `[${address}]` : address}:${port}`;
}

function variableName(name: string): string {
  return name.replaceAll("-", "_").toUpperCase();
}

/** Services for pods that cannot reach the API server at the Service `default/kubernetes`: its address and port are replaced; the
 *  other services are unchanged. @param host a name or an address. */
export function withKubernetesService(
  services: readonly Service[],
  { host, port }: { readonly host: string; readonly port: number },
): readonly Service[] {
  const metadata = { name: "kubernetes", namespace: "default", uid: "" };
  const is = (service: Service) =>
    service.metadata.namespace === metadata.namespace && service.metadata.name === metadata.name;
  const spec = { clusterIP: host, ports: [{ name: "https", port, protocol: "TCP" }] };
  return [...services.filter((service) => !is(service)), { metadata, ...services.find(is), spec }];
}
