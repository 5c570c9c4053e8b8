import type { Container } from "../objects.ts";

/** The port number of a probe or hook, given as a number, a container port's name, or a numeric string.
 *  @throws Error with the kubelet's text. */
export function resolvePort(port: number | string, container: Pick<Container, "ports">): number {
  const named =
    typeof port === "string" ? container.ports?.find(({ name }) => name === port)?.containerPort : undefined;
  const resolved = named ?? (typeof port === "string" ? parsePort(port) : port);
  if (resolved <= 0 || resolved > 65535) throw new Error(`invalid port number: ${resolved}`);
  return resolved;
}

function parsePort(text: string): number {
  if (!/^[+-]?\d+$/.test(text)) throw new Error(`strconv.Atoi: parsing ${JSON.stringify(text)}: invalid syntax`);
  return Number(text);
}
