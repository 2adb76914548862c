// Package docs tests that the pages of docs/spec say what the CRDs, the
// condition constants and the types of shared files say: no field, enum, column,
// condition, reason or member is left out, none is made up, and the examples are
// what an API server accepts.
//
// A page belongs to the kind of the same name. It names fields by their whole
// path in backticks, `spec.writers[].chain`, and those of another kind with
// that kind in front, `TeamMemory.spec.suspend`. Conditions have a heading of
// the third level each, reasons a row in a table whose first column is Reason.
package docs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/tools"
)

// TestPagesDescribeEveryField compares each page with its CRD, both ways.
func TestPagesDescribeEveryField(t *testing.T) {
	kinds := kindsOfCRDs(t)
	known := map[string]bool{} // with the kind in front
	for _, k := range kinds {
		for path := range k.fields {
			known[k.name+"."+path] = true
		}
	}
	fieldLike := regexp.MustCompile(`^([A-Z][A-Za-z]*\.)?(spec|status)\.[A-Za-z.\[\]]+$`)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			said := mentions(read(t, k.page))
			for _, path := range slices.Sorted(maps.Keys(k.fields)) {
				if !said[path] {
					t.Errorf("%s does not describe the field `%s`", k.page, path)
				}
				for _, value := range k.fields[path] {
					if !said[value] {
						t.Errorf("%s does not name `%s`, a value of the field %s", k.page, value, path)
					}
				}
			}
			for _, column := range k.columns {
				if !said[column] {
					t.Errorf("%s does not name `%s`, a column of kubectl get", k.page, column)
				}
			}
			for _, text := range slices.Sorted(maps.Keys(said)) {
				full := text
				if strings.HasPrefix(text, "spec.") || strings.HasPrefix(text, "status.") {
					full = k.name + "." + text
				}
				if fieldLike.MatchString(text) && !known[full] {
					t.Errorf("%s names the field `%s`, which is in no CRD", k.page, text)
				}
			}
		})
	}
}

// TestPagesExplainEveryReason compares the pages with the constants of
// api/v1alpha1, both ways.
func TestPagesExplainEveryReason(t *testing.T) {
	constants := constantsOf(t, filepath.Join("api", "v1alpha1", "condition_types.go"))
	explained := map[string]map[string]bool{"Reason": {}, "Condition": {}}
	for _, k := range kindsOfCRDs(t) {
		text := read(t, k.page)
		for suffix, names := range map[string][]string{"Reason": reasons(text), "Condition": conditions(text)} {
			if len(names) == 0 {
				t.Errorf("%s has no %s", k.page, strings.ToLower(suffix))
			}
			for _, name := range names {
				explained[suffix][name] = true
				if !constants[suffix][name] {
					t.Errorf("%s explains the %s %s, which is no constant", k.page, strings.ToLower(suffix), name)
				}
			}
		}
	}
	for suffix := range explained {
		if len(constants[suffix]) == 0 {
			t.Errorf("no constant ends in %s", suffix)
		}
		for _, name := range slices.Sorted(maps.Keys(constants[suffix])) {
			if !explained[suffix][name] {
				t.Errorf("no page explains the %s %s", strings.ToLower(suffix), name)
			}
		}
	}
}

// TestExamplesAreAccepted validates every object of the pages as the API server
// would: unknown fields, the schema, lists, CEL rules. Names that the
// controller checks are right, too.
func TestExamplesAreAccepted(t *testing.T) {
	kinds := kindsOfCRDs(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			own := 0
			for _, text := range examples(read(t, k.page)) {
				kind, err := accept(t.Context(), kinds, text)
				if err != nil {
					t.Errorf("%s has an example of the kind %q that is refused: %v", k.page, kind, err)
				}
				if kind == k.name {
					own++
				}
			}
			if own == 0 {
				t.Errorf("%s has no example", k.page)
			}
		})
	}
}

// TestContractsDescribeEveryMember compares the JSON of contracts.md with the
// types that read and write it, both ways.
func TestContractsDescribeEveryMember(t *testing.T) {
	sections := map[string]string{}
	for _, section := range strings.Split(read(t, filepath.Join("docs", "spec", "contracts.md")), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	for title, types := range map[string][]any{
		"config.json":   {&note.Config{}},
		"Notes":         {&note.Note{}},
		"Whisper files": {&whisper.Whisper{}},
		"Segments":      {&segment.Header{}},
		"Sealed texts":  {&seal.Grant{}, &seal.WhisperText{}},
	} {
		t.Run(title, func(t *testing.T) {
			text := sections[title]
			said := mentions(text)
			blocks := fence.FindAllStringSubmatch(text, -1)
			if len(blocks) != len(types) {
				t.Fatalf("contracts.md has %d examples under %q, want %d", len(blocks), title, len(types))
			}
			for i, into := range types {
				decoder := json.NewDecoder(strings.NewReader(blocks[i][2]))
				decoder.DisallowUnknownFields()
				if err := decoder.Decode(into); err != nil {
					t.Errorf("contracts.md has an example under %q that is no %T: %v", title, into, err)
				}
				for _, member := range members(reflect.TypeOf(into)) {
					if !said[member] {
						t.Errorf("contracts.md does not describe `%s` of %T under %q", member, into, title)
					}
				}
			}
		})
	}
}

// members returns the JSON names of a type's fields, and of those of our own
// types in them.
func members(of reflect.Type) []string {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || !strings.HasPrefix(of.PkgPath(), "github.com/undersong-dev/") {
		return nil
	}
	var names []string
	for field := range of.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(append(names, name), members(field.Type)...)
		}
	}
	return names
}

// kind is what a CRD says.
type kind struct {
	name    string
	page    string              // below the repository's root
	fields  map[string][]string // path to the values of its enum
	columns []string            // as kubectl prints them
	schema  *apiextensions.JSONSchemaProps
}

func kindsOfCRDs(t *testing.T) []kind {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tools.Root(), "config", "crd", "undersong.dev_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("find CRDs: %d files, error %v", len(files), err)
	}
	var kinds []kind
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			t.Fatalf("parse %s: %v", file, err)
		}
		if len(crd.Spec.Versions) != 1 {
			t.Fatalf("%s has %d versions: say here which one the page describes", file, len(crd.Spec.Versions))
		}
		version := &crd.Spec.Versions[0]
		k := kind{
			name: crd.Spec.Names.Kind, page: filepath.Join("docs", "spec", strings.ToLower(crd.Spec.Names.Kind)+".md"),
			fields: map[string][]string{}, schema: &apiextensions.JSONSchemaProps{},
		}
		for _, part := range []string{"spec", "status"} {
			walk(version.Schema.OpenAPIV3Schema.Properties[part], part, k.fields)
		}
		for _, column := range version.AdditionalPrinterColumns {
			k.columns = append(k.columns, strings.ToUpper(column.Name))
		}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, k.schema, nil); err != nil {
			t.Fatalf("convert %s: %v", file, err)
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// walk notes the fields below a path, with the values of their enums.
func walk(s apiextensionsv1.JSONSchemaProps, path string, fields map[string][]string) {
	if s.Items != nil && s.Items.Schema != nil {
		walk(*s.Items.Schema, path+"[]", fields)
	}
	for name, property := range s.Properties {
		child := path + "." + name
		fields[child] = nil
		for _, value := range property.Enum {
			text := string(value.Raw)
			if unquoted, err := strconv.Unquote(text); err == nil {
				text = unquoted
			}
			fields[child] = append(fields[child], text)
		}
		walk(property, child, fields)
	}
}

// constantsOf returns the values of a file's string constants by the last word
// of their names, Reason or Condition.
func constantsOf(t *testing.T, file string) map[string]map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(tools.Root(), file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]bool{"Reason": {}, "Condition": {}}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			return true
		}
		for suffix := range found {
			if strings.HasSuffix(spec.Names[0].Name, suffix) {
				found[suffix][value] = true
			}
		}
		return true
	})
	return found
}

func read(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tools.Root(), page))
	if err != nil {
		t.Fatalf("every kind has a page: %v", err)
	}
	return string(data)
}

var (
	fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	code  = regexp.MustCompile("`([^`\n]+)`")
)

// mentions returns what stands in backticks outside code blocks.
func mentions(text string) map[string]bool {
	said := map[string]bool{}
	for _, m := range code.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		said[m[1]] = true
	}
	return said
}

// examples returns the YAML documents of a page's code blocks.
func examples(text string) []string {
	var documents []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == "yaml" {
			documents = append(documents, strings.Split(m[2], "\n---\n")...)
		}
	}
	return documents
}

// conditions returns the headings of the third level that are one name.
func conditions(text string) []string {
	var names []string
	for _, m := range regexp.MustCompile("(?m)^### `([A-Za-z]+)`$").FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// reasons returns the first column of every table whose first column is headed
// Reason, without the backticks.
func reasons(text string) []string {
	var names []string
	inTable := false
	for line := range strings.Lines(text) {
		first, _, isRow := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		first = strings.TrimSpace(first)
		switch {
		case !strings.HasPrefix(line, "|") || !isRow:
			inTable = false
		case first == "Reason":
			inTable = true
		case inTable && strings.Trim(first, "-:") != "":
			names = append(names, strings.Trim(first, "`"))
		}
	}
	return names
}

// accept returns the kind of an object and why it is refused.
func accept(ctx context.Context, kinds []kind, text string) (string, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return "", err
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil { // whole numbers stay whole
		return "", err
	}
	name, _ := object["kind"].(string)
	if name == "Secret" {
		return name, yaml.UnmarshalStrict([]byte(text), &corev1.Secret{})
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 || object["apiVersion"] != v1alpha1.GroupVersion.String() {
		return name, errors.New("it is of no kind of ours")
	}
	if err := valid(ctx, kinds[i].schema, object); err != nil {
		return name, err
	}
	return name, rightName(name, data)
}

// valid does what the API server does with a new object.
func valid(ctx context.Context, props *apiextensions.JSONSchemaProps, object map[string]any) error {
	structural, err := schema.NewStructural(props)
	if err != nil {
		return err
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return err
	}
	problems := validation.ValidateCustomResource(nil, object, validator)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
	rules, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).
		Validate(ctx, nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
	problems = append(problems, rules...)
	// Last: it takes them out.
	unknown := pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		return errors.Join(problems.ToAggregate(), fmt.Errorf("unknown fields %s", strings.Join(unknown, ", ")))
	}
	return problems.ToAggregate()
}

// rightName says whether an object has the name that the controller asks for.
func rightName(kind string, data []byte) error {
	var name, want string
	switch kind {
	case "Session":
		var s v1alpha1.Session
		if err := yaml.UnmarshalStrict(data, &s); err != nil {
			return err
		}
		name, want = s.Name, v1alpha1.SessionName(s.Spec.SessionID, s.Spec.Owner)
	case "MemoryBlock":
		var b v1alpha1.MemoryBlock
		if err := yaml.UnmarshalStrict(data, &b); err != nil {
			return err
		}
		name, want = b.Name, v1alpha1.MemoryBlockName(b.Spec.MemoryRef.Name, b.Spec.Project, b.Spec.Label)
	}
	if name != want {
		return fmt.Errorf("its name is %s, and must be %s", name, want)
	}
	return nil
}
