package kubelet

import (
	"cmp"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/lab/echo"
)

// SetImages says which commands of the host stand for images: by a part of the
// image's name, of several the longest. Others are known to the lab itself, or are
// echo servers on their ports.
func (k *Kubelet) SetImages(commands map[string][]string) { k.images = commands }

// standIn is what the lab runs for a well-known image that it isn't told of.
type standIn struct {
	isShell bool                            // it has the host's programs: its args are a command
	ports   func(args []string) []echo.Port // where it answers if it declares no ports
}

// standIns are the images that the lab knows, by the last part of their name.
var standIns = map[string]standIn{
	"alpine":     {isShell: true},
	"bash":       {isShell: true},
	"busybox":    {isShell: true},
	"debian":     {isShell: true},
	"ubuntu":     {isShell: true},
	"agnhost":    {ports: agnhostPorts},
	"caddy":      {ports: fixed(80)},
	"echo-basic": {ports: fixed(3000)},
	"httpd":      {ports: fixed(80)},
	"nginx":      {ports: fixed(80)},
	"pause":      {},
	"whoami":     {ports: fixed(80)},
}

func fixed(port uint16) func([]string) []echo.Port {
	return func([]string) []echo.Port { return []echo.Port{{Number: port, Protocol: "TCP"}} }
}

// agnhostPorts are where Kubernetes' test image answers with netexec and
// serve-hostname (test/images/agnhost/README.md of Kubernetes).
func agnhostPorts(args []string) []echo.Port {
	if len(args) == 0 {
		return nil
	}
	var ports []echo.Port
	add := func(flag, fallback, protocol string) {
		if n, err := strconv.ParseUint(cmp.Or(flagValue(args, flag), fallback), 10, 16); err == nil && n > 0 {
			ports = append(ports, echo.Port{Number: uint16(n), Protocol: protocol})
		}
	}
	switch args[0] {
	case "netexec":
		add("http-port", "8080", "TCP")
		add("udp-port", "8081", "UDP")
		add("sctp-port", "-1", "SCTP")
	case "serve-hostname":
		add("port", "9376", "TCP")
	}
	return ports
}

// flagValue is the value of --flag=VALUE or --flag VALUE, "" if there is none.
func flagValue(args []string, flag string) string {
	for i, a := range args {
		name, value, has := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if name != flag || !strings.HasPrefix(a, "-") {
			continue
		}
		if has || i+1 == len(args) {
			return value
		}
		return args[i+1]
	}
	return ""
}

// imageName is the last part of an image's name, without tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}

// argv is what a container runs: its own command, or the one that stands for its
// image, with its args; nil for an echo server.
func (k *Kubelet) argv(spec *corev1.Container) []string {
	if len(spec.Command) > 0 && !isStandIns(spec) {
		return slices.Concat(spec.Command, spec.Args)
	}
	parts := slices.SortedFunc(maps.Keys(k.images), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	for _, part := range parts {
		if strings.Contains(spec.Image, part) {
			return slices.Concat(k.images[part], spec.Args)
		}
	}
	if standIns[imageName(spec.Image)].isShell && len(spec.Args) > 0 {
		return spec.Args
	}
	return nil
}

// isStandIns says whether a container's command is its image's own program, for which
// the lab has a stand-in: this machine has no such program, and no volume brings it.
func isStandIns(spec *corev1.Container) bool {
	if s, known := standIns[imageName(spec.Image)]; !known || s.isShell {
		return false
	}
	program := spec.Command[0]
	brought := slices.ContainsFunc(spec.VolumeMounts, func(m corev1.VolumeMount) bool {
		return strings.HasPrefix(program, strings.TrimSuffix(m.MountPath, "/")+"/")
	})
	_, err := exec.LookPath(program)
	return err != nil && !brought
}

// programArgs are what an image's own program is given.
func programArgs(spec *corev1.Container) []string {
	if len(spec.Command) > 0 {
		return slices.Concat(spec.Command[1:], spec.Args)
	}
	return spec.Args
}

// echoPorts are where an echo server answers: the ports that the container declares,
// else those of its image.
func echoPorts(spec *corev1.Container) []echo.Port {
	var ports []echo.Port
	for _, p := range spec.Ports {
		ports = append(ports, echo.Port{Number: uint16(p.ContainerPort), Protocol: string(cmp.Or(p.Protocol, corev1.ProtocolTCP))})
	}
	if s := standIns[imageName(spec.Image)]; len(ports) == 0 && s.ports != nil {
		return s.ports(programArgs(spec))
	}
	return ports
}

// explainImage says on the pod that a container's image has no program here.
func (w *worker) explainImage(spec *corev1.Container) {
	if _, known := standIns[imageName(spec.Image)]; known || spec.Image == "" {
		return
	}
	ignored := ""
	if len(spec.Args) > 0 {
		ignored = ", and its args are ignored"
	}
	w.kubelet.events.Eventf(w.pod, corev1.EventTypeNormal, "NoProgram",
		"The lab pulls no images and has no program for %q: container %s answers on its ports with the pod's name%s. `fairway lab up --image %s=COMMAND` maps it to a command of this machine; a command in the manifest is run, too",
		spec.Image, spec.Name, ignored, imageName(spec.Image))
}
