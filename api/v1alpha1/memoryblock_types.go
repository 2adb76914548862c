package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BlockMode says who writes a block.
// +kubebuilder:validation:Enum=Learned;Pinned
type BlockMode string

const (
	// BlockLearned: the agent writes the block; status shows what it wrote.
	BlockLearned BlockMode = "Learned"
	// BlockPinned: the team writes the block; what the agent changes is put
	// back.
	BlockPinned BlockMode = "Pinned"
)

// Extent says how much of a text is shown.
// +kubebuilder:validation:Enum=Whole;Truncated
type Extent string

const (
	// ExtentWhole: all of it.
	ExtentWhole Extent = "Whole"
	// ExtentTruncated: its beginning.
	ExtentTruncated Extent = "Truncated"
)

// MemoryBlockSpec names one block of a memory, and says what it holds where
// the team writes it.
// +kubebuilder:validation:XValidation:rule="(self.mode == 'Pinned') == has(self.value)",message="a Pinned block has a value, and a Learned one has none"
// +kubebuilder:validation:XValidation:rule="self.mode == 'Pinned' || !has(self.description)",message="description is for Pinned blocks"
// +kubebuilder:validation:XValidation:rule="self.mode == 'Learned' || !has(self.restore)",message="restore is for Learned blocks"
// +kubebuilder:validation:XValidation:rule="self.memoryRef == oldSelf.memoryRef && self.label == oldSelf.label && self.project == oldSelf.project",message="memoryRef, project and label cannot be changed"
type MemoryBlockSpec struct {
	// memoryRef names the TeamMemory.
	// +required
	MemoryRef LocalRef `json:"memoryRef"`

	// project is the remote of the project whose agent keeps the block. Empty
	// for the team's one agent, and for a Pinned block of all projects.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9._~/-]*$`
	Project string `json:"project"`

	// label of the block.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9_-]{0,62}$`
	Label string `json:"label"`

	// mode is Learned or Pinned.
	// +required
	Mode BlockMode `json:"mode"`

	// value is the text of a Pinned block.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Value string `json:"value,omitempty"`

	// description says what a Pinned block is about, to the agent. Omitted
	// means that it keeps the one it has.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Description string `json:"description,omitempty"`

	// restore is a revision of status.history, or its first 12 or more
	// characters as undersong memory log shows them, whose text is given back to
	// the agent of a Learned block, once.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Restore string `json:"restore,omitempty"`
}

// BlockRevision is one text that a block had.
type BlockRevision struct {
	// revision of the memory in which the block got this text; of a Pinned
	// block generation- and the generation of its spec.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Revision string `json:"revision"`

	// digest is the sha256 of the whole redacted text, in hex. The text is in
	// the store under it.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Digest string `json:"digest"`

	// at is when this text was first seen.
	// +required
	At metav1.Time `json:"at"`

	// session is the Session whose turn published that revision. Omitted where
	// none did.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Session string `json:"session,omitempty"`

	// bytes is the size of the whole text.
	// +required
	// +kubebuilder:validation:Minimum=0
	Bytes int64 `json:"bytes"`

	// change has the lines that went, each behind a minus, and those that came,
	// behind a plus, cut to 2048 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Change string `json:"change,omitempty"`
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

	// extent says whether value is all of the text.
	// +optional
	Extent Extent `json:"extent,omitempty"`

	// digest is the sha256 of the whole redacted text, in hex.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`

	// revision of the memory in which the block got this text; of a Pinned
	// block generation- and the generation of its spec.
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

	// history has the newest texts, the present one first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []BlockRevision `json:"history,omitempty"`

	// restored is the value of spec.restore that was carried out last.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Restored string `json:"restored,omitempty"`

	// putBackAt is when a Pinned text was last put back after an agent had
	// changed it.
	// +optional
	PutBackAt *metav1.Time `json:"putBackAt,omitempty"`
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
