// Command compare writes the rules of gitleaks as the redactor embeds them, and
// measures the redactor against gitleaks.
//
// It is a module of its own: what gitleaks links, archive readers, a
// configuration framework and terminal styles among it, belongs neither into
// our binaries nor into our go.mod.
//
//	go run . > ../gitleaks/rules.json
//	go run . -time transcript.jsonl
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"

	"github.com/zricethezav/gitleaks/v8/detect"
)

// rule is one rule in rules.json.
type rule struct {
	ID      string   `json:"id"`
	Regex   string   `json:"regex"`
	Words   []string `json:"words,omitempty"`
	Entropy float64  `json:"entropy,omitempty"`
	Group   int      `json:"group,omitempty"`
	Allow   []string `json:"allow,omitempty"`
}

// left are rules that the redactor has better ones for, with the reason.
var left = map[string]string{
	"generic-api-key":        "assignments: judged by name, notation and value, and 20 times faster",
	"hashicorp-tf-password":  "assignments, which need no file name",
	"freemius-secret-key":    "assignments, which need no file name",
	"private-key":            "keys whose head or tail alone can be seen",
	"jwt":                    "tokens whose two first parts are really JSON",
	"jwt-base64":             "everything in base64 is decoded",
	"kubernetes-secret-yaml": "manifests, whatever stands between kind and data",
	"curl-auth-header":       "headers in any notation, not only behind curl",
	"curl-auth-user":         "users behind curl, without looking over five lines",
	"nuget-config-password":  "assignments, which need no file name",
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-time" {
		if err := measure(os.Args[2], os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	out.WriteString("[\n")
	first := true
	for _, r := range detector.Config.GetOrderedRules() {
		if left[r.RuleID] != "" || r.Regex == nil {
			continue
		}
		o := rule{ID: r.RuleID, Regex: r.Regex.String(), Words: r.Keywords, Entropy: r.Entropy, Group: r.SecretGroup}
		for _, a := range r.Allowlists {
			if len(a.Regexes) > 3 {
				continue // a list of single keys, which would be findings here
			}
			for _, re := range a.Regexes {
				o.Allow = append(o.Allow, re.String())
			}
		}
		line := &bytes.Buffer{}
		enc := json.NewEncoder(line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(o); err != nil {
			log.Fatal(err)
		}
		if !first {
			out.WriteString(",\n")
		}
		first = false
		// The one rule that is its own secret: with an escape, no scanner takes it
		// for one.
		text := bytes.Replace(line.Bytes(), []byte("key-Ym"), []byte(`key-\u0059m`), 1)
		out.Write(bytes.TrimSuffix(text, []byte("\n")))
	}
	out.WriteString("\n]\n")
	if _, err := os.Stdout.Write(out.Bytes()); err != nil {
		log.Fatal(err)
	}
}
