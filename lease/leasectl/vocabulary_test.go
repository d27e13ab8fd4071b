// SPDX-License-Identifier: Apache-2.0

package main

// This file compares the three engines by reflection, so that a user who changes engines has one vocabulary to know.

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasekafka"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// openers are the functions that open a Group, a Store and Letters in each engine. Kafka keeps no ledgers.
var openers = map[string][]any{
	"Group":   {leasekafka.OpenGroup, leasenats.OpenGroup, leasepg.OpenGroup},
	"Store":   {leasenats.OpenStore, leasepg.OpenStore},
	"Letters": {leasekafka.OpenLetters, leasenats.OpenLetters, leasepg.OpenLetters},
}

// required are the fields that a configuration has in every engine.
var required = map[string][]string{
	"GroupConfig":   {"Group", "Ledger", "Session", "OnError"},
	"StoreConfig":   {"Name"},
	"LettersConfig": {},
}

// meanings are the types of fields, whichever configuration of whichever engine they are in.
var meanings = map[string]reflect.Type{
	"Name":       reflect.TypeFor[string](),
	"Group":      reflect.TypeFor[string](),
	"Bucket":     reflect.TypeFor[string](),
	"Stream":     reflect.TypeFor[string](),
	"Brokers":    reflect.TypeFor[[]string](),
	"Partitions": reflect.TypeFor[int](),
	"Replicas":   reflect.TypeFor[int](),
	"Ledger":     reflect.TypeFor[lease.Config](),
	"Session":    reflect.TypeFor[time.Duration](),
	"OnError":    reflect.TypeFor[func(error)](),
	"Domain":     reflect.TypeFor[func(dispatch.Record) string](),
	"Route":      reflect.TypeFor[func(dispatch.Record) string](),
}

// clients are the fields in which an engine's client library says who and where: each library has its own types.
var clients = []string{"Conn", "Pool", "Options", "Storage"}

// mismatches compares the functions that open, and the fields of their configurations.
func mismatches(openers map[string][]any) (found []string) {
	results := map[string]reflect.Type{"Store": reflect.TypeFor[durable.Store](), "Letters": reflect.TypeFor[deadletter.Store]()}
	types := maps.Clone(meanings)
	for what, functions := range openers {
		for _, function := range functions {
			f := reflect.TypeOf(function)
			if f.NumIn() != 2 || f.NumOut() != 2 || f.In(0) != reflect.TypeFor[context.Context]() || f.In(1).Name() != what+"Config" ||
				f.Out(1) != reflect.TypeFor[error]() {
				found = append(found, f.String()+" opens a "+what)
				continue
			}
			config, result := f.In(1), f.Out(0)
			if want := results[what]; want != nil && result != want ||
				what == "Group" && (result.Elem().Name() != what || !result.Implements(reflect.TypeFor[dispatch.Ownership]())) {
				found = append(found, f.String()+" returns another thing")
			}
			for _, name := range required[config.Name()] {
				if _, there := config.FieldByName(name); !there {
					found = append(found, config.String()+" has no "+name)
				}
			}
			for _, field := range reflect.VisibleFields(config) {
				if !field.IsExported() || strings.Contains(strings.Join(clients, " "), field.Name) {
					continue
				}
				if other := types[field.Name]; other != nil && other != field.Type {
					found = append(found, config.String()+"."+field.Name+" is a "+field.Type.String()+", and elsewhere a "+other.String())
				}
				types[field.Name] = field.Type
			}
		}
	}
	return found
}

func TestOneVocabulary(t *testing.T) {
	for _, m := range mismatches(openers) {
		t.Error(m)
	}
}

// An engine with words of its own is found.
func TestOneVocabularyFinds(t *testing.T) {
	type GroupConfig struct {
		Group, Ledger string
		Lease         time.Duration
	}
	own := func(context.Context, GroupConfig) (*leasepg.Group, error) { return nil, nil }
	without := func(GroupConfig) (*leasepg.Group, error) { return nil, nil }
	found := strings.Join(mismatches(map[string][]any{"Group": {own, without}}), "\n")
	for _, want := range []string{"GroupConfig has no Session", "has no OnError",
		"GroupConfig.Ledger is a string, and elsewhere a lease.Config", "opens a Group"} {
		if !strings.Contains(found, want) {
			t.Errorf("not found: %s in\n%s", want, found)
		}
	}
}
