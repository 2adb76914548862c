package kube

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

const (
	// ControllerNamespace is where the controller runs.
	ControllerNamespace = "undersong-system"
	// ControllerName is the name of the controller's ServiceAccount.
	ControllerName = "undersong-controller"
	// ControllerUser is the controller's user name, which the policies name.
	ControllerUser = "system:serviceaccount:" + ControllerNamespace + ":" + ControllerName

	// LettaSecret is one of the two Secrets that Team lets the controller
	// read, as config/samples names them.
	LettaSecret = "undersong-letta"
	// StoreSecret is the other.
	StoreSecret = "undersong-store"

	// secretsRole is the Role by which the controller reads a team's Secrets.
	secretsRole = "undersong-controller-secrets"
	// tokenSeconds is the lifetime of the controller's token: a week, so that
	// make dev can be left running. A cluster renews it; nobody does here.
	tokenSeconds = 7 * 24 * 60 * 60
)

// Admin returns a member of system:masters. RBAC never stops it; the policies
// do.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// User returns a person, by impersonation. The API server adds the group
// system:authenticated, and the groups of a ServiceAccount where the name is
// one.
func (c *Cluster) User(name string) *rest.Config {
	config := c.Admin()
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	return config
}

// Controller returns the controller, by a token of its own ServiceAccount.
func (c *Cluster) Controller(ctx context.Context) (*rest.Config, error) {
	api, err := c.Client(c.Admin())
	if err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ControllerNamespace, Name: ControllerName}}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))},
	}
	if err := api.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("request controller's token: %w", err)
	}
	return &rest.Config{
		Host:            c.admin.Host,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.caPEM},
		BearerToken:     request.Status.Token,
		QPS:             c.admin.QPS,
		Burst:           c.admin.Burst,
	}, nil
}

// Client returns a client that knows our kinds and Kubernetes' own.
func (c *Cluster) Client(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return api, nil
}

// Team makes a namespace with its members and leads, and lets the controller
// read LettaSecret and StoreSecret in it. Called again it replaces the people.
func (c *Cluster) Team(ctx context.Context, namespace string, members, leads []string) error {
	api, err := c.Client(c.Admin())
	if err != nil {
		return err
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := api.Create(ctx, space); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", namespace, err)
	}
	for role, people := range map[string][]string{"undersong-workstation": members, "undersong-lead": leads} {
		subjects := make([]rbacv1.Subject, 0, len(people))
		for _, name := range people {
			subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if err := bind(ctx, api, namespace, role, ref, subjects); err != nil {
			return err
		}
	}
	return readable(ctx, api, namespace)
}

// readable lets the controller read two Secrets of a namespace. Each is named:
// no rule lets it list or read the others.
func readable(ctx context.Context, api client.Client, namespace string) error {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretsRole}}
	_, err := controllerutil.CreateOrUpdate(ctx, api, role, func() error {
		role.Rules = []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"},
			ResourceNames: []string{LettaSecret, StoreSecret},
		}}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write Role %s: %w", secretsRole, err)
	}
	return bind(ctx, api, namespace, secretsRole,
		rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: secretsRole},
		[]rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ControllerNamespace, Name: ControllerName}})
}

func bind(ctx context.Context, api client.Client, namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	_, err := controllerutil.CreateOrUpdate(ctx, api, binding, func() error {
		binding.RoleRef, binding.Subjects = ref, subjects
		return nil
	})
	if err != nil {
		return fmt.Errorf("write RoleBinding %s: %w", name, err)
	}
	return nil
}

// Kubeconfig returns a file by which kubectl and client-go become the same
// person in a namespace. It holds credentials.
func (c *Cluster) Kubeconfig(config *rest.Config, namespace string) ([]byte, error) {
	const name = "undersong"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		CertificateAuthorityData: config.CAData,
	}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
		Impersonate:           config.Impersonate.UserName,
		ImpersonateUID:        config.Impersonate.UID,
		ImpersonateGroups:     config.Impersonate.Groups,
		ImpersonateUserExtra:  config.Impersonate.Extra,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	file.CurrentContext = name
	data, err := clientcmd.Write(*file)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return data, nil
}
