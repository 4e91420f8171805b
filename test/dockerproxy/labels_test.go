// Package dockerproxy checks with the generator of caddy-docker-proxy that the labels in the
// documentation become the Caddyfiles beside them. There is no Docker: it is told of a container.
package dockerproxy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/api/types/system"
	"github.com/lucaslorentz/caddy-docker-proxy/v2/config"
	"github.com/lucaslorentz/caddy-docker-proxy/v2/docker"
	"github.com/lucaslorentz/caddy-docker-proxy/v2/generator"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
)

// documented matches labels in the documentation, and the Caddyfile that follows them.
var documented = regexp.MustCompile("(?s)```yaml\n(labels:\n[^`]*)```\n\n```caddyfile\n([^`]*)```")

const (
	networkID = "network-of-caddy"
	address   = "172.17.0.2"
)

// TestLabels compares what the labels of docs/install.md become with the Caddyfiles there, which the
// tests of the documentation load.
func TestLabels(t *testing.T) {
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	found := documented.FindAllStringSubmatch(string(page), -1)
	if n := strings.Count(string(page), "```yaml\nlabels:\n"); n == 0 || n != len(found) {
		t.Fatalf("%d blocks of labels, %d of them before a Caddyfile", n, len(found))
	}
	for _, block := range found {
		var of struct{ Labels map[string]string }
		if err := yaml.Unmarshal([]byte(block[1]), &of); err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(block[2], "localhost:", address+":") // of the container
		if got := caddyfileOf(of.Labels); got != want {
			t.Errorf("%s\nbecomes\n%s\nwant\n%s", block[1], got, want)
		}
	}
}

// caddyfileOf returns the Caddyfile for a container with labels.
func caddyfileOf(labels map[string]string) string {
	client := &docker.ClientMock{
		ContainersData: []types.Container{{Labels: labels, NetworkSettings: &types.SummaryNetworkSettings{ //nolint:staticcheck // the generator's type
			Networks: map[string]*network.EndpointSettings{"caddy": {IPAddress: address, NetworkID: networkID}},
		}}},
		NetworksData: []network.Summary{{ID: networkID, Name: "caddy"}},
		InfoData:     system.Info{Swarm: swarm.Info{LocalNodeState: swarm.LocalNodeStateInactive}},
	}
	g := generator.CreateGenerator([]docker.Client{client}, new(docker.UtilsMock), &config.Options{LabelPrefix: generator.DefaultLabelPrefix, IngressNetworks: []string{"caddy"}})
	text, _ := g.GenerateCaddyfile(zap.NewNop())
	return string(text)
}
