package realcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// EndpointsAnswer says which of the endpoints that the API calls ready don't answer a
// node. After a node has lost its power, those of pods that it ran are called ready until
// its kubelet is back and has told the pods' new addresses.
func (c *Cluster) EndpointsAnswer() error {
	out, err := c.Kubectl("", "-n", namespace, "get", "endpointslices", "-o", "json")
	if err != nil {
		return err
	}
	var slices discoveryv1.EndpointSliceList
	if err := json.Unmarshal([]byte(out), &slices); err != nil {
		return fmt.Errorf("read EndpointSlices: %w", err)
	}
	var errs []error
	asked := map[string]bool{}
	for _, slice := range slices.Items {
		for _, address := range readyAddresses(slice) {
			for _, n := range c.Nodes {
				if asked[n.Name+address] {
					continue
				}
				asked[n.Name+address] = true
				if err := n.reaches(address); err != nil {
					errs = append(errs, fmt.Errorf("endpoint %s of %s from %s: %w", address, slice.Labels[discoveryv1.LabelServiceName], n.Name, err))
				}
			}
		}
	}
	if len(asked) == 0 {
		errs = append(errs, errors.New("no endpoint is ready"))
	}
	return errors.Join(errs...)
}

// readyAddresses are addresses with ports, of those that listen for TCP.
func readyAddresses(slice discoveryv1.EndpointSlice) (list []string) {
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, p := range slice.Ports {
			if p.Port == nil || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
				continue
			}
			for _, address := range e.Addresses {
				list = append(list, net.JoinHostPort(address, strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return list
}

// reaches connects from the node to an address.
func (n *Node) reaches(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := n.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
