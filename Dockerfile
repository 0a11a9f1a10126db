# The whole of mneme: one static binary, and the programs it works with.
FROM golang:1.26-alpine AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go build -trimpath -ldflags='-s -w' -o /mneme ./cmd/mneme

FROM alpine:3.22
RUN apk add --no-cache bash ca-certificates git ripgrep tini tzdata \
 && adduser -D -u 10001 mneme \
 && install -d -o mneme -g mneme /state /workspace
COPY --from=build /mneme /usr/local/bin/mneme
USER mneme
WORKDIR /workspace
# Inside a container the listeners must be reached from outside of it; who may
# reach the container is up to whoever publishes its ports.
ENV MNEME_HOME=/state \
    MNEME_LISTEN=ws://0.0.0.0:4500 \
    MCP_HOST=0.0.0.0 \
    SESSION_CWD=/workspace
VOLUME ["/state", "/workspace"]
EXPOSE 4500 6507
ENTRYPOINT ["/sbin/tini", "--", "mneme"]
CMD ["serve"]
