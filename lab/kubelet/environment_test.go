package kubelet_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEnvironment(t *testing.T) {
	b := newBench(t)
	meta := metav1.ObjectMeta{Namespace: "default", Name: "values"}
	if _, err := b.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"COLOUR": "blue", "SIZE": "7"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"password": []byte("sesame")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"my-db": "fd00:10:96::5", "headless": "None"} {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}}},
		}
		if _, err := b.client.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := pod("env", shell("env; echo done; while :; do sleep 0.05; done"))
	p.Labels = map[string]string{"app.kubernetes.io/name": "shop"}
	c, values, optional := &p.Spec.Containers[0], corev1.LocalObjectReference{Name: "values"}, true
	c.EnvFrom = []corev1.EnvFromSource{
		{Prefix: "A_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: values}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}, Optional: &optional}},
	}
	c.Env = []corev1.EnvVar{
		{Name: "ONE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: values, Key: "SIZE"}}},
		{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: values, Key: "password"}}},
		{Name: "NOT", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: values, Key: "absent", Optional: &optional}}},
		{Name: "APP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app.kubernetes.io/name']"}}},
		{Name: "ALL", Value: "$(A_COLOUR)-$(ONE)-$(MY_DB_SERVICE_PORT_SQL)"},
	}
	b.create(p)
	b.wait("env", "ready", ready)
	log := "\n" + b.waitLog("default_env_sh.log", "done\n")
	for _, want := range []string{
		"A_COLOUR=blue", "A_SIZE=7", "ONE=7", "KEY=sesame", "APP=shop", "ALL=blue-7-5432", "HOSTNAME=env",
		"MY_DB_SERVICE_HOST=fd00:10:96::5", "MY_DB_SERVICE_PORT=5432", "MY_DB_PORT=tcp://[fd00:10:96::5]:5432", "MY_DB_PORT_5432_TCP_PROTO=tcp",
	} {
		if !strings.Contains(log, "\n"+want+"\n") {
			t.Errorf("no %s in the environment", want)
		}
	}
	if strings.Contains(log, "HEADLESS_") || strings.Contains(log, "\nNOT=") {
		t.Error("variables of a headless Service or of a missing key are in the environment")
	}
	if t.Failed() {
		t.Log(log)
	}
}
