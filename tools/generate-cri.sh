#!/usr/bin/env bash
# Generates src/gen/ from CRI's api.proto (module k8s.io/cri-api at the version of the cluster tools)
# and from containerd's event service. Needs go and protoc (Debian: protobuf-compiler).
set -euo pipefail
cd "$(dirname "$0")/.."
command -v protoc >/dev/null || { echo "generate-cri.sh: protoc is missing: apt-get install protobuf-compiler" >&2; exit 1; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

cri=$(cd test/cluster/tools && go mod download -json k8s.io/cri-api@v0.36.3 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
# protoc before 22 does not know the option debug_redact; it changes nothing on the wire.
sed -E 's/\[\(?debug_redact\)? *= *true\]//; s/, *debug_redact *= *true//' "$cri/pkg/apis/runtime/v1/api.proto" > "$work/cri.proto"
cp tools/containerd-events.proto "$work/containerd-events.proto"

options=outputServices=grpc-js,env=node,esModuleInterop=true,enumsAsLiterals=true,forceLong=bigint,exportCommonSymbols=false
options+=,outputJsonMethods=false,outputPartialMethods=true,useOptionals=none,importSuffix=.ts,useExactTypes=false
protoc -I "$work" --plugin=node_modules/.bin/protoc-gen-ts_proto --ts_proto_out=src/gen --ts_proto_opt="$options" cri.proto containerd-events.proto
