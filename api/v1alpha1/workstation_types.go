package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkstationReport is what a daemon says of itself, every ten minutes and
// when lastError changes or the backlog becomes empty or not.
type WorkstationReport struct {
	// lastSeen is when the daemon wrote this.
	// +required
	LastSeen metav1.Time `json:"lastSeen"`

	// backlogSegments is the number of segments that are not verified yet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BacklogSegments int64 `json:"backlogSegments,omitempty"`

	// oldestBacklog is when the oldest of them was made.
	// +optional
	OldestBacklog *metav1.Time `json:"oldestBacklog,omitempty"`

	// lastError is the newest trouble, for people: stable, without secrets.
	// Empty when all is well.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	LastError string `json:"lastError,omitempty"`
}

// WorkstationSpec is what a daemon says of itself.
// +kubebuilder:validation:XValidation:rule="self.owner == oldSelf.owner && self.publicKey == oldSelf.publicKey && self.memoryRef == oldSelf.memoryRef",message="owner, publicKey and memoryRef cannot be changed"
// +kubebuilder:validation:XValidation:rule="self.grantRequest >= oldSelf.grantRequest",message="grantRequest can only grow"
type WorkstationSpec struct {
	// owner is the user name, as the API server knows it, of the person whose
	// state directory this is.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Owner string `json:"owner"`

	// memoryRef names the TeamMemory whose store the grants are for.
	// +required
	MemoryRef LocalRef `json:"memoryRef"`

	// publicKey is the age X25519 recipient that grants and whispers are
	// sealed to.
	// +required
	// +kubebuilder:validation:Pattern=`^age1[02-9ac-hj-np-z]{58}$`
	PublicKey string `json:"publicKey"`

	// version of the daemon.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// os is the operating system and architecture, as linux/amd64.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OS string `json:"os,omitempty"`

	// grantRequest counts the grants asked for. Each step asks for one more.
	// +required
	// +kubebuilder:validation:Minimum=0
	GrantRequest int64 `json:"grantRequest"`

	// report is the daemon's newest report.
	// +optional
	Report *WorkstationReport `json:"report,omitempty"`
}

// Grant is a set of slots of the workstation's inbox, each an URL that takes
// one object.
type Grant struct {
	// request is the value of spec.grantRequest that this answers.
	// +required
	// +kubebuilder:validation:Minimum=1
	Request int64 `json:"request"`

	// sealed is the age-sealed, compressed list of slots, in base64.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	Sealed string `json:"sealed"`

	// fromSlot is the first slot of this grant.
	// +required
	// +kubebuilder:validation:Minimum=1
	FromSlot int64 `json:"fromSlot"`

	// toSlot is the last slot of this grant.
	// +required
	// +kubebuilder:validation:Minimum=1
	ToSlot int64 `json:"toSlot"`

	// expiresAt is when the URLs stop working, by the controller's clock. The
	// store decides by its own: a workstation learns of it from a refusal.
	// +required
	ExpiresAt metav1.Time `json:"expiresAt"`
}

// WorkstationStatus is what the controller says of a workstation.
type WorkstationStatus struct {
	// observedGeneration is the generation that Granted speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Granted, Ready, and Reconciling or Stalled while True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// grant is the newest grant.
	// +optional
	Grant *Grant `json:"grant,omitempty"`
}

// Workstation is one state directory of one user. Deleting it ends its grants:
// URLs that are signed already take objects for at most an hour, into an inbox
// that nobody reads any more.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wks,categories=undersong
// +kubebuilder:selectablefield:JSONPath=`.spec.owner`
// +kubebuilder:selectablefield:JSONPath=`.spec.memoryRef.name`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.owner`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="OS",type=string,JSONPath=`.spec.os`
// +kubebuilder:printcolumn:name="Granted",type=string,JSONPath=`.status.conditions[?(@.type=="Granted")].status`
// +kubebuilder:printcolumn:name="Backlog",type=integer,JSONPath=`.spec.report.backlogSegments`
// +kubebuilder:printcolumn:name="Seen",type=date,JSONPath=`.spec.report.lastSeen`
// +kubebuilder:printcolumn:name="Error",type=string,JSONPath=`.spec.report.lastError`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Memory",type=string,priority=1,JSONPath=`.spec.memoryRef.name`
// +kubebuilder:printcolumn:name="Slots",type=integer,priority=1,JSONPath=`.status.grant.toSlot`
type Workstation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec WorkstationSpec `json:"spec"`
	// +optional
	Status WorkstationStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the status.
func (w *Workstation) GetConditions() []metav1.Condition { return w.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (w *Workstation) SetConditions(c []metav1.Condition) { w.Status.Conditions = c }

// WorkstationList is a list of Workstations.
// +kubebuilder:object:root=true
type WorkstationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Workstation `json:"items"`
}
