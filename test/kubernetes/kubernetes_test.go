// Package kubernetes checks the manifests of examples/kubernetes with kustomize and with the
// types of the Kubernetes API, without a cluster.
package kubernetes

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const folder = "../../examples/kubernetes"

// hash is what kustomize appends to the name of a generated object.
var hash = regexp.MustCompile(`-[a-z0-9]{10}$`)

// manifests are the objects that kubectl apply -k would send.
type manifests struct {
	deployment appsv1.Deployment
	service    corev1.Service
	disruption policyv1.PodDisruptionBudget
	monitor    monitoring.PodMonitor
	maps       map[string]corev1.ConfigMap // by the name before the hash
}

// built builds the kustomization and decodes its objects. A field that a type of the API does not
// have is an error.
func built(t *testing.T) (m manifests) {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	m.maps = make(map[string]corev1.ConfigMap)
	for _, object := range all.Resources() {
		var into any
		var config corev1.ConfigMap
		switch object.GetKind() {
		case "Deployment":
			into = &m.deployment
		case "Service":
			into = &m.service
		case "PodDisruptionBudget":
			into = &m.disruption
		case "PodMonitor":
			into = &m.monitor
		case "ConfigMap":
			into = &config
		default:
			t.Fatalf("%s %s: want it in this test", object.GetKind(), object.GetName())
		}
		if err := yaml.UnmarshalStrict([]byte(object.MustYaml()), into); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
		if config.Name != "" {
			m.maps[hash.ReplaceAllString(config.Name, "")] = config
		}
	}
	return m
}

// TestManifests checks what must agree between the objects.
func TestManifests(t *testing.T) {
	m := built(t)
	pod := m.deployment.Spec.Template
	caddy := pod.Spec.Containers[0]
	if !strings.Contains(caddy.Image, "/diana:") {
		t.Errorf("image %q: want kustomization.yaml to name registry and tag", caddy.Image)
	}
	if m.disruption.Spec.Selector == nil {
		t.Fatal("the PodDisruptionBudget has no selector")
	}
	for _, of := range []map[string]string{m.service.Spec.Selector, m.disruption.Spec.Selector.MatchLabels, m.monitor.Spec.Selector.MatchLabels, m.deployment.Spec.Selector.MatchLabels} {
		for label, value := range of {
			if pod.Labels[label] != value {
				t.Errorf("selector %s=%s: the pod has %q", label, value, pod.Labels[label])
			}
		}
		if len(of) == 0 {
			t.Error("a selector is empty")
		}
	}
	ports := make(map[string]int32)
	for _, p := range caddy.Ports {
		ports[p.Name] = p.ContainerPort
	}
	named := []string{m.service.Spec.Ports[0].TargetPort.StrVal, *m.monitor.Spec.PodMetricsEndpoints[0].Port}
	for _, probe := range []*corev1.Probe{caddy.StartupProbe, caddy.ReadinessProbe, caddy.LivenessProbe} {
		named = append(named, probe.HTTPGet.Port.StrVal)
	}
	for _, name := range named {
		if ports[name] == 0 {
			t.Errorf("port %q: the container has no port of that name", name)
		}
	}
	for _, p := range m.service.Spec.Ports {
		if p.TargetPort.StrVal == "internal" {
			t.Error("the Service reaches the port of probes and metrics")
		}
	}
}

// TestVolumes checks that each mount has a volume, that files are mounted as folders, so that
// they are updated, and that the Caddyfile names what is mounted.
func TestVolumes(t *testing.T) {
	m := built(t)
	pod := m.deployment.Spec.Template.Spec
	volumes := make(map[string]corev1.Volume)
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	var paths []string
	for _, mount := range pod.Containers[0].VolumeMounts {
		if _, ok := volumes[mount.Name]; !ok || mount.SubPath != "" {
			t.Errorf("mount %s at %s: want a volume of that name, without subPath", mount.Name, mount.MountPath)
		}
		paths = append(paths, mount.MountPath)
	}
	caddyfile := m.maps["caddyfile"]
	if name := volumes["caddyfile"].ConfigMap.Name; name != caddyfile.Name || name == "caddyfile" {
		t.Errorf("the pod mounts %q: want the name with the hash, %q", name, caddyfile.Name)
	}
	if name := volumes["rules"].ConfigMap.Name; name != m.maps["rate-limit-rules"].Name || name != "rate-limit-rules" {
		t.Errorf("the pod mounts rules of %q: want the name without a hash", name)
	}
	for _, file := range []string{"/run/secrets/redis/password", "/run/secrets/redis/key-secret", "/etc/rate-limit/rules.json"} {
		dir := file[:strings.LastIndexByte(file, '/')]
		if !strings.Contains(caddyfile.Data["Caddyfile"], file) || !slices.Contains(paths, dir) {
			t.Errorf("%s: want it in the Caddyfile, and %s mounted", file, dir)
		}
	}
	if !slices.Contains(pod.Containers[0].Args, "/etc/caddy/Caddyfile") {
		t.Error("the container does not run /etc/caddy/Caddyfile")
	}
}
