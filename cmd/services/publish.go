//go:build !agentonly

package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/credentials"
	"github.com/fairway-net/fairway/kube/join"
)

func Publish() *cobra.Command {
	var job publishJob
	var remove bool
	var weight int
	var settings map[string]string
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "" // then any machine's endpoint is waited for
	}
	c := &cobra.Command{
		Use:   "publish NAME --port PORT [--check CHECK | --unit UNIT]",
		Short: "Register a process of this machine: the agent keeps it as an endpoint of the Service while it answers",
		Example: `  fairway expose web --port 80                                  # once, by whoever may make Services
  sudo fairway publish web --port 8080 --check http:/healthz    # on every machine that runs it
  sudo fairway publish web --port 8080 --unit nginx.service --weight 2
  sudo fairway publish web --remove                             # drains it first`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			job.file.Name = args[0]
			if cmd.Flags().Changed("weight") {
				job.file.Weight = &weight
			}
			for name, value := range settings {
				if job.file.Settings == nil {
					job.file.Settings = map[string]any{}
				}
				job.file.Settings[name] = value
			}
			job.out = cmd.OutOrStdout()
			if remove {
				return job.remove(cmd.Context())
			}
			return job.write(cmd.Context())
		},
	}
	flags := c.Flags()
	flags.StringVarP(&job.file.Namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the Service")
	flags.IntVar(&job.file.Port, "port", 0, "port that the process listens on")
	flags.StringVar(&job.file.Protocol, "protocol", "TCP", "TCP, UDP or SCTP")
	flags.StringVar(&job.file.PortName, "port-name", "", "name of the Service's port, if it has several")
	flags.StringSliceVar(&job.file.Addresses, "address", nil, "addresses that the process is reached at; without any, the machine's")
	flags.StringVar(&job.file.Check, "check", "", "http:/PATH, https:/PATH, tcp, tls, grpc[:SERVICE], udp:PAYLOAD, icmp, exec:COMMAND or none; without one, the Service's check, or tcp")
	flags.StringToStringVar(&settings, "check-setting", nil, "settings of the check: interval=5s,timeout=1s,rise=2,fall=3,status=200-299,text=ok")
	flags.StringVar(&job.file.Unit, "unit", "", "a systemd unit instead of a check: active is ready")
	flags.IntVar(&weight, "weight", 1, "share of the connections, compared with the others': 0 to 100")
	flags.StringVar(&job.file.Zone, "zone", "", "zone of the endpoint; without one, the Node's")
	flags.BoolVar(&remove, "remove", false, "end it: drain the endpoint, then remove it; with --port only that of this port")
	flags.StringVar(&job.folder, "publish-dir", publish.DefaultFolder, "folder of the files")
	flags.DurationVar(&job.wait, "wait", 15*time.Second, "how long to wait for the agent; 0 doesn't")
	flags.StringVar(&job.node, "node-name", strings.ToLower(hostname), "name of this machine's Node object")
	flags.Lookup("node-name").DefValue = "the host's name"
	flags.StringVar(&job.kubeconfig, "kubeconfig", "", "kubeconfig file to see with what becomes of it; without one, this machine's own")
	return c
}

// publishJob writes or removes a file, and sees what the agent makes of it.
type publishJob struct {
	file       publish.File
	folder     string
	kubeconfig string
	node       string
	wait       time.Duration
	out        io.Writer
}

// path is the file of a Service's port on this machine.
func (j *publishJob) path(port string) string {
	return filepath.Join(j.folder, fmt.Sprintf("%s.%s.%s.yaml", j.file.Namespace, j.file.Name, port))
}

func (j *publishJob) write(ctx context.Context) error {
	entry, err := j.file.Entry("")
	if err != nil {
		return err
	}
	data, err := yaml.Marshal(j.file)
	if err != nil {
		return fmt.Errorf("encode file: %w", err)
	}
	if err := os.MkdirAll(j.folder, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	path := j.path(fmt.Sprintf("%s-%d", strings.ToLower(string(entry.Protocol)), entry.Port))
	if err := keptfile.Write(path, data, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(j.out, "written: %s\n", path)
	return j.follow(ctx, fmt.Sprintf("port %d", entry.Port), func(slices []discoveryv1.EndpointSlice) string {
		for _, s := range slices {
			if len(s.Ports) > 0 && s.Ports[0].Port != nil && *s.Ports[0].Port == int32(entry.Port) && len(s.Endpoints) > 0 {
				if ready := s.Endpoints[0].Conditions.Ready; ready != nil && *ready {
					return "ready: " + s.Endpoints[0].Addresses[0]
				}
			}
		}
		return ""
	})
}

// remove removes the files, and waits until the endpoints have gone.
func (j *publishJob) remove(ctx context.Context) error {
	port := "*"
	if j.file.Port != 0 {
		port = fmt.Sprintf("%s-%d", strings.ToLower(j.file.Protocol), j.file.Port)
	}
	paths, err := filepath.Glob(j.path(port))
	if err != nil {
		return fmt.Errorf("find files: %w", err)
	}
	if len(paths) == 0 {
		return fmt.Errorf("%s: there is no file of Service %s/%s", j.folder, j.file.Namespace, j.file.Name)
	}
	for _, p := range paths {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove file: %w", err)
		}
		fmt.Fprintf(j.out, "removed: %s\n", p)
	}
	return j.follow(ctx, "its endpoints", func(slices []discoveryv1.EndpointSlice) string {
		for _, s := range slices {
			if j.file.Port == 0 || len(s.Ports) > 0 && s.Ports[0].Port != nil && *s.Ports[0].Port == int32(j.file.Port) {
				return ""
			}
		}
		return "drained and gone"
	})
}

// follow waits for what the agent makes of a change. That it can't be seen is
// said, and no error: the file is what counts.
func (j *publishJob) follow(ctx context.Context, what string, done func([]discoveryv1.EndpointSlice) string) error {
	if j.wait <= 0 {
		return nil
	}
	client, node, err := j.client()
	if err != nil {
		fmt.Fprintf(j.out, "the agent takes it from here; what becomes of it can't be seen from here: %v\n", err)
		return nil
	}
	selector := discoveryv1.LabelServiceName + "=" + j.file.Name + "," + discoveryv1.LabelManagedBy + "=" + publish.Manager
	if node != "" {
		selector += "," + check.NodeLabel + "=" + node
	}
	var list *discoveryv1.EndpointSliceList
	for deadline := time.Now().Add(j.wait); time.Now().Before(deadline); {
		if list, err = client.DiscoveryV1().EndpointSlices(j.file.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector}); err == nil {
			if text := done(list.Items); text != "" {
				fmt.Fprintln(j.out, text)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s: not yet after %s: %s", what, j.wait, j.why(ctx, client, list, err))
}

// why says what keeps an endpoint from being as asked for.
func (j *publishJob) why(ctx context.Context, client kubernetes.Interface, list *discoveryv1.EndpointSliceList, err error) string {
	if err != nil {
		return "the API doesn't answer: " + err.Error()
	}
	_, err = client.CoreV1().Services(j.file.Namespace).Get(ctx, j.file.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("there is no Service %s/%s; `fairway expose %s --port PORT` makes one, and the endpoint then comes by itself", j.file.Namespace, j.file.Name, j.file.Name)
	}
	for _, s := range list.Items {
		if reason := s.Annotations[check.AnnotationReason]; reason != "" {
			return reason + "; the agent goes on asking"
		}
	}
	return "the agent hasn't done it: is it running on this machine (fairway up, fairway join)? `fairway status` may say why"
}

// client reaches the API as the administrator or as this machine, and says
// which Node the machine is, if it knows.
func (j *publishJob) client() (kubernetes.Interface, string, error) {
	if member, err := join.Member(credentials.NodeDir); err == nil && j.kubeconfig == "" && os.Getenv("KUBECONFIG") == "" {
		config, err := balance.Config(join.Kubeconfig(credentials.NodeDir))
		if err != nil {
			return nil, "", err
		}
		client, err := kube.Client(config)
		return client, member.Node, err
	}
	objects := collect.Source{Kubeconfig: j.kubeconfig}
	client, err := objects.Client()
	return client, j.node, err
}
