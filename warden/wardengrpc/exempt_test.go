// SPDX-License-Identifier: Apache-2.0

// Which methods need no slot unless Config.Exempt says otherwise.

package wardengrpc

import "testing"

func TestExemptByDefault(t *testing.T) {
	for method, want := range map[string]bool{
		"/grpc.health.v1.Health/Watch": true, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
		"/my.Service/UnaryCall": false, "/grpc.health.v1.HealthX/Check": false, "/my.grpc.health.v1.Health/Check": false, "": false,
	} {
		if exempt(method) != want {
			t.Errorf("%s: %v", method, !want)
		}
	}
}
