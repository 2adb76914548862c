// Package cluster installs undersong into a real cluster of one node, with the
// image that make image makes and with the chart, and lets two people outside it
// work while everything that can happen to a pod happens to the controller.
//
// make e2e-cluster runs it. It needs Linux and root, because hack/node makes
// namespaces and cgroups; without them it says that it is skipped.
package cluster
