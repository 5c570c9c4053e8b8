/** A device of a claim, as its driver prepared it. */
export interface PreparedDevice {
  readonly poolName: string;
  readonly deviceName: string;
  /** Set if the device is shared by several claims. */
  readonly shareId?: string;
  /** Requests of the claim that the device is for; empty for all. */
  readonly requestNames: readonly string[];
  /** Full names, such as `vendor.com/gpu=0`. */
  readonly cdiDeviceIds: readonly string[];
}

/** A ResourceClaim that pods on this node use. */
export interface ClaimRecord {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  /** UIDs of the pods that use it. */
  readonly pods: ReadonlySet<string>;
  /** Prepared devices by driver; includes drivers of the claim's allocation that prepared no devices. */
  readonly drivers: ReadonlyMap<string, readonly PreparedDevice[]>;
}

/** The claims that pods on this node use. */
export type ClaimRecords = ReturnType<typeof createClaimRecords>;

/** Creates an empty list of claims. */
export function createClaimRecords() {
  const records = new Map<string, ClaimRecord>();
  const prepared = new Set<string>();
  const keyOf = ({ namespace, name }: Pick<ClaimRecord, "namespace" | "name">) => `${namespace}/${name}`;
  const put = (record: ClaimRecord) => {
    records.set(keyOf(record), record);
    return record;
  };
  /** Returns the current record of a claim, since a record read before a call may be outdated. */
  const current = (claim: ClaimRecord) => {
    const found = records.get(keyOf(claim));
    return found?.uid === claim.uid ? found : undefined;
  };
  return {
    get: (namespace: string, name: string): ClaimRecord | undefined => records.get(keyOf({ namespace, name })),
    all: (): readonly ClaimRecord[] => [...records.values()],
    ofPod: (uid: string): readonly ClaimRecord[] => [...records.values()].filter(({ pods }) => pods.has(uid)),
    /** Adds a pod to a claim; the claim is added if missing. @returns its record. */
    addPod(
      { uid, name, namespace }: Pick<ClaimRecord, "uid" | "name" | "namespace">,
      drivers: readonly string[],
      pod: string,
    ): ClaimRecord {
      const known = records.get(keyOf({ namespace, name }));
      const record = known ?? {
        uid,
        name,
        namespace,
        pods: new Set(),
        drivers: new Map(drivers.map((of) => [of, []])),
      };
      return put({ ...record, pods: new Set([...record.pods, pod]) });
    },
    removePod(claim: ClaimRecord, pod: string) {
      const record = current(claim);
      if (record) put({ ...record, pods: new Set([...record.pods].filter((uid) => uid !== pod)) });
    },
    setDevices(claim: ClaimRecord, driver: string, devices: readonly PreparedDevice[]) {
      const record = current(claim);
      if (record) put({ ...record, drivers: new Map([...record.drivers, [driver, devices]]) });
    },
    /** True if this process has already had the claim prepared. */
    isPrepared: ({ uid }: ClaimRecord): boolean => prepared.has(uid),
    setPrepared: ({ uid }: ClaimRecord): void => void prepared.add(uid),
    remove(claim: ClaimRecord) {
      prepared.delete(claim.uid);
      if (current(claim)) records.delete(keyOf(claim));
    },
    /** Replaces all claims. None of them counts as prepared: a driver may have been replaced meanwhile. */
    restore(claims: readonly ClaimRecord[]) {
      records.clear();
      prepared.clear();
      for (const claim of claims) put(claim);
    },
  };
}

/** Devices of a claim for one request, with their drivers. @param request empty for all devices; a subrequest (`request/subrequest`) stands
 *  for its request. */
export function claimDevices(
  { drivers }: ClaimRecord,
  request: string,
): readonly (PreparedDevice & { readonly driver: string })[] {
  const [name = ""] = request.split("/");
  return [...drivers]
    .flatMap(([driver, devices]) => devices.map((device) => ({ driver, ...device })))
    .filter(({ requestNames }) => name === "" || requestNames.length === 0 || requestNames.includes(name));
}

/** CDI devices of a claim for one request. @param request empty for all devices. */
export function cdiDevicesOf(claim: ClaimRecord, request: string): readonly string[] {
  return claimDevices(claim, request).flatMap(({ cdiDeviceIds }) => cdiDeviceIds);
}

/** UIDs of the pods whose claims have some of a driver's devices. */
export function podsWithDevices(
  records: Pick<ClaimRecords, "all">,
  driver: string,
  devices: readonly Pick<PreparedDevice, "poolName" | "deviceName">[],
): ReadonlySet<string> {
  const isOne = ({ poolName, deviceName }: PreparedDevice) =>
    devices.some((device) => device.poolName === poolName && device.deviceName === deviceName);
  const claims = records.all().filter(({ drivers }) => drivers.get(driver)?.some(isOne));
  return new Set(claims.flatMap(({ pods }) => [...pods]));
}
