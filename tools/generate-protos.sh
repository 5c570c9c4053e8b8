#!/usr/bin/env bash
# Generates src/gen/ from CRI's api.proto, those of device plugins, DRA drivers, plugin registration, pods and pod resources (modules k8s.io/cri-api and k8s.io/kubelet at
# the version of the cluster tools), from CSI's node service (at the version that Kubernetes uses) and from containerd's event
# service. Needs go, perl and protoc (Debian: protobuf-compiler).
set -euo pipefail
cd "$(dirname "$0")/.."
command -v protoc >/dev/null || { echo "generate-protos.sh: protoc is missing: apt-get install protobuf-compiler" >&2; exit 1; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

source_of() { (cd test/cluster/tools && go mod download -json "$1@$2" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'); }
cri=$(source_of k8s.io/cri-api v0.36.3)
kubelet=$(source_of k8s.io/kubelet v0.36.3)
csi=$(source_of github.com/container-storage-interface/spec v1.9.0)
# protoc before 22 does not know the option debug_redact; it changes nothing on the wire.
sed -E 's/\[\(?debug_redact\)? *= *true\]//; s/, *debug_redact *= *true//' "$cri/pkg/apis/runtime/v1/api.proto" > "$work/cri.proto"
cp "$kubelet/pkg/apis/deviceplugin/v1beta1/api.proto" "$work/device-plugin.proto"
cp "$kubelet/pkg/apis/pluginregistration/v1/api.proto" "$work/plugin-registration.proto"
cp "$kubelet/pkg/apis/podresources/v1/api.proto" "$work/pod-resources.proto"
cp "$kubelet/pkg/apis/podresources/v1alpha1/api.proto" "$work/pod-resources-alpha.proto"
cp "$kubelet/pkg/apis/pods/v1alpha1/api.proto" "$work/pods.proto"
cp "$kubelet/pkg/apis/dra/v1/api.proto" "$work/dra.proto"
cp "$kubelet/pkg/apis/dra-health/v1alpha1/api.proto" "$work/dra-health.proto"
# A node speaks to the node service alone. The options say nothing of the wire.
perl -0777 -ne '
  s/\s*\[[^\]]*\]\s*;/;/g; s/^\s*option \([^\n]*\n//mg;
  print "syntax = \"proto3\";\npackage csi.v1;\n";
  while (/^((?:message|service) (\w+) \{.*?^\})/msg) {
    my ($block, $name) = ($1, $2);
    print "$block\n" if $name =~ /^(Node\w*|VolumeCapability|VolumeUsage|VolumeCondition|Topology|CapacityRange)$/;
  }' "$csi/csi.proto" > "$work/csi.proto"
cp tools/containerd-events.proto "$work/containerd-events.proto"

options=outputServices=grpc-js,env=node,esModuleInterop=true,enumsAsLiterals=true,forceLong=bigint,exportCommonSymbols=false
options+=,outputJsonMethods=false,outputPartialMethods=true,useOptionals=none,importSuffix=.ts,useExactTypes=false
protoc -I "$work" --plugin=node_modules/.bin/protoc-gen-ts_proto --ts_proto_out=src/gen --ts_proto_opt="$options" \
  cri.proto device-plugin.proto plugin-registration.proto pod-resources.proto pod-resources-alpha.proto pods.proto dra.proto dra-health.proto csi.proto containerd-events.proto
# Answers are decoded by a reader that counts what is made of them (src/lib/bounded-decode.ts).
perl -pi -e 's/(re(?:quest|sponse)Deserialize: )\(value: Buffer\)/$1(value: BinaryReader | Buffer)/' src/gen/*.ts

# Pods are encoded by their descriptor: JSON's and protobuf's fields have the same names.
for package in api/core/v1 apimachinery/pkg/{apis/meta/v1,api/resource,runtime,runtime/schema,util/intstr}; do
  mkdir -p "$work/k8s/k8s.io/$package"
  cp "$(source_of "k8s.io/${package%%/*}" v0.36.3)/${package#*/}/generated.proto" "$work/k8s/k8s.io/$package"
done
npx --yes @bufbuild/buf@1.75.0 build "$work/k8s" --type k8s.io.api.core.v1.Pod --as-file-descriptor-set --exclude-source-info \
  -o "$work/pod.binpb"
cat > src/gen/pod-descriptor.ts <<END
// Written by tools/generate-protos.sh.
/** FileDescriptorSet of k8s.io.api.core.v1.Pod: gzip, base64. */
export const podDescriptor =
  "$(gzip -9n < "$work/pod.binpb" | base64 -w0)";
END
