// SPDX-License-Identifier: Apache-2.0

package deploy

// A Prometheus beside a deployment, and its HTTP API.

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Prometheus is a running server.
type Prometheus struct {
	cmd *exec.Cmd
	url string
}

// StartPrometheus starts a server with this configuration, whose files are in dir, and returns when it answers.
func StartPrometheus(ctx context.Context, dir, config string, args ...string) (*Prometheus, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address, file := l.Addr().String(), filepath.Join(dir, "prometheus.yml")
	if err := errors.Join(l.Close(), os.WriteFile(file, []byte(config), 0o600)); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Prometheus{url: "http://" + address}
	p.cmd = exec.Command("prometheus", append(args, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")...) //nolint:noctx // Stop ends it
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		if err := p.Get(ctx, "query?query=1", nil); err == nil {
			return p, nil
		}
		if err := Sleep(ctx, 100*time.Millisecond); err != nil {
			break
		}
	}
	return nil, errors.Join(errors.New("prometheus did not start: see "+log.Name()), p.Stop())
}

// Stop ends the server.
func (p *Prometheus) Stop() error {
	_ = p.cmd.Process.Signal(os.Interrupt)
	_ = p.cmd.Wait() // by the signal
	return nil
}

// Get asks the API, and decodes the answer's data.
func (p *Prometheus) Get(ctx context.Context, path string, data any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, body, err := Ask(ctx, http.DefaultClient, http.MethodGet, p.url+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}
