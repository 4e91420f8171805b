# Caddy with Diana, as a static binary that runs without root.
#
#     docker build -t diana .
#     docker run -p 8080:8080 -v ./Caddyfile:/etc/caddy/Caddyfile:ro diana

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
	go build -trimpath -tags nobadger,nomysql,nopgx -ldflags '-s -w' -buildvcs=false -o /out/caddy ./cmd/caddy
RUN mkdir -p /out/data /out/config

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/caddy /usr/bin/caddy
COPY --from=build --chown=nonroot:nonroot /out/data /data
COPY --from=build --chown=nonroot:nonroot /out/config /config
COPY examples/quickstart/Caddyfile /etc/caddy/Caddyfile
# Caddy keeps certificates, the last good rules and the number of instances here.
ENV XDG_DATA_HOME=/data XDG_CONFIG_HOME=/config
VOLUME ["/data", "/config"]
EXPOSE 80 443 443/udp 8080
USER nonroot:nonroot
ENTRYPOINT ["/usr/bin/caddy"]
CMD ["run", "--config", "/etc/caddy/Caddyfile"]
