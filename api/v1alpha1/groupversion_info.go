package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion identifies the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "undersong.dev", Version: "v1alpha1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Session{}, &SessionList{},
		&Workstation{}, &WorkstationList{},
		&TeamMemory{}, &TeamMemoryList{},
		&MemoryBlock{}, &MemoryBlockList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
