/** Topology keys that drivers report though neither has the driver's name in it: Kubernetes' own, which the node restriction lets a node set,
 *  and those of vSphere, OpenEBS and democratic-csi. One that ends with a slash stands for all keys below it. */
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

/** Says which keys a driver's topology may have as labels of the Node: whoever serves a socket on the target chooses them, and by other labels
 *  pods are placed.
 *  @param configured further keys, or domains that end with a slash (`driverTopologyKeys`). */
export type TopologyRule = (driver: string, key: string) => boolean;

/** Keys below the driver's own name, below `topology.` and its name or a part of that (two words at least, from its beginning or to its end: pd.csi.storage.gke.io
 *  has topology.gke.io, hostpath.csi.k8s.io has topology.hostpath.csi), common ones and configured ones. Pure. */
export function topologyRule(configured: readonly string[]): TopologyRule {
  const listed = [...commonKeys, ...configured];
  return (driver, key) => {
    if (listed.some((one) => (one.endsWith("/") ? key.startsWith(one) : key === one))) return true;
    const slash = key.indexOf("/");
    const domain = slash < 0 ? "" : key.slice(0, slash);
    return domain === driver || partsOf(driver).some((part) => domain === `topology.${part}`);
  };
}

/** A name of at least two words, and what begins or ends it and has as many. */
function partsOf(driver: string): readonly string[] {
  const words = driver.split(".");
  const shorter = words.slice(2).map((_, index) => index + 2);
  return [
    driver,
    ...shorter.map((count) => words.slice(0, count).join(".")),
    ...shorter.map((count) => words.slice(-count).join(".")),
  ];
}
