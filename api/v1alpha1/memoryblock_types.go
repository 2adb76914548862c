package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BlockMode says who writes a block.
// +kubebuilder:validation:Enum=Learned
type BlockMode string

// BlockLearned: the agent writes the block; status shows what it wrote.
const BlockLearned BlockMode = "Learned"

// MemoryBlockSpec names one block of a memory.
// +kubebuilder:validation:XValidation:rule="self.memoryRef == oldSelf.memoryRef && self.label == oldSelf.label && self.project == oldSelf.project",message="memoryRef, project and label cannot be changed"
type MemoryBlockSpec struct {
	// memoryRef names the TeamMemory.
	// +required
	MemoryRef LocalRef `json:"memoryRef"`

	// project is the remote of the project whose agent keeps the block. Empty
	// for the team's one agent.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9._~/-]*$`
	Project string `json:"project"`

	// label of the block.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9_-]{0,62}$`
	Label string `json:"label"`

	// mode is Learned.
	// +required
	Mode BlockMode `json:"mode"`
}

// MemoryBlockStatus is what the block holds.
type MemoryBlockStatus struct {
	// observedGeneration is the generation that Ready or Stalled speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, and Reconciling or Stalled while True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// value is the text, redacted and cut to 16384 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Value string `json:"value,omitempty"`

	// digest is the sha256 of the whole redacted text, in hex.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`

	// revision of the memory in which the block got this text.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Revision string `json:"revision,omitempty"`

	// bytes is the size of the whole text.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Bytes int64 `json:"bytes,omitempty"`

	// updatedAt is when this text was first seen.
	// +optional
	UpdatedAt *metav1.Time `json:"updatedAt,omitempty"`

	// lastSession is the Session whose turn published that revision.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LastSession string `json:"lastSession,omitempty"`
}

// MemoryBlock is one block of a team's memory. Its name is MemoryBlockName of
// its memory, project and label.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mblk,categories=undersong
// +kubebuilder:selectablefield:JSONPath=`.spec.memoryRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.project`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.memoryRef.name`
// +kubebuilder:printcolumn:name="Project",type=string,JSONPath=`.spec.project`
// +kubebuilder:printcolumn:name="Label",type=string,JSONPath=`.spec.label`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Bytes",type=integer,JSONPath=`.status.bytes`
// +kubebuilder:printcolumn:name="Updated",type=date,JSONPath=`.status.updatedAt`
// +kubebuilder:printcolumn:name="Session",type=string,priority=1,JSONPath=`.status.lastSession`
type MemoryBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec MemoryBlockSpec `json:"spec"`
	// +optional
	Status MemoryBlockStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the status.
func (b *MemoryBlock) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (b *MemoryBlock) SetConditions(c []metav1.Condition) { b.Status.Conditions = c }

// MemoryBlockList is a list of MemoryBlocks.
// +kubebuilder:object:root=true
type MemoryBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MemoryBlock `json:"items"`
}
