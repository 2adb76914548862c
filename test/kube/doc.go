// Package kube starts a real kube-apiserver on a real etcd, with undersong's
// CRDs, roles and admission policies applied and enforced, for tests, the demo
// and make dev.
//
// What it promises: RBAC decides, ServiceAccount tokens are real, the policies
// of config/policy refuse from the first request on, and both processes are
// gone when Stop returns or when the process that started them dies.
//
// What it does not do: there is no kube-controller-manager. Nothing collects
// garbage, a deleted namespace stays terminating, and the aggregated roles
// admin, edit and view are empty.
//
// The binaries come from test/tools: KUBEBUILDER_ASSETS, else what make tools
// built.
package kube
