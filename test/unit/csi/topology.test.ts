import assert from "node:assert/strict";
import { test } from "node:test";
import { topologyRule } from "../../../src/csi/topology.ts";

test("allows the topology keys of common CSI drivers", () => {
  const may = topologyRule([]);
  for (const [driver, ...keys] of [
    ["ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"],
    ["pd.csi.storage.gke.io", "topology.gke.io/zone"],
    ["disk.csi.azure.com", "topology.disk.csi.azure.com/zone"],
    ["cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"],
    ["csi.vsphere.vmware.com", "topology.csi.vmware.com/k8s-zone", "topology.csi.vmware.com/openshift-region"],
    ["hostpath.csi.k8s.io", "topology.hostpath.csi/node"],
    ["csi.hetzner.cloud", "csi.hetzner.cloud/location"],
    ["linodebs.csi.linode.com", "topology.linode.com/region"],
    ["csi.scaleway.com", "topology.csi.scaleway.com/zone"],
    ["diskplugin.csi.alibabacloud.com", "topology.diskplugin.csi.alibabacloud.com/zone"],
    ["rbd.csi.ceph.com", "topology.rbd.csi.ceph.com/rack"],
    ["topolvm.io", "topology.topolvm.io/node"],
    ["local.csi.openebs.io", "openebs.io/nodename"],
    ["org.democratic-csi.iscsi", "org.democratic-csi.topology/node"],
    ["csi-unity.dellemc.com", "csi-unity.dellemc.com/10.0.0.1-nfs"],
  ] as const)
    for (const key of keys) assert.equal(may(driver, key), true, `${driver}: ${key}`);
});

test("rejects other topology keys unless they are configured", () => {
  const others = [
    "tier",
    "team.example/secure",
    "example.com/secure",
    "topology.com/rack",
    "topology.other.example.com/rack",
    "node-restriction.kubernetes.io/tier",
    "node-role.kubernetes.io/control-plane",
    "topology.kubernetes.io/x",
    "topology.disk.example.com",
  ];
  const may = topologyRule([]);
  for (const key of others) assert.equal(may("disk.example.com", key), false, key);
  const told = topologyRule(["tier", "team.example/"]);
  assert.deepEqual(
    others.filter((key) => told("disk.example.com", key)),
    ["tier", "team.example/secure"],
  );
});
