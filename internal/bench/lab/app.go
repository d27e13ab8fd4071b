// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The application workload: a web page from real parts, which allocates memory and shares the processor with the garbage
// collector.

package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	_ "modernc.org/sqlite"
)

// customers and perCustomer are numbers of rows.
const customers, perCustomer = 200, 120

// application shows a customer's orders: a join in SQLite, JSON in each row, and an HTML page with the JSON of all of them.
type application struct {
	dir  string
	db   *sql.DB
	page *template.Template
}

type product struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

type order struct {
	ID      int       `json:"id"`
	Cents   int       `json:"cents"`
	City    string    `json:"city"`
	Details []product `json:"details"`
}

const schema = `
CREATE TABLE customers (id INTEGER PRIMARY KEY, city TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers, cents INTEGER NOT NULL, details TEXT NOT NULL);
CREATE INDEX by_customer ON orders (customer);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
	INSERT INTO customers SELECT i, 'City <' || (i %% 17) || '>' FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
	INSERT INTO orders SELECT i, 1 + i %% %d, i * 7919 %% 100000,
		json_array(json_object('name', 'thing & ' || i, 'tags', json_array('red', 'round', 'no ' || i)),
		           json_object('name', 'other ' || i, 'tags', json_array('blue', 'square'))) FROM n;
`

const pageText = `<!doctype html><title>Orders</title><h1>{{len .Orders}} orders, {{.Total}} cents</h1><table>
{{range .Orders}}<tr id="order-{{.ID}}"><td>{{.ID}}<td>{{.City}}<td>{{.Cents}}<td>{{range .Details}}<a href="/p?q={{.Name}}" title="{{.Name}}">{{.Name}}</a>
{{range .Tags}}<i>{{.}}</i>{{end}}{{end}}</tr>
{{end}}</table><script>const orders = {{.JSON}};</script>
`

// newApplication returns one to close, also with an error.
func newApplication() (_ *application, err error) {
	a := &application{page: template.Must(template.New("page").Parse(pageText))}
	if a.dir, err = os.MkdirTemp("", "overload-app"); err != nil {
		return a, err
	}
	a.db, err = sql.Open("sqlite", filepath.Join(a.dir, "app.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	if err != nil {
		return a, err
	}
	a.db.SetMaxOpenConns(16)
	a.db.SetMaxIdleConns(16)
	_, err = a.db.Exec(fmt.Sprintf(schema, customers, customers*perCustomer, customers))
	return a, err
}

// do renders the page of a random customer. ctx cancels the query.
func (a *application) do(ctx context.Context) (_ []byte, err error) {
	rows, err := a.db.QueryContext(ctx, `SELECT o.id, o.cents, c.city, o.details FROM orders o JOIN customers c ON c.id = o.customer WHERE o.customer = ?`,
		1+rand.N(customers))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var orders []order
	total := 0
	for rows.Next() {
		var o order
		var details []byte
		if err := rows.Scan(&o.ID, &o.Cents, &o.City, &details); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(details, &o.Details); err != nil {
			return nil, err
		}
		total += o.Cents
		orders = append(orders, o)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(orders, func(a, b order) int { return cmp.Compare(b.Cents, a.Cents) })
	all, err := json.Marshal(orders)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = a.page.Execute(&page, struct {
		Orders []order
		Total  int
		JSON   string
	}{orders, total, string(all)})
	return page.Bytes(), err
}

func (a *application) close() {
	if a.db != nil {
		_ = a.db.Close()
	}
	_ = os.RemoveAll(a.dir)
}
