package proposal

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/diagnose/change"
	"github.com/fairway-net/fairway/diagnose/doctor"
)

// addPools adds pools and advertisements. They count where the address controller says how it is,
// which it does by a ConfigurationState.
func (w world) addPools(made *change.World) (err error) {
	for _, s := range all[*v1beta1.ConfigurationState](w, "ConfigurationState", &err) {
		if !slices.Contains(made.PoolNamespaces, s.Namespace) {
			made.PoolNamespaces = append(made.PoolNamespaces, s.Namespace)
		}
	}
	if len(made.PoolNamespaces) == 0 {
		made.PoolNamespaces = []string{v1beta1.DefaultNamespace}
	}
	slices.Sort(made.PoolNamespaces)
	a := announce.Objects{
		Pools:             counted[*v1beta1.IPAddressPool](w, "IPAddressPool", made, &err),
		L2Advertisements:  counted[*v1beta1.L2Advertisement](w, "L2Advertisement", made, &err),
		BGPAdvertisements: counted[*v1beta1.BGPAdvertisement](w, "BGPAdvertisement", made, &err),
		BGPPeers:          counted[*v1beta2.BGPPeer](w, "BGPPeer", made, &err),
		BFDProfiles:       counted[*v1beta1.BFDProfile](w, "BFDProfile", made, &err),
		Communities:       counted[*v1beta1.Community](w, "Community", made, &err),
		Passwords:         map[string]string{},
	}
	for _, p := range a.BGPPeers { // Secrets aren't read: they are taken for given
		a.Passwords[p.Spec.PasswordSecret.Name] = "given"
	}
	made.Announced = a
	return err
}

// counted are the objects of a kind that are in the namespaces that count, by name. Pools and
// advertisements of all namespaces are noted.
func counted[T interface {
	runtime.Object
	metav1.Object
}](w world, kind string, made *change.World, failed *error) map[string]T {
	list := map[string]T{}
	for _, o := range all[T](w, kind, failed) {
		if slices.Contains([]string{"IPAddressPool", "L2Advertisement", "BGPAdvertisement"}, kind) {
			made.Pools = append(made.Pools, doctor.Pool{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()})
		}
		if slices.Contains(made.PoolNamespaces, o.GetNamespace()) {
			list[o.GetName()] = o
		}
	}
	return list
}
