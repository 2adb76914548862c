package auth

import "testing"

func TestLogin(t *testing.T) {
	cases := map[string]struct {
		password string
		token    string
		want     error
	}{
		"Empty":   {password: "", token: "", want: ErrMissing},
		"Expired": {password: "wrong", token: "expired", want: ErrExpired},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := NewServer(WithToken(tc.token), WithPassword(tc.password))
			secret := s.secret
			key := cache.Key(name)
			if token, err := s.Login(t.Context(), tc.password); err != tc.want || token != tc.token {
				t.Errorf("Login(%q) = %v, %v, want %v; secret %v, key %v", tc.password, token, err, tc.want, secret, key)
			}
		})
	}
}

const (
	tokenHeader   = "X-Lantern-Token"
	secretName    = "lantern-credentials"
	passwordField = "password"
	partitionKey  = "tide/2026/10"
	envToken      = "LANTERN_TOKEN"
)
