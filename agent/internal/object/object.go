// Package object reads and writes the small JSON objects of the state directory
// for a process that lives for two milliseconds: encoding/json learns a struct
// before it reads or writes one, which costs a hook a tenth of that each time.
// What is read here is what encoding/json reads, but for names, which have to
// be exactly those that were written.
package object

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrNotObject is returned for JSON that is something else.
var ErrNotObject = errors.New("not a JSON object")

// Object is a JSON object that was read. Its methods return the zero value for
// a field that is absent or null, and for one of another type, which Err then
// tells.
type Object struct {
	fields map[string]any
	err    *error // of the outermost object
}

// Parse reads an object.
func Parse(data []byte) (*Object, error) {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, ErrNotObject
	}
	return &Object{fields: fields, err: new(error)}, nil
}

// Err names the first field that was asked for, in the object that was parsed
// or in one within it, and has another type.
func (o *Object) Err() error { return *o.err }

func field[T any](o *Object, name string) (v T) {
	value := o.fields[name]
	if value == nil {
		return v
	}
	v, ok := value.(T)
	if !ok {
		o.wrong(name)
	}
	return v
}

func (o *Object) wrong(name string) {
	if *o.err == nil {
		*o.err = fmt.Errorf("field %q has another type", name)
	}
}

// String returns a string.
func (o *Object) String(name string) string { return field[string](o, name) }

// Bool returns a truth value.
func (o *Object) Bool(name string) bool { return field[bool](o, name) }

// Int returns a whole number of at most 2^53.
func (o *Object) Int(name string) int64 {
	const most = 1 << 53
	v := field[float64](o, name)
	if v != math.Trunc(v) || math.Abs(v) > most {
		o.wrong(name)
		return 0
	}
	return int64(v)
}

// Time returns a time as RFC 3339 writes it.
func (o *Object) Time(name string) time.Time {
	v := field[string](o, name)
	if v == "" {
		if o.fields[name] != nil {
			o.wrong(name)
		}
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		o.wrong(name)
	}
	return t
}

// Strings returns a list of strings; nil where there is none.
func (o *Object) Strings(name string) []string {
	values := field[[]any](o, name)
	if values == nil {
		return nil
	}
	list := make([]string, 0, len(values))
	for _, value := range values {
		v, ok := value.(string)
		if !ok && value != nil {
			o.wrong(name)
		}
		list = append(list, v)
	}
	return list
}

// StringMap returns an object of strings; nil where there is none.
func (o *Object) StringMap(name string) map[string]string {
	values := field[map[string]any](o, name)
	if values == nil {
		return nil
	}
	m := make(map[string]string, len(values))
	for key, value := range values {
		v, ok := value.(string)
		if !ok && value != nil {
			o.wrong(name)
		}
		m[key] = v
	}
	return m
}

// Object returns an object; an empty one where there is none.
func (o *Object) Object(name string) *Object {
	return &Object{fields: field[map[string]any](o, name), err: o.err}
}
