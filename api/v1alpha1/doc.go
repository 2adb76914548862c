// Package v1alpha1 holds the kinds of undersong.dev/v1alpha1: Session,
// Workstation, TeamMemory and MemoryBlock.
//
// One namespace is one team. The daemons of the team's developers write specs
// of Sessions and Workstations with the developers' own rights; the controller
// writes every status and nothing else. Whatever stands unsealed in these
// objects is visible to the whole team, so they hold counters, digests and
// names, never words of a session.
//
// The package imports apimachinery only, so that both sides can share it.
//
// +kubebuilder:object:generate=true
// +groupName=undersong.dev
package v1alpha1
