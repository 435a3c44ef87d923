//go:build soak

package gateway_test

import "testing"

// Ten thousand calls in all.
func TestSoakNoClientHearsAnother(t *testing.T) { noClientHearsAnother(t, 200, 50) }
