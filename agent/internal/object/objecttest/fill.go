// Package objecttest helps to test that a struct is read and written whole by
// hand, as package object needs it.
package objecttest

import (
	"fmt"
	"reflect"
	"time"
)

// Fill gives every field of a struct that encoding/json knows a value of its
// own, also in structs, lists and maps within it. It panics at a type that
// package object does not read.
func Fill(pointer any) {
	n := 0
	fill(reflect.ValueOf(pointer).Elem(), &n)
}

func fill(v reflect.Value, n *int) {
	*n++
	if t, ok := reflect.TypeAssert[*time.Time](v.Addr()); ok {
		*t = time.Unix(int64(*n), 0).UTC()
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("value %d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				fill(v.Field(i), n)
			}
		}
	default:
		panic("objecttest: a field of type " + v.Type().String())
	}
}
