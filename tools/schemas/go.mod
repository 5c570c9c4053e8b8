// Where the schemas come from that the chart's objects are held to: tools/schemas/modules.ts reads this file.
module graftlet.dev/tools/schemas

go 1.26.0

require (
	github.com/prometheus-operator/prometheus-operator v0.94.0
	k8s.io/kubernetes v1.36.3
)
