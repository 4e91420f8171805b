package placeholders

import "testing"

// TestOfConstant checks which constants in a key look like a placeholder or a header.
func TestOfConstant(t *testing.T) {
	for text, want := range map[string]string{
		"X-Api-Key": "{header.X-Api-Key}", "x-api-key": "{header.x-api-key}", "X_API_KEY": "{header.X-API-KEY}", "http_x_api_key": "{header.x-api-key}",
		"$http_x_api_key": "{header.x-api-key}", "Authorization": "{header.Authorization}", "user-agent": "{header.user-agent}", "Tenant-Id": "{header.Tenant-Id}",
		"api_key": "{header.api-key}", "session-id": "{header.session-id}", "Stripe-Account": "{header.Stripe-Account}",
		"X-Forwarded-For": "{client_ip}", "CF-Connecting-IP": "{client_ip}", "x-real-ip": "{client_ip}", "Forwarded": "{client_ip}", "True-Client-IP": "{client_ip}",
		"client_ip": "{client_ip}", "clientip": "{client_ip}", "Client-IP": "{client_ip}", "client_ip,": "{client_ip}", "(client_ip)": "{client_ip}", "cleint_ip": "{client_ip}",
		"client_ipp": "{client_ip}", "remote_ip": "{client_ip}", "$binary_remote_addr": "{client_ip}", "$remote_addr": "{client_ip}", "ip": "{client_ip}",
		"remote.ip": "{client_ip}", "remote.ip_prefix.24": "{client_ip}", "remote.host": "{remote.host}", "remote_host": "{remote_host}", "uuid": "{client_ip}",
		"host": "{host}", "Host": "{host}", "path": "{path}", "method": "{method}", "uri": "{uri}", "query": "{query}", "scheme": "{scheme}",
		"header": "{header.<name>}", "cookie": "{cookie.<name>}", "header.X-Id": "{header.X-Id}", "Header.X-Id": "{Header.X-Id}", "cookie.sid": "{cookie.sid}",
		"query.id": "{query.id}", "path.0": "{path.0}", "body.user": "{body.user}", "re.x.1": "{re.x.1}", "vars.x": "{vars.x}", "env.REGION": "{env.REGION}",
		"http.request.header.x-forwarded-for": "{http.request.header.x-forwarded-for}", "http.auth.user.id": "{http.auth.user.id}",
		"http.request.remote.ip": "{client_ip}", "http.vars.client_ip": "{http.vars.client_ip}", "headers.X-Id": "{header.X-Id}", "jwt.sub": "{http.auth.user.sub}",
		"http.request.methd": "{http.request.method}", "client_ip:path": "{client_ip} {path}", "client_ip, X-Api-Key": "{client_ip} {header.X-Api-Key}",
		"user_id":          "{http.auth.user.id}",
		"header:X-Api-Key": "{header.X-Api-Key}", "header[X-Id]": "{header.X-Id}", "hdr(X-Id)": "{header.X-Id}", "%REQ(X-Id)%": "{header.X-Id}", `request.headers["x-id"]`: "{header.x-id}",
		"req.header.X": "{header.X}", "cookie:sid": "{cookie.sid}", "$cookie_sid": "{cookie.sid}", "arg_id": "{query.id}", "query[id]": "{query.id}", "path[0]": "{path.0}", "args[0]": "{args[0]}",
		"request.ip": "{client_ip}", "client.ip": "{client_ip}", "tls.client.fingerprint": "{http.request.tls.client.fingerprint}", "sni": "{http.request.tls.server_name}",
		"http.request.foo.bar.baz.quux": "{http.request.header.<name>}", "http.geoip2.country_code": "{http.request.header.<name>}",
		"$jwt_claim_sub": "{client_ip}", "%DOWNSTREAM_REMOTE_ADDRESS%": "{client_ip}", "client_ip/24": "{client_ip}", "per-client-ip": "{client_ip}", "api-remote_addr": "{client_ip}",
		"api:client_ip": "api {client_ip}", "login:user_id": "login {http.auth.user.id}", "X-Api-Key=": "{header.X-Api-Key}", "apikey": "{header.apikey}", "tenantId": "{header.tenantId}",

		"everyone": "", "static": "", "all": "", "global": "", "total": "", "a": "", "x": "", "login": "", "login:form": "", "site-a": "", "per-site": "", "api": "",
		"static_key": "", "global-key": "", "zone1": "", "one limit": "", "api.example.com": "", "http.example.com": "", "v1.2": "", "checkout": "", "everybody": "",
		"/login": "", "post": "", "the-whole-site": "", "GET": "", "shared": "", "free-tier": "", "登录": "", "": "", "my.zone": "", "ips": "", "pat": "", "hosts": "",
		"host:api": "", "path/api": "", "monkey": "", "team-a": "", "query-service": "", "a:b": "", "clients": "", "real_time": "", "remote-office": "", "argo": "", "x:y_z": "",
	} {
		if got := OfConstant(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestInValue checks which values of overrides look like a placeholder.
func TestInValue(t *testing.T) {
	for text, want := range map[string]string{
		"{client_ip}": "{client_ip}", "{header.X-Plan}": "{header.X-Plan}", "{http.request.host}": "{http.request.host}", "{tier}": "{tier}", "/users/{id}": "{id}",
		"x-{query.a}": "{query.a}", "{headers.X}": "{headers.X}", "client_ip": "{client_ip}", "remote_addr": "{client_ip}", "header.X-Api-Key": "{header.X-Api-Key}",
		"http.request.header.x": "{http.request.header.x}", "cookie.sid": "{cookie.sid}",

		"gold": "", "host": "", "path": "", "X-Api-Key": "", "{3F2504E0-4F89-11D3-9A0C-0305E82C3301}": "", "a.b": "", "header.example.com": "", "10.0.0.1": "",
		"{": "", "}{": "", "{}": "", "user@query.io": "", "api_key": "", "sk_live_1": "", "*": "", "/path/file": "", "header.": "",
	} {
		if got := InValue(text, false); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, host := range []string{"header.com", "cookie.io", "query.example.com"} {
		if got := InValue(host, true); got != "" {
			t.Errorf("the host %q: %q", host, got)
		}
	}
}

// TestForwarding checks which headers tell the address of a client.
func TestForwarding(t *testing.T) {
	for name, want := range map[string]bool{
		"X-Forwarded-For": true, "x-real-ip": true, "CF-Connecting-IP": true, "True-Client-IP": true, "Forwarded": true, "Fastly-Client-IP": true, "Fly-Client-IP": true,
		"X-Client-IP": true, "X-Azure-ClientIP": true, "X-Azure-SocketIP": true, "X-Cluster-Client-Ip": true, "X-Original-Forwarded-For": true, "X_Forwarded_For": true,
		"CF-Connecting-IPv6": true, "CloudFront-Viewer-Address": true, "X-Appengine-User-Ip": true, "X-Vercel-Forwarded-For": true, "X-Appengine-Remote-Addr": true, "Remote-Addr": true,
		"X-Api-Key": false, "X-Forwarded-Host": false, "X-Forwarded-Proto": false, "X-Tip": false, "Authorization": false, "X-Forwarded-User": false, "X-Forwarded-Email": false,
	} {
		if got := Forwarding(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
