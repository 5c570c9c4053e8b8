import type { ContainerAllocateResponse } from "../gen/device-plugin.ts";
import type { Logger } from "../lib/log.ts";
import type { ContainerAdditions } from "../resource-manager.ts";

/** Merges the plugins' responses for a container. If two plugins set the same name, the first one wins. (kubelet,
 *  devicemanager/pod_devices.go) */
export function mergeDevices(responses: readonly ContainerAllocateResponse[], log: Logger): ContainerAdditions {
  const first = <Item>(items: readonly Item[], keyOf: (item: Item) => string, valueOf: (item: Item) => string) =>
    firstOfEach(items, keyOf, valueOf, log);
  const all = <Item>(of: (response: ContainerAllocateResponse) => readonly Item[]) => responses.flatMap(of);
  const pairs = (of: (response: ContainerAllocateResponse) => Readonly<Record<string, string>>) =>
    first(
      all((response) => Object.entries(of(response))),
      ([name]) => name,
      ([, value]) => value,
    );
  const path = ({ containerPath }: { readonly containerPath: string }) => containerPath;
  const source = ({ hostPath }: { readonly hostPath: string }) => hostPath;
  return {
    environment: new Map(pairs(({ envs }) => envs)),
    mounts: first(
      all(({ mounts }) => mounts),
      path,
      source,
    ),
    devices: first(
      all(({ devices }) => devices),
      path,
      source,
    ),
    annotations: Object.fromEntries(pairs(({ annotations }) => annotations)),
    cdiDevices: [...new Set(all(({ cdiDevices }) => cdiDevices.map(({ name }) => name)))],
  };
}

function firstOfEach<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  valueOf: (item: Item) => string,
  log: Logger,
): readonly Item[] {
  const known = new Map<string, Item>();
  for (const item of items) {
    const key = keyOf(item);
    const before = known.get(key);
    if (before === undefined) known.set(key, item);
    else if (valueOf(before) !== valueOf(item))
      log.warn({ name: key }, "conflicting device plugin responses; using the first");
  }
  return [...known.values()];
}
