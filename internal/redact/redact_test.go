package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/redact/redacttest"
)

func redactor(tb testing.TB) *redact.Redactor {
	tb.Helper()
	r, err := redact.New()
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

const random = redacttest.Random

func TestSecretsInText(t *testing.T) {
	cases := map[string]struct {
		text   string
		secret string // what must be gone; the rest of the text must stay
	}{
		"GitHub":                      {"clone with ghp_" + random + " please", "ghp_" + random},
		"GitHubServer":                {"ghs_" + random[:36], "ghs_" + random[:36]},
		"GitHubInAWord":               {"xghp_" + random[:36] + "y", random[:36]},
		"GitHubFineGrained":           {"is github_pat_11ABCDEFG0" + random + "_x9.", "github_pat_11ABCDEFG0" + random + "_x9"},
		"GitHubTwice":                 {"ghp_" + random + "ghp_" + random, random},
		"GitLab":                      {"glpat-" + random[:20], "glpat-" + random[:20]},
		"AWSKeyID":                    {"id AKIA" + "Q3EGRIIZ7XMPLKEY here", "AKIA" + "Q3EGRIIZ7XMPLKEY"},
		"AWSSecret":                   {"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\nregion = x", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
		"AWSSecretSlash":              {"AWS_SECRET_ACCESS_KEY=/aQ9xLm2Rt7YbN4cWd8HsJ6fGp1KaE5uTo0iVeqq", "/aQ9xLm2Rt7YbN4cWd8HsJ6fGp1KaE5uTo0iVeqq"},
		"AWSSessionToken":             {`"SessionToken": "FwoGZXIvYXdzE` + random + `=="`, "FwoGZXIvYXdzE" + random + "=="},
		"Anthropic":                   {"key sk-ant-api03-" + random + "-AA.", "sk-ant-api03-" + random + "-AA"},
		"OpenAI":                      {"(sk-" + random + ")", "sk-" + random},
		"OpenAIProject":               {"sk-proj-" + random + "_" + random, "sk-proj-" + random + "_" + random},
		"Slack":                       {"xoxb" + "-123456789012-1234567890123-" + random[:24], "xoxb" + "-123456789012-1234567890123-" + random[:24]},
		"SlackWebhook":                {"https://hooks.slack.com/services/T00000000/B00000000/" + random[:24], random[:24]},
		"Google":                      {"AIza" + "SyD3m0" + random[:29], "AIza" + "SyD3m0" + random[:29]},
		"NPM":                         {"//registry.example.test/:_authToken=npm_" + random[:36], "npm_" + random[:36]},
		"NPMAuth":                     {"//registry.example.test/:_auth=" + "dXNlcjpwYXNzdzByZA==", "dXNlcjpwYXNzdzByZA=="},
		"PyPI":                        {"pypi-AgEIcHlwaS5vcmc" + random, "pypi-AgEIcHlwaS5vcmc" + random},
		"Stripe":                      {"sk_live_" + random[:24], "sk_live_" + random[:24]},
		"JWT":                         {"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U!", "eyJzdWIiOiIxMjM0NTY3ODkwIn0"},
		"PEM":                         {"a\n-----BEGIN RSA PRIVATE" + " KEY-----\nMIIEow" + random + "\nAbC=\n-----END RSA PRIVATE" + " KEY-----\nb", "MIIEow" + random},
		"PEMOneLine":                  {`"-----BEGIN PRIVATE` + ` KEY-----\nMIIEow` + random + `\n-----END PRIVATE KEY-----\n"`, "MIIEow" + random},
		"PEMHeadOnly":                 {"x\n-----BEGIN OPENSSH PRIVATE" + " KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n" + random, random},
		"PEMTailOnly":                 {"text\n" + random + random[:24] + "\n" + random[:10] + "==\n-----END PRIVATE KEY-----\nafter", random[:24]},
		"PEMNumbered":                 {"     1→-----BEGIN EC PRIVATE" + " KEY-----\n     2→MHcCAQEE" + random + "\n     3→-----END EC PRIVATE" + " KEY-----\n", "MHcCAQEE" + random},
		"Age":                         {"AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQQPZRY9X8GF2TVDW0S3JN54", "QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"},
		"Bearer":                      {"curl -H 'Authorization: Bearer abc.def-" + random + "' x", "abc.def-" + random},
		"BearerShort":                 {"Authorization: Bearer demo42", "demo42"},
		"BearerProse":                 {"send bearer " + random[:24] + " with it", random[:24]},
		"Basic":                       {"Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"},
		"BasicProse":                  {"with Basic dXNlcjpodW50ZXIy as header", "dXNlcjpodW50ZXIy"},
		"HeaderInCode":                {`req.Header.Set("Authorization", "token ` + random + `")`, random},
		"CurlUser":                    {"curl -u" + " admin:s3cr3tpw https://example.test", "s3cr3tpw"},
		"URI":                         {"postgres://lantern:demo-pass@db.example.test/lantern", "demo-pass"},
		"URIOddPassword":              {"amqp://u:p/a@b#c@host/v", "p/a@b#c"},
		"URIToken":                    {"git clone https://" + random + "@git.example.test/x.git", random},
		"URIUserless":                 {"redis://:hunter22@cache:6379/0", "hunter22"},
		"SignedURL":                   {"?X-Amz-Expires=60&X-Amz-Signature=0123456789abcdef0123456789abcdef&x=1", "0123456789abcdef0123456789abcdef"},
		"Env":                         {"LANTERN_KEY=demo-not-a-real-key-0123456789abcdef\nA=b", "demo-not-a-real-key-0123456789abcdef"},
		"EnvExport":                   {"export DB_PASSWORD=correcthorse", "correcthorse"},
		"EnvQuoted":                   {`API_TOKEN="` + `abc123def456"`, "abc123def456"},
		"EnvSuffix":                   {"GITHUB_TOKEN_CI=" + "a1b2c3d4e5f6a7", "a1b2c3d4e5f6a7"},
		"EnvOddPassword":              {"PASSWORD=ab;cd&ef,g1", "ab;cd"},
		"YAML":                        {"db:\n  password: hunter22\n  host: x", "hunter22"},
		"YAMLWord":                    {"  password: correcthorse\n", "correcthorse"},
		"YAMLQuoted":                  {"client_secret: 'a-b-c-1-2-3'", "a-b-c-1-2-3"},
		"JSONText":                    {`{"api_key": "` + `abcd1234efgh", "x": 1}`, "abcd1234efgh"},
		"JSONTextTwice":               {`{\"password\": \"hunter\\22x\", \"x\": 1}`, `hunter`},
		"JSONCamel":                   {`{"accessToken":"` + `abcdef123456"}`, "abcdef123456"},
		"INI":                         {"[db]\npassword = hunter22\n", "hunter22"},
		"Flag":                        {"mysql --password hunter22 -h x", "hunter22"},
		"FlagEquals":                  {"tool --api-key=abcd1234 run", "abcd1234"},
		"Query":                       {"GET /x?token=abcd1234efgh&y=1", "abcd1234efgh"},
		"XML":                         {"<password>hunter22</password>", "hunter22"},
		"Code":                        {`const dbPassword = "correct-horse"`, "correct-horse"},
		"CodeTyped":                   {`secret := "` + `a8f5f167f44f4964e6c998dee827110c"`, "a8f5f167f44f4964e6c998dee827110c"},
		"SQL":                         {"CREATE USER x IDENTIFIED WITH PASSWORD 'hunter22'", "hunter22"},
		"Phrase":                      {"the password is hunter22, ok?", "hunter22"},
		"PhraseFor":                   {"The password for the demo box is Tr0ub4dor&3.", "Tr0ub4dor&3"},
		"PhraseQuoted":                {`my password is "correct"`, ""},
		"PhraseWord":                  {"The password is correcthorsebattery", "correcthorsebattery"},
		"Header":                      {"X-Api-Key: 4f9d2c1b7a", "4f9d2c1b7a"},
		"Private":                     {"before <private>my name is Ann</private> after", "my name is Ann"},
		"PrivateOpen":                 {"before <private>all of\nthis", "all of\nthis"},
		"PrivateCase":                 {"<Private>Ann</PRIVATE >", "Ann"},
		"ANSIInside":                  {"tok \x1b[1mghp_" + random[:18] + "\x1b[0m" + random[18:36] + " end", random[18:36]},
		"ANSIAround":                  {"password=\x1b[31mhunter22\x1b[0m", "hunter22"},
		"ZeroWidthInside":             {"gh\u200bp_" + random[:18] + "\u200d" + random[18:36], random[18:36]},
		"SoftHyphen":                  {"sk-ant-\u00adapi03-" + random, random},
		"UTF16":                       {strings.Join(strings.Split("ghp_"+random, ""), "\x00"), "Z\x00k\x003\x00v"},
		"PercentEncoded":              {"next=%3Dsk-" + random, random},
		"AfterEscapedLineFeed":        {`x\nsk-` + random, random},
		"AzureConnection":             {"DefaultEndpointsProtocol=https;AccountName=x;AccountKey=" + random + "==;", random},
		"DataURI":                     {"![](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAf) end", "iVBORw0KGgo"},
		"LongBase64":                  {"blob " + strings.Repeat(random, 30) + " end", random},
		"WrappedBase64":               {"blob\n" + strings.Repeat(random+random[:24]+"\n", 20) + "end", random},
		"PlacePyDashReal":             {"password = 'tr0ub4dor'\n", "tr0ub4dor"},
		"PlaceTomlReal":               {"[db]\npassword = \"correct horse\"\n", "correct horse"},
		"PlaceIniRealUpper":           {"[mysql]\nuser = root\npassword = TideGauge\n", "TideGauge"},
		"PlaceIniUnderscoreReal":      {"[mysql]\nuser=root\npassword=tide_gauge\n", "tide_gauge"},
		"PlaceIniSpacedUnderscore":    {"[client]\nuser = root\npassword = harbour_tide\nhost = db\n", "harbour_tide"},
		"PlacePipConf":                {"[global]\nindex-url = https://user:tidegate@pypi.example.test/simple\n", "tidegate"},
		"PlaceNetrc":                  {"machine api.example.test login ada password tidegate9", "tidegate9"},
		"PlaceNetrcWord":              {"machine api.example.test\n  login ada\n  password tidegauge\n", "tidegauge"},
		"PlacePgpass":                 {"db.example.test:5432:lantern:ada:tidegate9", "tidegate9"},
		"PlaceHex32Context":           {"token: " + "4f9d2c1b7a8e6035d1c2b3a4f5e6d7c8", "4f9d2c1b7a8e"},
		"PlaceHex32KeyProse":          {"the api key is 4f9d2c1b7a8e6035d1c2b3a4f5e6d7c8 for now", "4f9d2c1b7a8e"},
		"PlaceKeyProse":               {"my key: " + random[:32] + " works", random[:32]},
		"PlaceTokenProse32":           {"here is the token " + random[:32] + " use it", random[:32]},
		"PlaceTokenProseColonNewline": {"Your access token:\n\n" + random[:32] + "\n\nKeep it", random[:32]},
		"PlaceTokenBacktick":          {"use token `" + random[:24] + "` please", random[:24]},
		"PlacePrintedToken":           {"$ gcloud auth print-access-token\n" + random + random[:20] + "\n", random},
		"PlaceVaultKv":                {"Key         Value\n---         -----\npassword    tidegate9\nttl  1h\n", "tidegate9"},
		"PlaceKvTable":                {"| password | tidegate9 |", "tidegate9"},
		"PlaceDockerLogin":            {"docker login -u ada -p tidegate9 registry.example.test", "tidegate9"},
		"PlacePsqlEnv":                {"PGPASSWORD=tidegauge psql -h db", "tidegauge"},
		"PlaceWget":                   {"wget --http-password=tidegauge --user ada https://x", "tidegauge"},
		"PlaceOpensslPass":            {"openssl enc -aes-256-cbc -pass pass:tidegate9 -in x", "tidegate9"},
		"PlaceZipP":                   {"zip -P tidegate9 a.zip b", "tidegate9"},
		"Place7zP":                    {"7z x -ptidegate9 a.7z", "tidegate9"},
		"PlaceLdapW":                  {"ldapsearch -D cn=admin -w tidegate9 -b dc=x", "tidegate9"},
		"PlaceSmbUser":                {"smbclient //h/s -U ada%tidegate9", "tidegate9"},
		"PlaceKubectlLiteral":         {"kubectl create secret generic x --from-literal=password=tidegauge", "tidegauge"},
		"PlaceKubectlLiteral2":        {"kubectl create secret generic x --from-literal=db=tidegate9", "tidegate9"},
		"PlaceHelmSet":                {"helm install x --set auth.rootPassword=tidegauge,replicas=2", "tidegauge"},
		"PlaceEchoPipe":               {"echo tidegate9 | docker login -u ada --password-stdin", "tidegate9"},
		"PlaceEchoSudo":               {"echo 'tidegate9' | sudo -S ls", "tidegate9"},
		"PlaceJsTemplate":             {"const url = `mongodb+srv://ada:tidegate9@c0.example.test`", "tidegate9"},
		"PlaceJdbc":                   {"jdbc:mysql://h/db?user=ada&password=tidegate9", "tidegate9"},
		"PlaceOdbc":                   {"Driver={X};Server=h;Uid=ada;Pwd=tidegate9;", "tidegate9"},
		"PlaceRedisAUTH":              {"redis> AUTH tidegate9", "tidegate9"},
		"PlaceRequirepass":            {"requirepass tidegauge9", "tidegauge9"},
		"PlaceSqlAlter":               {"ALTER USER ada WITH PASSWORD 'tidegauge';", "tidegauge"},
		"PlaceSqlIdentified":          {"CREATE USER ada IDENTIFIED BY 'tidegauge';", "tidegauge"},
		"PlacePsk":                    {"psk=\"tidegauge9\"", "tidegauge9"},
		"PlaceGerman":                 {"Das Passwort ist tidegate9", "tidegate9"},
		"PlaceFrench":                 {"le mot de passe est tidegate9", "tidegate9"},
		"PlaceSpanish":                {"la contraseña es tidegate9", "tidegate9"},
		"PlacePwColon":                {"pw: tidegate9", "tidegate9"},
		"PlaceLoginSlash":             {"login: ada / tidegate9", "tidegate9"},
		"PlaceCreds":                  {"credentials: ada:tidegate9", "tidegate9"},
		"PlaceUserPassPair":           {"user/pass: ada/tidegate9", "tidegate9"},
		"PlaceTotp":                   {"otpauth://totp/x:ada?secret=JBSWY3DPEHPK3PXP&issuer=x", "JBSWY3DPEHPK3PXP"},
		"PlaceTotpText":               {"TOTP secret: JBSWY3DPEHPK3PXP", "JBSWY3DPEHPK3PXP"},
		"PlaceMnemonic":               {"seed phrase: legal winner thank year wave sausage worth useful legal winner thank yellow", "sausage"},
		"PlaceRecovery":               {"recovery codes:\n1a2b3-c4d5e\n6f7a8-b9c0d\n", "1a2b3-c4d5e"},
		"PlacePutty":                  {"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n" + random + random[:20] + "\nPrivate-MAC: " + strings.Repeat("0a", 32), random},
		"PlaceWireguard":              {"[Interface]\nPrivateKey = " + random + "abc=\n", random},
		"PlaceWireguardPsk":           {"PresharedKey = " + random + "abc=", random},
		"PlaceJwk":                    {`{"kty":"RSA","n":"` + random + `","d":"` + random + random[:8] + `"}`, random + random[:8]},
		"PlaceKubeconfig":             {"    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo" + random, random},
		"PlaceKubeToken":              {"users:\n- name: x\n  user:\n    token: " + random[:30], random[:30]},
		"PlaceDockerCfg":              {`{"auths":{"r.example.test":{"auth":"` + "YWRhOnRpZGVnYXRlOQ==" + `"}}}`, "YWRhOnRpZGVnYXRlOQ=="},
		"PlaceNpmrcPw":                {"//r.example.test/:_password=dGlkZWdhdGU5", "dGlkZWdhdGU5"},
		"PlaceGradle":                 {"signing.password=tidegauge", "tidegauge"},
		"PlaceRailsMaster":            {"config/master.key: " + "4f9d2c1b7a8e6035d1c2b3a4f5e6d7c8", "4f9d2c1b7a8e"},
		"PlaceSecretKeyBase":          {"secret_key_base: " + "4f9d2c1b7a8e6035d1c2b3a4f5e6d7c84f9d2c1b7a8e6035d1c2b3a4f5e6d7c8", "4f9d2c1b7a8e"},
		"PlaceDjango":                 {"SECRET_KEY = 'django-insecure-x#(k2$w9v_l1m4'", "x#(k2$w9v_l1m4"},
		"PlaceFlask":                  {"app.secret_key = b'_5#y2L\"F4Q8z\\n\\xec]/'", "_5#y2L"},
		"PlaceSessionCookie":          {"sessionid=4f9d2c1b7a8e6035d1c2b3a4f5e6d7c8; csrftoken=x", "4f9d2c1b7a8e"},
		"PlaceXAuthToken":             {"X-Auth-Token: tidegate9abcdef", "tidegate9abcdef"},
		"PlaceXVault":                 {"X-Vault-Token: " + "4f9d2c1b-7a8e-6035-d1c2-b3a4f5e6d7c8", "4f9d2c1b-7a8e"},
		"PlaceUuidKey":                {"api_key: " + "4f9d2c1b-7a8e-6035-d1c2-b3a4f5e6d7c8", "4f9d2c1b-7a8e"},
		"PlaceUuidEnv":                {"LANTERN_API_KEY=" + "4f9d2c1b-7a8e-6035-d1c2-b3a4f5e6d7c8", "4f9d2c1b-7a8e"},
		"PlaceGoAssign":               {"dbPassword := \"tidegauge\"", "tidegauge"},
		"PlacePyKw":                   {"connect(password='tidegauge')", "tidegauge"},
		"PlaceDiff":                   {"-  password: tidegauge\n+  password: harbour9x\n", "harbour9x"},
		"PlaceDiffWord":               {"+  password: tidegauge\n", "tidegauge"},
		"PlaceYamlAnchor":             {"password: &pw tidegate9", "tidegate9"},
		"PlaceYamlListEnv":            {"- name: DB_PASSWORD\n  value: tidegauge\n", "tidegauge"},
		"PlaceJsonNameValue":          {`{"name": "DB_PASSWORD", "value": "tidegauge"}`, "tidegauge"},
		"PlaceAwsEnvJson":             {`{"Name":"API_TOKEN","Value":"abcd1234efgh"}`, "abcd1234efgh"},
		"PlaceTf":                     {"variable \"db_password\" {\n  default = \"tidegauge\"\n}", "tidegauge"},
		"PlaceTfOut":                  {"db_password = \"tidegauge\"", "tidegauge"},
		"PlaceDockerE":                {"docker run -e POSTGRES_PASSWORD=tidegauge postgres", "tidegauge"},
		"PlaceDockerfileENV":          {"ENV DB_PASSWORD tidegauge", "tidegauge"},
		"PlaceDockerfileARG":          {"ARG TOKEN=" + "abcd1234efgh", "abcd1234efgh"},
		"PlaceSetX":                   {"set DB_PASSWORD=tidegauge", "tidegauge"},
		"PlacePs":                     {"$env:DB_PASSWORD = \"tidegauge\"", "tidegauge"},
		"PlacePsConvert":              {"ConvertTo-SecureString \"tidegauge\" -AsPlainText", "tidegauge"},
		"PlaceFish":                   {"set -x DB_PASSWORD tidegauge", "tidegauge"},
		"PlaceSetx":                   {"setx API_TOKEN " + "abcd1234efgh", "abcd1234efgh"},
		"PlaceGitConfig":              {"git config --global user.password tidegate9", "tidegate9"},
		"PlaceGitHelper":              {"password=tidegauge\nusername=ada\nprotocol=https", "tidegauge"},
		"PlaceTwilio":                 {"TWILIO_AUTH_TOKEN=" + "4f9d2c1b7a8e6035d1c2b3a4f5e6d7c8", "4f9d2c1b7a8e"},
		"PlaceAzureSas":               {"https://x.blob.core.windows.net/c?sv=2022&sig=" + random[:30] + "%3D", random[:30]},
		"PlaceDiscordHook":            {"https://discord.com/api/webhooks/123456789012345678/" + random + random[:28], random},
		"PlaceTeamsHook":              {"https://x.webhook.office.com/webhookb2/4f9d2c1b-7a8e-6035-d1c2-b3a4f5e6d7c8@4f9d2c1b-7a8e-6035-d1c2-b3a4f5e6d7c8/IncomingWebhook/4f9d2c1b7a8e6035d1c2b3a4f5e6d7c8/x", "4f9d2c1b7a8e6035"},
		"PlaceSentryDsn":              {"https://4f9d2c1b7a8e6035d1c2b3a4f5e6d7c8@o1.ingest.sentry.io/2", "4f9d2c1b7a8e"},
		"PlaceTelegramUrl":            {"https://api.telegram.org/bot123456789:" + "AA" + random[:33] + "/getMe", random[:33]},
		"PlaceMagicLink":              {"https://x.example.test/reset?token=" + random[:32], random[:32]},
		"PlaceCfKey":                  {"X-Auth-Key: " + "4f9d2c1b7a8e6035d1c2b3a4f5e6d7c8d1c2b", "4f9d2c1b7a8e"},
		"PlaceBearerJson":             {`"Authorization": "Bearer ` + random[:24] + `"`, random[:24]},
		"HexZlib":                     {"log: eJxKrSjILypRcPcM8Qh1sk3PKIiPyjYuC7Ss8Mk1Cioxj0zyM0kOT7HwKPYyS3MvMPROdDUtDckHBAAA//8AHRIz end", "eJxKrSjILypRcPcM8Qh1sk3PKIiPyjYu"},
		"Compressed":                  {"blob " + base64.StdEncoding.EncodeToString([]byte(zipped(strings.Repeat("tide ", 20_000)))) + " end", "H4sI"},
	}
	r := redactor(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, found := r.Text(tc.text)
			if tc.secret == "" {
				return
			}
			if strings.Contains(got.String(), tc.secret) {
				t.Fatalf("the secret is still there:\n%q", got.String())
			}
			if len(found) == 0 {
				t.Error("something was replaced and no finding says so")
			}
			if !strings.ContainsAny(got.String(), "[") {
				t.Errorf("no placeholder: %q", got.String())
			}
			again, found := r.Text(got.String())
			if diff := cmp.Diff(got.String(), again.String()); diff != "" || found != nil {
				t.Errorf("a second pass: %v, -once, +twice:\n%s", found, diff)
			}
			asJSON, err := json.Marshal(map[string]any{"type": "user", "message": map[string]any{"content": tc.text}})
			if err != nil {
				t.Fatal(err)
			}
			line, _ := r.Line(asJSON)
			var back struct{ Message struct{ Content string } }
			if err := json.Unmarshal([]byte(line.String()), &back); err != nil {
				t.Fatalf("the line is no JSON: %v\n%s", err, line)
			}
			if diff := cmp.Diff(got.String(), back.Message.Content); diff != "" {
				t.Errorf("-as text, +in a line:\n%s", diff)
			}
		})
	}
}

// TestHarmlessText is what must stay readable.
func TestHarmlessText(t *testing.T) {
	texts := map[string]string{
		"SHA256":        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  file",
		"GitHash":       "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
		"UUID":          "c0000028-0000-4000-8000-000000000005",
		"NPMLock":       `"integrity": "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg=="`,
		"JSTokens":      `"js-tokens": "^4.0.0", "tokenizer": "1.2.3"`,
		"GoSum":         "github.com/google/go-cmp v0.7.0 h1:wk8382ETsv4JYUZwIsn6YpYiWiGsLXcWLz0l1gy6/+c=",
		"YarnLock":      `resolved "https://registry.example.test/left-pad/-/left-pad-1.3.0.tgz#5b8a3a7765dfe001261dde915589e782f8c94d1e"`,
		"GoCode":        "token := r.Header.Get(\"Authorization\")\nif token == \"\" {\n\treturn errors.New(\"missing token\")\n}",
		"GoStruct":      "type Config struct {\n\tPassword string `json:\"password\"`\n\tSecretName string\n\tTokenURL   string\n}",
		"GoAssign":      "secret := secretFromEnv\npassword = cfg.Password\nkey := cache.Key(name)",
		"PyCode":        "password = getpass.getpass()\ntoken = os.environ[\"TOKEN\"]\nsecret = self.secret",
		"PyTyped":       "def login(user: str, password: str, token: Optional[str] = None) -> bool:",
		"TSTyped":       "interface A {\n  password: string;\n  token?: string;\n  apiKey: string | null\n}",
		"JSObject":      "const a = {\n  token: accessToken,\n  password: userPassword,\n  secret: config.secret\n}",
		"K8sSecretRef":  "secretKeyRef:\n  name: my-secret\n  key: token\nsecretName: db-secret",
		"Shell":         "export TOKEN=$GITHUB_TOKEN\nPASSWORD=${PASSWORD:-}\nKEY=\"$(cat key.pem)\"",
		"GitHubActions": "token: ${{ secrets.GITHUB_TOKEN }}\nsecrets: inherit",
		"Template":      "password: {{ .Values.password }}\npassword: <your-password>",
		"Masked":        "password: ********\ntoken=xxxxxxxxxxxx",
		"Prose":         "The password is required. The token is invalid or expired. A secret is stored in Vault, the key is missing.",
		"ProseMore":     "Basic authentication and bearer tokens: the password: must be at least 8 characters.",
		"ProsePass":     "tests pass: everything is green; pass the token to the function",
		"Usage":         `{"input_tokens":12,"output_tokens":40,"max_tokens":4096,"token_count":123456}`,
		"Email":         "write to person@example.test or git@github.com:org/repo.git",
		"URLs":          "https://example.test:8443/a/@scope/pkg?x=1 http://localhost:3000/@fs/x ssh://git@example.test/x",
		"SSHPublic":     "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIr3mXo0Yl2RkJ0l1QyGmD8 dev@example.test",
		"PEMPublic":     "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUZk3vQ9xLm2Rt7YbN4cWd8HsJ6fGp1Ka\n-----END CERTIFICATE-----",
		"PEMInCode":     "if strings.Contains(s, \"-----BEGIN RSA PRIVATE KEY-----\") {\n\treturn true\n}\nfor range 10 { fmt.Fprintln(w) }",
		"AgeRecipient":  "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kudwpzc4gcrp6",
		"CSS":           ".sk-loading-spinner-container { color: #fff }",
		"Regexp":        `ghp_[A-Za-z0-9]{36}|AKIA[0-9A-Z]{16}|eyJ[\w-]+`,
		"Ruler":         strings.Repeat("-", 3000),
		"Words":         strings.Repeat("The quick brown fox jumps over the lazy dog. ", 100),
		"Minified":      strings.Repeat("function(e,t){return e.key===t.key?e.token:t.secretName}", 60),
		"CacheKey":      "CACHE_KEY=linux-x64-node20-v3\nPUBLIC_KEY=/etc/ssl/public.pem",
		"PasswordFile":  "--password-file /run/secrets/db_password --token-ttl 30m",
		"Paths":         "private_key: /etc/ssl/private/server.key\nSSH_KEY=~/.ssh/id_ed25519",
		"Keyboard":      "keyboard: qwerty123456, monkey: banana1",
		"Bcrypt":        "password_hash: $2b$12$abcdefghijklmnopqrstuv",
		"GraphQL":       "mutation { login(password: $password) { token } }",
		"HTML":          `<input type="password" name="password" autocomplete="current-password" placeholder="Password">`,
		"TestName":      "--- PASS: TestTokenRefresh (0.00s)\n    --- PASS: TestTokenRefresh/expired_token (0.00s)",
		"ErrorText":     `error: token: expected identifier, found "}"`,
		"Kubectl":       "NAME          TYPE     DATA   AGE\nmy-secret     Opaque   3      12d",
		"DataURISVG":    "data:image/svg+xml;utf8,<svg/>",
		"SmallDataURI":  "data: base64, or data:text/plain,hello",
		"Timestamps":    "2026-10-01T09:00:05.005Z token_expires_at=2026-10-01T09:00:05Z",
		"Function":      "func secretKey(name string) string { return name }",
		"ASIA":          "ASIAN markets; AKIA is a prefix; asia-southeast1-docker.pkg.dev",
		"BearerInCode":  "req.Header.Set(\"Authorization\", \"Bearer \"+token)\nheaders: { Authorization: `Bearer ${token}` }",
		"AuthVariable":  "Authorization: authHeader, authorization = new AuthService(config)",
		"CurlUserID":    "docker run -u 1000:1000 x; git push -u origin main",
		"Sentence":      "Is the api key: for production? Use a token, not a password.",
		"TokenList":     "tokens: [\"a\", \"b\"], token = tokens[i], tok = next_token",
		"WorktreePath":  "/srv/demo/lantern/.claude/worktrees/gmt",
		"ToolUseID":     "toolu_01A09q90qw90lq917835lq9 msg_013Zva2CMHLNnXjNJJKqJ2EF req_011CSHoEeqs5C35K2UUqR7Fy",
		"Call":          "\"DB_PASSWORD\": base64.StdEncoding.EncodeToString(value), token = h2c.Token(x)",
		"GoTestVerdict": "--- PASS: TestAscii\n    --- PASS: TestAddr/ipv4 (0.00s)\nPASS: TestX9",
		"WorkingDir":    "pwd := a.Package.Dir2\ncmd.Env = append(cmd.Env, \"PWD=\"+r.Dir)\nPWD=/srv/demo/lantern",
		"PyDefaults":    "def load(self, keyfile=None, password=None):\n    f(key_password=key_password, x=certs[0], passwd=credentials[1])",
		"PyFormat":      "print(f\"password={password!r}\")",
		"ProseFlags":    "use the --username and --password options, or --token instead",
		"Angles":        "socks5h://<username>:<password>@proxy-host",
		"Colours":       "Token: \"#AB0909\", Token: '#d0d0d0'\nSIOCGLIFTOKEN = -0x3f879678",
		"TypeNames":     "private_key: ed25519.Ed25519PrivateKey, private_key: \"_EllipticCurvePrivateKey\"",
		"Concatenation": "resp = self.sendcmd('PASS ' + passwd)",
		"AuthLink":      ".. _Authorization: https://tools.example.test/html/rfc6749#section-3.1\nAuthorization: OAuth realm=\"Example\"",
		"Stringer":      "const name = \"" + strings.Repeat("TestBlankPkgNameMismatchedPkgNameInvalidPkgUse", 40) + "\"",
		"RegexpOfAName": `regexp.MustCompile("Credential=([A-Z0-9]+)/")`,
		"CodeVariable":  "\npassword = some_name\nuser_token = session_token\n",
		"CodeSection":   "def f():\n    x = [1]\n    password = some_name\n    return password\n",
		"SectionRef":    "[db]\npassword = ${DB_PASSWORD}\npassword_file = /run/secrets/db\n",
		"NamedDigest":   "the key sha256-" + random + " and the token count is 12345678901234567890",
		"PublicKeyText": "the public key " + random[:32] + " and the cache key: " + random[:32],
		"HexDigests":    "token bucket; 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"HexOfWords":    "hex " + hex.EncodeToString([]byte("the tide comes twice a day, and nobody asks it to")),
		"GzipOfWords":   "blob " + base64.StdEncoding.EncodeToString([]byte(zipped("the tide comes twice a day, and nobody asks it to"))) + " end",
		"Address":       "https://example.test/a%20b%20c%2Fd?q=%7B%22tide%22%3A1%7D&x=%C3%A4",
		"Entities":      "a &#38; b &#60;c&#62; &#x27;d&#x27;",
		"DockerLogin":   "docker login -u ada registry.example.test --password-stdin < token.txt",
		"Piped":         "echo $TOKEN | docker login --password-stdin; cat key | sudo -S tee x",
		"Zip":           "zip -r out.zip dir -x '*.git*'; unzip -p a.zip b",
		"Machine":       "machine learning with login and password forms; a machine a login needs",
		"NameValue":     "- name: LOG_LEVEL\n  value: debug\n- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef: {name: db, key: password}\n",
		"Terraform":     "variable \"db_password\" {\n  type = string\n  default = null\n  sensitive = true\n}",
		"SeedPhrase":    "a seed phrase is a list of words; the mnemonic device helps people to remember what comes next in the list",
		"BackupCodes":   "print your backup codes: they let you in without a phone",
		"LoginPage":     "login: the page / of the app; user/password: see the vault",
		"JSONLetters":   `{"d":"M12 2C6.48 2 2 6.48 2 12s4.48 10 10 10","auth":"required"}`,
		"Columns":       "NAME      TYPE\npassword  string\ntoken     required\n",
		"TableOfNames":  "| name | password | token |\n|---|---|---|\n| password | the password to use | |\n",
		"DocsOfEnv":     "ENV DB_PASSWORD required\nset -x TOKEN $GITHUB_TOKEN\ngit config user.name ada",
		"HeaderNames":   `const tokenHeader = "X-Amz-Security-Token-256"; sessionToken = "x-amz-s3session-token"`,
		"DiffOfCode":    "+  password: newPassword,\n-  token: oldToken,\n",
		"AnchorYAML":    "password: &default\n  from: vault\ntoken: !Ref TokenParameter\n",
		"Compiled":      "H4sIAAAAAAAA is how gzip begins, eJw how zlib does",
		"Escaped":       `{\"type\":\"token\",\"key\":\"value\",\"password\":\"\"}`,
	}
	r := redactor(t)
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			got, found := r.Text(text)
			if diff := cmp.Diff(text, got.String()); diff != "" || found != nil {
				t.Errorf("%v: -want, +got:\n%s", found, diff)
			}
		})
	}
}

func TestForgotten(t *testing.T) {
	r := redactor(t)
	for name, c := range map[string]struct{ reason, line, want, kind string }{
		"record":  {"type and uuid stay", `{"type":"user","uuid":"u-1","sessionId":"s","message":{"role":"user","content":"a secret plan"}}`, `{"type":"undersong-stub","of":"forgotten/user","uuid":"u-1","bytes":0}`, "user"},
		"state":   {"a state record has no uuid", `{"type":"ai-title","aiTitle":"A secret plan"}`, `{"type":"undersong-stub","of":"forgotten/ai-title","bytes":0}`, "ai-title"},
		"stub":    {"of a stub the type it stands for", `{"type":"undersong-stub","of":"system/api_error","uuid":"u-2","timestamp":"2026-11-01T09:00:00.000Z","bytes":512}`, `{"type":"undersong-stub","of":"forgotten/system","uuid":"u-2","bytes":0}`, "system"},
		"no JSON": {"what is no record says nothing", `a secret plan`, `{"type":"undersong-stub","of":"forgotten/untyped","bytes":0}`, "untyped"},
		"hostile": {"only what names are made of gets through", `{"type":"a secret plan","uuid":"a secret plan"}`, `{"type":"undersong-stub","of":"forgotten/asecretplan","bytes":0}`, "asecretplan"},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.Forgotten([]byte(c.line))
			if got.String() != c.want {
				t.Errorf("%s: %s, want %s", c.reason, got, c.want)
			}
			if again := r.Forgotten([]byte(got.String())); again != got {
				t.Errorf("%s: forgotten again it is %s", c.reason, again)
			}
			if line, _ := r.Line([]byte(got.String())); line != got {
				t.Errorf("%s: the redactor makes %s of it", c.reason, line)
			}
			if kind := redact.ForgottenType([]byte(got.String())); kind != c.kind {
				t.Errorf("%s: its type is %q, want %q", c.reason, kind, c.kind)
			}
			if kind := redact.ForgottenType([]byte(c.line)); kind != "" {
				t.Errorf("%s: before it is forgotten its type is %q", c.reason, kind)
			}
		})
	}
}
