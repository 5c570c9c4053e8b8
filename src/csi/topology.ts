/** Well-known topology keys without the driver's name: Kubernetes' own, which NodeRestriction allows a node to set, and those of
 *  vSphere, OpenEBS and democratic-csi. A key that ends with a slash stands for all keys below it. */
const commonKeys: readonly string[] = [
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/region",
  "failure-domain.beta.kubernetes.io/zone",
  "failure-domain.beta.kubernetes.io/region",
  "topology.csi.vmware.com/",
  "openebs.io/nodename",
  "openebs.io/nodeid",
  "org.democratic-csi.topology/",
];

/** Decides which topology keys of a driver may become labels of the Node. The keys are chosen by the process behind a socket on
 *  the target, and labels influence where pods are scheduled.
 *  @param configured further keys, or domains that end with a slash (`driverTopologyKeys`). */
export type TopologyRule = (driver: string, key: string) => boolean;

/** Allows keys in the domain of the driver's name; in `topology.` followed by the name or its first or last words, at least two
 *  (pd.csi.storage.gke.io has topology.gke.io, hostpath.csi.k8s.io has topology.hostpath.csi); well-known keys; configured keys.
 *  Pure. */
export function topologyRule(configured: readonly string[]): TopologyRule {
  const listed = [...commonKeys, ...configured];
  return (driver, key) => {
    if (listed.some((one) => (one.endsWith("/") ? key.startsWith(one) : key === one))) return true;
    const slash = key.indexOf("/");
    const domain = slash < 0 ? "" : key.slice(0, slash);
    return domain === driver || namePartsOf(driver).some((part) => domain === `topology.${part}`);
  };
}

/** A name of at least two words, and its prefixes and suffixes of at least two words. */
function namePartsOf(driver: string): readonly string[] {
  const words = driver.split(".");
  const shorter = words.slice(2).map((_, index) => index + 2);
  return [
    driver,
    ...shorter.map((count) => words.slice(0, count).join(".")),
    ...shorter.map((count) => words.slice(-count).join(".")),
  ];
}
