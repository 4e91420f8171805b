package config

import "testing"

// TestCredentials checks which placeholders are credentials by their names, and may not be in metrics.
func TestCredentials(t *testing.T) {
	for name, want := range map[string]bool{
		"http.request.header.Authorization": true, "http.request.header.X-Auth-Token": true, "http.request.header.x-api-key": true, "http.request.header.Apikey": true,
		"http.request.header.Ocp-Apim-Subscription-Key": true, "http.request.header.X-Amz-Security-Token": true, "http.request.header.X-Hub-Signature-256": true,
		"http.request.header.X-Session-Id": true, "http.request.header.Dpop": true, "http.request.header.X-Password": true, "http.request.header.Proxy-Authorization": true,
		"http.request.cookie.any": true, "http.request.uri": true, "http.request.orig_uri": true, "http.request.uri.query": true, "http.request.uri.prefixed_query": true,
		"http.request.orig_uri.query": true, "http.request.uri_escaped": true, "http.request.uri.query.key": true, "http.request.uri.query.api_key": true,
		"http.request.uri.query.access_token": true, "http.request.uri.query.sig": true, "http.request.uri.query.X-Amz-Signature": true, "http.request.uri.query.sessionId": true,
		"http.request.body.api_key": true, "http.request.body.apiKey": true, "http.request.body.user.password": true, "http.request.body.user[token]": true, "http.request.body.APIKey": true,
		"http.request.body.clientSecret": true, "http.vars.token": true, "http.auth.user.token": true, "http.regexp.a.secret": true, "http.reverse_proxy.header.Set-Cookie": true,
		"http.request.uri.query.PHPSESSID": true, "http.request.uri.query.jsessionid": true, "env.API_TOKEN": true, "file./run/secret": true,

		"http.auth.user.id": false, "http.request.body.model": false, "http.request.body.max_tokens": false, "http.request.body.prompt_cache_key": false, "http.request.host": false,
		"http.request.header.X-Team": false, "http.request.header.X-Auth-User": false, "http.request.header.X-Auth-Request-Email": false, "http.request.header.X-Token-Type": false,
		"http.request.header.X-Key-Id": false, "http.request.uri.path": false, "http.request.uri.path.0": false, "http.request.uri.query.monkey": false, "http.vars.user": false, "team": false,
		"http.request.header.X-Tenant": false, "http.request.tls.client.fingerprint": false, "http.request.uri.query.keyword": false, "http.request.body.metadata.user_id": false,
		"http.request.header.Idempotency-Key": false, "http.request.body.passenger": false, "http.request.uri.query.design": false, "http.request.header.Turkey": false,
	} {
		if got := isCredential(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
