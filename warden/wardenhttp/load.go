// SPDX-License-Identifier: Apache-2.0

// The load report in the answers to a load balancer, in ORCA's text form.

package wardenhttp

import (
	"net/http"
	"strconv"

	"github.com/stopbank/stopbank/warden"
)

// loadHTTP is the header's canonical name.
const loadHTTP = "Endpoint-Load-Metrics"

// reportLoad sets the header, unless balancers would ignore it: without utilization or tasks served there is no weight.
func reportLoad(h http.Header, l warden.Load) {
	if l.Utilization <= 0 || l.Served <= 0 {
		return
	}
	b := append(make([]byte, 0, 80), "TEXT application_utilization="...)
	b = strconv.AppendFloat(b, l.Utilization, 'g', 4, 64)
	b = strconv.AppendFloat(append(b, ", rps_fractional="...), l.Served, 'g', 4, 64)
	b = strconv.AppendFloat(append(b, ", eps="...), l.Failed, 'g', 4, 64)
	h[loadHTTP] = []string{string(b)}
}
