package apiserver

import (
	"strings"
	"testing"
)

const storedKinds = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: db}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log}
spec:
  selector: {matchLabels: {app: log}}
  template: {metadata: {labels: {app: log}}, spec: {containers: [{name: log, image: log}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 80}]}]}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Container, default: {cpu: 100m}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {pods: "10", requests.cpu: "1"}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: once, image: once}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: often}
spec: {schedule: "*/5 * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: often, image: often}]}}}}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec: {template: {metadata: {labels: {app: old}}, spec: {containers: [{name: old, image: old}]}}}
`

// TestKindsWithoutActor: who creates what nothing acts on is told so, once, and
// what to do instead.
func TestKindsWithoutActor(t *testing.T) {
	s := sharedServer(t)
	out := kubectl(t, s, storedKinds, "apply", "-f", "-")
	for _, kind := range []string{"StatefulSet", "DaemonSet", "Deployment", "NetworkPolicy", "LimitRange", "PriorityClass", "Job", "CronJob", "ReplicationController"} {
		if n := strings.Count(out, "this "+kind); n != 1 {
			t.Errorf("%d warnings of a %s:\n%s", n, kind, out)
		}
	}
	contains(t, out, "spec.hard: not counted here, and not limited: requests.cpu.")
	if out := kubectl(t, s, storedKinds, "apply", "--server-side", "--force-conflicts", "-f", "-"); strings.Contains(out, "nothing here") {
		t.Errorf("an update warns:\n%s", out)
	}
	contains(t, kubectl(t, s, "", "get", "netpol,sts,ds,limits,quota,pc,job,cj,rc"), "networkpolicy.networking.k8s.io/closed", "statefulset.apps/db", "pods: 10", "PreemptLowerPriority", "job.batch/once", "*/5 * * * *", "replicationcontroller/old")
	for field, manifest := range map[string]string{
		"spec.ingress[0].from[0].ipBlock.cidr": strings.ReplaceAll(storedKinds, "192.0.2.0/24", "192.0.2.0"),
		"spec.hard[pods]":                      strings.ReplaceAll(storedKinds, `"10"`, `"-1"`),
		"spec.schedule":                        strings.ReplaceAll(storedKinds, "*/5 * * * *", "*/5 * *"),
		"spec.template.spec.restartPolicy":     strings.Replace(storedKinds, "restartPolicy: Never", "restartPolicy: Always", 1),
		"value":                                strings.ReplaceAll(storedKinds, "value: 1000", "value: 2000000000"),
	} {
		if out, err := tryKubectl(t, s, manifest, "apply", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(out, field) {
			t.Errorf("%s: %v, %s", field, err, out)
		}
	}
}

// TestLabRunsPods: where pods are run, nobody is warned.
func TestLabRunsPods(t *testing.T) {
	t.Parallel()
	config := testConfig(t)
	config.Kubelet = "/nonexistent/kubelet.sock"
	s := start(t, config)
	if out := kubectl(t, s, "", "create", "deployment", "web", "--image=web"); strings.Contains(out, "nothing here") {
		t.Errorf("it warns: %s", out)
	}
}
