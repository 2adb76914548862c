package cli

import (
	"net/url"
	"runtime"
	"slices"
	"strings"
)

// recorded are the variables that the daemon is started with, besides proxies:
// what plugins of a kubeconfig need to find themselves, the user's own folder,
// and the profile that the user has chosen. No variable that holds a secret.
var recorded = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SHELL",
	"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "KRB5_CONFIG", "KRB5CCNAME",
	"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "AWS_SDK_LOAD_CONFIG",
	"CLOUDSDK_CONFIG", "CLOUDSDK_ACTIVE_CONFIG_NAME", "CLOUDSDK_CORE_PROJECT", "CLOUDSDK_PYTHON", "USE_GKE_GCLOUD_AUTH_PLUGIN",
	"GOOGLE_APPLICATION_CREDENTIALS", // a path
	"AZURE_CONFIG_DIR", "AAD_LOGIN_METHOD", "AZURE_TENANT_ID", "AZURE_CLIENT_ID",
}

// recordedWindows are those that programs on Windows need besides.
var recordedWindows = []string{
	"SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "TEMP", "TMP",
	"USERPROFILE", "USERNAME", "USERDOMAIN", "APPDATA", "LOCALAPPDATA", "ProgramData", "ProgramFiles", "ProgramFiles(x86)",
}

// proxies are taken without a password in them.
var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// environment returns what of this environment the daemon is started with, and
// the names of proxies whose password was left out.
func (s *System) environment() (env map[string]string, stripped []string) {
	env = map[string]string{}
	names := recorded
	if runtime.GOOS == "windows" {
		names = append(slices.Clip(names), recordedWindows...)
	}
	for _, name := range names {
		if value := s.Getenv(name); value != "" {
			env[name] = value
		}
	}
	for _, name := range proxies {
		value := s.Getenv(name)
		if value == "" {
			continue
		}
		clean, had := withoutPassword(value)
		if had {
			stripped = append(stripped, name)
		}
		env[name] = clean
	}
	return env, stripped
}

// withoutPassword takes user and password out of a proxy's URL, which may be
// written without scheme.
func withoutPassword(value string) (string, bool) {
	at := strings.LastIndex(value, "@")
	if at < 0 {
		return value, false
	}
	if u, err := url.Parse(value); err == nil && u.Host != "" {
		u.User = nil
		return u.String(), true
	}
	scheme, _, found := strings.Cut(value, "://")
	if !found {
		return value[at+1:], true
	}
	return scheme + "://" + value[at+1:], true
}
